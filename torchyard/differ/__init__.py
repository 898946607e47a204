"""What differs between two images, and why it probably does: values in, values out."""
