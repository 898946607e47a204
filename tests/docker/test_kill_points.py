"""Killed at chosen places of lock, fetch, render, build, push and pull: nothing is half-written, the next run goes on.

A first run of each command notes every place where it changes a file, sends a request or starts a program. Then it is
ended at places chosen by TORCHYARD_SEED: at so many as TORCHYARD_KILLS says for each way of ending, or at `all`.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator

import clones
import kill_points
import pytest
import small_cases
from small_cases import COMMANDS, NUMBERS, Case, Cases, difference, run, wrong

pytestmark = pytest.mark.docker

SEED = int(os.environ.get("TORCHYARD_SEED", "20261201"))
KILLS = os.environ.get("TORCHYARD_KILLS", "1")
WAYS = ("SIGKILL", "SIGINT", "write")


def chosen(case: Case, way: str, chance: random.Random) -> Iterator[str]:
    """Places in the order in which they are tried: each line of the code is as likely as any other."""
    groups: dict[str, list[str]] = defaultdict(list)
    for site in case.sites:
        if way != "write" or site.startswith("open "):
            groups[site.rpartition(" ")[0]].append(site)
    names = sorted(groups)
    chance.shuffle(names)
    return (chance.choice(groups[name]) for name in names)


def ended_as(code: int, way: str) -> bool:
    return code == {"SIGKILL": -signal.SIGKILL, "SIGINT": 130, "write": -signal.SIGXFSZ}[way]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_nothing_half_written_and_the_next_one_goes_on(
    cases: Cases, name: str, way: str
) -> None:
    case = cases[name]
    chance = random.Random(f"{SEED} {name} {way}")
    places = list(chosen(case, way, chance))
    wanted = len(places) if KILLS == "all" else int(KILLS)
    landed = 0
    for place in places:
        if landed == wanted:
            break
        how = str(chance.randint(1, 64)) if way == "write" else way
        at = case.begins.copy(f"{name}-{way.lower()}-{next(NUMBERS)}")
        at = small_cases.own_registry(at) if name == "push" else at
        code, log, err = run(at, place, how, case.arguments)
        if kill_points.reached(log) and ended_as(code, way):
            landed += 1
            print(f"{way} at {place} ({how}), TORCHYARD_SEED={SEED}")
            assert "Traceback" not in err, err
            assert wrong(at, case) == []
            assert at.yard(*case.arguments).good()
            assert difference(at.files(), case.after) == []
        else:
            print(f"not at {place} ({how}): it ended with {code}")
        clones.end_tree(at.root)
    assert landed == wanted or KILLS == "all"
