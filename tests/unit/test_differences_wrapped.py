"""Causes that lie inside other files, and changes that look like a time or an id and are none."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from torchyard.differ import causes, insides, wrapped
from torchyard.differ.packages import Moved
from torchyard.differ.values import Cause

WAS, NOW = 1_764_500_000, 1_764_586_400
DATES = (b"built 2026-11-30 10:00:00\n", b"built 2026-12-01 11:10:09\n")
IDS = ("0d2fa1c4-7c55-4a0e-9d6b-3b1f6d2c9a10", "e4b7930f-1a2b-4c3d-8e5f-60718293a4b5")
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


def tar(mtime: int = WAS, *, data: bytes = b"abc", mode: int = 0o644, uid: int = 0, names: str = "ab") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode, info.uid = len(data), mtime, mode, uid
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(day: int, note: bytes = b"Software\0x", pixel: bytes = b"\0\0") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    time = chunk(b"tIME", struct.pack(">HBBBBB", 2026, 11, day, 1, 2, 3))
    rest = chunk(b"tEXt", note) + chunk(b"IDAT", zlib.compress(pixel)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + time + rest


def table(tmp_path: Path, value: str) -> bytes:
    file = tmp_path / "table"
    file.unlink(missing_ok=True)
    with sqlite3.connect(file) as connection:
        connection.execute("create table t (a, b)")
        connection.execute("insert into t values ('k', ?)", (value,))
    connection.close()
    return file.read_bytes()


@pytest.mark.parametrize("name", PACKED)
def test_what_differs_inside_a_compressed_stream_is_told(name: str) -> None:
    cause, detail = insides.cause(*(PACKED[name](data) for data in DATES))
    assert cause is Cause.TIME
    assert detail.startswith(f"inside {name}: line 1")


@pytest.mark.parametrize("name", PACKED)
def test_a_broken_or_endless_stream_is_not_looked_into(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapped, "INSIDE_MOST", 1 << 23)
    whole = PACKED[name](b"x" * 4000)
    assert insides.cause(whole[:-9], whole[:-8] + b"a")[0] is Cause.UNKNOWN
    both = [PACKED[name](bytes(length << 20) + DATES[0]) for length in (20, 21)]
    assert insides.cause(*both)[0] is Cause.UNKNOWN


def test_the_same_content_in_another_stream_is_the_compressors() -> None:
    data = b"hello " * 5000
    assert insides.cause(lzma.compress(data, preset=0), lzma.compress(data, preset=9))[0] is Cause.COMPRESSION
    assert insides.cause(bz2.compress(data, 1), bz2.compress(data, 9))[0] is Cause.COMPRESSION


@pytest.mark.parametrize(
    ("was", "now", "cause", "words"),
    [
        (tar(WAS), tar(NOW), Cause.TIME, "the time of a inside the tar"),
        (tar(data=DATES[0]), tar(data=DATES[1]), Cause.TIME, "a inside the tar: line 1"),
        (tar(mode=0o644), tar(mode=0o600), Cause.RIGHTS, "the mode of a"),
        (tar(uid=0), tar(uid=1000), Cause.OWNER, "the owner of a"),
        (tar(names="ab"), tar(names="ba"), Cause.ORDER, "the order of the tar's members"),
        (tar(names="ab"), tar(names="ac"), Cause.UNKNOWN, "the tar's members"),
        (png(29), png(30), Cause.TIME, "the time of the last change of the picture"),
        (png(29, b"date\0" + DATES[0]), png(30, b"date\0" + DATES[1]), Cause.TIME, "a note of the picture"),
        (png(29), png(29, pixel=b"\0\1"), Cause.UNKNOWN, "the picture"),
    ],
)
def test_what_differs_inside_an_archive_or_picture_is_told(was: bytes, now: bytes, cause: Cause, words: str) -> None:
    found = insides.cause(was, now)
    assert found[0] is cause
    assert words in found[1]
    packed = insides.cause(lzma.compress(was), lzma.compress(now))
    assert packed[0] is cause
    assert words in packed[1]


@pytest.mark.parametrize(
    ("was", "now", "cause"),
    [
        ("2026-11-30 10:00:00", "2026-12-01 11:00:00", Cause.TIME),
        (*IDS, Cause.RANDOM),
        ("1.2.3", "1.2.4", Cause.UNKNOWN),
    ],
)
def test_values_of_a_table_touch_the_column_before(tmp_path: Path, was: str, now: str, cause: Cause) -> None:
    assert insides.cause(table(tmp_path, was), table(tmp_path, now))[0] is cause


@pytest.mark.parametrize(
    ("form", "scale"), [("<I", 1), (">I", 1), ("<q", 1), (">q", 10**3), ("<q", 10**6), ("<q", 10**9), ("<d", 1.0)]
)
def test_a_time_as_a_number_is_one_in_every_width(form: str, scale: float) -> None:
    both = [b"HEADER\0\1" + struct.pack(form, type(scale)(t) * scale) + bytes(40) for t in (WAS, NOW)]
    assert insides.cause(*both)[0] is Cause.TIME


@pytest.mark.parametrize(
    ("was", "now", "cause"),
    [
        (b'{"deps": ["numpy", "torch"]}', b'{"deps": ["torch", "numpy"]}', Cause.ORDER),
        (b'{"a": 1, "b": {"c": [2]}}', b'{"b": {"c": [2]}, "a": 1}', Cause.ORDER),
        (b'{"a": 1, "b": 2}', b'{"a": 2, "b": 1}', Cause.UNKNOWN),
        (b"x = {'a', 'bb', 'ccc'}\n", b"x = {'ccc', 'a', 'bb'}\n", Cause.ORDER),
        (b"threads=2 jobs=4\n", b"threads=4 jobs=2\n", Cause.UNKNOWN),
        (b"1.2.3\n", b"3.2.1\n", Cause.UNKNOWN),
        (b"v20261130T100000Z\n", b"v20261201T110000Z\n", Cause.TIME),
        ("at 2026-11-30 10:00\n".encode("utf-16"), "at 2026-12-01 11:10\n".encode("utf-16"), Cause.TIME),
        (b"LPKSHHRH" + bytes(90), b"LPKSHHRH" + bytes(99), Cause.LOG),
        (json.dumps({"size": 4294967295}).encode(), json.dumps({"size": 2147483647}).encode(), Cause.UNKNOWN),
    ],
)
def test_words_of_a_file_are_told_apart(was: bytes, now: bytes, cause: Cause) -> None:
    assert insides.cause(was, now)[0] is cause


@pytest.mark.parametrize(
    "path",
    ["/usr/share/mime/mime.cache", "/root/.triton/cache/k/x.bin", "/opt/m.f-1.py311.nbi", "/usr/lib/udev/hwdb.bin"],
)
def test_caches_of_tools_are_told_by_their_places(path: str) -> None:
    assert causes.content(path, b"\0a" * 30, b"\0b" * 40, Moved(), set())[0] is Cause.CACHE


@pytest.mark.parametrize("kind", ["noise", "zeros", "code"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
def test_a_change_of_any_bytes_is_rarely_taken_for_a_time(kind: str, width: int) -> None:
    dice = random.Random(width)
    code = [0, 0, 0, 0x48, 0x89, 0xFF, 0x41]
    wrong = 0
    for _ in range(200):
        around = {
            "noise": dice.randbytes(400),
            "zeros": b"\1abc" + bytes(396),
            "code": b"\x7fELF" + bytes(dice.choice([*code, dice.randrange(256)]) for _ in range(396)),
        }[kind]
        at = dice.randrange(100, 300)
        both = [around[:at] + dice.randbytes(width) + around[at + width :] for _ in range(2)]
        wrong += both[0] != both[1] and insides.cause(*both)[0] is not Cause.UNKNOWN
    assert wrong <= 6


def test_a_zip_of_another_year_is_told_inside_a_tar() -> None:
    def wheel(year: int) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(zipfile.ZipInfo("p/a.py", (year, 1, 1, 0, 0, 0)), b"x")
        return buffer.getvalue()

    cause, detail = insides.cause(tar(data=wheel(2024)), tar(data=wheel(2025)))
    assert (cause, detail) == (Cause.TIME, "a inside the tar: the date of p/a.py inside the zip")
