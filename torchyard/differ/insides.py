"""What two contents of one file differ in: a time, a random id, how they were compressed; or nothing that is known."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from .. import json_text
from . import tokens, wrapped
from .tokens import Change
from .values import Cause

Answer = tuple[Cause, str]  # why, and which part
_DEPTH = 3
_SPANS_MOST = 400
_PRINTABLE = re.compile(rb"[\x20-\x7e\t]{4,}")
_TIME_FROM, _TIME_TO = 1_262_304_000, 2_082_758_400  # the years 2010 to 2035
_NEAR = 366 * 86_400  # two builds that are compared lie no further apart
_ELF = b"\x7fELF"
_SCALES = (1, 10**3, 10**6, 10**9)  # parts of a second in which times are counted
_JOURNAL = b"LPKSHHRH"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ORDERED_MOST = 4 << 20  # bytes of a text whose words are put in order
_PAIRS = re.compile(rb"\s*([:=])\s*")
_PARTS = re.compile(rb"[\s,;{}()\[\]<>]+")
_SHADOW = re.compile(rb"^([^:\n]+:[^:\n]*):\d{4,5}(:[^\n]*)$", re.MULTILINE)


def cause(was: bytes, now: bytes, depth: int = 0) -> Answer:
    """Why two contents probably differ."""
    if depth < _DEPTH:
        for read in wrapped.READERS:
            if (found := read(was, now, lambda a, b: cause(a, b, depth + 1))) is not None:
                return found
    if was[:8] == now[:8] == _JOURNAL:
        return Cause.LOG, "a journal of systemd"
    if was[:2] == now[:2] and was[:2] in _UTF16:
        was, now = (data.decode("utf-16", "replace").encode() for data in (was, now))
    if tokens.is_text(was) and tokens.is_text(now):
        return _text(was, now)
    return _binary(was, now) if len(was) == len(now) else (Cause.UNKNOWN, "binary files of different lengths")


def _text(was: bytes, now: bytes) -> Answer:
    if _SHADOW.search(was) and _SHADOW.sub(rb"\1:\2", was) == _SHADOW.sub(rb"\1:\2", now):
        return Cause.TIME, "the day on which a password was changed last"
    if tokens.is_log(was) and tokens.is_log(now):
        return Cause.LOG, "lines that begin with a time"
    changes = tokens.lines(was, now)
    if changes is None:
        return Cause.UNKNOWN, "too many lines to compare"
    if was.split() != now.split() and sorted(was.splitlines()) == sorted(now.splitlines()):
        return Cause.ORDER, f"the same lines in another order, from {changes[0].place}"
    best, detail = _tallied([(_of(change), change) for change in changes])
    if best is Cause.UNKNOWN and _reordered(was, now):
        return Cause.ORDER, f"the same words in another order, from {changes[0].place}"
    return best, detail


def _reordered(was: bytes, now: bytes) -> bool:
    """Whether two texts say the same in another order: of JSON its keys and lists, of others what commas part."""
    if len(was) != len(now) or len(was) > _ORDERED_MOST:
        return False
    try:
        return bool(_sorted(json_text.loads(was)) == _sorted(json_text.loads(now)))
    except (ValueError, RecursionError):
        parts = [_PARTS.split(_PAIRS.sub(rb"\1", data)) for data in (was, now)]
        return parts[0] != parts[1] and sorted(parts[0]) == sorted(parts[1])


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, json.dumps(_sorted(each))) for key, each in value.items())
    if isinstance(value, list):
        return sorted(json.dumps(_sorted(each)) for each in value)
    return value


def _of(change: Change) -> Cause:
    if change.was and change.now:
        if tokens.is_time_change(change):
            return Cause.TIME
        return Cause.RANDOM if tokens.is_random_change(change) else Cause.UNKNOWN
    only = change.was or change.now
    return Cause.LOG if tokens.is_log(only + b"\n" + only) else Cause.UNKNOWN


def _tallied(changes: list[tuple[Cause, Change]]) -> Answer:
    """The cause of most changes, where it is that of at least half of them."""
    counts = Counter(cause for cause, _ in changes)
    best = next((c for c, _ in counts.most_common() if c is not Cause.UNKNOWN), Cause.UNKNOWN)
    if best is Cause.UNKNOWN or counts[best] * 2 < len(changes):
        best = Cause.UNKNOWN
    first = next((change for cause, change in changes if cause is best), changes[0][1])
    others = [f"{n} of {c.value}" for c, n in counts.items() if c is not best]
    rest = f" (of {len(changes)} changes; {', '.join(others)})" if others else ""
    return best, f"{first.place}: {_shown(first.was)} and {_shown(first.now)}{rest}"


def _shown(data: bytes, most: int = 60) -> str:
    text = data.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def _binary(was: bytes, now: bytes) -> Answer:
    if tokens.is_noise(was) and tokens.is_noise(now) and 2 * sum(a != b for a, b in zip(was, now)) > len(was):
        return Cause.RANDOM, f"{len(was)} bytes that look drawn by chance"
    changes: list[tuple[Cause, Change]] = []
    for start, end in tokens.spans(was, now):
        changes.append((_at(was, now, start, end), Change(was[start:end], now[start:end], f"byte {start}")))
        if len(changes) > _SPANS_MOST:
            return Cause.UNKNOWN, f"many places, from byte {changes[0][1].place}"
    told = [pair for pair in changes if pair[0] is not Cause.CONSEQUENCE] or changes
    best, detail = _tallied(told)
    if best is Cause.UNKNOWN:
        return best, f"{len(changes)} places, the first at {changes[0][1].place}"
    if best is Cause.CONSEQUENCE:
        return best, "the build id of machine code"
    place = int(told[0][1].place.split()[1])
    words = [_around(data, place) for data in (was, now)]
    return best, f"{told[0][1].place}: {_shown(words[0])} and {_shown(words[1])}" if all(words) else detail


def _at(was: bytes, now: bytes, start: int, end: int) -> Cause:
    """Why a range of two binary files probably differs."""
    here, there = _around(was, start), _around(now, start)
    if here and there:
        change = Change(here, there, "")
        if tokens.is_time_change(change, loose=True):
            return Cause.TIME
        if tokens.is_random_change(change):
            return Cause.RANDOM
    if was.startswith(_ELF) and b"\x03\0\0\0GNU\0" in was[max(start - 40, 0) : end]:
        return Cause.CONSEQUENCE
    if end - start <= 8 and _number(was, now, start, end):
        return Cause.TIME
    return Cause.UNKNOWN


def _around(data: bytes, at: int) -> bytes:
    """The printable text that a place is in."""
    begin = max(at - 80, 0)
    for match in _PRINTABLE.finditer(data[begin : at + 80]):
        if match.start() <= at - begin < match.end():
            return match[0]
    return b""


def _number(was: bytes, now: bytes, start: int, end: int) -> bool:
    """Whether a range is part of a number that is a time not long before or after the other one.

    One number in five lies in these years, so its place has to look like that of a number, too: in machine code, or
    off the places where compilers put numbers, there are zeros beside it, and in what is compressed there is none.
    """
    if tokens.is_noise(was[max(start - 64, 0) : start]) and tokens.is_noise(was[end : end + 64]):
        return False
    for length in (4, 8):
        for begin in range(max(end - length, 0), start + 1):
            if (begin % 4 or was.startswith(_ELF)) and not _apart(was, begin, begin + length):
                continue
            pair = [data[begin : begin + length] for data in (was, now)]
            if length == 8 and pair[0][0] != pair[1][0] and pair[0][-1] != pair[1][-1]:
                continue  # the highest byte of near times is the same
            if any(_near(*both) for both in zip(*map(_numbers, pair), strict=True)):
                return True
    return False


def _apart(data: bytes, begin: int, end: int) -> bool:
    """Whether there are four zeros right before or behind a range."""
    return bytes(4) in (data[max(begin - 4, 0) : begin], data[end : end + 4])


def _numbers(data: bytes) -> Iterator[float]:
    """What these bytes may count, in seconds: 32 bits, or 64 of seconds or their parts, or a float; in both orders."""
    orders: tuple[Literal["little", "big"], ...] = ("little", "big")
    for order in orders:
        number = int.from_bytes(data, order)
        if len(data) < 8:
            yield number
            continue
        yield from (number / scale for scale in _SCALES)
        yield struct.unpack("<d" if order == "little" else ">d", data)[0]


def _near(a: float, b: float) -> bool:
    return _TIME_FROM < a < _TIME_TO and _TIME_FROM < b < _TIME_TO and abs(a - b) < _NEAR
