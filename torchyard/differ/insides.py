"""What two contents of one file differ in: a time, a random id, how they were compressed; or nothing that is known."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections import Counter

from . import tokens
from .tokens import Change
from .values import Cause

Answer = tuple[Cause, str]  # why, and which part
_DEPTH = 3
_SPANS_MOST = 400
_INSIDE_MOST = 64 << 20
_PRINTABLE = re.compile(rb"[\x20-\x7e\t]{4,}")
_TIME_FROM, _TIME_TO = 946_684_800, 2_208_988_800  # the years 2000 to 2039
_NEAR = 3 * 366 * 86_400  # two builds that are compared lie no further apart
_SHADOW = re.compile(rb"^([^:\n]+:[^:\n]*):\d{4,5}(:[^\n]*)$", re.MULTILINE)


def cause(was: bytes, now: bytes, depth: int = 0) -> Answer:
    """Why two contents probably differ."""
    if depth < _DEPTH:
        for both in (_gzip, _zip, _ar):
            if (found := both(was, now, depth)) is not None:
                return found
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
    return _tallied([(_of(change), change) for change in changes])


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
    if tokens.is_noise(was) and tokens.is_noise(now):
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
        if tokens.is_time_change(change):
            return Cause.TIME
        if tokens.is_random_change(change):
            return Cause.RANDOM
    if was[:4] == b"\x7fELF" and b"\x03\0\0\0GNU\0" in was[max(start - 40, 0) : end]:
        return Cause.CONSEQUENCE
    if end - start <= 4 and _number(was, now, start, end):
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
    """Whether a range is part of a number of 32 bits that is a time not long before or after the other one."""
    for begin in range(max(end - 4, 0), start + 1):
        for big in (False, True):
            a, b = (int.from_bytes(data[begin : begin + 4], "big" if big else "little") for data in (was, now))
            if _TIME_FROM < a < _TIME_TO and _TIME_FROM < b < _TIME_TO and abs(a - b) < _NEAR:
                return True
    return False


def _gzip(was: bytes, now: bytes, depth: int) -> Answer | None:
    if not (was[:2] == now[:2] == b"\x1f\x8b"):
        return None
    try:
        inner = [_limited(data) for data in (was, now)]
    except (OSError, EOFError, zlib.error):
        return None
    if inner[0] != inner[1]:
        why, detail = cause(inner[0], inner[1], depth + 1)
        return why, f"inside gzip: {detail}"
    if was[:4] + was[8:] == now[:4] + now[8:]:
        return Cause.TIME, "the time in the gzip header"
    return Cause.COMPRESSION, "the same content in another gzip stream"


def _limited(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        found = stream.read(_INSIDE_MOST + 1)
    if len(found) > _INSIDE_MOST:
        raise EOFError
    return found


def _zip(was: bytes, now: bytes, depth: int) -> Answer | None:
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
            if a.CRC != b.CRC and max(a.file_size, b.file_size) <= _INSIDE_MOST:
                why, detail = cause(archives[0].read(a), archives[1].read(b), depth + 1)
                return why, f"{a.filename} inside the zip: {detail}"
        for a, b in zip(*infos):
            if a.date_time != b.date_time:
                return Cause.TIME, f"the date of {a.filename} inside the zip"
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, zlib.error):
        return None
    return Cause.COMPRESSION, "the same members, written otherwise"


def _ar(was: bytes, now: bytes, depth: int) -> Answer | None:
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
