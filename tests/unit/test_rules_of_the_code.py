"""Rules about the code itself: every error has a hint, every step is a script that a shell reads."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "torchyard").rglob("*.py"))
ERRORS = {"YardError", "InputError", "Incompatible", "Surroundings", "CheckFailed"}
STEPS = sorted(path for path in (ROOT / "templates" / "steps").iterdir() if path.suffix != ".py")


def calls(path: Path) -> list[ast.Call]:
    """Where a module makes an error that a user sees."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ERRORS:
                found.append(node)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_error_has_a_hint(path: Path) -> None:
    for call in calls(path):
        names = {keyword.arg for keyword in call.keywords}
        assert names & {"hint", None}, f"{path}:{call.lineno}: {ast.unparse(call)[:100]}"


def test_errors_are_found_by_this_rule() -> None:
    assert sum(len(calls(path)) for path in MODULES) > 100


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_is_caught_and_passed_over_without_a_reason(path: Path) -> None:
    lines = path.read_text().splitlines()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")
            passes = all(isinstance(each, ast.Pass) for each in node.body)
            assert not (broad and passes and "  # " not in lines[node.lineno - 1]), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_public_name_says_what_one_gets(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path}:{node.lineno} {node.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_json_of_others_is_read_by_the_one_function_that_knows_how_it_can_be_wrong(path: Path) -> None:
    own = {"json_text.py", "lock_lines.py"}
    if path.name not in own and "inside" not in path.parts:
        assert "json.loads(" not in path.read_text()
        assert not re.search(r"\.json\(\)", path.read_text())


@pytest.mark.parametrize("path", [*STEPS, ROOT / "yard"], ids=lambda path: path.name)
def test_a_step_is_a_posix_script_that_stops_at_its_first_error(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "\nset -eu\n" in text
    assert subprocess.run(["sh", "-n", path], check=False).returncode == 0


def test_the_ci_script_is_one_that_bash_reads() -> None:
    path = ROOT / ".ci" / "run"
    assert path.stat().st_mode & 0o111
    assert "set -euo pipefail" in path.read_text()
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
