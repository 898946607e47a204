"""The disks that commands write to, and how much each still takes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from .. import report
from ..errors import Surroundings

FEW = 16_000_000  # bytes; programs that run out of room often say something else


def require(folder: Path, size: int, what: str) -> None:
    """Raise Surroundings where the disk that has this folder cannot take so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise Surroundings(
            f"{what} needs {report.size(size)} of disk, {report.size(free)} are free",
            where=str(folder),
            hint="free some",
        )


def rooms(*more: Path) -> dict[Path, int]:
    """The bytes that are free on each disk that commands of the project in the current folder write to."""
    places = [
        *more,
        Path(".torchyard"),
        Path("images"),
        Path(),
        Path(os.environ.get("TMPDIR") or tempfile.tempdir or "/tmp"),
    ]
    found: dict[int, tuple[Path, int]] = {}
    for place in places:
        if place.is_dir():
            found.setdefault(os.stat(place).st_dev, (place.absolute(), shutil.disk_usage(place).free))
    return dict(found.values())


def short() -> str:
    """Words for the disks that take little more; empty where there is none."""
    told = [f"{report.size(free)} are free in {place}" for place, free in rooms().items() if free < FEW]
    return f"a disk is short, which may be why: {', '.join(told)}" if told else ""
