"""The lines of a lock as `lock.to_text` writes them, read without a YAML parser: each value is JSON on its line."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_TOP = re.compile(r"([a-z][a-z_]+):(?: (.+))?")
_ROW = re.compile(r"  - (.+)")
_PAIR = re.compile(r"  ([a-z][a-z0-9_-]+): (.+)")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null"))  # keys that YAML would not take for text


def read(text: str) -> dict[str, Any] | None:
    """What a lock says; None where a line is not just as it is written, so that YAML has to tell what it means.

    What JSON and YAML read differently (escapes, numbers with a point, NaN) is left to YAML.
    """
    if not text.isascii() or "\x7f" in text or "\\u" in text:
        return None
    try:
        return _read(text.split("\n"))
    except ValueError:
        return None


def _read(lines: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name = ""
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if row := _ROW.fullmatch(line):
            rows = found[name] = _open(found, name, list)
            rows.append(_value(row[1]))
        elif pair := _PAIR.fullmatch(line):
            pairs = found[name] = _open(found, name, dict)
            _put(pairs, pair[1], _value(pair[2]))
        elif top := _TOP.fullmatch(line):
            name = top[1]
            _put(found, name, _value(top[2]) if top[2] else None)
        else:
            raise ValueError(line)
        if not name:
            raise ValueError(line)
    return found


def _open(found: dict[str, Any], name: str, kind: type) -> Any:
    """The rows or pairs under a name; a name with a value of its own has none."""
    under = found.get(name)
    if under is None:
        return kind()
    if type(under) is not kind or not under:  # an empty one was written as a value
        raise ValueError(name)
    return under


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    if key in into or key in _WORDS:
        raise ValueError(key)
    into[key] = value


def _value(text: str) -> Any:
    return json.loads(text, parse_float=_strange, parse_constant=_strange)


def _strange(text: str) -> NoReturn:
    raise ValueError(text)
