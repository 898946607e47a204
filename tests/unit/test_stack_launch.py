"""The launcher of the stacks, by its parts: what it decides from the settings and from how ranks ended."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "templates" / "compose"


def load(name: str) -> ModuleType:
    """A file of the stacks as a module."""
    spec = importlib.util.spec_from_file_location(f"stack_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launch: Any = load("launch")


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No setting of a stack is there."""
    for name in [each for each in os.environ if each.startswith(("TORCHYARD_", "OMP_", "NCCL_", "GLOO_"))]:
        monkeypatch.delenv(name)
    yield monkeypatch


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_number_of_processes_that_is_none_is_refused(clean: pytest.MonkeyPatch, value: str) -> None:
    clean.setenv("TORCHYARD_PROCESSES", value)
    with pytest.raises(launch.Problem) as caught:
        launch.setting("TORCHYARD_PROCESSES", 1, least=1)
    assert (caught.value.code, repr(value) in caught.value.what) == (2, True)


@pytest.mark.parametrize(("cpus", "ranks", "threads"), [(64, 8, 8), (2, 2, 1), (1, 4, 1), (7, 2, 3), (4, 0, 4)])
def test_cpus_are_shared_among_the_ranks(cpus: int, ranks: int, threads: int) -> None:
    assert launch.threads(cpus, ranks) == threads


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_the_control_group_bounds_the_cpus(
    tmp_path: Path, files: dict[str, str], most: int | None
) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert launch.cpus(str(tmp_path)) == (most or len(os.sched_getaffinity(0)))


def test_what_the_user_has_set_stays(clean: pytest.MonkeyPatch) -> None:
    """B058: a number of threads that the user has set wins."""
    clean.setenv("OMP_NUM_THREADS", "3")
    launch.fill("OMP_NUM_THREADS", "1")
    assert os.environ["OMP_NUM_THREADS"] == "3"
    clean.setenv("OMP_NUM_THREADS", "")
    launch.fill("OMP_NUM_THREADS", "1")
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_more_processes_than_gpus_are_refused_with_both_numbers() -> None:
    launch.check_gpus(2, 2)
    with pytest.raises(launch.Problem, match="4 processes, but this container sees 1 GPU"):
        launch.check_gpus(4, 1)


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(launch.Problem, match=r"there is no script nothing\.py"):
        launch.check_script("nothing.py")
    launch.check_script("-m")


def steps() -> Any:
    """A clock that goes on by a second each time it is read."""
    return iter(range(1000)).__next__


def test_a_name_that_does_not_resolve_is_said_after_a_while() -> None:
    slept: list[float] = []
    with pytest.raises(launch.Problem, match="the name no-such-node.invalid does not resolve within 3 s") as caught:
        launch.resolve("no-such-node.invalid", 3, clock=steps(), sleep=slept.append)
    assert caught.value.code == 3
    assert slept


def test_a_port_on_which_nothing_answers_is_said_and_one_that_answers_is_enough() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        with pytest.raises(launch.Problem, match=f"nothing answers on 127.0.0.1 port {port} within 2 s"):
            launch.wait_for_port("127.0.0.1", port, 2, clock=steps(), sleep=lambda _: None)
        listener.listen()
        launch.wait_for_port("127.0.0.1", port, 2, clock=steps(), sleep=lambda _: None)


def test_the_interface_is_the_one_that_leads_there() -> None:
    assert launch.interface("127.0.0.1") == "lo"


def test_one_node_meets_itself_on_a_free_port_of_loopback(clean: pytest.MonkeyPatch) -> None:
    """B074: two jobs on one host never want the same port."""
    assert launch.rendezvous(1, 0) == ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--nnodes=1"]
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_first_node_hosts_and_says_so(clean: pytest.MonkeyPatch) -> None:
    """B070: who hosts follows from the node's number, not from its name."""
    clean.setattr(launch, "check_own", lambda *_: None)  # this port may be in use here
    clean.setenv("TORCHYARD_RENDEZVOUS", "localhost:29400")
    made = launch.rendezvous(2, 0)
    assert "--rdzv_endpoint=127.0.0.1:29400" in made
    assert "--rdzv_conf=is_host=true,join_timeout=300,timeout=300" in made


@pytest.mark.parametrize("endpoint", ["", "node0", "node0:port", ":29400"])
def test_an_endpoint_that_is_none_is_refused(clean: pytest.MonkeyPatch, endpoint: str) -> None:
    clean.setenv("TORCHYARD_RENDEZVOUS", endpoint)
    with pytest.raises(launch.Problem) as caught:
        launch.rendezvous(2, 1)
    assert caught.value.code == 2


