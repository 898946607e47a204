"""Which GPUs are asked for (wiring: no GPU is used), and what is missing where none can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchyard.judge.cpu_facts import NoGpu
from torchyard.world import gpu_access
from torchyard.world.gpu_access import Host


def host(**changes: Any) -> Host:
    return Host(**{"gpus": 0, "on_bus": 0, "cdi": frozenset(), "cdi_on": False, "runtime": False, **changes})


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (host(), NoGpu.NO_GPU),
        (host(cdi_on=True), NoGpu.NO_GPU),
        (host(on_bus=2), NoGpu.NO_DRIVER),
        (host(gpus=2, on_bus=2), NoGpu.NO_RUNTIME),
        (host(gpus=2, cdi=frozenset({"0", "all"})), NoGpu.NO_RUNTIME),
        (host(gpus=2, cdi_on=True), NoGpu.NO_CDI),
    ],
)
def test_what_is_missing_for_a_gpu_is_told_apart(seen: Host, missing: NoGpu) -> None:
    found = gpu_access.choose(seen, 2)
    assert found.requests == ()
    assert found.missing is missing
    assert found.detail


@pytest.mark.parametrize(
    ("names", "count", "ids"),
    [
        ({"0", "1", "2", "3", "all"}, 2, ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]),
        ({"0", "all"}, 2, ["nvidia.com/gpu=0"]),
        ({"0", "1", "all"}, 0, ["nvidia.com/gpu=all"]),
        ({"0", "1"}, 0, ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]),
        ({"GPU-c", "GPU-a", "GPU-b", "all"}, 2, ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]),
        ({"0:10", "0:2", "1:0", "all"}, 2, ["nvidia.com/gpu=0:2", "nvidia.com/gpu=0:10"]),
        ({"mine", "all"}, 2, ["nvidia.com/gpu=all"]),
    ],
)
def test_cdi_wiring_asks_for_exactly_the_devices_of_the_entry(names: set[str], count: int, ids: list[str]) -> None:
    (request,) = gpu_access.choose(host(gpus=4, cdi=frozenset(names), cdi_on=True, runtime=True), count).requests
    assert request["Driver"] == "cdi"
    assert request["DeviceIDs"] == ids


def test_runtime_wiring_asks_for_exactly_the_devices_of_the_entry() -> None:
    (request,) = gpu_access.choose(host(gpus=4, runtime=True), 2).requests
    assert (request["DeviceIDs"], request["Capabilities"]) == (["0", "1"], [["gpu"]])


@pytest.mark.parametrize(
    ("seen", "count", "options"),
    [
        (
            host(cdi=frozenset({"0", "1"}), cdi_on=True),
            2,
            ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"],
        ),
        (host(gpus=2, runtime=True), 2, ["--gpus", '"device=0,1"']),
        (host(gpus=2, runtime=True), 0, ["--gpus", "all"]),
    ],
)
def test_requests_are_also_options_of_docker_run(seen: Host, count: int, options: list[str]) -> None:
    (request,) = gpu_access.choose(seen, count).requests
    assert gpu_access.option(request) == options


@pytest.mark.parametrize(
    ("answer", "cdi", "missing"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', False, NoGpu.NO_RUNTIME),
        ('exec: "nvidia-container-runtime-hook": executable file not found in $PATH', False, NoGpu.NO_RUNTIME),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", False, NoGpu.NO_DRIVER),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", False, None),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7", True, NoGpu.NO_CDI),
        ("executable file not found in $PATH", True, None),
    ],
)
def test_an_engine_that_cannot_serve_a_request_is_told_from_an_image_that_does_not_start(
    answer: str, cdi: bool, missing: NoGpu | None
) -> None:
    seen = host(cdi=frozenset({"0"}), cdi_on=True) if cdi else host(gpus=1, runtime=True)
    found = gpu_access.refused(f"it does not start: {answer}", gpu_access.choose(seen, 1).requests)
    assert (found.missing if found else None) is missing
    assert gpu_access.refused(answer, ()) is None


def test_gpus_on_the_bus_are_counted_and_other_devices_are_not(tmp_path: Path) -> None:
    rows = (
        ("a", "0x10de", "0x030200"),
        ("b", "0x10de", "0x040300"),
        ("c", "0x8086", "0x030000"),
        ("d", "0x10de", "0x030000"),
    )
    for name, vendor, kind in rows:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert gpu_access.on_bus(tmp_path) == 2
    assert gpu_access.on_bus(tmp_path / "none") == 0
