"""Plain data and back: what is left out is empty again, and nothing of another shape gets in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.plain import from_plain, to_plain


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    word: str = ""
    pairs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    number: int
    flag: bool
    colour: Colour
    maybe: str | None
    inner: Inner
    other: Inner | None
    words: tuple[str, ...]


inners = st.builds(Inner, word=st.text(), pairs=st.lists(st.tuples(st.text(), st.integers())).map(tuple))
outers = st.builds(
    Outer,
    number=st.integers(),
    flag=st.booleans(),
    colour=st.sampled_from(Colour),
    maybe=st.none() | st.text(min_size=1),
    inner=inners,
    other=st.none() | inners.filter(lambda inner: inner != Inner()),
    words=st.lists(st.text()).map(tuple),
)
GOOD: dict[str, Any] = {"number": 0, "flag": False, "colour": "red"}


@given(outers)
def test_there_and_back_changes_nothing(value: Outer) -> None:
    assert from_plain(Outer, to_plain(value)) == value


def test_what_is_empty_is_left_out_but_zero_and_false_are_not() -> None:
    value = Outer(number=0, flag=False, colour=Colour.RED, maybe=None, inner=Inner(), other=None, words=())
    assert to_plain(value) == GOOD
    assert from_plain(Outer, GOOD) == value


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": "0"},
        {"number": True},
        {"number": None},
        {"number": 1.0},
        {"flag": 0},
        {"flag": "no"},
        {"maybe": 7},
        {"inner": []},
        {"inner": {"word": 1}},
        {"inner": {"wort": "x"}},
        {"inner": {"pairs": [["a"]]}},
        {"inner": {"pairs": [["a", 1, 2]]}},
        {"inner": {"pairs": {"a": 1}}},
        {"words": "abc"},
        {"words": [None]},
        {"unknown": 1},
        {1: 2},
    ],
    ids=str,
)
def test_another_shape_is_refused(wrong: dict[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        from_plain(Outer, {**GOOD, **wrong})


def test_a_word_that_an_enum_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="green"):
        from_plain(Outer, {**GOOD, "colour": "green"})


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_what_is_no_mapping_is_refused(data: object) -> None:
    with pytest.raises(TypeError):
        from_plain(Outer, data)
