"""How far an image is proven: the highest level up to which nothing failed."""

from __future__ import annotations

from .finding import State
from .receipt import Level, Receipt

LEVELS = tuple(level.value for level in Level)  # the least first


def level(receipt: Receipt) -> str:
    """The highest level that passed, with no failure in it or in a level below it."""
    best = Level.NONE
    for tier in receipt.tiers:
        states = {finding.state for finding in tier.findings}
        if State.FAIL in states:
            break
        if State.PASS in states:
            best = tier.level
    return best.value


def at_least(seen: str, wanted: str) -> bool:
    """Whether an image proven to one level satisfies another."""
    return seen in LEVELS and LEVELS.index(seen) >= LEVELS.index(wanted)
