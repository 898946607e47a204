"""Whether an image does its work on the GPUs of a hardware entry: what the probes saw there, against the entry.

Tests judge facts made from documented output of tools, and run every probe on a CPU. A rule that has not been seen on
hardware says so in its findings (`UNPROVEN`); one that has goes into `PROVEN`, with the card and the driver.

`expected` takes what the plan and the catalogue say of an entry, `judge` what `probing.run(..., device="cuda")` saw;
`seen_on` is the model and driver for the receipt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..catalog import Catalog, Gpu
from ..finding import Finding, State
from ..lock import LockedImage
from ..plan import Cell
from . import cpu_python, cpu_work, gpu_work
from .cpu_ends import failures, followed
from .cpu_facts import USER, Facts, NoGpu

UNPROVEN = "this check has not been seen to run on hardware"
PROVEN: Mapping[str, str] = {}  # rule: "NVIDIA A100-SXM4-40GB, driver 580.95.05"
FIXES = {
    NoGpu.NO_GPU: "run it where the GPUs are",
    NoGpu.NO_DRIVER: "install NVIDIA's driver; nvidia-smi must list the GPUs",
    NoGpu.NO_RUNTIME: "install nvidia-container-toolkit, then: nvidia-ctk runtime configure --runtime=docker, "
    'or let the engine read CDI specifications ("features": {"cdi": true} in daemon.json)',
    NoGpu.NO_CDI: "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
}
RULES = (  # in the order in which they are told, each with what it checks
    ("gpu.devices", "the devices of the entry: names, compute capabilities, how many, MIG"),
    ("gpu.driver", "the driver against the least that this image needs"),
    ("gpu.version", "torch and CUDA as they load"),
    ("gpu.kernels", "a kernel of each type on every device"),
    ("gpu.memory", "the allocator"),
    ("gpu.events", "CUDA events against the clock"),
    ("gpu.peak", "the fraction of the catalogue's peak"),
    ("gpu.peers", "access of devices to each other"),
    ("gpu.ranks", "NCCL over all devices, a step of DDP, SyncBatchNorm"),
    ("gpu.transport", "how NCCL goes, and its bus bandwidth"),
    ("gpu.learns", "training with autocast and a gradient scaler"),
    ("gpu.compile", "torch.compile through Triton"),
    ("gpu.numerics", "products, factorisations, transforms and convolutions"),
    ("gpu.profiler", "kernels in a trace of the profiler"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What the hardware entry says: names as the driver prints them, capabilities, count, driver and fabric."""

    names: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    precision: frozenset[str] = frozenset()
    count: int = 0
    driver_min: str = ""
    fabric: str = "none"  # none | ib | roce
    nvlink: bool = False
    nvswitch: bool = False
    mig: str = ""
    tflops: Mapping[str, float] = dataclasses.field(default_factory=dict)


def expected(cell: Cell, catalog: Catalog, *, fabric: str = "none", mig: str = "") -> Expected:
    """What the catalogue and the matrix say of a cell's devices."""
    rows: list[Gpu] = [catalog.gpu(name) for name in cell.gpus]
    return Expected(
        names=tuple(row.name for row in rows),
        capabilities=cell.compute_capability,
        precision=frozenset.intersection(*(frozenset(row.precision) for row in rows)) if rows else frozenset(),
        count=cell.count,
        driver_min=cell.driver_min,
        fabric=fabric,
        nvlink=bool(rows) and all(row.nvlink for row in rows),
        nvswitch=any(row.nvswitch for row in rows),
        mig=mig,
        tflops=dict(rows[0].tflops) if len(rows) == 1 else {},
    )


