"""Which layers of two images stand for each other, and how the entries of two such layers differ."""

from __future__ import annotations

import bisect
import stat
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import SequenceMatcher

from .values import Cause, Difference, Entry, Kind, Outline, Pair

TYPES = {"0": "file", "7": "file", "1": "hard link", "2": "symlink", "3": "device", "4": "device", "5": "folder"}
HEADERS_SHOWN = 3  # more are one difference of the whole layer
OPAQUE = ".wh..wh..opq"
Key = tuple[str, int]  # a path, and which of its entries


def pairs(first: Outline, second: Outline) -> list[Pair]:
    """The layers side by side: by place where both have as many, else by their ids, then by their build steps."""
    if len(first.steps) == len(second.steps):
        return [Pair(first=n, second=n) for n in range(len(first.steps))]
    found: list[Pair] = []
    for tag, a, b, c, d in _matched([s.diff_id for s in first.steps], [s.diff_id for s in second.steps]):
        if tag == "equal":
            found += [Pair(first=m, second=n) for m, n in zip(range(a, b), range(c, d))]
        else:
            found += _by_words(first, second, range(a, b), range(c, d))
    return found


def _by_words(first: Outline, second: Outline, here: range, there: range) -> list[Pair]:
    found: list[Pair] = []
    for tag, a, b, c, d in _matched([first.steps[n].words for n in here], [second.steps[n].words for n in there]):
        left, right = here[a:b], there[c:d]
        both = min(len(left), len(right)) if tag != "equal" else len(left)
        found += [Pair(first=m, second=n) for m, n in zip(left[:both], right[:both])]
        found += [Pair(first=m, second=None) for m in left[both:]]
        found += [Pair(first=None, second=n) for n in right[both:]]
    return found


