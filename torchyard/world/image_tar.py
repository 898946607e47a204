"""The entries of a tar stream, one after the other, each with its data read or passed over; nothing goes to disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

BLOCK = tarfile.BLOCKSIZE
_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"
_CHUNK = 1 << 20


class Broken(Exception):
    """The stream is no tar archive, or ends in the middle of one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: kind is one of tarfile's type codes, as text."""

    path: str
    kind: str
    mode: int
    size: int
    mtime: int
    link: str

    @property
    def is_file(self) -> bool:
        return self.kind in ("0", "\0", "7")

    @property
    def is_folder(self) -> bool:
        return self.kind == "5"


class Tar:
    """A tar stream; `data` reads the entry that was answered last, whose rest is passed over at the next one.

    info, more and head are that entry's header, what special entries say of it, and the bytes of them all.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.info = tarfile.TarInfo()
        self.more: dict[str, str] = {}
        self.head = b""
        self._stream = stream
        self._left = 0
        self._pad = 0

    def __iter__(self) -> Iterator[Entry]:
        more: dict[str, str] = {}
        head = b""
        while True:
            self._skip(self._left + self._pad)
            self._left = self._pad = 0
            block = self._stream.read(BLOCK)
            if not block.strip(b"\0"):  # the end, or the padding after it
                if len(block) < BLOCK:
                    return
                continue
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                raise Broken(str(error)) from error
            head += block
            if info.type in (_PAX, _GLOBAL, _LONG_NAME, _LONG_LINK):
                self._open(info.size)
                data = self.data()
                head += data
                _extend(more, info.type, data)
                continue
            size = int(more.get("size", info.size))
            self._open(size if info.type in (b"0", b"\0", b"7") else 0)
            path = more.get("path", info.name)
            self.info, self.more, self.head = info, more, head
            yield Entry(
                path="/" + path.removeprefix("./").strip("/"),
                kind=info.type.decode("latin-1"),
                mode=info.mode,
                size=size,
                mtime=int(float(more.get("mtime", info.mtime))),
                link=more.get("linkpath", info.linkname),
            )
            more, head = {}, b""

    def data(self, limit: int | None = None) -> bytes:
        """The bytes of this entry that were not read yet, or the first of them."""
        count = self._left if limit is None else min(limit, self._left)
        found = self._stream.read(count)
        self._left -= len(found)
        if len(found) < count:
            raise Broken("it ends in the middle of a file")
        return found

    def _open(self, size: int) -> None:
        self._left, self._pad = size, -size % BLOCK

    def _skip(self, count: int) -> None:
        while count:
            block = self._stream.read(min(count, _CHUNK))
            if not block:
                raise Broken("it ends in the middle of a file")
            count -= len(block)


def _extend(more: dict[str, str], kind: bytes, data: bytes) -> None:
    """Take what a special entry says of the one behind it."""
    if kind == _LONG_NAME:
        more["path"] = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
    elif kind == _LONG_LINK:
        more["linkpath"] = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
    elif kind == _PAX:
        at = 0
        while at < len(data):
            space = data.find(b" ", at)
            if space < 0 or not data[at:space].isdigit() or not int(data[at:space]):
                return
            length = int(data[at:space])
            key, _, value = data[space + 1 : at + length - 1].partition(b"=")
            more[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
            at += length
