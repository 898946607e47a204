"""The same command three times at once in one project: each ends well, and the result is that of one."""

from __future__ import annotations

from pathlib import Path

import clones
import pytest
from small_cases import NUMBERS, Cases, difference, own_registry, unfinished

pytestmark = pytest.mark.docker

TIMES = 3


@pytest.mark.parametrize("name", ["lock", "fetch", "render", "build", "push", "pull"])
def test_commands_at_once_end_well_with_the_result_of_one(cases: Cases, name: str) -> None:
    case = cases[name]
    at = case.begins.copy(f"at-once-{name}-{next(NUMBERS)}")
    at = own_registry(at) if name == "push" else at
    children = [at.start(*case.arguments) for _ in range(TIMES)]
    ends = [(*child.communicate(), child.returncode) for child in children]
    assert [code for *_, code in ends] == [0] * TIMES, ends
    assert [found for found in at.files() if unfinished(Path(found))] == []
    assert difference(at.files(), case.after) == []
    clones.end_tree(at.root)


def test_one_of_many_at_once_is_killed_and_the_others_end_well(cases: Cases) -> None:
    case = cases["fetch"]
    at = case.begins.copy(f"at-once-killed-{next(NUMBERS)}")
    children = [at.start(*case.arguments) for _ in range(TIMES)]
    turn = at.local / "turn"
    while not holder(turn):
        assert any(child.poll() is None for child in children)
    children[0].kill()
    ends = [(*child.communicate(), child.returncode) for child in children]
    assert [code for *_, code in ends[1:]] == [0] * (TIMES - 1), ends
    at.yard(*case.arguments).good()
    assert difference(at.files(), case.after) == []
    clones.end_tree(at.root)


def holder(turn: Path) -> bool:
    """Whether a command has its turn, as the kernel lists it."""
    if not turn.exists():
        return False
    inode = f":{turn.stat().st_ino} "
    return any(inode in line and "FLOCK" in line for line in Path("/proc/locks").read_text().splitlines())
