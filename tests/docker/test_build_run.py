"""`run`: the command's own exit code, the caller's own files, and no container left, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clones import Clone

pytestmark = pytest.mark.docker

OWNED = "torchyard.owned"


@pytest.fixture
def built(yard: Clone, cpu: dict[str, Any]) -> Clone:
    """The clone, with its CPU image built."""
    return yard


@pytest.fixture
def mine(built: Clone) -> Iterator[Path]:
    """A folder of the clone that another user owns."""
    folder = built.root / "mine"
    folder.mkdir()
    os.chown(folder, 12345, 12346)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def containers(yard: Clone) -> list[str]:
    """The containers that torchyard owns, running or not."""
    return yard.docker("ps", "--all", "--quiet", "--filter", f"label={OWNED}").good().out.split()


def start_sleeper(yard: Clone) -> subprocess.Popen[str]:
    """`run` with a command that does not end, when its container runs."""
    child = yard.start(yard.argv("run", "--gpu", "cpu", "--", "sleep", "600"))
    while "Up" not in yard.docker("ps", "--filter", f"label={OWNED}", "--format", "{{.Status}}").good().out:
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    return child


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_and_the_output_are_those_of_the_command(built: Clone, code: int) -> None:
    program = f"import sys, torch; print('a  b', torch.__version__); sys.exit({code})"
    ended = built.yard("run", "--gpu", "cpu", "--", "python", "-W", "ignore", "-c", program)
    assert (ended.code, ended.out) == (code, "a  b 2.13.0+cpu\n")
    assert containers(built) == []


def test_a_command_that_is_not_there_says_so(built: Clone) -> None:
    ended = built.yard("run", "--gpu", "cpu", "--", "no-such-command")
    assert ended.code == 127
    assert "no-such-command" in ended.err
    assert "Traceback" not in ended.err


def test_files_belong_to_the_caller_who_has_a_name_inside(built: Clone, mine: Path) -> None:
    told = built.yard("engine", "--env").good().out
    words = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines())
    caller = replace(
        built,
        engine=built.engine.with_name("none"),
        env={
            **built.env,
            "DOCKER_HOST": words["DOCKER_HOST"],
            "DOCKER_CONFIG": words["DOCKER_CONFIG"],
            "PATH": words["PATH"].split(":")[0].strip("'\"") + ":" + os.environ["PATH"],
            "TORCHYARD_ENGINE": "none",
        },
    )
    # The capability stands for the rights that an ordinary user of docker has: this engine's socket is root's.
    as_caller = ["setpriv", "--reuid=12345", "--regid=12346", "--clear-groups"]
    as_caller += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    script = "touch made && id -un && pwd"
    done = caller.call([*as_caller, *caller.argv("run", "--gpu", "cpu", "--", "bash", "-c", script)], cwd=mine).good()
    assert done.out.split() == ["user", "/workspace/mine"]
    status = (mine / "made").stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


def test_ctrl_c_ends_the_command_and_leaves_no_container(built: Clone) -> None:
    child = start_sleeper(built)
    os.killpg(child.pid, signal.SIGINT)
    child.communicate()
    assert child.returncode == 130
    assert containers(built) == []


def test_a_killed_run_is_swept_by_the_next_one(built: Clone) -> None:
    child = start_sleeper(built)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    left = containers(built)
    assert len(left) == 1
    ended = built.yard("run", "--gpu", "cpu", "--", "true").good()
    child.communicate()  # its docker client ends with the container
    assert "removing torchyard-run-" in ended.err
    assert containers(built) == []
