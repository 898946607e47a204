"""docker compose for a stack: its command line, what its failures mean, and one stack a clone at a time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from torchyard.errors import CheckFailed, Exit, Surroundings, YardError
from torchyard.world import compose
from torchyard.world.compose import Stack
from torchyard.world.engine import Engine
from torchyard.world.process import Completed

ENGINE = Engine(
    docker_host="unix:///run/docker.sock",
    private=False,
    docker=("docker",),
    buildx=("docker", "buildx"),
    compose=("docker", "compose"),
    version="28.5.2",
    containerd_store=True,
    env={"DOCKER_HOST": "unix:///run/docker.sock"},
)


def stack(*files: str) -> Stack:
    """A stack with these files."""
    return Stack(engine=ENGINE, root=Path("/a b"), name="acme-1", files=files, variables={"TORCHYARD_TRAIN": "x.py"})


def test_a_stack_is_reached_by_its_files_or_by_its_name_alone() -> None:
    assert stack("compose/cpu.yaml").argv("ps")[2:] == [
        *("--ansi", "never", "--project-name", "acme-1"),
        *("--project-directory", "/a b", "--file", "compose/cpu.yaml", "--profile", "*", "ps"),
    ]
    assert "--project-directory" not in stack().argv("down")


def test_the_command_line_wins_over_env_files_through_the_environment() -> None:
    assert stack().env == {"DOCKER_HOST": "unix:///run/docker.sock", "TORCHYARD_TRAIN": "x.py"}


@pytest.mark.parametrize(
    ("said", "kind", "means"),
    [
        (
            "Error response from daemon: driver failed programming external connectivity on endpoint x: "
            "Bind for 127.0.0.1:8888 failed: port is already allocated",
            Surroundings,
            "a port is in use",
        ),
        (
            "Error response from daemon: listen tcp4 127.0.0.1:8888: bind: address already in use",
            Surroundings,
            "a port is in use",
        ),
        ("Error response from daemon: No such image: grafana/grafana:12.1.1", CheckFailed, "an image is not there"),
        (
            'Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]',
            Surroundings,
            "does not hand over the GPUs",
        ),
        (
            "Error response from daemon: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7",
            Surroundings,
            "does not hand over the GPUs",
        ),
        ("services.train.command must be a string", Surroundings, "exit code 15"),
    ],
)
def test_a_failed_start_is_told_in_the_users_terms(said: str, kind: type[YardError], means: str) -> None:
    done = Completed(argv=("docker", "compose", "up"), code=15, out="", err=f" Container a  Creating\n{said}\n")
    problem = compose.unstarted(done)
    assert type(problem) is kind
    assert means in problem.what and problem.hint
    assert said in problem.what


def test_one_up_a_clone_holds_the_stack_until_its_guard_is_done(tmp_path: Path) -> None:
    with compose.turn(tmp_path / "local" / "up.lock") as first:
        assert first is not None
        with compose.turn(tmp_path / "local" / "up.lock") as second:
            assert second is None
    with compose.turn(tmp_path / "local" / "up.lock") as third:
        assert third is not None


def test_lines_of_several_containers_have_their_service_in_front() -> None:
    target = io.StringIO()
    compose._prefixed(io.StringIO("one\ntwo\n"), target, "node0 | ")
    assert target.getvalue() == "node0 | one\nnode0 | two\n"


def test_an_engine_without_compose_is_said_with_what_to_install() -> None:
    from dataclasses import replace

    with pytest.raises(Surroundings, match="docker compose is not on this machine") as caught:
        compose.require(replace(ENGINE, compose=()))
    assert caught.value.code is Exit.SURROUNDINGS
