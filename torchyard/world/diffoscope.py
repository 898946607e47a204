"""diffoscope, where it is installed: what it says of two contents of a file."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ..errors import Surroundings
from . import process

TIMEOUT = 120.0  # seconds for one file


def require() -> None:
    """Raise Surroundings where diffoscope is not installed."""
    if shutil.which("diffoscope") is None:
        raise Surroundings(
            "diffoscope is not installed",
            where="--diffoscope",
            hint="install the package diffoscope-minimal, or leave the option out: causes are told without it",
        )


def look(path: str, was: bytes, now: bytes) -> str:
    """What diffoscope says of a file's two contents."""
    name = path.rpartition("/")[2] or "file"
    with tempfile.TemporaryDirectory(prefix="torchyard-look-") as folder:
        files = [Path(folder) / side / name for side in ("first", "second")]
        for file, data in zip(files, (was, now)):
            file.parent.mkdir()
            file.write_bytes(data)
        argv = ["diffoscope", "--text", "-", "--no-progress", "first/" + name, "second/" + name]
        return process.run(argv, cwd=folder, check=False, timeout=TIMEOUT).out
