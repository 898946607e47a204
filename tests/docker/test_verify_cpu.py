"""Tier 2 of verify on the CPU image: it passes, real faults on top of it are named, nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone

from torchyard import lock
from torchyard.finding import Finding, State
from torchyard.judge import cpu as judging
from torchyard.judge import gpu
from torchyard.judge.cpu_facts import READ_ONLY, UID, USER, End, Facts
from torchyard.lock import LockedImage
from torchyard.world import containers, engine_home, probing
from torchyard.world.engine import Engine

pytestmark = pytest.mark.docker

DOCKERFILE = """
ARG IMAGE
FROM $IMAGE AS good
FROM good AS no-compiler
USER 0
RUN dpkg --purge --force-depends g++ g++-12
USER 1000
FROM good AS old-numpy
USER 0
RUN --mount=type=bind,target=/w pip install --no-index --no-deps /w/numpy-1.23.5-*.whl
USER 1000
FROM good AS openmp-twice
USER 0
RUN --mount=type=bind,target=/w pip install --no-index --no-deps /w/intel_openmp-*.whl
ENV LD_PRELOAD=/opt/venv/lib/libiomp5.so
USER 1000
FROM good AS shadowed
ENV PYTHONPATH=/home/user/.local/lib/python3.11/site-packages
RUN --mount=type=bind,target=/w pip install --no-index --no-deps --target $PYTHONPATH /w/numpy-1.23.5-*.whl
FROM good AS open-home
USER 0
RUN sed -i 's/^include-system-site-packages.*/include-system-site-packages = true/' /opt/venv/pyvenv.cfg
ENV PYTHONNOUSERSITE=
USER 1000
FROM good AS breaking
COPY breaking.py breaking.pth /opt/venv/lib/python3.11/site-packages/
FROM good AS no-python
ENV PATH=/usr/sbin
"""
BREAKING = """
import ctypes, mmap, sys, time
if "arrays" in sys.orig_argv:
    ctypes.string_at(0)
if "numerics" in sys.orig_argv:
    time.sleep(600)
if "caches" in sys.orig_argv:
    with open("/dev/shm/much", "w+b") as file:
        file.truncate(128 << 20)
        memory = mmap.mmap(file.fileno(), 128 << 20)
        for place in range(0, 128 << 20, 4096):
            memory[place] = 1
if "profiled" in sys.orig_argv:
    print("taking all the memory there is", flush=True)
    kept = []
    while True:
        kept.append(b"x" * (32 << 20))
"""
SMALL = {"shm": 64 << 20, "memory": 1 << 30}
WHEELS = ("numpy==1.23.5", "intel-openmp")
FAULTS: dict[str, tuple[tuple[str, ...], list[str]]] = {  # the probes that are run, and what fails, the cause first
    "no-compiler": (("compiled", "arrays", "libraries"), ["compile.compiler", "compile"]),
    "old-numpy": (("versions", "libraries", "isolation"), ["version.numpy"]),
    "openmp-twice": (("isolation", "libraries", "arrays"), ["python.host-variables", "openmp"]),
    "shadowed": (("isolation", "versions"), ["python.host-variables", "python.shadowed", "version.numpy"]),
    "open-home": (("isolation", "versions"), ["python.user-site"]),
    "no-python": (("isolation",), ["container"]),
}


@pytest.fixture(scope="module")
def found(yard: Clone, cpu: dict[str, Any]) -> Engine:
    """The engine that has the CPU image."""
    host = engine_home.home_of(yard.environment).docker_host
    return Engine(
        docker_host=host,
        private=True,
        docker=(),
        buildx=(),
        compose=(),
        version="",
        containerd_store=True,
        env={"DOCKER_HOST": host},
    )


@pytest.fixture(scope="module")
def tag(yard: Clone, cpu: dict[str, Any]) -> str:
    return yard.tag("cpu")


@pytest.fixture(scope="module")
def locked(yard: Clone) -> LockedImage:
    """The lock of the CPU image."""
    path = yard.root / "images" / yard.image("cpu") / "lock.yaml"
    return lock.from_text(path.read_text(), name=str(path))


@pytest.fixture(scope="module")
def good(found: Engine, tag: str, locked: LockedImage) -> Facts:
    """What all probes see in the CPU image."""
    return probing.run(found, tag, locked, print)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to build images with faults from."""
    folder = tmp_path_factory.mktemp("faults")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    platform = ["--python-version", "3.11", "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"]
    subprocess.run([*download, *platform, "--dest", folder, *WHEELS], check=True)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "breaking.py").write_text(BREAKING)
    (folder / "breaking.pth").write_text("import breaking\n")
    return folder


