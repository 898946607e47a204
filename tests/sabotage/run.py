"""Takes checks out of the code, one at a time, and says whether a test turned red: python tests/sabotage/run.py.

Each change is made in a copy; the checkout is not touched. Ends with 1 where a check can go without a test noticing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """One change, and the tests that have to notice it."""

    suite: str
    name: str
    file: str
    find: str
    put: str
    tests: str


def changes() -> list[Sabotage]:
    """Every change of every suite."""
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        found += [Sabotage(suite=path.stem, **row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    return found


def applied(change: Sabotage, text: str) -> str:
    """The source with the change made; the place has to be there once."""
    if text.count(change.find) != 1:
        raise SystemExit(f"{change.name}: {change.file} has {text.count(change.find)} times {change.find!r}")
    return text.replace(change.find, change.put)


def noticed(change: Sabotage, place: Path) -> bool:
    """Whether a test turns red in a copy with the change made."""
    file = place / "torchyard" / change.file
    before = file.read_text(encoding="utf-8")
    try:
        file.write_text(applied(change, before), encoding="utf-8")
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", change.tests]
        argv += [str(path) for path in sorted((place / "tests" / "unit").glob(f"test_{change.suite}*.py"))]
        env = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("ACCEPT", None)
        ended = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, check=False)
        return ended.returncode == 1 and "error" not in ended.stdout.splitlines()[-1]
    finally:
        file.write_text(before, encoding="utf-8")


def copy(place: Path) -> None:
    """A copy of what the tests need."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "torchyard", place / "torchyard", ignore=skip)
    shutil.copytree(ROOT / "templates", place / "templates")
    shutil.copytree(ROOT / "tests" / "facts", place / "tests" / "facts", ignore=skip)
    (place / "tests" / "unit").mkdir()
    for path in (ROOT / "tests" / "unit").glob("*.py"):
        shutil.copyfile(path, place / "tests" / "unit" / path.name)
    shutil.copyfile(ROOT / "tests" / "conftest.py", place / "tests" / "conftest.py")
    shutil.copyfile(ROOT / "pyproject.toml", place / "pyproject.toml")


def missed(chosen: list[Sabotage]) -> list[str]:
    """The names of the changes that no test notices."""
    with tempfile.TemporaryDirectory(prefix="torchyard-sabotage-") as folder:
        copy(Path(folder))
        return [change.name for change in chosen if not noticed(change, Path(folder))]


def sample(count: int, seed: int) -> list[Sabotage]:
    """Some changes at random."""
    every = changes()
    return random.Random(seed).sample(every, min(count, len(every)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--some", type=int, default=0, help="only so many, at random")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    asked = parser.parse_args()
    every = sample(asked.some, asked.seed) if asked.some else changes()
    print(f"{len(every)} changes" + (f", seed {asked.seed}" if asked.some else ""), flush=True)
    wrong = missed(every)
    print("\n".join(f"no test notices: {name}" for name in wrong) or "each was noticed")
    sys.exit(1 if wrong else 0)
