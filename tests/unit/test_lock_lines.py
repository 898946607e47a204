"""Locks read line by line: the same as YAML where a line is as it is written, and YAML's answer everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from torchyard import lock, lock_lines
from torchyard.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "images").glob("*/lock.yaml"))
TEXT = 'schema: 1\nbase:\n  kind: "archive"\n  tar: "ab"\nwheels:\n  - {"name": "a", "size": 3}\nos: []\n'
LINES = [
    *TEXT.splitlines(),
    "",
    "# words",
    "wheels:",
    "wheels: []",
    "  - 1e5",
    "  - 1.5",
    "  - NaN",
    "  - nan",
    "  - 0x10",
    "  - 010",
    "  - true",
    '  - "\\u00e9"',
    '  - "\\ud83d\\ude00"',
    '  - "é"',
    '  - "a" # words',
    '  - {"a": 1, "a": 2}',
    "  - {a: 1}",
    "  on: 1",
    "  yes: 2",
    '  kind: "image"',
    "   - 1",
    " - 1",
    "- 1",
    "  -  1",
    "base: {}",
    "---",
    "<<<<<<< HEAD",
    "\t- 1",
    "  - 1\r",
    "  - [1, [2, {}]]",
    "  - 12345678901234567890",
]


def by_yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return "not YAML"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_that_was_written_is_read_without_yaml(path: Path) -> None:
    text = path.read_text()
    assert lock_lines.read(text) == yaml.safe_load(text)


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_what_is_read_is_what_yaml_reads(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = lock_lines.read(text)
    assert found is None or (found or None) == by_yaml(text)


@pytest.mark.parametrize("line", ["  - 1e5", "  on: 1", '  - "\\u00e9"', "<<<<<<< HEAD", "wheels: []", "  - 1.5"])
def test_what_json_and_yaml_may_read_differently_is_left_to_yaml(line: str) -> None:
    assert lock_lines.read(TEXT) is not None
    assert lock_lines.read(TEXT.replace("os: []\n", line + "\n")) is None


def test_a_lock_with_the_marks_of_a_merge_is_refused_as_before() -> None:
    text = LOCKS[0].read_text().replace("os:\n", "<<<<<<< HEAD\nos:\n")
    with pytest.raises(InputError, match="not a lock that torchyard wrote"):
        lock.from_text(text, name="images/x/lock.yaml")
