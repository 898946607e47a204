"""The matrix: what env.yaml says (hardware owned, sites, software wanted, axes), read with every mistake in one go."""

from torchyard.matrix.parse import needed_files, parse, read_bytes_checked
from torchyard.matrix.values import Allow, Budget, Hardware, Matrix, Site, Software, Source, WantedCell

__all__ = [
    "Allow",
    "Budget",
    "Hardware",
    "Matrix",
    "Site",
    "Software",
    "Source",
    "WantedCell",
    "needed_files",
    "parse",
    "read_bytes_checked",
]
