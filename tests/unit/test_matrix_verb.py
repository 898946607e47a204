"""What the verb `matrix` adds to the plan: refused cells for people, and images whose lock changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from torchyard import catalog, matrix, resolve
from torchyard.errors import InputError, Surroundings
from torchyard.verbs import matrix as verb

CATALOG = catalog.load()
REFUSED = 'schema: 1\nproject: a\nsoftware: {torch: "2.14.1"}\nhardware: {v100: {gpu: v100, cuda: "13.0"}}\n'


def test_a_refused_cell_has_its_rules_and_the_nearest_that_works_in_table_and_json() -> None:
    plan = resolve.plan(matrix.parse(REFUSED), CATALOG)
    (line,) = verb.table(plan)
    assert line[2] == "-"
    assert line[4].startswith("refused; ") and "gpu-code" in line[4] and "nearest: " in line[4]
    (cell,) = verb.document(plan)["cells"]
    assert (cell["image"], cell["state"], cell["cuda"]) == (None, "refused", "13.0")
    assert {rule["rule"] for rule in cell["rules"]} >= {"gpu-code"} and cell["nearest"]


def git(root: Path, *argv: str) -> None:
    """Run git in a repository that no configuration of this machine touches."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *argv], cwd=root, env={**os.environ, **own, **names}, check=True, capture_output=True)


def test_an_image_is_changed_where_its_lock_differs_from_the_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("same", "other", "gone"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "lock.yaml").write_text("1")
        (tmp_path / "images" / name / "Dockerfile").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    (tmp_path / "images" / "other" / "lock.yaml").write_text("2")
    (tmp_path / "images" / "same" / "Dockerfile").write_text("2")
    (tmp_path / "images" / "gone" / "lock.yaml").unlink()
    assert verb.changed_since(tmp_path, "HEAD") == {"other"}


def test_a_commit_that_is_not_there_is_told(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(Surroundings) as caught:
        verb.changed_since(tmp_path, "--output=x")
    assert "--since" in caught.value.hint


def test_a_folder_that_is_no_repository_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InputError, match="what changed since HEAD in .*not a git repository") as caught:
        verb.changed_since(tmp_path, "HEAD")
    assert "usage" not in caught.value.what and "\n" not in caught.value.what
    assert "clone" in caught.value.hint
