"""Which part of two bytecode files differs, told without the Python that made them."""

from __future__ import annotations

import importlib.util
import marshal
import sys
from pathlib import Path

import pytest

from torchyard.differ import bytecode, marshalled

MAGIC = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
TEXT = b"Z\x01"  # a short text; with 0x80 it is marked as shared


def parts(first: bytes, second: bytes) -> list[tuple[str, str]]:
    return [(p.how, p.path) for p in marshalled.compare(*(marshalled.read(d, MAGIC) for d in (first, second)))]


def test_the_order_of_a_set_is_told_from_its_values() -> None:
    start = b">\x02\x00\x00\x00"
    first, second = start + TEXT + b"a" + TEXT + b"b", start + TEXT + b"b" + TEXT + b"a"
    assert parts(first, second) == [("order", "")]
    assert parts(first, start + TEXT + b"a" + TEXT + b"c") == [("value", "[1]")]


def test_marks_of_shared_objects_are_told_from_values() -> None:
    assert parts(b")\x01" + TEXT + b"a", b")\x01\xda\x01a") == [("marks", "[0]")]


def test_what_is_shared_in_one_and_written_twice_in_the_other_is_told() -> None:
    shared = b")\x02\xda\x01ar\x00\x00\x00\x00"
    twice = b")\x02\xda\x01a\xda\x01a"
    assert ("sharing", "[1]") in parts(shared, twice)
    assert not [how for how, _ in parts(shared, twice) if how in ("value", "order")]


def test_interned_texts_are_told_from_others() -> None:
    assert parts(b")\x01Z\x01a", b")\x01z\x01a") == [("interned", "[0]")]


@pytest.mark.parametrize("value", [None, True, ..., 7, 1 << 80, -1.5, 2j, b"x", "é", "a", (1, (2, 3)), frozenset("ab")])
def test_every_constant_is_read_to_its_end(value: object) -> None:
    first, second = marshal.dumps((value, "end")), marshal.dumps((value, "END"))
    assert parts(first, second) == [("value", "[1]")]


def test_the_place_of_a_change_is_named_by_its_function() -> None:
    was, now = "class A:\n  def f(self):\n    return 1000\n", "class A:\n  def f(self):\n    return 2000\n"
    first, second = (marshal.dumps(compile(text, "m.py", "exec")) for text in (was, now))
    assert ("value", "co_consts[A].co_consts[A.f].co_consts[1]") in parts(first, second)


def test_all_bytecode_of_this_python_is_read() -> None:
    folder = Path(importlib.util.__file__).parent
    files = [path for path in sorted(folder.rglob("*.py"))[:40] if path.stat().st_size < 100_000]
    for path in files:
        code = compile(path.read_bytes(), str(path), "exec")
        data = marshal.dumps(code)
        assert marshalled.compare(marshalled.read(data, MAGIC), marshalled.read(data, MAGIC)) == []


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"\xff" * 40, b")\xff", b"r\x01\x00\x00\x00", b"c" * 400])
def test_what_is_no_marshalled_object_is_unreadable_and_nothing_worse(data: bytes) -> None:
    try:
        marshalled.read(data, MAGIC)
    except marshalled.Unreadable:
        return
    assert data[:1] in b"\x00"


def test_deep_nesting_does_not_end_the_comparison() -> None:
    deep = b")\x01" * (sys.getrecursionlimit() * 2) + b"N"
    header = importlib.util.MAGIC_NUMBER + b"\x01\0\0\0" + bytes(8)
    assert "not known" in bytecode.part(header + deep, header + deep + b"x")


def test_bytecode_of_another_python_says_so() -> None:
    body = bytes(12) + marshal.dumps(compile("1", "m", "exec"))
    found = bytecode.part(b"\xcb\r\r\n" + body, b"\xa7\r\r\n" + body)
    assert "another Python" in found and "3531" in found


def test_the_layout_of_python_3_8_to_3_10_is_read() -> None:
    empty = b")\x00"
    texts = TEXT + b"f"
    numbers = b"".join(n.to_bytes(4, "little") for n in (0, 0, 0, 0, 1, 64))

    def code(constant: int) -> bytes:
        consts = b")\x01i" + constant.to_bytes(4, "little")
        objects = b"s\x02\0\0\0d\0" + consts + empty * 4 + texts + texts
        return b"c" + numbers + objects + (1).to_bytes(4, "little") + b"s\0\0\0\0"

    found = marshalled.compare(marshalled.read(code(1), 3413), marshalled.read(code(2), 3413))
    assert [(p.path, p.was, p.now) for p in found] == [("co_consts[0]", "1", "2")]