def faulty(yard: Clone, context: Path, tag: str, name: str) -> str:
    """The tag of an image with a fault, built from the good one."""
    options = [
        "--quiet",
        "--network",
        "none",
        "--build-arg",
        f"IMAGE={tag}",
        "--target",
        name,
        "--tag",
        f"fault:{name}",
    ]
    yard.docker("build", *options, str(context)).good()
    return f"fault:{name}"


def fails(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.state is State.FAIL]


def left(found: Engine, pid: int = 0) -> list[str]:
    """The containers that this process, or another of this machine, has there still."""
    owner = f"{containers.owner().rpartition('-')[0]}-{pid or os.getpid()}"
    client = containers.engines.client(found)
    try:
        listed = client.containers.list(all=True, filters={"label": f"{containers.LABEL}={owner}"})
        return [container.name for container in listed]
    finally:
        client.close()


def test_the_cpu_image_passes_and_what_is_skipped_says_why(good: Facts, locked: LockedImage, found: Engine) -> None:
    findings = judging.judge(locked, good)
    assert fails(findings) == [], [f for f in findings if f.state is State.FAIL]
    skipped = {f.rule: f.because for f in findings if f.state is State.SKIPPED}
    assert set(skipped) == {"ranks.sync-batch-norm", "fingerprint"} and all(skipped.values())
    assert left(found) == []


def test_every_probe_ran_in_its_settings_as_the_user_of_that_setting(good: Facts) -> None:
    ran = {(each.setting, each.probe) for each in good.seen if each.end is End.DONE}
    assert ran == {(setting, probe) for setting, probes in probing.PROBES.items() for probe in probes}
    uids = [good.done("caches", setting)["uid"] for setting in (USER, UID, READ_ONLY)]
    assert uids == [1000, 1002700000, 1002700000]


def test_a_second_run_computes_the_same_bits(good: Facts, found: Engine, tag: str, locked: LockedImage) -> None:
    again = probing.run(found, tag, locked, print, probes={USER: ["fingerprint"]})
    findings = judging.judge(locked, again, judging.fingerprint(good))
    assert [(f.rule, f.state) for f in findings] == [("fingerprint", State.PASS)]


def test_every_probe_of_the_gpu_tier_runs_on_a_cpu_and_is_judged(
    good: Facts, found: Engine, tag: str, locked: LockedImage
) -> None:
    more = probing.run(found, tag, locked, print, probes={USER: list(probing.ON_GPU)})
    seen = replace(good, seen=(*(each for each in good.seen if each.setting == USER), *more.seen))
    ran = {each.probe for each in seen.seen if each.end is End.DONE}
    assert set(probing.GPU_PROBES) <= ran
    assert seen.done("ranks")["backend"] == "gloo"
    name = seen.done("devices")["devices"][0]["name"]
    every = frozenset({"fp16", "bf16", "tf32", "fp8"})
    want = gpu.Expected(names=(name,), capabilities=("",), precision=every, count=1)
    findings = gpu.judge(locked, seen, want)
    assert fails(findings) == ["gpu.compile.triton", "gpu.profiler"], findings  # Triton and kernels need a GPU
    passed = {f.rule for f in findings if f.state is State.PASS}
    assert {"gpu.devices", "gpu.kernels.float8", "gpu.memory", "gpu.events", "gpu.ranks.ddp", "gpu.compile"} <= passed
    skipped = {f.rule for f in findings if f.state is State.SKIPPED}
    assert {"gpu.driver", "gpu.peak", "gpu.peers", "gpu.transport"} <= skipped