def test_an_old_torch_is_not_given_options_that_it_does_not_know(clean: pytest.MonkeyPatch) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc_per_node")
    parser.add_argument("--rdzv_backend")
    assert launch.options(parser, 1, 0, 2, "/logs") == ["--rdzv_backend=c10d", "--nproc_per_node=2"]


@pytest.mark.parametrize(
    ("codes", "raised", "first"),
    [
        ({0: 1, 1: 1}, {0: (5.2, ""), 1: (5.1, "")}, 1),  # the other one lost its partner a little later
        ({0: 1, 1: -9}, {0: (5.0, "")}, 1),  # a killed rank leaves no word
        ({0: -15, 1: 1}, {1: (5.0, "")}, 1),  # torchrun itself ends the others by SIGTERM
        ({0: 1, 2: 7}, {0: (9.0, "")}, 0),
        ({3: 7}, {}, 3),
    ],
)
def test_the_rank_that_failed_first_is_found(
    codes: dict[int, int], raised: dict[int, tuple[float, str]], first: int
) -> None:
    assert launch.first(codes, raised) == first


def test_the_last_words_are_the_failing_ranks() -> None:
    told = launch.told(1, 4, 1, "Traceback:\n  x\nValueError: boom\n", [])
    assert told.splitlines()[-2:] == ["ValueError: boom", "error: rank 1 of 4 ended with exit code 1: ValueError: boom"]
    assert launch.told(0, 2, -9, "", ["why"]) == "error: rank 0 of 2 was killed by SIGKILL\n hint: why"


@pytest.mark.parametrize(
    ("text", "code", "oom", "says"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", 1, 0, "/dev/shm has 64 MiB"),
        ("", -signal.SIGBUS, 0, "/dev/shm has 64 MiB"),
        ("", -signal.SIGKILL, 1, "want of memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", 1, 0, "gradient accumulation"),
    ],
)
def test_known_ends_have_their_cause_told(text: str, code: int, oom: int, says: str) -> None:
    (cause,) = launch.causes(text, code, "64 MiB", oom)
    assert says in cause


def test_an_unknown_end_has_no_cause_made_up() -> None:
    assert launch.causes("ValueError: boom", 1, "64 MiB", 0) == []
    assert launch.causes("", -signal.SIGKILL, "64 MiB", 0) == []


def rank(tmp_path: Path, script: str, *, launcher: int, number: str = "1") -> subprocess.CompletedProcess[str]:
    """A script as a rank's Python runs it."""
    (tmp_path / "script.py").write_text(script)
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER / "rank"),
        "TORCHYARD_ERRORS": str(tmp_path),
        "TORCHYARD_LAUNCHER": str(launcher),
        "RANK": number,
    }
    argv = [sys.executable, str(tmp_path / "script.py")]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def test_a_ranks_traceback_is_kept_with_its_time_and_shown_as_ever(tmp_path: Path) -> None:
    ended = rank(tmp_path, "raise ValueError('boom')\n", launcher=os.getpid())
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("ValueError: boom")
    found = launch.tracebacks(str(tmp_path))
    assert list(found) == [1]
    assert found[1][1].rstrip().endswith("ValueError: boom")


def test_what_a_rank_starts_itself_is_not_taken_for_the_rank(tmp_path: Path) -> None:
    assert rank(tmp_path, "raise ValueError('boom')\n", launcher=1).returncode == 1
    assert launch.tracebacks(str(tmp_path)) == {}


def test_the_sitecustomize_that_stands_behind_is_loaded_too(tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / "sitecustomize.py").write_text("import builtins; builtins.behind = True\n")
    script = "print(behind)\n"
    (tmp_path / "script.py").write_text(script)
    path = os.pathsep.join([str(FOLDER / "rank"), str(behind)])
    environment = {**os.environ, "PYTHONPATH": path}
    argv = [sys.executable, str(tmp_path / "script.py")]
    assert subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout == "True\n"


def test_only_the_last_attempt_of_a_restarted_rank_counts(tmp_path: Path) -> None:
    for attempt in (0, 1):
        told = {"rank": 0, "attempt": attempt, "time": 1.0 + attempt, "text": f"attempt {attempt}"}
        (tmp_path / f"0-{attempt}.json").write_text(json.dumps(told))
    (tmp_path / "1-0.json").write_text("{torn")
    assert launch.tracebacks(str(tmp_path)) == {0: (2.0, "attempt 1")}


def test_a_package_that_is_missing_is_said_with_how_to_have_it() -> None:
    argv = [sys.executable, str(FOLDER / "need.py"), "no_such_module", "no-such-package", "true"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "add no-such-package to packages.pip in env.yaml" in ended.stderr
    there = [sys.executable, str(FOLDER / "need.py"), "json", "json", "true"]
    assert subprocess.run(there, check=False).returncode == 0
