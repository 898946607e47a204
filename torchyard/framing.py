"""The bytes of a layer: tar headers and gzip members that carry a wheel's own compressed data unchanged.

A wheel is a zip archive; each file in it is a raw deflate stream with its CRC-32 and length beside it. A gzip member is
the same raw deflate stream with the same CRC-32 and length behind it (RFC 1952 section 2.3), and a gzip file may hold
any number of members (section 2.2). So a compressed image layer can be written from a wheel without compressing
anything: the bytes depend on the wheel alone, not on a compressor, its version or the CPU it runs on.
"""

from __future__ import annotations

import struct
import tarfile
import zlib
from collections.abc import Iterator

BLOCK = tarfile.BLOCKSIZE
_STORED_MAX = 0xFFFF
_MEMBER_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no name, no time, unknown system
END_OF_ARCHIVE = bytes(2 * BLOCK)


def member_header() -> bytes:
    """The ten bytes before a raw deflate stream."""
    return _MEMBER_HEADER


def member_trailer(crc32: int, length: int) -> bytes:
    """The eight bytes behind a raw deflate stream: CRC-32 and length (modulo 2**32) of the uncompressed data."""
    return struct.pack("<II", crc32, length & 0xFFFFFFFF)


def stored_member(data: bytes) -> bytes:
    """A gzip member that holds `data` without compression (deflate stored blocks, RFC 1951 section 3.2.4)."""
    return b"".join((member_header(), *stored_blocks(data), member_trailer(zlib.crc32(data), len(data))))


def stored_blocks(data: bytes) -> Iterator[bytes]:
    """`data` as deflate stored blocks, the last one marked final."""
    starts = range(0, max(len(data), 1), _STORED_MAX)
    for start in starts:
        part = data[start : start + _STORED_MAX]
        final = start + _STORED_MAX >= len(data)
        yield struct.pack("<BHH", int(final), len(part), len(part) ^ 0xFFFF)
        yield part


def packed_member(data: bytes) -> bytes:
    """A gzip member of `data` in which runs of one byte are folded; written by us, so the same with every zlib.

    Fixed Huffman codes and matches at distance 1 only (RFC 1951 section 3.2.6): made for tar headers, which are text
    and zeros. `data` that has no runs comes out about as long as it was.
    """
    bits = _Bits()
    bits.add(0b011, 3)  # final block, fixed codes
    at = 0
    while at < len(data):
        run = _run(data, at)
        _literal(bits, data[at])
        at += 1
        run -= 1
        while run >= 3:
            length = min(run, 258)
            if run - length in (1, 2):
                length -= 3 - (run - length)
            _match(bits, length)
            at += length
            run -= length
    bits.add(0, 7)  # end of block
    return b"".join((member_header(), bits.done(), member_trailer(zlib.crc32(data), len(data))))


def tar_header(name: str, *, size: int, mode: int, mtime: int, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """The tar header of one entry owned by root: one block, or a pax header before it where the name is long.

    size in bytes, mtime in seconds; kind is one of tarfile's type codes.
    """
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.type, info.linkname = size, mode, mtime, kind, link
    return info.tobuf(tarfile.PAX_FORMAT)


def padding(size: int) -> bytes:
    """The zeros that fill up the last block of a file of `size` bytes."""
    return bytes(-size % BLOCK)


class _Bits:
    """Bits packed into bytes, the least significant first."""

    def __init__(self) -> None:
        self._value = 0
        self._count = 0

    def add(self, value: int, width: int) -> None:
        self._value |= value << self._count
        self._count += width

    def done(self) -> bytes:
        return self._value.to_bytes((self._count + 7) // 8, "little")


def _reversed(value: int, width: int) -> int:
    return int(format(value, f"0{width}b")[::-1], 2)


def _literal_code(byte: int) -> tuple[int, int]:
    return (_reversed(0x30 + byte, 8), 8) if byte < 144 else (_reversed(0x190 + byte - 144, 9), 9)


def _length_codes() -> tuple[tuple[int, int], ...]:
    """(bits, width) of each match length from 3 to 258, with the extra bits and the code of distance 1 included."""
    codes = []
    base, symbol, extra = 3, 257, 0
    while symbol < 285:
        for offset in range(1 << extra):
            if base + offset <= 257:
                codes.append(_length_code(symbol, offset, extra))
        base += 1 << extra
        symbol += 1
        if symbol >= 265 and (symbol - 261) % 4 == 0:
            extra += 1
    codes.append(_length_code(285, 0, 0))
    return tuple(codes)


def _length_code(symbol: int, offset: int, extra: int) -> tuple[int, int]:
    code, width = (symbol - 256, 7) if symbol < 280 else (0xC0 + symbol - 280, 8)
    value = _reversed(code, width) | offset << width
    return value, width + extra + 5  # five zero bits: distance code 0, which is distance 1


_LITERALS = tuple(_literal_code(byte) for byte in range(256))
_LENGTHS = _length_codes()


def _literal(bits: _Bits, byte: int) -> None:
    bits.add(*_LITERALS[byte])


def _match(bits: _Bits, length: int) -> None:
    bits.add(*_LENGTHS[length - 3])


def _run(data: bytes, at: int) -> int:
    """How many bytes equal to the one at `at` follow from there, itself included."""
    rest = len(data) - at
    width = 1
    while width < rest and data[at + width] == data[at]:
        width += 1
    return width