def test_64_mb_of_shared_memory_is_told_with_the_size_the_need_and_the_key(
    found: Engine, tag: str, locked: LockedImage
) -> None:
    """B060."""
    seen = probing.run(found, tag, locked, print, shm=64 << 20, probes={USER: ["loader"]})
    findings = judging.judge(locked, seen)
    assert fails(findings) == ["shm", "loader"]
    assert "64 MiB" in findings[0].seen and "74 MiB" in findings[0].expected and "shm_size" in findings[0].fix
    assert findings[1].because == "follows from shm"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first_and_nothing_unrelated_fails(
    yard: Clone, context: Path, found: Engine, tag: str, locked: LockedImage, name: str
) -> None:
    probes, rules = FAULTS[name]
    seen = probing.run(found, faulty(yard, context, tag, name), locked, print, probes={USER: probes})
    findings = judging.judge(locked, seen)
    assert fails(findings) == rules, findings
    assert [bool(f.because) for f in findings if f.state is State.FAIL] == [False] + [True] * (len(rules) - 1)


def test_probes_that_die_or_hang_are_named_and_the_others_go_on(
    yard: Clone, context: Path, found: Engine, tag: str, locked: LockedImage
) -> None:
    image = faulty(yard, context, tag, "breaking")
    wanted = {USER: ["numerics", "profiled", "libraries", "arrays", "caches", "isolation"]}
    findings = judging.judge(locked, probing.run(found, image, locked, print, slower=0.2, probes=wanted, **SMALL))
    seen = {f.rule: f.seen for f in findings if f.state is State.FAIL}
    assert set(seen) == {"probe.arrays", "probe.numerics", "probe.caches", "probe.profiled"}
    assert "SIGSEGV" in seen["probe.arrays"] and "breaking.py" in seen["probe.arrays"]
    assert "SIGBUS" in seen["probe.caches"] and "breaking.py" in seen["probe.caches"]
    assert "OOM, SIGKILL" in seen["probe.profiled"] and "taking all the memory" in seen["probe.profiled"]
    assert "may have 1024 MiB" in seen["probe.profiled"]
    assert "stopped" in seen["probe.numerics"]
    assert {"threads", "python.user-site"} <= {f.rule for f in findings if f.state is State.PASS}
    assert left(found) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_an_interruption_of_verify(yard: Clone, found: Engine, tag: str, number: int) -> None:
    """B124."""
    before = things(yard)
    child = yard.start(yard.argv("verify", "--gpu", "cpu", "--level", "cpu"))
    try:
        deadline = time.monotonic() + 120
        while not left(found, child.pid) and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.2)
        assert left(found, child.pid)
        os.killpg(child.pid, number)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    assert things(yard) == before


def things(yard: Clone) -> dict[str, list[str]]:
    """The engine's containers, volumes and networks."""
    listed = {"ps": "--all", "volume": "ls", "network": "ls"}
    return {name: sorted(yard.docker(name, word, "--quiet").good().out.split()) for name, word in listed.items()}


def test_a_probe_of_the_image_runs_alone_with_nothing_but_the_image(yard: Clone, cpu: dict[str, Any], tag: str) -> None:
    inside = Path(clones.ROOT) / "torchyard" / "inside"
    folder = yard.root / ".torchyard" / "inside"
    shutil.copytree(inside, folder, dirs_exist_ok=True)
    mount = ["--mount", f"type=bind,source={folder},target=/inside,readonly"]
    done = yard.docker("run", "--rm", "--network", "none", *mount, tag, "python", "/inside/one.py", "numerics").good()
    assert max(json.loads(done.out)["facts"]["errors"].values()) < 1e-5
