"""Each folder of tests/bad is an env.yaml that is wrong, and every word that is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard import catalog, matrix, resolve
from torchyard.errors import Exit, YardError

CASES = sorted((Path(__file__).parent / "bad").iterdir())
CATALOG = catalog.load()


def complaint(folder: Path) -> tuple[str, YardError]:
    """What is said of the env.yaml in this folder."""
    text = matrix.read_bytes_checked((folder / "env.yaml").read_bytes())
    there = {name: folder / name for name in matrix.needed_files(text)}
    files = {name: path.read_text() if path.is_file() else None for name, path in there.items()}
    with pytest.raises(YardError) as caught:
        resolve.plan(matrix.parse(text, files=files, known=resolve.names(CATALOG)), CATALOG)
    return "\n".join(as_text(each) for each in caught.value.problems()), caught.value


def as_text(problem: YardError) -> str:
    """One problem as the tool prints it: place, line, what is wrong, what helps."""
    shown = getattr(problem, "shown", "")
    parts = [problem.where, *shown.split("\n"), f"  {problem.what}", f"  -> {problem.hint}" if problem.hint else ""]
    return "\n".join(part for part in parts if part) + "\n"


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_wrong_file_is_told_so(folder: Path) -> None:
    said, error = complaint(folder)
    expected = folder / "expected.txt"
    if os.environ.get("ACCEPT"):
        expected.write_text(said)
    assert said == expected.read_text()
    assert error.code is Exit.INPUT


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_every_problem_has_a_place(folder: Path) -> None:
    _, error = complaint(folder)
    assert all(each.where for each in error.problems())


def test_one_file_with_twelve_mistakes_gets_twelve_messages() -> None:
    _, error = complaint(Path(__file__).parent / "bad" / "twelve-mistakes")
    assert len({each.where for each in error.problems()}) >= 12
