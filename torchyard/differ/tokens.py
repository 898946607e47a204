"""What two texts or byte strings differ in: a time, a random id, or something else."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher

LINES_MOST = 4000
DIFFERING_MOST = 1 << 20
NOISE_MOST = 64 << 10
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_CLOCK = rb"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AP]M)?"
_ZONE = rb"(?: ?(?:Z|UTC|GMT|[A-Z]{3,5}|[+-]\d{2}:?\d{2}))?"
_YEAR = rb"(?:19[7-9]\d|20\d\d)"
_TIMES = (
    rb"(?:"
    rb"%(year)s-\d{2}-\d{2}(?:[T _-]+%(clock)s%(zone)s)?"
    rb"|%(year)s[/.]\d{1,2}[/.]\d{1,2}(?:[ T]+%(clock)s%(zone)s)?"
    rb"|\d{1,2}[/.]\d{1,2}[/.]%(year)s(?:[ T]+%(clock)s%(zone)s)?"
    rb"|(?:%(day)s,?\s+)?%(month)s\.?\s+\d{1,2}(?:,?\s+%(year)s)?(?:,?\s+%(clock)s%(zone)s(?:\s+%(year)s)?)?"
    rb"|(?:%(day)s,?\s+)?\d{1,2}\.?[ -]%(month)s[ -,.]+%(year)s(?:\s+%(clock)s%(zone)s)?"
    rb"|%(clock)s%(zone)s"
    rb"|%(year)s(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[T_-]?(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?(?:\.\d+)?Z?)?"
    rb"|\d+\.\d+ ?(?:ms|s|sec|secs|seconds?|min)"
    rb"|1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?"
    rb")" % {b"year": _YEAR, b"clock": _CLOCK, b"zone": _ZONE, b"month": _MONTH, b"day": _DAY}
)
_STAMP = rb"[A-Za-z]%s(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[T_-]?(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?Z?" % _YEAR
TIMES = re.compile(rb"(?<![0-9A-Za-z])(?:%s|%s)(?![0-9A-Za-z])" % (_TIMES, _STAMP))
_LOOSE = re.compile(rb"(?<![0-9])%s(?![0-9])" % _TIMES)  # in machine code and tables, letters of another word may touch
_UUID = rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_WORD = re.compile(rb"%s|[0-9A-Za-z+/]{22,}={0,2}|[0-9A-Za-z_]+" % _UUID)
_HEX = re.compile(rb"[0-9a-fA-F]{8,}\Z")
_MAGIC = (
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ",
    b"BZh",
    b"PK\3\4",
    b"\x7fELF",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"SQLite",
)
_DIGESTS = (32, 40, 64, 96, 128)  # lengths of hexadecimal ids and digests


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs: its bytes in both, and a name of the place."""

    was: bytes
    now: bytes
    place: str


def is_text(data: bytes) -> bool:
    """Whether this is text, by its first bytes."""
    start = data[:8192]
    return b"\0" not in start and sum(byte < 9 for byte in start) == 0


def lines(was: bytes, now: bytes) -> list[Change] | None:
    """The lines that differ, side by side; None where there are too many to compare."""
    here, there = was.splitlines(), now.splitlines()
    if len(here) == len(there):
        return [
            Change(a, b, f"line {number}") for number, (a, b) in enumerate(zip(here, there), start=1) if a != b
        ] or [Change(was[-2:], now[-2:], "the end of the last line")]
    if max(len(here), len(there)) > LINES_MOST:
        return None
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, here, there, autojunk=False).get_opcodes():
        if tag != "equal":
            for number in range(max(b - a, d - c)):
                left = here[a + number] if a + number < b else b""
                right = there[c + number] if c + number < d else b""
                found.append(Change(left, right, f"line {a + number + 1}"))
    return found


def spans(was: bytes, now: bytes) -> Iterator[tuple[int, int]]:
    """The ranges in which two byte strings of one length differ; ranges with few equal bytes between are one.

    It ends early where so much differs that no single place tells anything.
    """
    start = end = -1
    count = 0
    for block in range(0, len(was), 4096):
        if was[block : block + 4096] == now[block : block + 4096]:
            continue
        for at in range(block, min(block + 4096, len(was))):
            if was[at] != now[at]:
                if start >= 0 and at - end > 3:
                    yield start, end
                    start = at
                elif start < 0:
                    start = at
                end = at + 1
                count += 1
        if count > DIFFERING_MOST:
            break
    if start >= 0:
        yield start, end