def _matched(a: Sequence[str], b: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def entries(
    layer: int, step: str, first: Sequence[Entry], second: Sequence[Entry], *, ordered: bool = True
) -> list[Difference]:
    """How two layers differ, entry by entry; ordered: whether the order of entries counts."""
    here, there = _keyed(first), _keyed(second)
    found: list[Difference] = []

    def tell(path: str, kind: Kind, was: str, now: str) -> None:
        found.append(Difference(layer=layer, step=step, path=path, kind=kind, was=was, now=now))

    for key, entry in here.items():
        if key not in there:
            if entry.is_whiteout:
                tell(_hides(entry), Kind.WHITEOUT, _taken(entry), "not taken away")
            else:
                tell(entry.path, Kind.REMOVED, _told(entry), "none")
            continue
        other = there[key]
        for kind, was, now in _changes(entry, other):
            tell(entry.path, kind, was, now)
    for key, entry in there.items():
        if key not in here and entry.is_whiteout:
            tell(_hides(entry), Kind.WHITEOUT, "not taken away", _taken(entry))
        elif key not in here:
            tell(entry.path, Kind.ADDED, "none", _told(entry))
    if ordered:
        places = {key: number for number, key in enumerate(there)}
        for key, was, now in _moved([key for key in here if key in there], places):
            tell(key[0], Kind.ORDER, was, now)
    return _headers_together(found, max(len(here), len(there)))


def _headers_together(found: list[Difference], entries: int) -> list[Difference]:
    """The differences, with those of many headers that say the same as one: another program wrote the whole layer."""
    alike = [each for each in found if each.kind is Kind.HEADER]
    if len(alike) <= HEADERS_SHOWN:
        return found
    told = f"{len(alike)} of {entries} headers"
    rest = [each for each in found if each.kind is not Kind.HEADER]
    return [*rest, replace(alike[0], path="", was=f"{told} in one form", now="in another form")]


def _keyed(found: Iterable[Entry]) -> dict[Key, Entry]:
    """Entries by path, in their order; a second one of the same path counts on its own."""
    keyed: dict[Key, Entry] = {}
    times: dict[str, int] = {}
    for entry in found:
        number = times.get(entry.path, 0)
        times[entry.path] = number + 1
        keyed[entry.path, number] = entry
    return keyed


def _changes(a: Entry, b: Entry) -> list[tuple[Kind, str, str]]:
    if a == b:
        return []
    found: list[tuple[Kind, str, str]] = []
    if a.type != b.type or a.device != b.device:
        link = a.type in "12" or b.type in "12"
        found.append((Kind.LINK if link else Kind.TYPE, _told(a), _told(b)))
    elif a.link != b.link:
        found.append((Kind.LINK, _told(a), _told(b)))
    elif a.sha256 != b.sha256 or a.size != b.size:
        found.append((Kind.CONTENT, _content(a), _content(b)))
    if a.mtime != b.mtime:
        found.append((Kind.MTIME, when(a.mtime), when(b.mtime)))
    if a.mode != b.mode and "2" not in (a.type, b.type):  # a symlink has no rights of its own
        found.append((Kind.MODE, mode(a), mode(b)))
    if (a.uid, a.gid) != (b.uid, b.gid):
        found.append((Kind.OWNER, f"{a.uid}:{a.gid}", f"{b.uid}:{b.gid}"))
    elif (a.user, a.group) != (b.user, b.group):  # who unpacks a layer goes by the numbers
        found.append((Kind.HEADER, f"names {a.user}:{a.group}", f"names {b.user}:{b.group}"))
    found += [(Kind.XATTR, was, now) for was, now in _xattrs(a, b)]
    if a.more != b.more:
        found.append((Kind.HEADER, _more(a), _more(b)))
    if not found:
        found.append((Kind.HEADER, f"written as {a.header[:12]}", f"written as {b.header[:12]}"))
    return found


def _moved(keys: Sequence[Key], places: dict[Key, int]) -> list[tuple[Key, str, str]]:
    """The fewest entries that would have to move to give the second order, each with what it stands behind."""
    there = sorted(keys, key=places.__getitem__)
    if there == list(keys):
        return []
    stay = _longest([places[key] for key in keys])
    here_before = dict(zip(keys[1:], keys))
    there_before = dict(zip(there[1:], there))
    return [
        (key, _behind(here_before.get(key)), _behind(there_before.get(key)))
        for number, key in enumerate(keys)
        if number not in stay
    ]


def _behind(key: Key | None) -> str:
    return "first" if key is None else f"behind {key[0]}"


def _longest(numbers: Sequence[int]) -> set[int]:
    """The places of a longest rising part."""
    ends: list[int] = []
    holders: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        at = bisect.bisect_left(ends, number)
        before.append(holders[at - 1] if at else -1)
        if at == len(ends):
            ends.append(number)
            holders.append(place)
        else:
            ends[at], holders[at] = number, place
    found: set[int] = set()
    place = holders[-1] if holders else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return found


def when(nanoseconds: int) -> str:
    """A time for people, exact."""
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{seconds} s"
    return f"{text}{f'.{rest:09d}'.rstrip('0') if rest else ''}Z"


def mode(entry: Entry) -> str:
    """The rights of an entry, as chmod takes them."""
    return f"{stat.S_IMODE(entry.mode):04o}"


def _told(entry: Entry) -> str:
    words = TYPES.get(entry.type, f"type {entry.type}")
    if entry.link:
        return f"{words} to {entry.link}"
    return f"{words} of {entry.size} bytes" if entry.is_file else words


def _hides(entry: Entry) -> str:
    """The path that a whiteout is about."""
    folder = entry.path.rpartition("/")[0]
    return folder or "/" if entry.name == OPAQUE else f"{folder}/{entry.name.removeprefix('.wh.')}"


def _taken(entry: Entry) -> str:
    return "all that is below is taken away" if entry.name == OPAQUE else "taken away"


def _content(entry: Entry) -> str:
    return f"{entry.size} bytes, sha256 {entry.sha256[:12]}"


def _more(entry: Entry) -> str:
    return ", ".join(f"{name}={value}" for name, value in entry.more) or "none"


def _xattrs(a: Entry, b: Entry) -> list[tuple[str, str]]:
    here, there = dict(a.xattrs), dict(b.xattrs)
    return [
        (_xattr(name, here.get(name)), _xattr(name, there.get(name)))
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]


def _xattr(name: str, value: bytes | None) -> str:
    return f"no {name}" if value is None else f"{name}={value.hex()}"


def hidden(entries: Iterable[Entry], paths: Iterable[str]) -> set[str]:
    """The paths that the whiteouts of a layer take away."""
    gone: set[str] = set()
    emptied: set[str] = set()
    for entry in entries:
        if entry.is_whiteout:
            folder = entry.path.rpartition("/")[0]
            if entry.name == OPAQUE:
                emptied.add(folder)
            else:
                gone.add(_hides(entry))
    if not gone and not emptied:
        return set()
    return {path for path in paths if path in gone or any(f in gone or f in emptied for f in _folders(path))}


def _folders(path: str) -> Iterable[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def between(layer: int, step: str, was: str, now: str) -> Difference:
    """What is left to say where all entries are the same and the layer is not."""
    return Difference(
        layer=layer,
        step=step,
        path="",
        kind=Kind.HEADER,
        was=was,
        now=now,
        cause=Cause.WRITER,
        detail="every entry is the same; what stands between or behind them is not",
    )


def same_bytes(first: Outline, second: Outline, pair: Pair, unpacked: str) -> list[Difference]:
    """What is left to say of two layers that unpack to the same bytes."""
    assert pair.first is not None and pair.second is not None
    here, there = first.steps[pair.first], second.steps[pair.second]
    found = [
        Difference(
            layer=number + 1,
            step=step.words,
            path="",
            kind=Kind.LAYER,
            was=f"{step.diff_id} as {image.name} calls it",
            now=f"{unpacked} as it is",
        )
        for image, number, step in ((first, pair.first, here), (second, pair.second, there))
        if step.diff_id != unpacked
    ]
    if here.blob and there.blob and here.blob != there.blob:
        found.append(
            Difference(
                layer=pair.first + 1,
                step=here.words,
                path="",
                kind=Kind.COMPRESSION,
                was=here.blob,
                now=there.blob,
                cause=Cause.COMPRESSION,
                detail="both unpack to the same bytes",
            )
        )
    return found
