"""The probes of the GPU tier on this machine's own GPUs, without Docker: they need nothing but a torch that sees them.

The GPU's row of the catalogue is the entry. Which Python has that torch is TORCHYARD_PYTHON, else the one that runs
the tests, else `python3`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard import catalog
from torchyard.catalog import Gpu
from torchyard.finding import Finding, State
from torchyard.judge import cpu_facts, cpu_work, gpu, gpu_work
from torchyard.judge.cpu_facts import USER, End, Facts
from torchyard.world import probing

pytestmark = pytest.mark.gpu

INSIDE = Path(__file__).resolve().parents[2] / "torchyard" / "inside"
SEES = "import torch; assert torch.cuda.is_available(); print(torch.cuda.get_device_name(0))"


@pytest.fixture(scope="session")
def python() -> str:
    """A Python whose torch sees a CUDA device."""
    tried = [os.environ.get("TORCHYARD_PYTHON", ""), sys.executable, shutil.which("python3") or ""]
    for program in dict.fromkeys(filter(None, tried)):
        done = subprocess.run([program, "-c", SEES], capture_output=True, text=True)
        if done.returncode == 0:
            return program
    pytest.skip(f"no torch of {', '.join(filter(None, tried))} sees a CUDA device; TORCHYARD_PYTHON names another one")


@pytest.fixture(scope="session")
def seen(python: str) -> Facts:
    """What the probes see here, each in a process of its own, as in a container."""
    limits = {name: {**probing.LIMITS, **probing.ON_GPU}[name] for name in probing.GPU_PROBES}
    asked = json.dumps({"probes": limits, "device": "cuda", "jobs": 1})
    done = subprocess.run([python, str(INSIDE / "run.py"), asked], capture_output=True, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ends = tuple(cpu_facts.event(USER, each) for each in told if each["event"] == "end")
    return Facts(device="cuda", seen=ends)


@pytest.fixture(scope="session")
def want(seen: Facts) -> gpu.Expected:
    """The entry that this machine would have: its first card's row of the catalogue, as many as there are."""
    devices = seen.done("devices")["devices"]
    row = row_of(str(devices[0]["name"]))
    if row is None:
        pytest.skip(f"the catalogue has no {devices[0]['name']}")
    return gpu.Expected(
        names=(row.name,),
        capabilities=(row.cc,),
        precision=frozenset(row.precision),
        count=len(devices),
        nvlink=False,  # which cards are linked belongs to the machine
        tflops=dict(row.tflops),
    )


def row_of(name: str) -> Gpu | None:
    """The catalogue's row of a card by the name that its driver tells."""
    return next((row for row in catalog.load().gpus if name == row.name), None)


@pytest.mark.parametrize("name", probing.GPU_PROBES)
def test_a_probe_comes_to_its_facts(seen: Facts, name: str) -> None:
    found = seen.of(name)
    assert found is not None and found.end is End.DONE, found


def findings(want: gpu.Expected, seen: Facts) -> list[Finding]:
    """What is judged of it without a lock."""

    def of(probe: str) -> Any:
        return seen.done(probe)

    return [
        *gpu_work.devices(want, of("devices")),
        *gpu_work.kernels(want.precision, of("kernels")),
        *gpu_work.memory(of("memory")),
        *gpu_work.timing(want.tflops, of("timing")),
        *gpu_work.peers(want.nvlink, of("peers")),
        *gpu_work.profiled(of("profiled")),
        gpu_work.transport(want.fabric, want.nvlink, of("ranks")),
    ]


def test_the_card_does_what_its_row_of_the_catalogue_says(want: gpu.Expected, seen: Facts) -> None:
    fails = [f for f in findings(want, seen) if f.state is State.FAIL]
    assert fails == []


def test_kernels_of_triton_were_made(seen: Facts) -> None:
    found = seen.done("compiled")
    assert found["forward"] < cpu_work.COMPILED["forward"]
    assert found["triton"]["kernels"] > 0


def test_ranks_reduce_over_every_device(seen: Facts) -> None:
    ranks = seen.done("ranks")
    total = ranks["world"] * (ranks["world"] + 1) / 2
    assert (ranks["backend"], ranks["sum"], ranks["codes"]) == ("nccl", [total, total], [0] * ranks["world"])
