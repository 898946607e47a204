"""Wiring of GPUs, with stand-ins: no GPU is here and no kernel runs, but exactly what an entry has is asked for.

A CDI specification of our own gives each device a node, a variable and a file; NVIDIA's runtime is runc by another
name, its hook a script. So containers show which devices reached them, and by which way.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from clones import Clone

from torchyard import lock
from torchyard.judge import gpu
from torchyard.judge.cpu_facts import USER, Facts, NoGpu
from torchyard.lock import LockedImage
from torchyard.world import engine, engine_home, gpu_access, probing
from torchyard.world.engine import Engine
from torchyard.world.engine_home import Home

pytestmark = pytest.mark.docker

DEVICES = 10  # more than any entry here has
HOOK = "nvidia-container-runtime-hook"
SHOWN = ["sh", "-c", "ls /dev /standin; env"]


@pytest.fixture(scope="module")
def home(yard: Clone, cpu: dict[str, Any]) -> Home:
    """The engine's directory."""
    return engine_home.home_of(yard.environment)


@pytest.fixture(scope="module")
def found(home: Home) -> Engine:
    """The engine that has the images."""
    return Engine(
        docker_host=home.docker_host,
        private=True,
        docker=(),
        buildx=(),
        compose=(),
        version="",
        containerd_store=True,
        env={"DOCKER_HOST": home.docker_host},
    )


@pytest.fixture
def specification(home: Home) -> Iterator[Path]:
    """A stand-in for what nvidia-ctk writes, which this engine alone reads."""
    folder = home.path / "standin"
    folder.mkdir(exist_ok=True)
    edits = []
    for number in range(DEVICES):
        (folder / str(number)).write_text(f"stands in for device {number}\n")
        edits.append(
            {
                "env": [f"NVIDIA_STANDIN_{number}=here"],
                "deviceNodes": [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"}],
                "mounts": [
                    {
                        "hostPath": str(folder / str(number)),
                        "containerPath": f"/standin/{number}",
                        "options": ["ro", "bind"],
                    }
                ],
            }
        )
    devices = [{"name": str(number), "containerEdits": edit} for number, edit in enumerate(edits)]
    every = {key: [value for edit in edits for value in edit[key]] for key in edits[0]}
    text = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
        "devices": [*devices, {"name": "all", "containerEdits": every}],
    }
    path = home.cdi / "standin.yaml"
    path.write_text(yaml.safe_dump(text))
    try:
        yield path
    finally:
        path.unlink()


@pytest.fixture
def runtime(home: Home, found: Engine) -> Iterator[None]:
    """The engine has a runtime of NVIDIA's name."""
    reload(home, found, {"nvidia": {"path": "runc"}})
    try:
        yield
    finally:
        reload(home, found, {})


@pytest.fixture
def hook(yard: Clone, home: Home) -> Iterator[Path]:
    """The engine has NVIDIA's hook on its path, where it looks when it starts; what it was called with is kept."""
    program, calls = home.root / "usr" / "bin" / HOOK, home.path / "hook-calls"
    yard.yard("engine", "--down").good()
    program.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n')
    program.chmod(0o755)
    yard.yard("engine", "--up").good()
    try:
        yield calls
    finally:
        program.unlink()
        calls.unlink(missing_ok=True)


def reload(home: Home, found: Engine, runtimes: dict[str, Any]) -> None:
    """Have dockerd read its configuration again, with these runtimes beside its own."""
    config = home.path / "daemon.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "runtimes": runtimes}))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == b"dockerd" and str(config).encode() in words:
                os.kill(int(entry.name), signal.SIGHUP)
    client = engine.client(found)
    try:
        deadline = time.monotonic() + 30
        while ("nvidia" in client.info()["Runtimes"]) != bool(runtimes) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        client.close()


def seen(found: Engine, yard: Clone, count: int) -> Facts:
    """What the probe of devices sees where `count` GPUs are asked for."""
    return probing.run(found, yard.tag("cpu"), None, print, device="cuda", count=count, probes={USER: ["devices"]})


@pytest.mark.parametrize("count", [1, 2])
def test_cdi_wiring_exactly_the_devices_of_an_entry_reach_the_probes(
    yard: Clone, found: Engine, specification: Path, count: int
) -> None:
    facts = seen(found, yard, count).done("devices")
    assert facts["nodes"] == [f"nvidia{number}" for number in range(count)]
    named = {name for name in facts["variables"] if name.startswith("NVIDIA_STANDIN_")}
    assert named == {f"NVIDIA_STANDIN_{number}" for number in range(count)}
    assert facts["variables"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_cdi_wiring_run_hands_the_eight_devices_of_its_entry_to_the_command(
    yard: Clone, a100: dict[str, Any], specification: Path
) -> None:
    words = yard.yard("run", "--gpu", "a100", "--", *SHOWN).good().out.split()
    assert sorted(word for word in words if word.startswith("nvidia")) == [f"nvidia{number}" for number in range(8)]
    assert [word for word in words if word.isdigit()] == [str(number) for number in range(8)]
    assert sum(word.startswith("NVIDIA_STANDIN_") for word in words) == 8


def test_cdi_wiring_a_specification_that_the_engine_cannot_follow_is_told_as_that(
    yard: Clone, found: Engine, specification: Path
) -> None:
    specification.write_text(specification.read_text().replace("hostPath: /dev/null", "hostPath: /dev/not-there"))
    facts = seen(found, yard, 1)
    assert facts.no_gpu is NoGpu.NO_CDI
    assert "nvidia.com/gpu=0" in facts.detail or "not-there" in facts.detail


def test_runtime_wiring_a_runtime_without_its_hook_is_told_as_that(yard: Clone, found: Engine, runtime: None) -> None:
    facts = seen(found, yard, 1)
    assert facts.no_gpu is NoGpu.NO_RUNTIME
    assert "could not select device driver" in facts.detail or f'"{HOOK}": executable file not found' in facts.detail


def test_runtime_wiring_exactly_the_devices_of_an_entry_reach_probes_and_commands(
    yard: Clone, found: Engine, a100: dict[str, Any], hook: Path, runtime: None
) -> None:
    assert gpu_access.look(found, 2).requests[0]["DeviceIDs"] == ["0", "1"]
    facts = seen(found, yard, 2).done("devices")
    assert facts["variables"]["NVIDIA_VISIBLE_DEVICES"] == "0,1"
    words = yard.yard("run", "--gpu", "a100", "--", "env").good().out.split()
    assert "NVIDIA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in words
    assert hook.read_text().split() == ["prestart", "prestart"]


def test_without_any_of_it_the_reason_is_told_and_each_finding_is_skipped(yard: Clone, found: Engine) -> None:
    facts = seen(found, yard, 1)
    assert facts.no_gpu is not None and facts.seen == ()
    findings = gpu.judge(lock_of(yard), facts, gpu.Expected())
    assert {(f.state.value, facts.detail in f.because) for f in findings} == {("skipped", True)}


def lock_of(yard: Clone) -> LockedImage:
    """The lock of the CPU image."""
    path = yard.root / "images" / yard.image("cpu") / "lock.yaml"
    return lock.from_text(path.read_text(), name=str(path))
