"""A few random changes of env.yaml in every run; tests/fuzz_env.py makes many."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from torchyard import catalog

spec = importlib.util.spec_from_file_location("fuzz_env", Path(__file__).parents[1] / "fuzz_env.py")
assert spec is not None and spec.loader is not None
fuzz_env = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz_env)
CATALOG = catalog.load()
STARTS = [path.read_bytes() for path in fuzz_env.SEEDS]


def test_the_files_that_are_changed_are_right_themselves() -> None:
    assert [fuzz_env.outcome(data, CATALOG) for data in STARTS] == ["planned"] * len(STARTS)


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_file_ends_in_a_plan_or_in_told_mistakes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(375):
        assert fuzz_env.outcome(fuzz_env.mutated(rng.choice(STARTS), STARTS, rng), CATALOG) in ("planned", "told")
