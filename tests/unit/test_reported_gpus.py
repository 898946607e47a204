"""Reports of real failures with GPU architectures and drivers, each with its right outcome."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import static_cases as cases
from lock_samples import image, lock
from reported_env import CATALOG, ask, entry, planned, recipes, refused

from torchyard import explain
from torchyard.errors import Exit
from torchyard.finding import Finding, State
from torchyard.judge import cpu_facts, gpu, identity, static
from torchyard.judge.cpu_facts import End, Facts
from torchyard.plan import CellState
from torchyard.verbs import explain as verb
from torchyard.versions import numbers

sys.path.insert(0, str(Path(__file__).parents[2] / "torchyard" / "inside"))

from probes import devices, mapped  # type: ignore

FACTS = Path(__file__).resolve().parents[1] / "facts"


def facts(name: str) -> Facts:
    return cpu_facts.from_text((FACTS / name / "facts.json").read_text())


def fails(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state is State.FAIL]


def starts_not(error: str, driver: str, **more: Any) -> Facts:
    """The facts of a container in which CUDA does not start: every probe that needs it raises the same."""
    found = facts("gpu-good")
    devices = {**found.done("devices"), "devices": [], "driver": driver, "error": error, **more}
    seen = tuple(
        replace(each, facts=json.loads(json.dumps(devices)))
        if each.probe == "devices"
        else replace(each, end=End.RAISED, facts={}, error=error)
        for each in found.seen
    )
    return replace(found, seen=seen)


def expected(hardware: str, **software: str) -> gpu.Expected:
    """What a hardware entry says of its devices."""
    return gpu.expected(entry(hardware, **software), CATALOG)


def cause(found: Facts, want: gpu.Expected) -> Finding:
    """The one failure that is a cause: all others follow from it."""
    causes = [each for each in fails(gpu.judge(lock(), found, want)) if not each.because.startswith("follows from")]
    assert len(causes) == 1
    return causes[0]


def test_b001_a_wheel_without_code_for_the_card_is_refused_and_a_kernel_is_really_launched() -> None:
    error = refused(entry("gpu: rtx-5090", "2.6.0", cuda='"12.4"', python="auto"))
    assert "12.0" in error.what and "5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0" in error.what
    near = ask(gpu="rtx-5090", torch="2.6.0", cuda="12.4").nearest
    assert near is not None and near.choice.cuda == "12.8" and numbers(near.choice.torch) >= (2, 7)
    assert near.choice.torch in error.hint and "12.8" in error.hint
    done = ask(gpu="rtx-4090", torch="2.6.0", cuda="12.4")  # 8.9 runs the code of 8.6
    assert done.state is CellState.OK and "sm_86" in next(v.what for v in done.verdicts if v.rule == "gpu-code")
    found = facts("gpu-no-code-for-the-card")  # CUDA is available, the devices and the driver are right
    want = replace(expected("gpu: a100, count: 2"), fabric="ib")
    failures = fails(gpu.judge(lock(), found, want))
    assert {each.rule.rpartition(".")[0] for each in failures} == {"gpu.kernels"}
    assert all("no kernel image" in each.seen and "./yard explain" in each.fix for each in failures)


def test_b003_the_other_build_of_the_same_release_is_named_and_how_long_the_card_is_served() -> None:
    done = ask(gpu="gtx-1080", torch="2.8.0", cuda="12.8")
    assert done.state is CellState.REFUSED and done.nearest is not None
    assert {key: new for key, _, new in done.nearest.changes} == {"cuda": "12.6"}
    (note,) = [each for each in done.notes if "gtx-1080" in each]
    assert "torch 2.14.1 (cu126)" in note and CATALOG.date in note
    good = ask(gpu="gtx-1080", torch="2.8.0", cuda="12.6")
    assert good.state is CellState.OK and good.requirement == "2.8.0+cu126"
    assert "sm_60" in next(v.what for v in good.verdicts if v.rule == "gpu-code")
    assert refused(entry("gpu: gtx-1080", "2.8.0", cuda='"12.8"')).hint.startswith("cuda 12.8 → 12.6")


@pytest.mark.parametrize(("gpu", "last"), [("v100", True), ("titan-xp", False), ("t4", False), ("rtx-5090", False)])
def test_b003_nothing_is_said_of_a_card_that_is_served_or_whose_capability_was_not_read(gpu: str, last: bool) -> None:
    assert any("is the last with code" in note for note in ask(gpu=gpu, torch="2.10.0").notes) is last


def test_b005_a_release_below_the_catalogue_is_refused_and_another_cuda_in_the_image_is_an_error() -> None:
    error = refused(entry("gpu: rtx-3090", "1.10.2", cuda='"11.3"'))
    assert "1.10.2" in error.what and "11.3" in error.what and "1.13" in error.hint
    plan = planned('software: {torch: "2.6.0", cuda: "12.6"}\nhardware: {a: {gpu: rtx-3090}}\n')
    assert [(i.torch_requirement, i.index) for i in plan.images] == [("2.6.0+cu126", "pytorch-cu126")]
    locked = lock(image=image(torch="2.6.0", torch_requirement="2.6.0+cu126", cuda_tag="cu126", cuda="12.6"))
    torch = {"version": "2.6.0", "cuda": "12.4", "cudnn": 1, "arch_flags": "", "file": "x", "sum": 512.0}
    found = {"python": "3.11.2", "torch": torch, "distributions": {}}
    failures = {each.rule: each for each in fails(identity.judge(locked, found))}
    assert (failures["torch.cuda"].expected, failures["torch.cuda"].seen) == ("12.6", "12.4")
    assert failures["torch.version"].expected == "2.6.0+cu126"


def test_b007_the_driver_counts_and_the_toolkit_of_the_host_does_not() -> None:
    done = ask(driver="470.82", cuda="12.4")
    assert done.state is CellState.REFUSED and verb.exit_code(done) is Exit.BAD
    (broken,) = done.broken
    assert "reports CUDA 11.4" in broken.what and "525.60.13" in broken.what
    assert done.nearest is not None and done.nearest.choice.cuda == "11.8"
    assert "toolkit (nvcc) on the host is never used" in explain.told(done, CATALOG)


def test_b007_an_older_driver_of_the_same_cuda_major_passes_with_a_note() -> None:
    done = ask(driver="535.129", cuda="12.4")
    assert done.state is CellState.OK and verb.exit_code(done) is Exit.GOOD
    (note,) = [each for each in done.notes if "minor-version compatibility" in each]
    assert "reports CUDA 12.2" in note and "CUDA 12.4" in note
    assert not any("minor-version" in each for each in ask(driver="550.54.14", cuda="12.4").notes)
    assert not any("driver" in each for each in ask(cuda="12.4").notes)


@pytest.mark.parametrize(
    "base", ["", 'base: {from: image, ref: "nvidia/cuda:12.8.0-base-ubuntu24.04", os: ubuntu-24.04}']
)
def test_b009_an_image_starts_on_every_driver_that_its_wheel_runs_on(base: str) -> None:
    head = (
        f'sites: {{there: {{driver: "551.78"}}}}\nsoftware: {{torch: "2.10.0", cuda: "12.8"{base and ", " + base}}}\n'
    )
    plan = planned(head + "hardware: {a: {gpu: rtx-4090, site: there}}\n")
    (cell,) = plan.cells
    assert cell.state is CellState.OK and cell.driver_min == "525.60.13"
    (text,) = recipes(plan)  # it takes the place of what the base says: a driver 551 reports CUDA 12.4
    assert text.count("NVIDIA_REQUIRE_CUDA") == 1 and 'NVIDIA_REQUIRE_CUDA="cuda>=12.0"' in text


def test_b009_the_oldest_driver_that_an_image_has_to_run_on_bounds_its_cuda() -> None:
    error = refused(entry('gpu: rtx-4090, driver: "551.78"', cuda='"13.0"'))
    assert "driver 551.78 (reports CUDA 12.4)" in error.what and "580.65.06" in error.what
    assert error.hint.startswith("cuda 13.0 → 12.6")
    assert entry('gpu: rtx-4090, driver: "551.78"').image.startswith("torch2.14.1-cu126-")


COMPAT = "/usr/local/cuda-12.1/compat"
E804 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non "
    "supported HW"
)


def test_b011_the_compatibility_library_on_a_consumer_card_is_named_and_not_the_driver() -> None:
    want = expected('gpu: rtx-3090, driver: "525.105.17"', torch="2.5.1", cuda='"12.1"')
    finding = cause(starts_not(E804, "525.105.17", libcuda=[f"{COMPAT}/libcuda.so.530.30.02"]), want)
    assert finding.rule == "gpu.devices" and COMPAT in finding.seen
    assert "compatibility libcuda" in finding.fix and "GeForce RTX 3090" in finding.fix
    assert "newer driver on the host" in finding.fix and "LD_LIBRARY_PATH" in finding.fix
    assert "too old" not in finding.fix + finding.seen
    good = cases.facts("static-good-a100")
    for spoilt in (
        replace(good, env=(*good.env, ("LD_LIBRARY_PATH", COMPAT))),
        replace(good, loader_conf=(*good.loader_conf, COMPAT)),
        replace(good, loader_cache=(*good.loader_cache, COMPAT)),
    ):
        (found,) = fails(static.judge(cases.reference("static-good-a100"), spoilt))
        assert found.rule == "loader.compat" and COMPAT in found.seen and "804" in found.fix


def test_b011_the_probe_tells_which_driver_library_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = (
        f"7f00-7f10 r-xp 00000000 08:01 7 {COMPAT}/libcuda.so.530.30.02\n7f20-7f30 r-xp 0 08:01 8 /x/libcudart.so.12\n"
    )
    assert mapped(maps, words=("libcuda.so",)) == [f"{COMPAT}/libcuda.so.530.30.02"]
    cuda = SimpleNamespace(get_arch_list=list, init=lambda: _raise(E804))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="12.1")))
    seen = devices.facts("cuda")
    assert (seen["devices"], seen["libcuda"]) == ([], []) and "Error 804" in seen["error"]


def _raise(error: str) -> None:
    raise RuntimeError(error)


@pytest.mark.parametrize(
    ("gpu", "error", "said", "silent"),
    [
        ("h100-sxm5-80gb", "AcceleratorError: CUDA error: system not yet initialized", "fabricmanager", "compat"),
        ("h100-sxm5-80gb", "RuntimeError: Error 802: system not yet initialized", "version (550.90.07)", "compat"),
        ("h100-pcie-80gb", "RuntimeError: Error 802: system not yet initialized", "nvidia-smi", "fabric"),
        ("l40s", "RuntimeError: Error 802: system not yet initialized", "nvidia-smi", "fabric"),
        (
            "l40s",
            "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",
            "two drivers",
            "compat",
        ),
        ("l40s", E804, "compatibility libcuda", "fabric"),
        ("l40s", "RuntimeError: No CUDA GPUs are available", "see what it says", "fabric"),
    ],
)
def test_b013_each_error_of_a_cuda_that_does_not_start_has_its_own_cause(
    gpu: str, error: str, said: str, silent: str
) -> None:
    want = expected(f'gpu: {gpu}, count: 8, driver: "550.90.07"', torch="2.10.0", cuda='"12.8"')
    finding = cause(starts_not(error, "550.90.07"), want)
    assert finding.rule == "gpu.devices" and error in finding.seen
    assert said in finding.fix and silent not in finding.fix
