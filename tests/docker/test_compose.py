"""The stacks, as a user types them: what they train, how they end, and that nothing is left of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from clones import Clone, Ended, copy_checkout

pytestmark = pytest.mark.docker

PLAIN = """\
import torch
import torch.distributed as dist

dist.init_process_group()
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.randn(64, 8)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f} on {dist.get_world_size()} ranks")
dist.destroy_process_group()
"""
RAISES = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise ValueError("the tenth sample is not a number")
dist.barrier()
"""
KILLED = """\
import os, signal
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
TELLS = """\
import json, os, resource, sys

limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in ("MEMLOCK", "NOFILE")}
memory = {path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize for path in ("/dev/shm", "/hot")}
open("/hot/by-rank-" + os.environ["RANK"], "w").close()
open("runs/by-rank-" + os.environ["RANK"], "w").close()
try:
    open("/data/new", "w").close()
except OSError as error:
    refused = error.strerror
told = {"uid": os.getuid(), "threads": os.environ["OMP_NUM_THREADS"], "limits": limits, "memory": memory}
print(json.dumps({**told, "refused": refused, "argv": sys.argv[1:]}))
sys.exit(7 * (os.environ["RANK"] == "0"))
"""
SMALL = """\
import mmap, os

if os.environ["RANK"] == "0":
    with open("/dev/shm/large", "w+b") as file:
        file.truncate(256 << 20)
        mmap.mmap(file.fileno(), 0)[:] = bytes(256 << 20)
"""
AGAIN = """\
import os

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("the first attempt")
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"])
"""
UNREDUCED = """\
import os, runpy

os.environ["SABOTAGE"] = "no-all-reduce"
runpy.run_path("tests/training/sabotage.py", run_name="__main__")
"""
SHARES = "import os; print('threads', os.environ['OMP_NUM_THREADS'])\n"
SLEEPS = "import time; print('asleep', flush=True); time.sleep(600)\n"
SCRIPTS = {"plain": PLAIN, "raises": RAISES, "killed": KILLED, "tells": TELLS, "small": SMALL, "again": AGAIN}
SCRIPTS |= {"shares": SHARES, "sleeps": SLEEPS, "unreduced": UNREDUCED}


@pytest.fixture(scope="module")
def stack(yard: Clone, cpu: dict[str, Any]) -> Iterator[Clone]:
    """The clone with its CPU image built, and scripts of a user in it."""
    folder = yard.root / "jobs"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / f"{name}.py").write_text(text)
    yield yard
    shutil.rmtree(folder)


def compose(clone: Clone, *words: str) -> Any:
    """Plain `docker compose`."""
    return clone.docker("compose", *words)


def left(clone: Clone) -> list[str]:
    """Containers and networks of any compose project."""
    label = ("--filter", "label=com.docker.compose.project", "--quiet")
    ids = clone.docker("ps", "--all", *label).good().out + clone.docker("network", "ls", *label).good().out
    return ids.split()


def project(clone: Clone) -> str:
    """The compose project that .env names."""
    return re.findall(r"^COMPOSE_PROJECT_NAME=(.*)$", (clone.root / ".env").read_text(), re.M)[-1]


def running(clone: Clone) -> list[str]:
    """The running containers of a clone's project."""
    label = f"label=com.docker.compose.project={project(clone)}"
    return clone.docker("ps", "--quiet", "--filter", label).good().out.split()


def start_sleeper(clone: Clone) -> subprocess.Popen[str]:
    """`up` with a script that does not end, once it runs."""
    child = clone.start(clone.argv("up", "--gpu", "cpu", "--", "jobs/sleeps.py"))
    while "asleep" not in child.stdout.readline():  # type: ignore[union-attr]
        assert child.poll() is None, child.communicate()
    return child


def wait_until_nothing_is_left(clone: Clone) -> None:
    """Return when nothing is left; the guard of a killed `up` needs a moment."""
    for _ in range(300):
        if not left(clone):
            return
        time.sleep(0.2)
    raise AssertionError(left(clone))


def test_before_anything_is_built_the_plain_command_says_what_to_do(stack: Clone) -> None:
    env = stack.root / ".env"
    aside = env.rename(env.with_name("aside")) if env.exists() else None
    ended = compose(stack, "up")
    compose(stack, "down").good()
    if aside:
        aside.rename(env)
    assert ended.code == 1
    assert "No such image: not-built/run-yard-build-gpu-cpu-first" in ended.err
    assert left(stack) == []


