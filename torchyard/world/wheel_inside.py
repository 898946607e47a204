"""The whole of a wheel, read without unpacking it: metadata, and the device code of every library."""

from __future__ import annotations

import zipfile
from email.parser import HeaderParser
from pathlib import Path

from torchyard.errors import InputError
from torchyard.inspection import Code, Inside, glibc_needed, pins_of
from torchyard.world import elf_fatbin, wheel_metadata
from torchyard.world.elf_fatbin import Library

_SMALLEST = 64 * 1024  # a library with device code is larger
_ELF = b"\x7fELF"


def read(path: Path) -> Inside:
    """The facts of the wheel at this path."""
    if not path.is_file():
        raise InputError("there is no such file", where=str(path), hint="name a .whl file")
    facts = wheel_metadata.read(path)
    with zipfile.ZipFile(path) as archive:
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
        built = max(f"{y:04d}-{m:02d}-{d:02d}" for y, m, d, *_ in (i.date_time for i in archive.infolist()))
        libraries = _libraries(archive)
    cuda = facts.torch.cuda if facts.torch else _linked(libraries)
    return Inside(
        file=path.name,
        name=facts.name,
        version=facts.version
        if "+" in facts.version or not facts.torch
        else _version(facts.version, facts.torch.version),
        requires_python=headers.get("Requires-Python", ""),
        requires=facts.requires_dist,
        tags=facts.tags,
        cuda=cuda,
        built=built,
        code=tuple(Code(library=name, sass=lib.sass, ptx=lib.ptx) for name, lib in libraries if lib.sass or lib.ptx),
        glibc=glibc_needed([lib.glibc for _, lib in libraries]),
        pins=pins_of(facts.requires_dist),
    )


def _version(said: str, inside: str) -> str:
    """The version with the local part that torch/version.py adds (`2.14.1+cu130`), where it is the same release."""
    return inside if inside.partition("+")[0] == said else said


def _libraries(archive: zipfile.ZipFile) -> list[tuple[str, Library]]:
    found: list[tuple[str, Library]] = []
    for info in archive.infolist():
        name = info.filename.rpartition("/")[2]
        if info.file_size < _SMALLEST or ".so" not in name:
            continue
        with archive.open(info) as stream:
            if stream.read(len(_ELF)) == _ELF:
                found.append((name, elf_fatbin.scan(stream)))
    return found


def _linked(libraries: list[tuple[str, Library]]) -> str | None:
    """The CUDA major that an extension's libraries link, or None."""
    return next((lib.cudart for _, lib in libraries if lib.cudart), None)
