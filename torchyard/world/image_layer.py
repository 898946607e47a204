"""What one layer of an image holds, seen in one pass over its tar stream."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, cast

import zstandard
from isal import igzip, isal_zlib

from .. import json_text
from ..errors import CheckFailed
from ..judge import static_patterns as patterns
from . import image_elf
from .image_elf import Elf
from .image_tar import Broken, Entry, Tar

FORMAT = 2  # of what is kept of a layer: raise it where what is looked for changes
_TEXTS = re.compile(
    r"^/var/lib/dpkg/(?:status$|status\.d/|info/[^/]+\.list$)|\.dist-info/(?:METADATA|RECORD)$|\.egg-info/PKG-INFO$"
    r"|^/etc/ld\.so\.conf(?:\.d/[^/]+)?$|/torch/version\.py$|^/etc/os-release$|^/usr/lib/os-release$|\.pth$"
)
_TEXT_MOST = 64 << 20
_LOADER_CACHE = "/etc/ld.so.cache"
_SEARCHED_MOST = 1 << 20
_GZIP = b"\x1f\x8b"
_TIMES = {"mtime", "atime", "ctime", "LIBARCHIVE.creationtime"}
_CODE_SUFFIX = (".py", ".pyi", ".h", ".hpp", ".cuh", ".pyc", ".so", ".a")  # inside packages: not where secrets lie
BROKEN = (OSError, EOFError, zlib.error, Broken, zstandard.ZstdError, cast(type[Exception], isal_zlib.error))


@dataclass(slots=True)
class Seen:
    """One layer: every entry in its order, and what was read of some."""

    entries: list[Entry] = field(default_factory=list)
    elfs: dict[str, Elf] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    timed: list[str] = field(default_factory=list)  # bytecode that carries the time of its source
    cache: tuple[str, ...] | None = None  # folders of the loader's cache, where this layer has one
    later: dict[str, int] = field(default_factory=dict)  # other times of an entry's header that are after its mtime
    written: int = 0  # the time in the compressor's header

    def to_json(self) -> bytes:
        """What `from_json` reads."""
        plain = {
            "format": FORMAT,
            "entries": [[e.path, e.kind, e.mode, e.size, e.mtime, e.link] for e in self.entries],
            "elfs": {path: dataclasses.asdict(elf) for path, elf in self.elfs.items()},
            "texts": self.texts,
            "secrets": self.secrets,
            "hosts": self.hosts,
            "timed": self.timed,
            "cache": self.cache,
            "later": self.later,
            "written": self.written,
        }
        return json.dumps(plain, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_json(cls, data: bytes) -> Seen | None:
        """What was kept of a layer; None where another torchyard kept it."""
        try:
            plain: dict[str, Any] = json_text.loads(data)
            if plain["format"] != FORMAT:
                return None
            return cls(
                entries=[Entry(*row) for row in plain["entries"]],
                elfs={path: _elf(row) for path, row in plain["elfs"].items()},
                texts=plain["texts"],
                secrets=plain["secrets"],
                hosts={path: tuple(names) for path, names in plain["hosts"].items()},
                timed=plain["timed"],
                cache=None if plain["cache"] is None else tuple(plain["cache"]),
                later=plain["later"],
                written=plain["written"],
            )
        except (KeyError, TypeError, ValueError):
            return None


def _elf(row: dict[str, Any]) -> Elf:
    fields: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in row.items()}
    return Elf(**fields)


def opened(stream: IO[bytes], start: bytes) -> IO[bytes] | None:
    """The tar inside a layer's stream, by its first bytes (which the stream still has); None where it is no layer."""
    if start[:2] == _GZIP:
        inner = igzip.IGzipFile(fileobj=stream, mode="rb")  # type: ignore[no-untyped-call]  # so is isal
        return io.BufferedReader(cast(io.RawIOBase, inner), 1 << 20)
    if start[:4] == b"\x28\xb5\x2f\xfd":
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True), 1 << 20)
    if start[257:262] == b"ustar" or (len(start) >= 512 and not start.strip(b"\0")):
        return stream
    return None


def scan(stream: IO[bytes], name: str, start: bytes = b"") -> Seen:
    """What the layer in this tar stream holds; raises CheckFailed where it is no tar archive.

    start: the first bytes of what the stream was unpacked from.
    """
    seen = Seen(written=int.from_bytes(start[4:8], "little") if start[:2] == _GZIP else 0)
    tar = Tar(stream)
    try:
        for entry in tar:
            seen.entries.append(entry)
            if (latest := _latest(tar.more)) > entry.mtime:
                seen.later[entry.path] = latest
            if entry.is_file and entry.size:
                _look(entry, tar, seen)
    except BROKEN as error:
        raise CheckFailed(
            f"the layer {name} cannot be read: {error}", hint="the image is broken in the engine: build or pull it anew"
        ) from error
    return seen


def _latest(more: Mapping[str, str]) -> int:
    """The last of the times that special entries give, up to a whole second; 0 where they give none."""
    found = 0
    for name in _TIMES & more.keys():
        with contextlib.suppress(ValueError, OverflowError):
            found = max(found, math.ceil(float(more[name])))
    return found


def _look(entry: Entry, tar: Tar, seen: Seen) -> None:
    path = entry.path
    if path.endswith(".pyc"):
        if _timed(tar.data(16)):
            seen.timed.append(path)
    elif _TEXTS.search(path) and entry.size <= _TEXT_MOST:
        seen.texts[path] = tar.data().decode("utf-8", "replace")
        if not path.startswith("/var/lib/dpkg/"):
            _search(path, seen.texts[path].encode(), seen)
    elif path == _LOADER_CACHE:
        seen.cache = loader_folders(tar.data())
    else:
        start = tar.data(4)
        if start == image_elf.MAGIC:
            if (elf := image_elf.read(start + tar.data())) is not None:
                seen.elfs[path] = elf
        elif entry.size <= _SEARCHED_MOST and not ("/site-packages/" in path and path.endswith(_CODE_SUFFIX)):
            _search(path, start + tar.data(), seen)


def _search(path: str, data: bytes, seen: Seen) -> None:
    if found := patterns.secret_in(path, data):
        seen.secrets[path] = found
    if patterns.is_config(path) and (named := patterns.hosts(data)):
        seen.hosts[path] = named


def _timed(start: bytes) -> bool:
    """Whether bytecode names the time of its source (PEP 552: no flag is set)."""
    return len(start) == 16 and start[4:8] == bytes(4)


def loader_folders(data: bytes) -> tuple[str, ...]:
    """The folders of the libraries that a loader's cache leads to, in its order."""
    at = data.find(b"glibc-ld.so.cache1.1")
    if at < 0:
        return ()
    count = int.from_bytes(data[at + 20 : at + 24], "little")
    folders: dict[str, None] = {}
    for entry in range(at + 48, at + 48 + 24 * count, 24):
        place = at + int.from_bytes(data[entry + 8 : entry + 12], "little")
        end = data.find(b"\0", place)
        folders.setdefault(data[place:end].decode("utf-8", "replace").rpartition("/")[0])
    return tuple(folders)
