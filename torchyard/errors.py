"""One error shape: what is wrong, where, what helps, and the exit code it means."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """What the process answers: the one list of exit codes."""

    GOOD = 0
    BAD = 1  # the thing that was checked is bad
    INPUT = 2  # the user's input is wrong
    SURROUNDINGS = 3  # no engine, no network, disk full
    INTERRUPTED = 130


class YardError(Exception):
    """A problem that the user can act on; printed in one place, without a traceback.

    what: both sides, both numbers. where: `env.yaml:14:5  hardware.a100.cuda`. hint: the nearest thing that works.
    """

    code: Exit = Exit.INPUT

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def problems(self) -> tuple[YardError, ...]:
        """The single problems that this error stands for (itself, unless it is several)."""
        return (self,)


class InputError(YardError):
    """The user's file or command line is wrong (exit 2)."""


class Incompatible(InputError):
    """What is asked for cannot work together (exit 2); the rule is named in `what`."""


class Surroundings(YardError):
    """The machine, the engine, the network or the disk does not give what is needed (exit 3)."""

    code = Exit.SURROUNDINGS


class CheckFailed(YardError):
    """The thing that was checked is bad (exit 1)."""

    code = Exit.BAD


class Problems(YardError):
    """Several problems of one input, told in one go; exits with the gravest code among them."""

    def __init__(self, problems: Sequence[YardError]) -> None:
        super().__init__(f"{len(problems)} problems")
        self._problems = tuple(p for each in problems for p in each.problems())
        self.code = max((p.code for p in self._problems), default=Exit.INPUT)

    def problems(self) -> tuple[YardError, ...]:
        return self._problems


def raise_all(problems: Sequence[YardError]) -> None:
    """Raise nothing for no problem, the problem itself for one, `Problems` for more."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise Problems(problems)
