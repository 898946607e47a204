"""A .deb file read without dpkg: its control fields and its files."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import zstandard

from torchyard.errors import CheckFailed

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

MAGIC = b"!<arch>\n"
HEADER = 60


@contextlib.contextmanager
def opened(path: Path, part: str) -> Iterator[tarfile.TarFile]:
    """The `control` or `data` archive in a .deb, to be read once from front to end."""
    with path.open("rb") as stream:
        name, size = _seek(stream, part, path)
        with (
            _decompressed(io.BufferedReader(_Part(stream, size)), name, path) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            yield tar


def control(path: Path) -> str:
    """The control paragraph of a .deb."""
    with opened(path, "control") as tar:
        for member in tar:
            if member.name.removeprefix("./") == "control" and (stream := tar.extractfile(member)):
                return stream.read().decode("utf-8").strip("\n")
    raise CheckFailed("the package file has no control paragraph", where=str(path), hint="fetch it again")


def file_in(path: Path, name: str) -> bytes | None:
    """The content of one regular file of a .deb (`usr/share/…`), or None."""
    with opened(path, "data") as tar:
        for member in tar:
            if member.name.removeprefix("./") == name and (stream := tar.extractfile(member)):
                return stream.read()
    return None


class _Part(io.RawIOBase):
    """The next `size` bytes of a stream, as a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        block = self._stream.read(min(len(view), self._left))
        view[: len(block)] = block
        self._left -= len(block)
        return len(block)


def _seek(stream: IO[bytes], part: str, path: Path) -> tuple[str, int]:
    """Leave the stream where the content of `part.tar*` begins; the name and size of that member."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise CheckFailed("this is not a package file", where=str(path), hint="fetch it again")
    while len(header := stream.read(HEADER)) == HEADER:
        name = header[:16].decode("ascii").strip().rstrip("/")
        size = int(header[48:58])
        if name.startswith(f"{part}.tar"):
            return name, size
        stream.seek(size + size % 2, 1)
    raise CheckFailed(f"the package file has no part {part!r}", where=str(path), hint="fetch it again")


def _decompressed(stream: IO[bytes], name: str, path: Path) -> contextlib.AbstractContextManager[IO[bytes]]:
    """The plain bytes of a part of this name."""
    match name.rpartition(".tar")[2]:
        case "":
            return contextlib.nullcontext(stream)
        case ".gz":
            return cast("contextlib.AbstractContextManager[IO[bytes]]", gzip.GzipFile(fileobj=stream))
        case ".xz":
            return cast("contextlib.AbstractContextManager[IO[bytes]]", lzma.LZMAFile(stream))
        case ".zst":
            reader = zstandard.ZstdDecompressor().stream_reader(stream, closefd=False)
            return cast("contextlib.AbstractContextManager[IO[bytes]]", reader)
        case other:
            raise CheckFailed(
                f"the package file is compressed in a way that is not known ({other!r})",
                where=str(path),
                hint="report it with the name of the package",
            )
