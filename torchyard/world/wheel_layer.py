"""Image layers from wheels: a gzip-compressed tar whose file data are the wheel's own deflate streams, copied.

The uncompressed stream is computed beside it for the layer's diff id, which also proves every stream against the
CRC-32 and length that the wheel declares.
"""

from __future__ import annotations

import hashlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from isal import isal_zlib

from .. import framing, unpacking
from ..errors import Surroundings
from ..oci import Layer
from ..unpacking import Entry, Prefix
from .store import Store

FORMAT = "1"  # part of the lock: raise it when the bytes of a layer change for the same wheels
MTIME = (
    315532800  # 1980-01-01, the epoch of zip files: the same whatever the image's epoch, so that images share layers
)
_CHUNK = 4 << 20

_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)
# What zipfile raises for a file that is broken or odd; RuntimeError is an encrypted member.
_BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, struct.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One wheel of a layer: its file name, and the file itself."""

    name: str
    path: Path


def write(sources: Sequence[Source], prefix: Prefix, store: Store, *, progress: Callable[[int], None]) -> Layer:
    """The layer that holds these wheels installed under `prefix`, written into the store.

    progress is called with uncompressed bytes as they are done. Raises Surroundings for a file that is no sound wheel.
    """
    with store.incoming() as stream:
        sink = _LayerWriter(stream, progress)
        wheels = [_Wheel(source) for source in sources]
        try:
            files = _merged(wheels, prefix)
            for folder in _folders(files):
                sink.plain(framing.tar_header(folder, size=0, mode=0o755, mtime=MTIME, kind=tarfile.DIRTYPE))
            for path in sorted(files):
                sink.entry(*files[path])
            sink.plain(framing.END_OF_ARCHIVE)
        finally:
            for wheel in wheels:
                wheel.close()
        stream.flush()
        size = stream.tell()
        digest = store.keep(Path(stream.name))
    return Layer(digest=f"sha256:{digest}", size=size, diff_id=f"sha256:{sink.diff.hexdigest()}", unpacked=sink.length)


class _Wheel:
    """An open wheel."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.path = source.path
        try:
            self.stream: IO[bytes] = source.path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            self.zip = zipfile.ZipFile(self.stream)
        except (OSError, *_BROKEN) as error:
            self.stream.close()
            raise self._unreadable(error) from error

    def entries(self, prefix: Prefix) -> list[Entry]:
        try:
            texts = {
                n: self.zip.read(n).decode("utf-8", "surrogateescape")
                for n in unpacking.wanted_texts(self.zip.namelist())
            }
        except (OSError, *_BROKEN) as error:
            raise self._unreadable(error) from error
        scripts = {n: t for n, t in texts.items() if ".data/scripts/" not in n or t.startswith("#!python")}
        return unpacking.entries(self.name, self.zip.infolist(), scripts, prefix)

    def _unreadable(self, error: Exception) -> Surroundings:
        return Surroundings(
            f"{self.name} cannot be read as a wheel: {error}",
            where=str(self.path),
            hint="remove the file from the store and fetch it again",
        )

    def raw(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The member's bytes as they lie in the file, in pieces."""
        self.stream.seek(info.header_offset)
        header = self.stream.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise self.broken(info, "its local header is missing")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        self.stream.seek(info.header_offset + 30 + name_length + extra_length)
        left = info.compress_size
        while left:
            block = self.stream.read(min(_CHUNK, left))
            if not block:
                raise self.broken(info, "the file ends within it")
            left -= len(block)
            yield block

    def broken(self, info: zipfile.ZipInfo, why: str) -> Surroundings:
        return Surroundings(
            f"{self.name}: {info.filename} is broken: {why}", hint="remove the file from the store and fetch it again"
        )

    def close(self) -> None:
        self.zip.close()
        self.stream.close()


def _merged(wheels: Iterable[_Wheel], prefix: Prefix) -> dict[str, tuple[_Wheel, Entry]]:
    """Every file once; where two wheels bring one path, the later wheel by name wins, as when installed in turn."""
    files: dict[str, tuple[_Wheel, Entry]] = {}
    for wheel in sorted(wheels, key=lambda w: w.name):
        files.update({entry.path: (wheel, entry) for entry in wheel.entries(prefix)})
    for path in _folders(files):
        if path in files:
            raise Surroundings(
                f"{files[path][0].name} has a file {path}, and there is a folder of that name",
                hint="the wheels cannot be installed together: pin another version of one of them",
            )
    return files


def _folders(files: Iterable[str]) -> list[str]:
    """Every directory of these files below the environment's own root, parents first."""
    found = {str(parent) for path in files for parent in PurePosixPath(path).parents} - {"."}
    return sorted(found)


class _LayerWriter:
    """Writes the compressed stream and hashes the uncompressed one."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None]) -> None:
        self.stream = stream
        self.progress = progress
        self.diff = hashlib.sha256()
        self.length = 0

    def plain(self, data: bytes) -> None:
        if data:
            self._hash(data)
            self.stream.write(framing.packed_member(data))

    def entry(self, wheel: _Wheel, entry: Entry) -> None:
        mode = 0o755 if entry.executable else 0o644
        self.plain(framing.tar_header(entry.path, size=entry.size, mode=mode, mtime=MTIME))
        if entry.member and entry.member.file_size:
            self._copy(wheel, entry.member)
        elif entry.member:
            self._check(wheel, entry.member, 0, 0)
        if entry.tail:
            self._hash(entry.tail)
            self.stream.write(framing.stored_member(entry.tail))
        self.plain(framing.padding(entry.size))

    def _copy(self, wheel: _Wheel, info: zipfile.ZipInfo) -> None:
        match info.compress_type:
            case zipfile.ZIP_DEFLATED:
                self._copy_deflated(wheel, info)
            case zipfile.ZIP_STORED:
                data = b"".join(wheel.raw(info))
                self._check(wheel, info, zlib.crc32(data), len(data))
                self._hash(data)
                self.stream.write(framing.stored_member(data))
            case other:
                raise wheel.broken(info, f"it is compressed by method {other}, which wheels do not use")

    def _copy_deflated(self, wheel: _Wheel, info: zipfile.ZipInfo) -> None:
        inflate = isal_zlib.decompressobj(-15)
        crc = length = 0
        self.stream.write(framing.member_header())
        try:
            for block in wheel.raw(info):
                self.stream.write(block)
                data = inflate.decompress(block)
                crc, length = zlib.crc32(data, crc), length + len(data)
                self._hash(data)
            data = inflate.flush()
        except (zlib.error, _INFLATE_ERROR) as error:
            raise wheel.broken(info, str(error)) from error
        crc, length = zlib.crc32(data, crc), length + len(data)
        self._hash(data)
        if not inflate.eof or inflate.unused_data:
            raise wheel.broken(info, "its compressed data do not end where the wheel says")
        self._check(wheel, info, crc, length)
        self.stream.write(framing.member_trailer(crc, length))

    def _check(self, wheel: _Wheel, info: zipfile.ZipInfo, crc: int, length: int) -> None:
        if (crc, length) != (info.CRC, info.file_size):
            raise wheel.broken(
                info, f"CRC-32 {crc:08x} and {length} bytes, declared {info.CRC:08x} and {info.file_size}"
            )

    def _hash(self, data: bytes) -> None:
        self.diff.update(data)
        self.length += len(data)
        self.progress(len(data))
