"""Writing what runs an image: image and job in, text out."""
