"""Machine code read from its headers: name, needs, search path, machine, device code."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO, cast

from . import elf_fatbin

MAGIC = b"\x7fELF"
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64", 22: "s390x"}
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_NOBITS = 8
_FATBIN = frozenset({b".nv_fatbin", b"__nv_relfatbin"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Elf:
    """One file of machine code; dynamic: whether a loader is asked for anything (a static program asks nothing)."""

    machine: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


class _View:
    """Reads a part of a buffer in blocks, as `elf_fatbin.scan` wants a stream."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def read(self, count: int = -1) -> bytes:
        end = len(self._data) if count < 0 else self._at + count
        block = bytes(self._data[self._at : end])
        self._at += len(block)
        return block


def read(data: bytes | bytearray) -> Elf | None:
    """What this file says of itself; None where it is no executable, library or extension of a known form."""
    try:
        return _read(memoryview(data))
    except (struct.error, IndexError, ValueError):
        return None


def _read(data: memoryview) -> Elf | None:
    if len(data) < 64 or bytes(data[:4]) != MAGIC or data[4] not in (1, 2) or data[5] != 1:
        return None
    kind, number = struct.unpack_from("<HH", data, 16)
    machine = _MACHINES.get(number, f"machine {number}")
    if kind not in (2, 3):  # objects for a linker are not loaded
        return None
    if data[4] == 1:  # 32 bits: the machine alone is what matters
        return Elf(machine=machine)
    sass, ptx = _code(data)
    loads, dynamic = _segments(data)
    if dynamic is None:
        return Elf(machine=machine, sass=sass, ptx=ptx)
    found = _dynamic(data, loads, *dynamic)
    return Elf(
        machine=machine,
        soname=next(iter(found[_SONAME]), ""),
        needed=tuple(found[_NEEDED]),
        rpath=_folders(found[_RPATH]),
        runpath=_folders(found[_RUNPATH]),
        sass=sass,
        ptx=ptx,
    )


def _segments(data: memoryview) -> tuple[list[tuple[int, int, int]], tuple[int, int] | None]:
    """The loaded segments as (address, offset, length), and the place of the dynamic one."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    loads, dynamic = [], None
    for at in range(start, start + size * count, size):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == _LOAD:
            loads.append((address, offset, length))
        elif kind == _DYNAMIC:
            dynamic = (offset, length)
    return loads, dynamic


def _dynamic(data: memoryview, loads: list[tuple[int, int, int]], offset: int, length: int) -> dict[int, list[str]]:
    entries = list(struct.iter_unpack("<qQ", data[offset : offset + length - length % 16]))
    texts = next((value for tag, value in entries if tag == _STRTAB), 0)
    table = next((o + texts - a for a, o, n in loads if a <= texts < a + n), 0)
    found: dict[int, list[str]] = {_NEEDED: [], _SONAME: [], _RPATH: [], _RUNPATH: []}
    for tag, value in entries:
        if tag == 0:
            break
        if tag in found and table:
            found[tag].append(_text(data, table + value))
    return found


def _text(data: memoryview, at: int) -> str:
    part = bytes(data[at : at + 4096])
    return part.split(b"\0", 1)[0].decode("utf-8", "replace")


def _folders(values: list[str]) -> tuple[str, ...]:
    return tuple(folder for value in values for folder in value.split(":") if folder)


def _code(data: memoryview) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets of SASS and of PTX in the sections where nvcc puts device code."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if not start or not count or size < 64 or names >= count:
        return (), ()
    (text_offset,) = struct.unpack_from("<Q", data, start + names * size + 24)
    sass: set[str] = set()
    ptx: set[str] = set()
    for at in range(start, start + size * count, size):
        name, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == _NOBITS or bytes(data[text_offset + name : text_offset + name + 16]).split(b"\0")[0] not in _FATBIN:
            continue
        seen = elf_fatbin.scan(cast(IO[bytes], _View(data[offset : offset + length])))
        sass |= {target for target, _ in seen.sass}
        ptx |= {target for target, _ in seen.ptx}
    return _sorted(sass), _sorted(ptx)


def _sorted(targets: set[str]) -> tuple[str, ...]:
    return tuple(sorted(targets, key=lambda t: (float(t.rstrip("af")), t)))
