"""Which part of a Python bytecode file differs from another (PEP 552 has its header)."""

from __future__ import annotations

from . import marshalled
from .marshalled import Part

_HEADER = 16
_WORDS = {
    "order": "the order of a set",
    "sharing": "which objects are shared",
    "marks": "which objects are marked as shared",
    "interned": "which texts are interned",
}


def is_bytecode(path: str, data: bytes) -> bool:
    """Whether this is a bytecode file, by its name or by its start."""
    return path.endswith((".pyc", ".pyo")) or (len(data) > _HEADER and data[2:4] == b"\r\n" and data[16] & 0x7F == 0x63)


def part(was: bytes, now: bytes) -> str:
    """What of two bytecode files differs, in words."""
    told = []
    if was[:4] != now[:4]:
        return f"magic number: {_magic(was)} and {_magic(now)}, compiled by another Python"
    if was[4:8] != now[4:8]:
        told.append(f"header: {_checked(was)} and {_checked(now)}")
    elif was[4:8] == bytes(4):
        if was[8:12] != now[8:12]:
            told.append("header: time of the source")
        if was[12:16] != now[12:16]:
            told.append("header: size of the source")
    elif was[8:16] != now[8:16]:
        told.append("header: hash of the source")
    if was[_HEADER:] != now[_HEADER:]:
        told.append(_code(was, now))
    return "; ".join(told)


def _magic(data: bytes) -> int:
    return int.from_bytes(data[:2], "little")


def _checked(data: bytes) -> str:
    flags = int.from_bytes(data[4:8], "little")
    names = {0: "with the time of its source", 1: "with an unchecked hash", 3: "with a checked hash"}
    return names.get(flags, f"flags {flags}")


def _code(was: bytes, now: bytes) -> str:
    try:
        trees = [marshalled.read(data[_HEADER:], _magic(data)) for data in (was, now)]
    except marshalled.Unreadable:
        return "code (its layout is not known here)"
    found = marshalled.compare(*trees)
    if not found:
        return "code: what follows the marshalled object"
    grave = [each for each in found if each.how == "value"] or [each for each in found if each.how == "order"] or found
    first = grave[0]
    rest = f", and {len(grave) - 1} more places" if len(grave) > 1 else ""
    return f"code: {_told(first)}{rest}"


def _told(found: Part) -> str:
    place = found.path or "the whole"
    if found.how == "value":
        return f"{place}: {found.was} and {found.now}"
    return f"{_WORDS[found.how]}, at {place}" + (f": {found.was} and {found.now}" if found.how == "order" else "")