def test_an_image_that_is_absent_or_not_verified_is_one_clear_message(stack: Clone) -> None:
    absent = stack.yard("up", "--gpu", "v100")
    assert (absent.code, absent.out) == (1, "")
    assert f"{stack.image('v100')} is not built here" in absent.err
    path = stack.root / ".torchyard" / "receipts" / f"{stack.image('cpu')}.json"
    aside = path.rename(path.with_suffix(".aside"))
    unverified = stack.yard("up", "--gpu", "cpu")
    aside.rename(path)
    assert unverified.code == 1
    assert "is not verified: it has no receipt" in unverified.err


def test_a_plain_script_of_the_user_trains_on_two_processes_unmodified(stack: Clone) -> None:
    assert len(PLAIN.splitlines()) <= 15
    ended = stack.yard("up", "--gpu", "cpu", "--", "jobs/plain.py").good()
    assert sorted(re.findall(r"^\[rank(\d)\]: loss 0\.0\d+ on 2 ranks$", ended.out, re.M)) == ["0", "1"]
    assert left(stack) == []


def test_plain_docker_compose_up_trains_the_shipped_data(stack: Clone) -> None:
    assert f"TORCHYARD_IMAGE={stack.receipt(stack.image('cpu'))['digest']}\n" in (stack.root / ".env").read_text()
    ended = compose(stack, "up", "--no-color").good()
    compose(stack, "down").good()
    found = re.findall(r"\[rank0\]: held-out accuracy ([0-9.]+) of", ended.out)
    assert "2 x cpu" in ended.out and found and float(found[-1]) >= 0.95, ended.out[-2000:]
    assert "exited with code 0" in ended.out
    assert left(stack) == []


def test_plain_docker_compose_up_tells_the_exit_code_last_and_answers_it_where_asked(stack: Clone) -> None:
    failing = replace(stack, env={**stack.env, "TORCHYARD_TRAIN": "jobs/tells.py"})
    told = compose(failing, "up", "--no-color")
    asked = compose(failing, "up", "--no-color", "--exit-code-from", "train")
    compose(stack, "down").good()
    assert told.out.rstrip().endswith("train-1 exited with code 7")
    assert "error: rank 0 of 2 ended with exit code 7" in told.err
    assert asked.code == 7
    for made in (stack.root / "runs").glob("by-rank-*"):
        made.unlink()


def test_two_nodes_rehearse_as_containers_that_meet_by_name(stack: Clone) -> None:
    ended = stack.yard("up", "--gpu", "cpu", "--profile", "rehearse", "--", "jobs/plain.py").good()
    lines = re.findall(r"^(node\d) \| \[rank(\d)\]: loss 0\.0\d+ on 2 ranks$", ended.out, re.M)
    assert sorted(rank for _, rank in lines) == ["0", "1"]
    assert {node for node, _ in lines} == {"node0", "node1"}
    assert "frame #" not in ended.out
    assert left(stack) == []


def rehearse(clone: Clone, *words: str) -> Ended:
    """A script on two nodes; nothing is left of it."""
    ended = clone.yard("up", "--gpu", "cpu", "--profile", "rehearse", "--", *words, "--out", "runs/rehearsal")
    shutil.rmtree(clone.root / "runs" / "rehearsal", ignore_errors=True)
    assert left(clone) == []
    return ended


