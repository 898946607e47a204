"""A container that somebody else removes while an image is looked at: told in one error, and nothing waits for it."""

from __future__ import annotations

import subprocess

import clones
import pytest
from small_cases import NUMBERS, Cases
from small_project import Small

pytestmark = pytest.mark.docker

VERBS = {
    "verify": ("verify", "--gpu", "cpu", "--level", "cpu"),
    "build": ("build", "--gpu", "cpu", "--level", "cpu"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_container_that_is_removed_from_outside_is_told(cases: Cases, verb: str) -> None:
    at = cases["build"].ends.copy(f"removed-{verb}-{next(NUMBERS)}")
    at.yard("build", "--gpu", "cpu", "--level", "identity").good()  # another test may have removed it from the engine
    receipts = {path: path.read_bytes() for path in (at.local / "receipts").iterdir()}
    child = at.start(*VERBS[verb])
    name = waited_for(at, child)
    at.yard("docker", "rm", "--force", name).good()
    _, err = child.communicate()
    assert child.returncode == 3, err
    assert "Traceback" not in err and err.count("error: ") == 1
    assert "something else removed the container" in err
    assert {path: path.read_bytes() for path in (at.local / "receipts").iterdir()} == receipts
    assert name not in at.yard("docker", "ps", "--all", "--format", "{{.Names}}").good().out
    clones.end_tree(at.root)


def waited_for(at: Small, child: subprocess.Popen[str]) -> str:
    """The running container of the probes that this command started."""
    while child.poll() is None:
        listed = at.yard("docker", "ps", "--filter", "label=torchyard.owned", "--format", "{{.Names}}").good().out
        if found := [name for name in listed.split() if f"-{child.pid}-" in name]:
            return found[0]
    raise AssertionError(f"it ended before its probes ran: {child.communicate()}")
