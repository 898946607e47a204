"""Device code inside a library: the targets of its SASS and PTX, read from the headers of its fat binaries.

nvcc puts the code of each compiled unit into one container in the section .nv_fatbin: 16 bytes (magic 0xBA55ED50,
version 1, header size 16, size of what follows), then entries of 64 bytes each with kind, size, architecture and
flags, each followed by its payload. A library is read once, front to back, as a stream; payloads are skipped,
compressed or not. The same pass finds which glibc symbol versions the library names.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass
from typing import IO

_CONTAINER = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_HEADER = 16
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS = {1: "ptx", 2: "sass"}
_SPECIFIC = 0x100000  # sm_90a
_FAMILY = 0x200000  # sm_103f
_BLOCK = 1 << 20
_GLIBC = re.compile(rb"\0GLIBC_(2(?:\.\d+)+)(?=\0)")
_RUNTIME = re.compile(rb"\0libcudart\.so\.(\d+)(?:\.\d+)*(?=\0)")
_OVERLAP = 64  # longer than any name that is looked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """What one library holds: how many compiled units have SASS or PTX of each target, and what it asks of a host."""

    sass: tuple[tuple[str, int], ...] = ()  # ("8.6", 475), sorted
    ptx: tuple[tuple[str, int], ...] = ()
    glibc: str = ""  # the newest GLIBC_ symbol version; empty where it names none
    cudart: str = ""  # the major of the CUDA runtime that it links


class _Stream:
    """A stream with a little of it at hand: to look for bytes, to take some, to skip many."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._held = b""
        self.glibc: set[bytes] = set()
        self.cudart: set[bytes] = set()

    def find(self, wanted: bytes) -> bool:
        """Go behind the next occurrence; False at the end of the stream."""
        while (place := self._held.find(wanted)) < 0:
            self._look(self._held)
            block = self._stream.read(_BLOCK)
            if not block:
                return False
            self._held = self._held[-_OVERLAP:] + block
        self._look(self._held[: place + len(wanted)])
        self._held = self._held[place + len(wanted) :]
        return True

    def take(self, count: int) -> bytes:
        """The next bytes; fewer at the end of the stream."""
        while len(self._held) < count and (block := self._stream.read(_BLOCK)):
            self._held += block
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def skip(self, count: int) -> None:
        """Pass over bytes without keeping them."""
        held = min(count, len(self._held))
        self._held = self._held[held:]
        count -= held
        while count > 0 and (block := self._stream.read(min(count, _BLOCK))):
            count -= len(block)

    def _look(self, part: bytes) -> None:
        self.glibc.update(_GLIBC.findall(part))
        self.cudart.update(_RUNTIME.findall(part))


def scan(stream: IO[bytes]) -> Library:
    """What the library in this stream holds."""
    source = _Stream(stream)
    found: Counter[tuple[str, str]] = Counter()
    while source.find(_CONTAINER):
        head = source.take(_HEADER - len(_CONTAINER))
        if len(head) == _HEADER - len(_CONTAINER):
            _entries(source, struct.unpack("<Q", head)[0], found)
    return Library(
        sass=_sorted(found, "sass"),
        ptx=_sorted(found, "ptx"),
        glibc=_newest(source.glibc),
        cudart=_newest(source.cudart),
    )


def _entries(source: _Stream, left: int, found: Counter[tuple[str, str]]) -> None:
    """Count the entries of one container."""
    units: set[tuple[str, str]] = set()
    while left >= _ENTRY.size:
        raw = source.take(_ENTRY.size)
        if len(raw) < _ENTRY.size:
            return
        kind, _, header, size, *_, arch, _, _, flags, _, _ = _ENTRY.unpack(raw)
        if header < _ENTRY.size or kind not in _KINDS or not 30 <= arch < 1000:
            return  # bytes that only look like a container
        units.add((_KINDS[kind], _target(arch, flags)))
        rest = header - _ENTRY.size + size
        source.skip(rest)
        left -= _ENTRY.size + rest
    found.update(units)


def _target(arch: int, flags: int) -> str:
    suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    return f"{arch // 10}.{arch % 10}{suffix}"


def _sorted(found: Counter[tuple[str, str]], kind: str) -> tuple[tuple[str, int], ...]:
    targets = [(target, count) for (each, target), count in found.items() if each == kind]
    return tuple(sorted(targets, key=lambda item: (float(item[0].rstrip("af")), item[0])))


def _newest(versions: set[bytes]) -> str:
    texts = [version.decode() for version in versions]
    return max(texts, key=lambda text: [int(n) for n in text.split(".")], default="")
