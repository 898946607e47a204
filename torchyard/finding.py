"""One judgement shape: doctor, verify and diagnose print, test and store it alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The three answers of a check; a skip is never a pass."""

    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One judgement on facts: what was expected, what was seen, and what mends it."""

    rule: str
    state: State
    what: str = ""
    expected: str = ""
    seen: str = ""
    fix: str = ""
    because: str = ""

    @classmethod
    def skipped(cls, rule: str, *, because: str, what: str = "") -> Finding:
        """A check that could not run, with the reason."""
        return cls(rule=rule, state=State.SKIPPED, what=what, because=because)

    @classmethod
    def same(cls, rule: str, *, what: str, expected: str, seen: str, fix: str) -> Finding:
        """Pass where seen equals expected, else fail; both are kept either way."""
        good = expected == seen
        return cls(
            rule=rule,
            state=State.PASS if good else State.FAIL,
            what=what,
            expected=expected,
            seen=seen,
            fix="" if good else fix,
        )
