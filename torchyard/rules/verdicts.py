"""How a rule answers: passed, not asked, refused or unproven, each with its sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.catalog import Catalog
from torchyard.catalog.rows import Row
from torchyard.plan import Verdict
from torchyard.rules.request import Cell

Judge = Callable[[Cell, Catalog], "Answer"]
Never = Callable[[Cell, Catalog], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a rule says of a cell, before its name is put to it; no source: the rule's own."""

    ok: bool
    what: str
    rows: tuple[Row, ...] = ()
    unproven: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule: what it states, and the keys of a cell that it reads."""

    id: str
    reads: tuple[str, ...]
    judge: Judge
    weight: int = 1  # how far a cell that breaks it is from one that works
    few: tuple[str, ...] = ()  # of `reads`, those by which `never` tells already that the rule is broken
    never: Never | None = None
    only_with: str = ""  # it holds wherever the request says nothing of this key
    only_build: str = ""  # it holds, beyond `never`, for every other kind of build
    by_cc: bool = False  # whether it holds depends on nothing of the GPUs but their compute capabilities

    def verdict(self, cell: Cell, catalog: Catalog) -> Verdict:
        """What the rule says of a cell, with the sources of the rows it rests on, else its own."""
        answer = self.judge(cell, catalog)
        cited = dict.fromkeys(source for row in answer.rows for source in row.source)
        own = next((r.source for r in catalog.rules() if r.id == self.id), ())
        return Verdict(
            rule=self.id,
            ok=answer.ok,
            what=answer.what,
            source=", ".join(cited or own),
            unproven=answer.unproven and not answer.ok,
        )


def passed(what: str, *rows: Row) -> Answer:
    """The rule holds."""
    return Answer(ok=True, what=what, rows=rows)


def refused(what: str, *rows: Row, proven: bool = True) -> Answer:
    """The rule is broken; unproven where the rows it rests on were not read."""
    return Answer(ok=False, what=what, rows=rows, unproven=not proven)
