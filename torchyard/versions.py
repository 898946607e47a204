"""Versions compared component by component as numbers; a shorter version stands for all that start with it."""

from __future__ import annotations

import re
from functools import lru_cache

_NUMBER = re.compile(r"\d+")


@lru_cache(maxsize=4096)
def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version: `525.60.13` gives (525, 60, 13), `3.14t` (3, 14), `R580` (580,)."""
    return tuple(int(n) for n in _NUMBER.findall(text))


def below(version: str, floor: str) -> bool:
    """Whether every version that `version` names is older than `floor` (`580` is not below `580.65.06`)."""
    floor_numbers = numbers(floor)
    version_numbers = numbers(version)
    return version_numbers < floor_numbers[: len(version_numbers)]


def above(version: str, ceiling: str) -> bool:
    """Whether `version` is newer than every version that `ceiling` names (`11.4` is not above `11`)."""
    ceiling_numbers = numbers(ceiling)
    return numbers(version)[: len(ceiling_numbers)] > ceiling_numbers


def names(prefix: str, version: str) -> bool:
    """Whether `prefix` names `version`: equal in every component that it has."""
    wanted = numbers(prefix)
    return numbers(version)[: len(wanted)] == wanted


def newest(versions: list[str] | tuple[str, ...]) -> str:
    """The greatest of some versions (ValueError for none)."""
    return max(versions, key=numbers)


def descending(versions: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The versions, newest first."""
    return tuple(sorted(versions, key=numbers, reverse=True))
