"""torchyard builds reproducible, containerised PyTorch training environments."""

__version__ = "0.1.0"
