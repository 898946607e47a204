"""Reports of real failures with shared memory, locked memory, users and mounts, each with its right outcome."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from fake_engine import FakeEngine
from test_reported_cases import ROWS, told
from test_stack import CPU, GIB, HOST, decide
from test_stack_files import made
from test_stack_launch import load

from torchyard.errors import Exit, InputError
from torchyard.finding import State
from torchyard.plan import Cell, CellState
from torchyard.verbs import run
from torchyard.world import compose, process, stack_env
from torchyard.world.workspace import Workspace

launch: Any = load("launch")
STEP = Path(__file__).resolve().parents[2] / "templates" / "steps" / "make-environment"


@pytest.mark.parametrize(
    ("written", "says"),
    [('"8"', "name the unit: 8g"), ("8", "name the unit: 8g"), ('"8gb"', "write 8 and m, g or t"), ('"0g"', "16g")],
)
def test_b060_a_size_that_may_mean_bytes_is_refused_with_what_to_write(written: str, says: str) -> None:
    error = told(f'software: {{torch: "2.14.1"}}\nhardware: {{a: {{gpu: a100, shm: {written}}}}}\n')
    assert "hardware.a.shm" in error.where and says in error.hint


def test_b060_every_stack_says_how_much_shared_memory_there_is() -> None:
    """What happens at 64 MB is in test_cpu_judge.py (the message) and in test_verify_cpu.py (a container)."""
    files = made()
    for name in ("big", "small"):
        services = yaml.safe_load(files[PurePosixPath(f"compose/{name}.yaml")])["services"]
        for service in ("train", "shell", "jupyter", "node0", "node1"):
            assert services[service]["shm_size"] == "${TORCHYARD_SHM:-1g}"
    assert int(decide().variables["TORCHYARD_SHM"]) == 16 * GIB


def test_b064_locked_memory_is_measured_in_the_container_and_its_numbers_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"now": (8192 << 10, 16384 << 10)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    assert "each rank can lock 8192 KiB of memory, 16384 at most" in launch.locked_memory()
    assert "LimitMEMLOCK=infinity" in launch.locked_memory() and "not of limits.conf" in launch.locked_memory()
    limits["now"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert launch.locked_memory() == ""


def test_b064_a_rank_has_what_the_container_may_have_at_most() -> None:
    numbers = (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)
    before = {number: resource.getrlimit(number) for number in numbers}
    hard = before[resource.RLIMIT_MEMLOCK][1]
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, hard))
        launch.raise_limits()
        assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == (hard, hard)
    finally:
        for number, limit in before.items():
            resource.setrlimit(number, limit)


def test_b064_a_stack_asks_for_unlimited_memory_soft_and_hard() -> None:
    services = yaml.safe_load(made()[PurePosixPath("compose/limits-raised.yaml")])["services"]
    assert set(services) == {"train", "shell", "jupyter", "node0", "node1"}
    assert all(each["ulimits"]["memlock"] == {"soft": -1, "hard": -1} for each in services.values())


def test_b105_a_command_runs_as_its_caller_who_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """test_build_run.py does it in a container, where the files that it makes are the caller's."""
    monkeypatch.setattr(os, "getuid", lambda: 1042)
    monkeypatch.setattr(os, "getgid", lambda: 1043)
    monkeypatch.chdir(tmp_path)
    with FakeEngine() as fake:
        options = run._options(Workspace(tmp_path), CELL, fake.engine, "name", print)
    assert options[options.index("--user") + 1] == "1042:1043"
    assert f"type=bind,source={tmp_path}/.torchyard/run/passwd,target=/etc/passwd,readonly" in options
    passwd = (tmp_path / ".torchyard/run/passwd").read_text()
    assert re.search(r"^user:x:1042:1043:user:/home/user:", passwd, re.MULTILINE)
    assert "user:x:1043:" in (tmp_path / ".torchyard/run/group").read_text()
    variables = decide(host=replace(HOST, uid=1042, gid=1043)).variables
    assert (variables["TORCHYARD_UID"], variables["TORCHYARD_GID"]) == ("1042", "1043")