def judge(
    lock: LockedImage,
    facts: Facts,
    want: Expected,
    *,
    require: bool = False,
    reference: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """The findings on an image on GPUs; where none could be had every one is skipped, or fails with `require`.

    With `require` also fails what the container should have told and did not: the driver, how NCCL goes.
    """
    if facts.no_gpu is not None:
        return [_unproven(_absent(rule, what, facts, require)) for rule, what in RULES]
    slices = any(each.get("mig") for each in facts.done("devices").get("devices", ()))
    found = [
        finding for probe, rule in _judges(lock, want, slices) if (seen := facts.done(probe)) for finding in rule(seen)
    ]
    if (seen := facts.done("fingerprint")) and reference:
        found.append(cpu_work.since(reference, seen))
    renamed = [dataclasses.replace(f, rule=_named(f.rule)) for f in [*failures(facts), *found]]
    renamed = [_required(f) for f in renamed] if require else renamed
    return [_unproven(f) for f in followed(renamed, _causes)]


def seen_on(facts: Facts) -> str:
    """The devices and the driver that these facts were seen on, for a receipt; empty where there was none."""
    seen = facts.done("devices")
    names = [str(each["name"]) for each in seen.get("devices", ())] if facts.device == "cuda" else []
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return f"{', '.join(counted)}, driver {seen['driver'] or 'unknown'}" if counted else ""


def _judges(
    lock: LockedImage, want: Expected, slices: bool
) -> Sequence[tuple[str, Callable[[Mapping[str, Any]], list[Finding]]]]:
    return (
        ("devices", lambda seen: [*gpu_work.devices(want, seen), gpu_work.driver(want.driver_min, seen)]),
        ("versions", lambda seen: cpu_python.versions(lock, seen)),
        ("kernels", lambda seen: gpu_work.kernels(want.precision, seen)),
        ("memory", gpu_work.memory),
        ("timing", lambda seen: gpu_work.timing(want.tflops, seen, slices=slices)),
        ("peers", lambda seen: gpu_work.peers(want.nvlink, seen)),
        ("ranks", lambda seen: [*cpu_work.ranks(lock, seen), gpu_work.transport(want.fabric, want.nvlink, seen)]),
        ("learns", lambda seen: cpu_work.learns(lock, USER, seen)),
        ("compiled", lambda seen: gpu_work.compiled(cpu_work.compiled(lock, USER, seen), seen)),
        ("numerics", lambda seen: cpu_work.numerics(lock, seen)),
        ("profiled", gpu_work.profiled),
    )


def _named(rule: str) -> str:
    return rule if rule.startswith("gpu.") else f"gpu.{rule}"


def _required(finding: Finding) -> Finding:
    if finding.state is not State.SKIPPED or not finding.because.startswith(gpu_work.UNTOLD):
        return finding
    fix = (
        "give the container the driver's own tools: NVIDIA_DRIVER_CAPABILITIES=compute,utility, or a CDI specification"
    )
    return dataclasses.replace(
        finding, state=State.FAIL, because="", expected="it can be seen", seen=finding.because, fix=fix
    )


def _unproven(finding: Finding) -> Finding:
    """The finding, saying so where its rule was not seen on hardware: a fail that is a cause has no `because`."""
    if finding.rule in PROVEN:
        return finding
    if finding.state is State.FAIL and not finding.because:
        return dataclasses.replace(finding, fix=f"{finding.fix} ({UNPROVEN})")
    because = "; ".join(part for part in (finding.because, UNPROVEN) if part)
    return dataclasses.replace(finding, because=because)


def _absent(rule: str, what: str, facts: Facts, require: bool) -> Finding:
    assert facts.no_gpu is not None
    fix = FIXES[facts.no_gpu]
    if require:
        return Finding(rule=rule, state=State.FAIL, what=what, expected="a GPU", seen=facts.detail, fix=fix)
    return Finding.skipped(rule, what=what, because=f"{facts.detail} ({facts.no_gpu})")


def _causes(finding: Finding) -> list[str]:
    """The devices and the driver stand behind whatever fails on them."""
    if finding.rule in ("gpu.devices", "gpu.driver"):
        return ["gpu.driver"]
    return ["gpu.driver", "gpu.devices"]
