"""The disks that commands write to, and how much each still takes."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

from .. import report
from ..errors import Surroundings

FEW = 16_000_000  # bytes; programs that run out of room often say something else
FREE = "free some: ./yard clean removes what no lock pins, ./yard docker system df shows what engines have"
_FULL = re.compile("no space left on device|disk quota exceeded", re.IGNORECASE)


def require(folder: Path, size: int, what: str) -> None:
    """Raise Surroundings where the disk that has this folder cannot take so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise Surroundings(
            f"{what} needs {report.size(size)} of disk, {report.size(free)} are free",
            where=str(folder),
            hint=FREE,
        )


def frees(error: OSError) -> str:
    """What helps where a file could not be written."""
    return FREE if error.errno == errno.ENOSPC else "check disk and rights"


def told(path: Path, error: OSError) -> str:
    """Words for what is free on the disk of a file that could not be written; empty where that is not why."""
    folder = next(each for each in (path.absolute(), *path.absolute().parents) if each.is_dir())
    return f" ({report.size(shutil.disk_usage(folder).free)} are free)" if error.errno == errno.ENOSPC else ""


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


def short(*more: Path, said: str = "") -> str:
    """Words for the disks that take little more, and for what frees them; empty where there is none.

    said: what a program printed. Where that is of a full disk all are named: what was half-made is gone since.
    """
    full = _FULL.search(said) is not None
    told = [f"{report.size(free)} are free in {place}" for place, free in rooms(*more).items() if full or free < FEW]
    why = "a disk is full" if full else "a disk is short, which may be why"
    return f"{why}: {', '.join(told)}; {FREE}" if told else ""
