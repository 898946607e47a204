"""What is judged of facts of GPUs: each gpu-* of tests/facts is a situation, none of them seen on hardware of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lock_samples import lock

from torchyard import catalog
from torchyard.finding import Finding, State
from torchyard.judge import cpu_facts, gpu
from torchyard.judge.cpu_facts import End, Facts
from torchyard.judge.gpu import Expected
from torchyard.plan import Cell, CellState

FACTS = Path(__file__).resolve().parents[1] / "facts"
FOLDERS = sorted(FACTS.glob("gpu-*"))
NOT_OURS = "not a run of ours"
MISSING = ("no-gpu", "no-driver", "no-runtime", "no-cdi")
IDS = {"ids": lambda folder: folder.name}


def facts(folder: Path) -> Facts:
    return cpu_facts.from_text((folder / "facts.json").read_text())


def entry(folder: Path) -> Expected:
    data: dict[str, Any] = json.loads((folder / "entry.json").read_text())
    lists = {name: tuple(data[name]) for name in ("names", "capabilities")}
    return Expected(**{**data, **lists, "precision": frozenset(data["precision"])})


def judged(folder: Path, **options: Any) -> list[Finding]:
    return gpu.judge(lock(), facts(folder), entry(folder), **options)


def told(finding: Finding) -> str:
    """A finding as one line."""
    parts = (finding.state.value, finding.rule, finding.expected, finding.seen, finding.fix, finding.because)
    return " | ".join(part.replace("\n", " / ") for part in parts)


def failed(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.state is State.FAIL]


@pytest.mark.parametrize("folder", FOLDERS, **IDS)
def test_a_situation_is_judged_as_promised(folder: Path) -> None:
    said = "".join(told(finding) + "\n" for finding in judged(folder))
    if os.environ.get("ACCEPT"):
        (folder / "expected.txt").write_text(said)
    assert said == (folder / "expected.txt").read_text()


@pytest.mark.parametrize("folder", FOLDERS, **IDS)
def test_facts_come_back_from_their_text(folder: Path) -> None:
    found = facts(folder)
    assert cpu_facts.from_text(cpu_facts.to_text(found)) == found


def test_there_are_ten_situations_and_they_say_that_they_are_not_ours() -> None:
    assert len(FOLDERS) >= 10
    assert {folder.name for folder in FOLDERS if facts(folder).where == "here"} == {"gpu-no-gpu"}
    assert all(NOT_OURS in facts(folder).where for folder in FOLDERS if folder.name != "gpu-no-gpu")


@pytest.mark.parametrize(
    ("folder", "rules"),
    [
        ("gpu-good", []),
        ("gpu-good-fp8", []),
        ("gpu-socket-beside-infiniband", ["gpu.transport"]),
        ("gpu-mig-slices", ["gpu.devices"]),
        ("gpu-fewer-devices-and-slow", ["gpu.devices", "gpu.peak.float16"]),
    ],
)
def test_the_cause_is_first_and_what_follows_from_it_says_so(folder: str, rules: list[str]) -> None:
    findings = judged(FACTS / folder)
    assert failed(findings) == rules
    causes = [f for f in findings if f.state is State.FAIL and not f.because]
    assert [f.rule for f in causes] == rules[:1]


@pytest.mark.parametrize("kind", MISSING)
def test_without_a_gpu_everything_is_skipped_with_the_reason_or_fails_where_one_is_required(kind: str) -> None:
    skipped = judged(FACTS / f"gpu-{kind}")
    assert {finding.state for finding in skipped} == {State.SKIPPED}
    assert all(kind in finding.because for finding in skipped)
    required = judged(FACTS / f"gpu-{kind}", require=True)
    assert {finding.state for finding in required} == {State.FAIL}
    assert all(finding.fix for finding in required)


def test_the_four_reasons_for_no_gpu_are_told_differently() -> None:
    assert len({judged(FACTS / f"gpu-{kind}", require=True)[0].fix for kind in MISSING}) == 4


def test_what_is_skipped_without_a_gpu_is_what_is_judged_with_one() -> None:
    rules = [rule for rule, _ in gpu.RULES]
    found = {f.rule for f in judged(FACTS / "gpu-good")}
    assert [rule for rule in rules if not any(each.startswith(rule) for each in found | {"gpu.version"})] == []
    assert [each for each in found if not each.startswith(tuple(rules))] == []


def test_every_finding_on_a_gpu_says_that_it_was_not_seen_on_hardware() -> None:
    for folder in FOLDERS:
        for finding in [*judged(folder), *judged(folder, require=True)]:
            assert gpu.UNPROVEN in finding.because + finding.fix, finding


def test_a_rule_that_was_seen_on_hardware_does_not_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PROVEN", {"gpu.memory": "NVIDIA T4, driver 580.65.06"})
    said = {f.rule: f.because for f in judged(FACTS / "gpu-good")}
    assert said["gpu.memory"] == "" and gpu.UNPROVEN in said["gpu.events"]


def test_the_entry_of_a_cell_comes_from_the_catalogue() -> None:
    cell = Cell(
        hardware="a100",
        gpus=("a100-sxm4-40gb",),
        compute_capability=("8.0",),
        count=8,
        site="lab",
        choice=(),
        default=True,
        state=CellState.OK,
        image="x",
        driver_min="580.65.06",
    )
    want = gpu.expected(cell, catalog.load(), fabric="ib")
    assert (want.names, want.count, want.fabric, want.driver_min) == (("NVIDIA A100-SXM4-40GB",), 8, "ib", "580.65.06")
    assert {"fp16", "bf16", "tf32"} <= want.precision and "fp8" not in want.precision
    assert want.tflops["bf16"] == 312


def test_the_receipt_can_say_on_which_cards_and_driver_this_was() -> None:
    assert gpu.seen_on(facts(FACTS / "gpu-good")) == "2 x NVIDIA A100-SXM4-40GB, driver 580.95.05"
    assert gpu.seen_on(facts(FACTS / "gpu-no-gpu")) == ""
    assert gpu.seen_on(facts(FACTS / "cpu-good")) == ""


GOOD = facts(FACTS / "gpu-good-fp8")
WANT = entry(FACTS / "gpu-good-fp8")


def changed(probe: str, change: Callable[[dict[str, Any]], None]) -> Facts:
    """The good facts of two H100 with some of one probe's changed."""
    values = json.loads(json.dumps(GOOD.done(probe)))
    change(values)
    seen = tuple(replace(each, facts=values) if each.probe == probe else each for each in GOOD.seen)
    return replace(GOOD, seen=seen)


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """The change of one value."""

    def change(values: dict[str, Any]) -> None:
        place: Any = values
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def on_second(probe: str, *path: Any, value: Any) -> Facts:
    return changed(probe, put("devices", "cuda:1", *path, value=value))


