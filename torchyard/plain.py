"""Frozen values as plain nested data, and back, by their own type hints."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses as dicts, enums as their values, tuples as lists; what is empty or None is left out of dicts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, to_plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return {name: item for name, item in pairs if item not in (None, "", [], {})}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], data: Any) -> T:
    """The value of this type that `to_plain` gave; what was left out is empty again.

    Raises TypeError for unknown fields and wrong shapes, ValueError for a word that an enum does not have.
    """
    return typing.cast(T, _build(kind, data))


def _build(kind: Any, data: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _build(next(a for a in arguments if a is not type(None)), data)
    if origin is tuple:
        if not isinstance(data, list):
            raise TypeError(f"a list was expected, not {data!r}")
        inner = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else list(arguments)
        return tuple(_build(a, item) for a, item in zip(inner, data, strict=True))
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{kind.__name__} was expected, not {data!r}")
    return data


def _dataclass(kind: Any, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise TypeError(f"a mapping was expected for {kind.__name__}, not {data!r}")
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(unknown)}")
    return kind(**{name: _build(hint, data.get(name, _empty(hint))) for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _empty(hint: Any) -> Any:
    """What a value of this type is when nothing was written for it."""
    if typing.get_origin(hint) is tuple:
        return []
    if hint is str:
        return ""
    if dataclasses.is_dataclass(hint):
        return {}
    return None
