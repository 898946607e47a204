"""Checks that were taken out are missed: a few at random here, all of them by tests/sabotage/run.py."""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sabotage"))

import run


def test_every_change_still_has_its_place_in_the_code() -> None:
    for change in run.changes():
        text = (run.ROOT / "torchyard" / change.file).read_text(encoding="utf-8")
        assert run.applied(change, text) != text


def test_five_checks_taken_out_at_random_turn_a_test_red() -> None:
    seed = random.randrange(1 << 16)
    chosen = run.sample(5, seed)
    assert run.missed(chosen) == [], f"seed {seed}: of {[change.name for change in chosen]}"