NO_KERNEL = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"


@pytest.mark.parametrize(
    ("seen", "rule"),
    [
        (changed("devices", put("devices", 1, "name", value="NVIDIA H200")), "gpu.devices"),
        (changed("devices", put("devices", 1, "cc", value="8.9")), "gpu.devices"),
        (changed("devices", lambda v: v["devices"].pop()), "gpu.devices"),
        (changed("devices", put("devices", 1, "mig", value=True)), "gpu.devices"),
        (changed("devices", put("slices", value=[["NVIDIA H100 80GB HBM3", ["1g.10gb"]]])), "gpu.devices"),
        (changed("devices", put("error", value="RuntimeError: no CUDA-capable device")), "gpu.devices"),
        (changed("devices", put("driver", value="570.86.15")), "gpu.driver"),
        (on_second("kernels", "float32", value=1e-3), "gpu.kernels.float32"),
        (on_second("kernels", "tf32", value=0.1), "gpu.kernels.tf32"),
        (on_second("kernels", "bfloat16", value="nan"), "gpu.kernels.bfloat16"),
        (on_second("kernels", "float16", value=NO_KERNEL), "gpu.kernels.float16"),
        (on_second("kernels", "float8", value="RuntimeError: x"), "gpu.kernels.float8"),
        (on_second("kernels", "convolution", value=0.5), "gpu.kernels.convolution"),
        (on_second("memory", "left", value=512), "gpu.memory"),
        (on_second("memory", "too_much", value="given"), "gpu.memory"),
        (on_second("memory", "sum", value=767), "gpu.memory"),
        (on_second("timing", "float16", "events_ms", value=1.0), "gpu.events"),
        (on_second("timing", "float8", "tflops", value=300.0), "gpu.peak.float8"),
        (on_second("timing", "tf32", "tflops", value=30.0), "gpu.peak.tf32"),
        (changed("peers", put("whole", 0, 1, value=False)), "gpu.peers"),
        (changed("peers", put("reach", 0, 1, value=False)), "gpu.peers"),
        (changed("ranks", put("sum", value=[2.0, 3.0])), "gpu.ranks.all-reduce"),
        (changed("ranks", put("ddp", value=0.1)), "gpu.ranks.ddp"),
        (changed("ranks", put("sync_batch_norm", value={"far": 0.1})), "gpu.ranks.sync-batch-norm"),
        (changed("ranks", put("errors", value=["DistBackendError: unhandled system error"])), "gpu.ranks"),
        (changed("ranks", put("transports", value=["NET/Socket", "P2P/CUMEM"])), "gpu.transport"),
        (changed("ranks", put("transports", value=["NET/IB", "SHM/direct"])), "gpu.transport"),
        (changed("learns", put("float16", "last", value=9.0)), "gpu.learns.float16"),
        (changed("learns", put("bfloat16", "computed_in", value="float32")), "gpu.learns.bfloat16"),
        (changed("compiled", put("forward", value=0.1)), "gpu.compile"),
        (changed("compiled", put("compilers", value={})), "gpu.compile.compiler"),
        (changed("compiled", put("triton", "kernels", value=0)), "gpu.compile.triton"),
        (changed("compiled", put("triton", "version", value="")), "gpu.compile.triton"),
        (changed("numerics", put("errors", "svd.float64", value=1.0)), "gpu.numerics.lapack"),
        (changed("profiled", put("kernels", value=0)), "gpu.profiler"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_fails_for_its_fault_alone(seen: Facts, rule: str) -> None:
    fails = [f for f in gpu.judge(lock(), seen, WANT) if f.state is State.FAIL]
    assert [f.rule for f in fails] == [rule]
    assert fails[0].fix and fails[0].expected and fails[0].seen


def test_a_probe_that_died_on_a_gpu_is_named_and_follows_from_a_driver_that_is_too_old() -> None:
    seen = changed("devices", put("driver", value="470.1"))
    dead = tuple(
        replace(each, end=End.DIED, signal="SIGSEGV", facts={}) if each.probe == "ranks" else each for each in seen.seen
    )
    fails = [f for f in gpu.judge(lock(), replace(seen, seen=dead), WANT) if f.state is State.FAIL]
    assert [f.rule for f in fails] == ["gpu.driver", "gpu.probe.ranks"]
    assert "SIGSEGV" in fails[1].seen and fails[1].because.startswith("follows from gpu.driver")


def test_what_the_container_does_not_tell_is_skipped_and_fails_where_a_gpu_is_required() -> None:
    seen = changed("devices", put("driver", value=""))
    states = {f.rule: f.state for f in gpu.judge(lock(), seen, WANT)}
    assert states["gpu.driver"] is State.SKIPPED
    assert failed(gpu.judge(lock(), seen, WANT, require=True)) == ["gpu.driver"]
    quiet = changed("ranks", put("transports", value=[]))
    assert failed(gpu.judge(lock(), quiet, WANT)) == []
    assert failed(gpu.judge(lock(), quiet, WANT, require=True)) == ["gpu.transport"]


def test_mig_slices_are_good_where_they_are_meant_and_are_not_measured_by_a_whole_cards_peak() -> None:
    folder = FACTS / "gpu-mig-slices"
    meant = replace(entry(folder), mig="3g.20gb")
    found = {f.rule: f for f in gpu.judge(lock(), facts(folder), meant)}
    assert found["gpu.devices"].state is State.PASS and "MIG 3g.20gb" in found["gpu.devices"].seen
    assert found["gpu.peak"].state is State.SKIPPED and "MIG" in found["gpu.peak"].because
    assert failed(gpu.judge(lock(), facts(folder), replace(meant, mig="1g.5gb"))) == ["gpu.devices"]
    assert failed(gpu.judge(lock(), facts(folder), replace(meant, count=3))) == ["gpu.devices"]


def test_names_of_old_drivers_which_leave_the_maker_out_are_the_same_cards() -> None:
    def short(values: dict[str, Any]) -> None:
        for each in values["devices"]:
            each["name"] = each["name"].removeprefix("NVIDIA ")

    assert failed(gpu.judge(lock(), changed("devices", short), WANT)) == []


def test_fp8_is_only_asked_of_cards_that_have_it_and_releases_that_know_it() -> None:
    assert "gpu.kernels.float8" not in {f.rule for f in judged(FACTS / "gpu-good")}

    def absent(values: dict[str, Any]) -> None:
        for each in values["devices"].values():
            each["float8"] = "absent"

    assert "gpu.kernels.float8" not in {f.rule for f in gpu.judge(lock(), changed("kernels", absent), WANT)}


def test_a_fingerprint_of_the_same_card_is_compared() -> None:
    seen: Mapping[str, Any] = {
        "key": {"device": "NVIDIA H100 80GB HBM3", "threads": 0, "torch": "2.14.1+cu130"},
        "hashes": {"gemm": "0"},
        "values": {"gemm": [1.0, 2.0]},
    }
    sample = replace(GOOD.seen[0], probe="fingerprint", facts=seen)
    found = replace(GOOD, seen=(*GOOD.seen, sample))
    assert failed(gpu.judge(lock(), found, WANT, reference=seen)) == []
    other = {**seen, "hashes": {"gemm": "1"}}
    assert failed(gpu.judge(lock(), found, WANT, reference=other)) == ["gpu.fingerprint"]
