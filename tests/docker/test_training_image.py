"""The reference training in the CPU image: every promise of tests/training/claims.py, checked in one container."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from clones import Clone

pytestmark = pytest.mark.docker

CLAIMS = Path(__file__).resolve().parents[1] / "training" / "claims.py"


def claims() -> list[str]:
    """The names of the claims; the file itself can only be imported where there is a torch."""
    functions = [node for node in ast.parse(CLAIMS.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if ast.unparse(f.args) == "rig: Rig" and ast.unparse(f.returns or f) == "None"]


@pytest.fixture(scope="module")
def seen(yard: Clone, cpu: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each claim came to, in a container without a network, as a user, with the checkout read-only."""
    ended = yard.docker(
        "run", "--rm", "--network", "none", "--user", "1000:1000", "--shm-size", "256m",
        "--tmpfs", "/small:size=2500k,mode=1777", "--env", "SMALL=/small", "--env", "GLOO_SOCKET_IFNAME=lo",
        "--volume", f"{yard.root}:/workspace:ro", "--workdir", "/workspace",
        yard.tag("cpu"), "timeout", "540", "python", "tests/training/run.py",
    )  # fmt: skip
    found = [json.loads(line) for line in ended.out.splitlines() if line.startswith('{"claim"')]
    assert found, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-4000:]}"
    return {each["claim"]: each for each in found}


@pytest.mark.parametrize("claim", claims())
def test_the_reference_training_holds_in_the_image(seen: dict[str, dict[str, Any]], claim: str) -> None:
    assert claim in seen, f"not checked; the last that was: {list(seen)[-1]}"
    assert seen[claim]["good"], seen[claim]["told"]
