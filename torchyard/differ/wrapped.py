"""Files that hold others: compressed streams, archives, pictures with notes. What differs is told of what is inside."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator

import zstandard

from .values import Cause

Answer = tuple[Cause, str]  # why, and which part
Inner = Callable[[bytes, bytes], Answer]  # why two contents inside differ
INSIDE_MOST = 64 << 20
_MEMBERS_MOST = 100_000
_PNG = b"\x89PNG\r\n\x1a\n"
_TAR = slice(257, 262)
_FED = 1024  # bytes that a zstd stream is given at once; they become 33 MB at most
_BROKEN = (OSError, EOFError, MemoryError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def _xz(data: bytes) -> bytes:
    found = b""
    while data:
        reader = lzma.LZMADecompressor(memlimit=2 * INSIDE_MOST)
        found += reader.decompress(data, INSIDE_MOST + 1 - len(found))
        if not reader.eof or len(found) > INSIDE_MOST:
            raise EOFError
        data = reader.unused_data.lstrip(b"\0")  # streams may be padded
    return found


def _zstd(data: bytes) -> bytes:
    found = bytearray()
    while data:
        reader = zstandard.ZstdDecompressor(max_window_size=INSIDE_MOST).decompressobj()
        for at in range(0, len(data), _FED):
            found += reader.decompress(data[at : at + _FED])
            if len(found) > INSIDE_MOST:
                raise EOFError
            if reader.eof:
                data = reader.unused_data + data[at + _FED :]
                break
        else:
            raise EOFError
    return bytes(found)


def _limited(stream: bz2.BZ2File | gzip.GzipFile) -> bytes:
    found = bytearray()
    while block := stream.read(1 << 20):
        found += block
        if len(found) > INSIDE_MOST:
            raise EOFError
    return bytes(found)


def _bz2(data: bytes) -> bytes:
    return _limited(bz2.BZ2File(io.BytesIO(data)))


_STREAMS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "bzip2": (b"BZh", _bz2),
    "xz": (b"\xfd7zXZ\0", _xz),
    "zstd": (b"\x28\xb5\x2f\xfd", _zstd),
}


def gzipped(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Both gzip."""
    if not (was[:2] == now[:2] == b"\x1f\x8b"):
        return None
    try:
        held = [_limited(gzip.GzipFile(fileobj=io.BytesIO(data))) for data in (was, now)]
    except _BROKEN:
        return None
    if held[0] != held[1]:
        why, detail = inner(held[0], held[1])
        return why, f"inside gzip: {detail}"
    if was[:4] + was[8:] == now[:4] + now[8:]:
        return Cause.TIME, "the time in the gzip header"
    return Cause.COMPRESSION, "the same content in another gzip stream"


def streams(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Both bzip2, xz or zstd."""
    for name, (magic, reader) in _STREAMS.items():
        if not (was.startswith(magic) and now.startswith(magic)):
            continue
        try:
            held = [reader(data) for data in (was, now)]
        except _BROKEN:
            return None
        if held[0] == held[1]:
            return Cause.COMPRESSION, f"the same content in another {name} stream"
        why, detail = inner(held[0], held[1])
        return why, f"inside {name}: {detail}"
    return None


def tarred(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Both tar archives."""
    if not (was[_TAR] == now[_TAR] == b"ustar"):
        return None
    try:
        both = [_members(data) for data in (was, now)]
    except (tarfile.TarError, *_BROKEN):
        return None
    first, second = both
    names = [[info.name for info, _ in each] for each in both]
    if names[0] != names[1]:
        same = sorted(names[0]) == sorted(names[1])
        return (Cause.ORDER, "the order of the tar's members") if same else (Cause.UNKNOWN, "the tar's members")
    for (a, here), (_, there) in zip(first, second):
        if here != there:
            why, detail = inner(here, there)
            return why, f"{a.name} inside the tar: {detail}"
    for (a, _), (b, _) in zip(first, second):
        if a.mode != b.mode:
            return Cause.RIGHTS, f"the mode of {a.name} inside the tar"
        if (a.uid, a.gid, a.uname, a.gname) != (b.uid, b.gid, b.uname, b.gname):
            return Cause.OWNER, f"the owner of {a.name} inside the tar"
        if a.mtime != b.mtime:
            return Cause.TIME, f"the time of {a.name} inside the tar"
    return Cause.WRITER, "the same members, written otherwise"


def _members(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    found: list[tuple[tarfile.TarInfo, bytes]] = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            if len(found) >= _MEMBERS_MOST or info.size > len(data):  # a sparse one may claim any size
                raise EOFError
            stream = archive.extractfile(info) if info.isreg() else None
            found.append((info, stream.read() if stream else info.linkname.encode()))
    return found


def pictures(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Both PNG: the time of the last change is a part of its own, and so are notes."""
    if not (was.startswith(_PNG) and now.startswith(_PNG)):
        return None
    both = [list(_chunks(data)) for data in (was, now)]
    kinds = [[kind for kind, _ in each] for each in both]
    if kinds[0] != kinds[1]:
        return None
    differing = [(kind, a, b) for (kind, a), (_, b) in zip(*both) if a != b]
    if not differing:
        return None
    if all(kind == b"tIME" for kind, _, _ in differing):
        return Cause.TIME, "the time of the last change of the picture"
    if all(kind in (b"tIME", b"tEXt", b"iTXt") for kind, _, _ in differing):
        _, a, b = next(each for each in differing if each[0] != b"tIME")
        why, detail = inner(a.replace(b"\0", b" "), b.replace(b"\0", b" "))
        return why, f"a note of the picture: {detail}"
    return Cause.UNKNOWN, "the picture"


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def zipped(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Both zip: wheels, jars, eggs."""
    if not (was[:4] == now[:4] == b"PK\x03\x04"):
        return None
    try:
        archives = [zipfile.ZipFile(io.BytesIO(data)) for data in (was, now)]
        infos = [each.infolist() for each in archives]
        names = [[info.filename for info in each] for each in infos]
        if names[0] != names[1]:
            same = sorted(names[0]) == sorted(names[1])
            return (Cause.ORDER, "the order of the zip's members") if same else (Cause.UNKNOWN, "the zip's members")
        for a, b in zip(*infos):
            if a.CRC != b.CRC and max(a.file_size, b.file_size) <= INSIDE_MOST:
                why, detail = inner(archives[0].read(a), archives[1].read(b))
                return why, f"{a.filename} inside the zip: {detail}"
        for a, b in zip(*infos):
            if a.date_time != b.date_time:
                return Cause.TIME, f"the date of {a.filename} inside the zip"
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error):
        return None
    return Cause.COMPRESSION, "the same members, written otherwise"


def objects(was: bytes, now: bytes, inner: Inner) -> Answer | None:
    """Archives of objects for a linker: times and owners are texts in their headers."""
    if not (was[:8] == now[:8] == b"!<arch>\n") or len(was) != len(now):
        return None
    plain, times = [], []
    for data in (was, now):
        bare, at = bytearray(data), 8
        found = []
        while at + 60 <= len(data) and data[at + 58 : at + 60] == b"`\n":
            found.append(data[at + 16 : at + 28].strip())
            bare[at + 16 : at + 28] = b" " * 12
            size = data[at + 48 : at + 58].strip()
            if not size.isdigit():
                return None
            at += 60 + int(size) + int(size) % 2
        plain.append(bytes(bare))
        times.append(found)
    if plain[0] == plain[1] and times[0] != times[1]:
        return Cause.TIME, "the time of a member of the archive"
    return None


READERS = (gzipped, streams, zipped, tarred, objects, pictures)