def is_time_change(change: Change, *, loose: bool = False) -> bool:
    """Whether both differ in nothing but times; loose: letters may stand right before and after one."""
    here, there = (_masked(data, _LOOSE if loose else TIMES) for data in (change.was, change.now))
    return here == there != (change.was, 0)


def _masked(data: bytes, times: re.Pattern[bytes] = TIMES) -> tuple[bytes, int]:
    return times.subn(b"\0time", data)


def is_random_change(change: Change) -> bool:
    """Whether both differ in nothing but ids that look drawn by chance (times may differ beside them)."""
    if len(change.was) == len(change.now) and _unnamed(change.was) == _unnamed(change.now) != change.was:
        return True
    here, there = _words(change.was), _words(change.now)
    if len(here) != len(there) or _between(change.was) != _between(change.now):
        return False
    pairs = [(a, b) for a, b in zip(here, there) if a != b]
    return bool(pairs) and all(_drawn(a, b) for a, b in pairs)


def _unnamed(data: bytes) -> bytes:
    """Without UUIDs, whatever touches them."""
    return re.sub(rb"(?<![0-9a-fA-F-])%s(?![0-9a-fA-F-])|(?<=[g-zG-Z_])%s" % (_UUID, _UUID), b"\0id", data)


def _words(data: bytes) -> list[bytes]:
    return _WORD.findall(_masked(data)[0])


def _between(data: bytes) -> bytes:
    return _WORD.sub(b"", _masked(data)[0])


def _drawn(a: bytes, b: bytes) -> bool:
    """Whether two words look like ids drawn by chance: UUIDs, or equally long mixes that have little in common."""
    if len(a) != len(b) or len(a) < 8:
        return False
    if re.fullmatch(_UUID, a) and re.fullmatch(_UUID, b):
        return True
    if a.isdigit() and b.isdigit():
        return False
    if _HEX.match(a) and _HEX.match(b) and len(a) in _DIGESTS:
        return True
    differ = sum(x != y for x, y in zip(a, b))
    return differ * 3 >= len(a) and (bool(_HEX.match(a) and _HEX.match(b)) or (_mixed(a) and _mixed(b)))


def _mixed(word: bytes) -> bool:
    """Whether letters and digits, or small and large letters, take turns as in no word or version."""
    kinds = ["d" if chr(byte).isdigit() else "u" if chr(byte).isupper() else "l" for byte in word]
    return sum(x != y for x, y in itertools.pairwise(kinds)) >= 3


def is_log(data: bytes) -> bool:
    """Whether most lines of a text begin with a time, as those of a log do."""
    rows = [row.strip() for row in data.splitlines()[:400] if row.strip()]
    dated = sum(1 for row in rows if (match := TIMES.search(row[:40])) and match.start() <= 2)
    return dated >= 2 and dated * 2 >= len(rows)


def is_noise(data: bytes) -> bool:
    """Whether these few bytes are as mixed as those drawn by chance are; what begins like a known format is not."""
    if not 8 <= len(data) <= NOISE_MOST or data.startswith(_MAGIC):
        return False
    expected = 256 * (1 - (255 / 256) ** len(data))  # different values among so many drawn ones
    return len(set(data)) >= 0.85 * expected and sum(byte >= 0x80 for byte in data) * 4 >= len(data)


def has_id(data: bytes) -> bool:
    """Whether a short text names a UUID, or is one word (or one behind `=`) that looks drawn by chance."""
    if re.search(rb"(?<![0-9A-Za-z-])%s(?![0-9A-Za-z-])" % _UUID, data):
        return True
    word = data.strip().rpartition(b"=")[2] if data.strip().count(b"=") == 1 else data.strip()
    if word.isdigit() or word.startswith(b"/") or not re.fullmatch(rb"[0-9A-Za-z+/_-]{16,}={0,2}", word):
        return False
    return bool(_HEX.match(word)) or _mixed(word)


def iso(seconds: int) -> str:
    """A time as ISO 8601 has it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