CELL = Cell(
    hardware="a", gpus=(), compute_capability=(), count=1, site="", choice=(), default=True, state=CellState.OK,
    image="x", driver_min="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("passwd", "group", "adds"),
    [
        ("ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n", "users:x:100:\nubuntu:x:1000:\n", ("", "")),
        ("root:x:0:0::/root:/bin/sh\n", "users:x:100:\n", ("user:x:1000:", "user:x:1000:\n")),
        ("root:x:0:0::/root:/bin/sh\n", "taken:x:1000:\n", ("user:x:1000:", "")),
    ],
)
def test_b107_who_has_the_id_already_keeps_it(tmp_path: Path, passwd: str, group: str, adds: tuple[str, str]) -> None:
    """The step of the image that names its user, on files of our own."""
    lines = re.search(r"^if ! getent passwd 1000.*?^fi$", STEP.read_text(), re.MULTILINE | re.DOTALL)
    assert lines is not None
    (tmp_path / "passwd").write_text(passwd)
    (tmp_path / "group").write_text(group)
    getent = f'getent() {{ grep ":x:$2:" "{tmp_path}/$1"; }}\n'
    script = "set -eu\n" + getent + lines[0].replace("/etc/", f"{tmp_path}/")
    process.run(["sh", "-c", script])
    assert (tmp_path / "passwd").read_text().removeprefix(passwd).startswith(adds[0])
    assert bool((tmp_path / "passwd").read_text().removeprefix(passwd)) is bool(adds[0])
    assert (tmp_path / "group").read_text().removeprefix(group) == adds[1]


def test_b107_no_image_makes_a_user_by_a_name_or_runs_as_root() -> None:
    for text in ROWS:
        assert not re.search(r"\b(useradd|adduser|groupadd|usermod)\b", text)
        assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1000:1000"


def test_b109_a_uid_without_a_name_has_one_and_caches_that_it_can_write() -> None:
    """A container of a nameless uid compiles a function in test_inside_image.py and in verify (test_verify_cpu.py)."""
    for text in ROWS:
        (variables,) = re.findall(r"^ENV PATH=(?:.*\\\n)*.*", text.partition("AS runtime")[0], re.MULTILINE)[-1:]
        given = dict(re.findall(r"\b([A-Z_]+)=\"?([^\"\s]*)", variables))
        assert given["LNAME"] and given["HOME"] == "/home/user"
        for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            assert given[name].startswith("/tmp/")


@pytest.mark.parametrize("name", ["TORCHYARD_DATA", "TORCHYARD_RUNS"])
def test_b114_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path: Path, name: str) -> None:
    work = Workspace(tmp_path)
    for folder in ("data", "runs", "mine"):
        (tmp_path / folder).mkdir()
    stack_env.check_folders(work, {})
    stack_env.check_folders(work, {name: "./mine"})
    stack_env.check_folders(work, {name: "${ELSEWHERE}/data"})
    with pytest.raises(InputError, match="is not there") as caught:
        stack_env.check_folders(work, {name: str(tmp_path / "no such")})
    assert caught.value.code is Exit.INPUT and name in caught.value.where
    assert f"create it yourself, as the one whose it shall be: mkdir -p '{tmp_path}/no such'" in caught.value.hint
    assert not (tmp_path / "no such").exists()


def test_b114_no_folder_of_the_users_is_made_by_the_engine_or_changes_its_owner() -> None:
    for path, text in made().items():
        if path in (PurePosixPath("compose/big.yaml"), PurePosixPath("compose/small.yaml")):
            for name, service in yaml.safe_load(text)["services"].items():
                for mount in service.get("volumes", ()):
                    if "TORCHYARD_" in mount.get("source", ""):
                        assert mount["bind"] == {"create_host_path": False}, f"{path} {name}"
        assert "chown" not in text
    said = 'Error response from daemon: invalid mount config for type "bind": bind source path does not exist: /nfs/x'
    problem = compose.unstarted(process.Completed(argv=("docker",), code=1, out="", err=said))
    assert isinstance(problem, InputError) and "/nfs/x" in problem.what and "yourself" in problem.hint


def test_b062_more_shared_memory_than_there_is_memory_is_told_for_compose() -> None:
    found = decide(replace(CPU, shm="64g"), replace(HOST, memory=32 * GIB)).findings
    (wrong,) = [each for each in found if each.state is State.FAIL]
    assert (wrong.rule, "32768 MiB" in wrong.expected, "65536 MiB" in wrong.seen) == ("stack.shm", True, True)