def test_the_nodes_of_a_rehearsal_share_the_cpus_of_the_machine(stack: Clone) -> None:
    ended = rehearse(stack, "jobs/shares.py").good()
    told = {int(number) for number in re.findall(r"threads (\d+)", ended.out)}
    assert told == {max(1, len(os.sched_getaffinity(0)) // 2)} and ended.out.count("threads ") == 2


def accuracy(ended: Ended) -> float:
    """The share of the held-out samples that were told right, as the first rank says once."""
    (found,) = re.findall(r"^node\d \| \[rank0\]: held-out accuracy ([0-9.]+) of 1536 samples", ended.out, re.M)
    return float(found)


def test_the_rehearsal_learns_the_shipped_data(stack: Clone) -> None:
    ended = rehearse(stack, "examples/train.py", "--epochs", "2").good()
    assert accuracy(ended) >= 0.95


def test_the_rehearsal_learns_nothing_with_a_learning_rate_of_0(stack: Clone) -> None:
    ended = rehearse(stack, "examples/train.py", "--steps", "20", "--lr", "0").good()
    assert accuracy(ended) < 0.6  # more steps of nothing change nothing


def test_the_rehearsal_fails_where_gradients_are_not_reduced(stack: Clone) -> None:
    ended = rehearse(stack, "jobs/unreduced.py", "--epochs", "3", "--save-every", "10")
    assert ended.code == 1
    assert "different weights" in ended.err and "not reduced" in ended.err
    assert "held-out accuracy" not in ended.out


def test_a_rank_sees_what_the_host_allows_and_its_exit_code_is_kept(stack: Clone) -> None:
    (stack.root / "runs").mkdir(exist_ok=True)
    ended = stack.yard("up", "--gpu", "cpu", "--", "jobs/tells.py", "--lr", "1e-3", "two words", "$HOME")
    assert ended.code == 7
    assert ended.err.rstrip().endswith("error: rank 0 of 2 ended with exit code 7")
    told = json.loads(re.findall(r"^\[rank0\]: (.*)$", ended.out, re.M)[0])
    assert told["argv"] == ["--lr", "1e-3", "two words", "$HOME"]
    assert told["uid"] == os.getuid()
    assert told["threads"] == str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert all(soft == hard for soft, hard in told["limits"].values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert told["memory"]["/dev/shm"] == min(8 << 30, memory // 2) // 4096 * 4096
    assert told["memory"]["/hot"] <= memory // 4
    assert "Read-only" in told["refused"]
    for made in (stack.root / "runs").glob("by-rank-*"):
        assert made.stat().st_uid == os.getuid()
        made.unlink()
    assert left(stack) == []


def test_a_rank_that_raises_ends_the_job_with_its_traceback_last(stack: Clone) -> None:
    ended = stack.yard("up", "--gpu", "cpu", "--", "jobs/raises.py")
    assert ended.code == 1
    last = ended.err.rstrip().splitlines()[-5:]
    assert last == [
        "Traceback (most recent call last):",
        '  File "/workspace/jobs/raises.py", line 5, in <module>',
        '    raise ValueError("the tenth sample is not a number")',
        "ValueError: the tenth sample is not a number",
        "error: rank 1 of 2 ended with exit code 1: ValueError: the tenth sample is not a number",
    ]
    assert left(stack) == []


def test_a_killed_rank_ends_the_job_with_exit_code_1_and_is_named(stack: Clone) -> None:
    ended = stack.yard("up", "--gpu", "cpu", "--", "jobs/killed.py")
    assert ended.code == 1
    assert ended.err.rstrip().endswith("error: rank 1 of 2 was killed by SIGKILL")
    assert left(stack) == []


def test_with_restarts_all_ranks_start_again_after_one_failed(stack: Clone) -> None:
    elastic = replace(stack, env={**stack.env, "TORCHYARD_RESTARTS": "1"})
    ended = elastic.yard("up", "--gpu", "cpu", "--", "jobs/again.py").good()
    assert sorted(re.findall(r"^\[rank(\d)\]: attempt 1$", ended.out, re.M)) == ["0", "1"]


def test_a_full_shared_memory_is_named_with_its_size_and_where_to_raise_it(stack: Clone) -> None:
    small = replace(stack, env={**stack.env, "TORCHYARD_SHM": "64m"})
    ended = small.yard("up", "--gpu", "cpu", "--", "jobs/small.py")
    assert ended.code == 1
    told, hint = ended.err.rstrip().splitlines()[-2:]
    assert told == "error: rank 0 of 2 was killed by SIGBUS"
    assert "/dev/shm has 64 MiB" in hint and "TORCHYARD_SHM" in hint


def test_more_processes_than_gpus_are_refused_with_both_numbers(stack: Clone) -> None:
    ended = compose(stack, "run", "--rm", "-T", "-e", "TORCHYARD_DEVICES=cdi-2", "train")
    compose(stack, "down").good()
    assert ended.code == 2
    assert "error: 2 processes, but this container sees 0 GPUs" in ended.err


@pytest.mark.parametrize(
    ("alone", "says"),
    [
        ("node0", "not all of 2 nodes came to node0:29400 within 3 s"),
        ("node1", "the name node0 does not resolve within 3 s"),
    ],
)
def test_a_node_that_never_comes_is_said(stack: Clone, alone: str, says: str) -> None:
    hurried = replace(stack, env={**stack.env, "TORCHYARD_JOIN_WITHIN": "3", "TORCHYARD_TRAIN": "jobs/plain.py"})
    ended = compose(hurried, "up", "--no-color", "--exit-code-from", alone, alone)
    compose(stack, "down").good()
    assert ended.code == 3
    assert says in ended.err


def test_two_clones_run_side_by_side_and_an_interrupt_or_a_kill_leaves_nothing(stack: Clone, place: Path) -> None:
    other = replace(stack, root=place / "another" / "clone")
    copy_checkout(stack.root, other.root)
    shutil.copytree(stack.root / ".torchyard" / "receipts", other.root / ".torchyard" / "receipts")
    first, second = start_sleeper(stack), start_sleeper(other)
    assert project(stack) != project(other)
    os.killpg(first.pid, signal.SIGINT)
    first.communicate()
    assert first.returncode == 130
    assert running(stack) == [] and len(running(other)) == 1
    os.kill(second.pid, signal.SIGKILL)
    second.communicate()
    wait_until_nothing_is_left(other)
    shutil.rmtree(other.root.parent)


def test_down_ends_a_stack_that_plain_compose_started(stack: Clone) -> None:
    sleeping = replace(stack, env={**stack.env, "TORCHYARD_TRAIN": "jobs/sleeps.py"})
    compose(sleeping, "up", "--detach").good()
    refused = stack.yard("up", "--gpu", "cpu", "--", "jobs/plain.py")
    assert refused.code == 3 and "a stack of this clone is running: train" in refused.err
    stack.yard("down").good()
    assert left(stack) == []


def test_a_port_in_use_is_passed_over_and_jupyter_says_how_to_have_it(stack: Clone) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 8888))
        taken.listen()
        ended = stack.yard("up", "--gpu", "cpu", "--profile", "jupyter")
    assert "jupyter: http://127.0.0.1:8889/?token=" in ended.err
    assert "(port 8888 is in use)" in ended.err
    assert ended.code == 2
    assert "jupyterlab is neither in this image" in ended.err
    assert left(stack) == []


def whole(clone: Clone, **variables: str) -> dict[str, Any]:
    """What `docker compose config` makes of compose.yaml with these variables, every profile on."""
    asked = replace(clone, env={**clone.env, **variables})
    told: dict[str, Any] = json.loads(compose(asked, "--profile", "*", "config", "--format", "json").good().out)
    return told


def test_every_stack_and_every_overlay_is_valid_and_publishes_on_loopback_only(stack: Clone) -> None:
    folder = stack.root / "compose"
    overlays = sorted(path.stem.removeprefix("devices-") for path in folder.glob("devices-*.yaml"))
    entries = sorted(path.parent.name for path in (stack.root / ".devcontainer").glob("*/devcontainer.json"))
    assert {f"{name}.yaml" for name in entries} <= {path.name for path in folder.iterdir()}
    many = max(len(overlays), len(entries))
    for name, overlay in islice(zip(cycle(entries), cycle(overlays)), many):  # each of them at least once
        limits = "kept" if overlay == "none" else "raised"
        given = {"TORCHYARD_HARDWARE": name, "TORCHYARD_DEVICES": overlay, "TORCHYARD_LIMITS": limits}
        services = whole(stack, **given)["services"]
        published = [port for each in services.values() for port in each.get("ports", [])]
        assert len(published) == 4
        assert {port["host_ip"] for port in published} == {"127.0.0.1"}
        raised = {len(services[each].get("ulimits", {})) for each in ("train", "node1")}
        assert raised == {0 if limits == "kept" else 3}


def test_wiring_of_cdi_gives_an_entry_its_devices_and_each_node_its_half(stack: Clone) -> None:
    given = {
        "TORCHYARD_HARDWARE": "v100",
        "TORCHYARD_DEVICES": "cdi-4",
        "TORCHYARD_GPU_0": "6",
        "TORCHYARD_GPU_3": "0:1",
    }
    services = whole(stack, **given)["services"]
    seen = {}
    for name in ("train", "shell", "jupyter", "node0", "node1"):
        (asked,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert (asked["driver"], asked["capabilities"]) == ("cdi", ["gpu"])
        seen[name] = [each.removeprefix("nvidia.com/gpu=") for each in asked["device_ids"]]
    every = ["6", "1", "2", "0:1"]
    assert seen == {"train": every, "shell": every, "jupyter": every, "node0": ["6", "1"], "node1": ["2", "0:1"]}
    assert "deploy" not in services["tensorboard"]
