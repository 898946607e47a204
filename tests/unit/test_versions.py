"""Versions compare component by component as numbers."""

from __future__ import annotations

import pytest

from torchyard.versions import above, below, names, numbers


@pytest.mark.parametrize(
    ("version", "floor", "is_below"),
    [
        ("525.60.11", "525.60.13", True),
        ("525.60.13", "525.60.13", False),
        ("570.26", "570.124.06", True),
        ("570.124.06", "570.26", False),
        ("570", "570.26", False),
        ("569", "570.26", True),
        ("2.9.0", "2.10.0", True),
        ("9", "9.3", False),
        ("8.5", "9.3", True),
        ("11.2", "11.3", True),
    ],
)
def test_below(version: str, floor: str, is_below: bool) -> None:
    assert below(version, floor) is is_below


@pytest.mark.parametrize(
    ("version", "ceiling", "is_above"),
    [
        ("11.4", "11", False),
        ("12", "11", True),
        ("2.43", "2.41", True),
        ("2.9", "2.41", False),
        ("3.14t", "3.14", False),
    ],
)
def test_above(version: str, ceiling: str, is_above: bool) -> None:
    assert above(version, ceiling) is is_above


def test_a_shorter_version_names_the_longer_ones() -> None:
    assert names("2.1", "2.1.2") and not names("2.1", "2.10.0") and not names("2.1.2", "2.1")


def test_numbers_of_odd_spellings() -> None:
    assert numbers("R580") == (580,) and numbers("9.1.0.70.post1") == (9, 1, 0, 70, 1) and numbers("musl") == ()
