"""What looks like a time or like an id drawn by chance, and what does not."""

from __future__ import annotations

import pytest

from torchyard.differ import insides, tokens
from torchyard.differ.tokens import Change
from torchyard.differ.values import Cause

TIMES = [
    ("2026-11-30", "2026-12-01"),
    ("2026-11-30T20:46:17+01:00", "2026-11-30T21:46:17+01:00"),
    ("Mon, 30 Nov 2026 20:46:17 +0000", "Tue, 01 Dec 2026 08:00:00 +0000"),
    ("Nov 30 2026", "Dec  1 2026"),
    ("20:46:17", "08:01:02"),
    ("1790000000", "1790000007"),
    ("1790000000.25", "1790000007.5"),
    ("20261130204617", "20261201080102"),
    ("30.11.2026 20:46", "01.12.2026 08:01"),
    ("Mon Nov 30 08:46:17 PM UTC 2026", "Tue Dec  1 08:01:02 AM UTC 2026"),
    ("Mo 30. Nov 20:46:17 UTC 2026", "Mo 30. Nov 20:47:00 UTC 2026"),
    ("took 1.25 s", "took 1.31 s"),
]
IDS = [
    ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "7d444840-9dc0-41d1-b245-5ffdce74fad2"),
    ("9f86d081884c7d659a2feaa0c55ad015", "2c26b46b68ffc68ff99b453c1d304134"),
    ("build-9f86d081", "build-2c26b46b"),
    ("/tmp/tmpab1c_d3x", "/tmp/tmp0qz1mm8_"),
    ("kR3vb9XqT2mYp8Zs1LwQeA==", "Zt7HcW0nBv4GxJ9uKd2PqR=="),
]
OTHERS = [
    ("1.2.3", "1.2.4"),
    ("12345678", "12345679"),
    ("hello", "goodbye"),
    ("/usr/lib/python3.11", "/usr/lib/python3.12"),
    ("lib_one_2", "lib_two_3"),
    ("x86_64", "aarch64"),
    ("cu130", "cu128"),
]


@pytest.mark.parametrize(("was", "now"), TIMES)
def test_times_are_taken_for_times(was: str, now: str) -> None:
    assert tokens.is_time_change(Change(f"at {was} x".encode(), f"at {now} x".encode(), ""))
    assert insides.cause(f"a\nat {was}\n".encode(), f"a\nat {now}\n".encode())[0] is Cause.TIME


@pytest.mark.parametrize(("was", "now"), IDS)
def test_drawn_ids_are_taken_for_ids(was: str, now: str) -> None:
    assert insides.cause(f"x\nid {was}\n".encode(), f"x\nid {now}\n".encode())[0] is Cause.RANDOM


@pytest.mark.parametrize(("was", "now"), OTHERS)
def test_what_is_neither_stays_unknown(was: str, now: str) -> None:
    assert insides.cause(f"x\nv {was}\n".encode(), f"x\nv {now}\n".encode())[0] is Cause.UNKNOWN


def test_a_time_beside_another_change_does_not_explain_it() -> None:
    was = b"a 20:46:17\none\ntwo\nthree\n"
    now = b"a 20:46:18\nONE\nTWO\nTHREE\n"
    cause, detail = insides.cause(was, now)
    assert cause is Cause.UNKNOWN and "1 of a time inside a file" in detail


def test_bytes_drawn_by_chance_are_told_from_machine_code() -> None:
    drawn = [
        bytes((seed * 7919 + number * number * 31 + number * 113) % 251 for number in range(32)) for seed in (1, 2)
    ]
    assert insides.cause(*drawn)[0] is Cause.RANDOM
    assert insides.cause(b"\x7fELF" + drawn[0], b"\x7fELF" + drawn[1])[0] is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("data", "has"),
    [
        (b"3f2504e0-4f89-41d3-9a0c-0305e82c3301\n", True),
        (b"ID=9f86d081884c7d65\n", True),
        (b"kR3vb9XqT2mYp8Zs1LwQeA==\n", True),
        (b"1790000000\n", False),
        (b"torch==2.13.0+cpu\n", False),
        (b"hello\n", False),
        (b"/usr/lib/x86_64-linux-gnu\n", False),
        (b"", False),
    ],
)
def test_a_file_that_is_an_id_is_told_from_others(data: bytes, has: bool) -> None:
    assert tokens.has_id(data) is has


def test_large_files_that_differ_throughout_are_told_at_once() -> None:
    first, second = bytes(3 << 20), b"\1" * (3 << 20)
    assert insides.cause(first, second)[0] is Cause.UNKNOWN
