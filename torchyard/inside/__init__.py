"""What runs inside an image: imports nothing of the package, prints JSON."""
