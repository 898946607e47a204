"""up: which services a command line means, whose exit code is answered, and what .env chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.errors import InputError
from torchyard.verbs import project as projects
from torchyard.verbs import up
from torchyard.world.compose import Ended

TEXT = """\
schema: 1
project: acme
hardware: {small: {}, other: {}}
software: {torch: "2.13.0", python: "3.11", base: {from: archive, os: debian-12}}
"""


@pytest.fixture
def project(tmp_path: Path) -> projects.Project:
    """A project with two entries."""
    (tmp_path / "env.yaml").write_text(TEXT)
    return projects.load(tmp_path)


def test_profiles_are_services_of_which_jobs_end_by_themselves() -> None:
    assert up._services(("train", "tensorboard")) == (["train", "tensorboard"], ["train"])
    assert up._services(("rehearse",)) == (["node0", "node1"], ["node0", "node1"])
    assert up._services(("monitor",)) == (["dcgm", "prometheus", "grafana"], [])


@pytest.mark.parametrize(
    ("profiles", "says"), [(("trian",), "trian"), ((), "no profile"), (("train", "rehearse"), "at once")]
)
def test_profiles_that_cannot_be_are_refused(profiles: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        up._services(profiles)
    assert caught.value.hint


def test_the_exit_code_is_that_of_the_first_that_failed() -> None:
    said: list[str] = []
    good = Ended(service="node0", code=0, when="1")
    bad = Ended(service="node1", code=7, when="2", error="OCI runtime error")
    later = Ended(service="node0", code=1, when="3")
    assert up._code([good], said.append) == 0
    assert up._code([good, bad, later], said.append) == 7
    assert said == ["node1: OCI runtime error"]


def test_the_entry_of_env_is_taken_where_none_is_given(project: projects.Project) -> None:
    with pytest.raises(InputError, match="nothing says which hardware") as caught:
        up.remembered(project)
    assert caught.value.hint == "there are: small, other"
    (project.work.root / ".env").write_text("TORCHYARD_HARDWARE=other\n")
    assert up.remembered(project) == "other"
    (project.work.root / ".env").write_text("TORCHYARD_HARDWARE=gone\n")
    with pytest.raises(InputError, match="nothing says which hardware"):
        up.remembered(project)


def test_a_script_that_is_not_in_the_repository_is_said_before_anything_starts(project: projects.Project) -> None:
    (project.work.root / "train.py").touch()
    up._check_script(project, ["train.py", "--lr", "1"])
    up._check_script(project, ["-m", "package.train"])
    up._check_script(project, [])
    with pytest.raises(InputError, match=r"there is no script nothing\.py"):
        up._check_script(project, ["nothing.py"])


def test_what_the_command_line_says_is_one_shell_word_each() -> None:
    given = up._given(up.Options(processes=3), ["train.py", "two words", "$HOME", "it's"])
    assert given == {"TORCHYARD_TRAIN": "train.py 'two words' '$HOME' 'it'\"'\"'s'", "TORCHYARD_PROCESSES": "3"}
    assert up._given(up.Options(), []) == {}
