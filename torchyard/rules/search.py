"""From a request with open keys to a cell with every key decided: the first that no rule refuses, or the closest.

A depth-first search over the open keys in a fixed order, newest value first, that judges each rule as soon as all
keys that it reads are decided. When nothing fits, the keys to blame are handed up, so that keys which cannot help are
not varied (conflict-directed backjumping), and so that the search for the nearest cell changes only what can help.
The closest cell breaks the least, by weight: the budget grows by what the last search lacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from operator import itemgetter
from typing import Any

from torchyard.catalog import Catalog
from torchyard.plan import Verdict
from torchyard.rules import RULES
from torchyard.rules.domains import CHANGEABLE, LEANS, OPEN, Problem, Value, Values, problem
from torchyard.rules.request import Asked, Cell

_CONSTANT = (
    *("gpus", "memory_gb", "mig", "driver", "arch_list", "index", "packages", "features", "precision"),
    *("cuda_compat", "toolkit", "compression", "consumers"),
)

# Sets of keys as bits. A key has one for the value that it has at the moment, and one for what the request says of it.
_BIT = {key: 1 << number for number, key in enumerate((*OPEN, *_CONSTANT))}
_SAID = {key: 1 << (len(_BIT) + number) for number, key in enumerate(CHANGEABLE)}

_CCS = "compute capabilities"  # beside the keys: GPUs of one generation are priced alike

# What is judged when: each rule when all that it reads is decided, some also by the few keys that can break it alone.
_CHECKS = tuple((number, False) for number in range(len(RULES))) + tuple(
    (number, True) for number, rule in enumerate(RULES) if rule.never
)
_READS = tuple(RULES[number].few if early else RULES[number].reads for number, early in _CHECKS)
_PRICED = tuple(
    tuple(_CCS if key == "gpus" and RULES[number].by_cc else key for key in reads)
    for (number, _), reads in zip(_CHECKS, _READS, strict=True)
)
_BITS = tuple(sum(_BIT[key] for key in reads) for reads in _READS)
_LEANS = {key: sum(_BIT[k] for k in LEANS.get(key, ())) for key in OPEN}
_FOUND = -1
_ANYTHING = ~0


class _Run:
    """One search under way: the values decided so far, and by how much the cheapest failure overran the budget."""

    __slots__ = ("levels", "over", "problem", "values")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.levels = _levels(problem.order, _worth_asking(problem))
        self.over = 1 << 30
        self.values: Values = {key: getattr(problem.asked, key) for key in _CONSTANT}
        self.values[_CCS] = tuple(gpu.cc for gpu in problem.asked.gpus)
        if "cuda" in problem.changed:
            self.values["toolkit"] = None


class Solver:
    """The search on one catalogue; remembers what each rule said of the keys that it reads."""

    def __init__(self, catalog: Catalog, allowed: frozenset[str] = frozenset()) -> None:
        self.catalog = catalog
        self._weights = tuple(0 if RULES[n].id in allowed else RULES[n].weight for n, _ in _CHECKS)
        self._prices: tuple[dict[object, int], ...] = tuple({} for _ in _CHECKS)
        self._keys: tuple[Callable[[Values], object], ...] = tuple(itemgetter(*keys) for keys in _PRICED)
        self._reads: tuple[Callable[[Values], object], ...] = tuple(itemgetter(*rule.reads) for rule in RULES)
        self._said: tuple[dict[object, Verdict], ...] = tuple({} for _ in RULES)

    def closest(self, asked: Asked) -> Cell:
        """The preferred cell that no rule refuses, else the preferred one of those that break the least."""
        wanted, budget = problem(asked, self.catalog), 0
        while True:
            run = _Run(wanted)
            if self._search(run, budget) == _FOUND:
                return cell_of(run.values)
            budget += run.over

    def nearest(self, asked: Asked) -> tuple[Cell, tuple[str, ...]] | None:
        """The nearest cell that no rule refuses and the keys that it changes: as few as possible, cheapest first."""
        given = [key for key in CHANGEABLE if key == "build" or getattr(asked, key) is not None]
        needed = [self._search(_Run(problem(asked, self.catalog)), 0)]
        for count in range(1, len(given) + 1):
            for changed in combinations(given, count):
                can = sum(_SAID[key] for key in changed)
                if not all(can & blamed for blamed in needed):
                    continue
                run = _Run(problem(asked, self.catalog, changed))
                blamed = self._search(run, 0)
                if blamed == _FOUND:
                    return cell_of(run.values), _really(changed, run.values, asked)
                needed.append(blamed)
        return None

    def verdicts(self, cell: Cell) -> tuple[Verdict, ...]:
        """What every rule says of a cell."""
        values = {key: getattr(cell, key) for key in _BIT}
        found: list[Verdict] = []
        for number, rule in enumerate(RULES):
            key = self._reads[number](values)
            said = self._said[number].get(key)
            if said is None:
                said = self._said[number][key] = rule.verdict(cell, self.catalog)
            found.append(said)
        return tuple(found)

    def _search(self, run: _Run, budget: int) -> int:
        """_FOUND, or what the request says that is to blame."""
        cost, broken = self._cost(run.levels[0], run.values, budget)
        if cost > budget:
            run.over = cost - budget
            return _said_of(broken)
        found = self._descend(run, 0, budget - cost, broken)
        return found if found == _FOUND else _said_of(found)

    def _descend(self, run: _Run, depth: int, left: int, spent: int) -> int:
        """_FOUND when the keys from this one on can be decided within the budget; else the bits that are to blame."""
        order = run.problem.order
        if depth == len(order):
            return _FOUND
        key, values, checks = order[depth], run.values, run.levels[depth + 1]
        mine = _BIT[key]
        blame = 0 if key in run.problem.fixed else _LEANS.get(key, 0)
        for value in run.problem.domain(key, values):
            values[key] = value
            cost, broken = self._cost(checks, values, left)
            if cost > left:
                run.over = min(run.over, cost - left)
                blame |= broken | spent
                continue
            deeper = self._descend(run, depth + 1, left - cost, spent | broken)
            if deeper == _FOUND:
                return _FOUND
            if not cost and not deeper & mine:
                return deeper
            blame |= deeper
        blame &= ~mine
        return blame | _SAID[key] if key in _SAID and run.problem.bound(key) else blame

    def _cost(self, checks: Sequence[int], values: Values, left: int) -> tuple[int, int]:
        """The weight of the broken rules, at least of so many that it exceeds what is left, and the keys they read."""
        cost = blamed = 0
        for check in checks:
            key = self._keys[check](values)
            price = self._prices[check].get(key)
            if price is None:
                price = self._prices[check][key] = self._price(check, values)
            if price:
                cost += price
                blamed |= _BITS[check]
                if cost > left:
                    break
        return cost, blamed

    def _price(self, check: int, values: Values) -> int:
        """The weight of one check where it is broken; what an early check counts is not counted twice."""
        number, early = _CHECKS[check]
        rule, cell = RULES[number], cell_of(values)
        never = rule.never is not None and rule.never(cell, self.catalog)
        broken = never if early else not never and not rule.judge(cell, self.catalog).ok
        return self._weights[check] if broken else 0


def _said_of(blamed: int) -> int:
    """What the request says among the bits to blame: a constant that may change counts as what was said of it."""
    said = blamed & sum(_SAID.values())
    for key in ("driver", "compression"):
        if blamed & _BIT[key]:
            said |= _SAID[key]
    return said | _SAID["cuda"] if blamed & _BIT["toolkit"] else said


def _really(changed: tuple[str, ...], values: Mapping[str, Any], asked: Asked) -> tuple[str, ...]:
    """The changed keys that have another value now."""
    other = tuple(key for key in changed if values[key] != getattr(asked, key))
    return other or changed


def _worth_asking(problem: Problem) -> frozenset[int]:
    """The checks that can fail at all for what is asked."""
    said = frozenset(key for key in _CONSTANT if getattr(problem.asked, key))
    return _checks_for(said, "" if "build" in problem.changed else problem.asked.build)


@lru_cache(maxsize=1024)
def _checks_for(said: frozenset[str], build: str) -> frozenset[int]:
    def can_fail(check: int) -> bool:
        number, early = _CHECKS[check]
        rule = RULES[number]
        known = not rule.only_with or rule.only_with in said
        # An empty arch list is a mistake that its rule tells.
        return (known or rule.only_with == "arch_list") and (early or not build or rule.only_build in ("", build))

    return frozenset(check for check in range(len(_CHECKS)) if can_fail(check))


@lru_cache(maxsize=1024)
def _levels(order: tuple[str, ...], asked: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """The checks that can be made before any key is decided, after the first, after the second..."""
    place = {key: number for number, key in enumerate(order, 1)}
    levels: list[list[int]] = [[] for _ in range(len(order) + 1)]
    for check in sorted(asked):
        levels[max((place[key] for key in _READS[check] if key in place), default=0)].append(check)
    return tuple(tuple(checks) for checks in levels)


_BLANK: Values = dict.fromkeys((*OPEN, *_CONSTANT)) | {"os": "", "build": "", "python": "", "torch": "", "arch": ""}


def cell_of(values: Values) -> Cell:
    """The cell that decided values make; keys that are still open keep a blank that no judged rule reads."""
    given = _BLANK | values
    given.pop(_CCS, None)
    return Cell(**given)  # type: ignore[arg-type]


@lru_cache(maxsize=8)
def solver(catalog: Catalog, allowed: frozenset[str] = frozenset()) -> Solver:
    """The solver of a catalogue, one for each set of allowed rules."""
    return Solver(catalog, allowed)


__all__ = ["Solver", "Value", "cell_of", "solver"]
