"""A layer's entries with all that their headers say, and the files of a layer that are asked for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import IO, Any, cast

import zstandard
from isal import isal_zlib

from ..differ.values import Entry, Layer
from ..errors import InputError
from . import image_layer
from .image_tar import Broken, Tar

BROKEN = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    Broken,
    zstandard.ZstdError,
    cast(type[Exception], isal_zlib.error),
)
_CHUNK = 1 << 20
SMALL = 1 << 20
_XATTR, _XATTR64 = "SCHILY.xattr.", "LIBARCHIVE.xattr."
_TOLD = {"path", "linkpath", "size", "uid", "gid", "uname", "gname", "mtime"}  # with fields of their own


class Digested(io.RawIOBase):
    """A stream whose bytes are digested while they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self.digest.update(block)
        buffer[: len(block)] = block
        return len(block)

    @property
    def name(self) -> str:
        return f"sha256:{self.digest.hexdigest()}"


@contextmanager
def unpacked(stream: IO[bytes], name: str) -> Iterator[tuple[IO[bytes], int]]:
    """The tar stream of a layer's blob, with the time that its compressor noted (0: none)."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(Any, stream), _CHUNK)
    start = buffered.peek(512)[:512]
    written = int.from_bytes(start[4:8], "little") if start[:2] == b"\x1f\x8b" else 0
    inner = image_layer.opened(buffered, start) if start else buffered
    if inner is None:
        raise InputError(f"{name} is no layer: neither a tar archive, nor one in gzip or zstd", hint="see what it is")
    try:
        yield inner, written
    except BROKEN as error:
        raise InputError(f"the layer {name} cannot be read: {error}", hint="it is damaged: get it anew") from error


def read(stream: IO[bytes], name: str, *, hashed: Collection[str] | None = None) -> Layer:
    """Every entry of a layer, with the digests of its files' contents: of all, or of those of these paths."""
    with unpacked(stream, name) as (inner, written):
        digested = Digested(inner)
        entries = _entries(Tar(cast(IO[bytes], io.BufferedReader(digested, _CHUNK))), hashed)
        while digested.read(_CHUNK):
            pass
        return Layer(entries=entries, unpacked=digested.name, written=written)


def listed(stream: IO[bytes], name: str, *, hashed: Collection[str]) -> tuple[Entry, ...]:
    """Every entry of a layer, with the digests of the contents of these paths alone."""
    with unpacked(stream, name) as (inner, _):
        return _entries(Tar(inner), hashed)


def _entries(tar: Tar, hashed: Collection[str] | None) -> tuple[Entry, ...]:
    return tuple(_entry(tar, each.path, each.size, each.link, hashed is None or each.path in hashed) for each in tar)


def contents(stream: IO[bytes], name: str, wanted: Collection[str], most: int) -> dict[str, bytes]:
    """The files of these paths, where they are no larger than `most` bytes; the last one of a path counts.

    All of them together are no more than four times that, but for small ones.
    """
    found: dict[str, bytes] = {}
    left = 4 * most
    with unpacked(stream, name) as (inner, _):
        tar = Tar(inner)
        for entry in tar:
            if entry.path in wanted and entry.is_file and entry.size <= min(most, max(left, SMALL)):
                found[entry.path] = tar.data()
                left -= entry.size
    return found


def _entry(tar: Tar, path: str, size: int, link: str, hashed: bool) -> Entry:
    info, more = tar.info, tar.more
    kind = info.type.decode("latin-1")
    is_file = kind in ("0", "\0", "7")
    return Entry(
        path=path,
        type="0" if kind == "\0" else kind,
        mode=info.mode,
        uid=int(more.get("uid", info.uid)),
        gid=int(more.get("gid", info.gid)),
        user=more.get("uname", info.uname),
        group=more.get("gname", info.gname),
        size=size if is_file else 0,
        mtime=_nanoseconds(more.get("mtime"), int(info.mtime)),
        link=link if kind in ("1", "2") else "",
        device=(info.devmajor, info.devminor) if kind in ("3", "4") else (0, 0),
        xattrs=tuple(sorted(_xattrs(more))),
        more=tuple(sorted((k, v) for k, v in more.items() if k not in _TOLD and ".xattr." not in k)),
        sha256=_digest(tar) if is_file and hashed else "",
        header=hashlib.sha256(tar.head).hexdigest(),
    )


def _digest(tar: Tar) -> str:
    digest = hashlib.sha256()
    while block := tar.data(_CHUNK):
        digest.update(block)
    return digest.hexdigest()


def _nanoseconds(text: str | None, plain: int) -> int:
    try:
        return plain * 10**9 if text is None else int(Decimal(text) * 10**9)
    except (InvalidOperation, ValueError, OverflowError):
        return plain * 10**9


def _xattrs(more: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    for key, value in more.items():
        if key.startswith(_XATTR):
            yield key.removeprefix(_XATTR), value.encode("utf-8", "surrogateescape")
        elif key.startswith(_XATTR64) and _XATTR + key.removeprefix(_XATTR64) not in more:
            try:
                yield key.removeprefix(_XATTR64), base64.b64decode(value + "=" * (-len(value) % 4))
            except (ValueError, binascii.Error):
                yield key.removeprefix(_XATTR64), value.encode("utf-8", "surrogateescape")
