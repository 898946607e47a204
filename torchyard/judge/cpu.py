"""Whether an image does its work on a CPU: what `inside/probes` saw in containers of it, against its lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..finding import Finding
from ..lock import LockedImage
from . import cpu_python, cpu_work
from .cpu_ends import failures, followed
from .cpu_facts import READ_ONLY, UID, USER, Facts

Judge = Callable[[LockedImage, Mapping[str, Any]], list[Finding]]
SettingJudge = Callable[[LockedImage, str, Mapping[str, Any]], list[Finding]]

# In this order they are told: what others follow from is first.
ONCE: Mapping[str, Judge] = {
    "isolation": cpu_python.isolation,
    "versions": cpu_python.versions,
    "arrays": cpu_python.arrays,
    "libraries": cpu_work.libraries,
    "numerics": cpu_work.numerics,
    "ranks": cpu_work.ranks,
    "profiled": cpu_work.profiled,
    "held": cpu_python.held,
}
EACH: Mapping[str, SettingJudge] = {
    "caches": cpu_python.caches,
    "learns": cpu_work.learns,
    "compiled": cpu_work.compiled,
    "loader": cpu_work.loader,
}
NEEDS_TORCH = ("probe.", "learns", "numerics", "ranks", "profiler", "compile", "loader", "blas", "fingerprint", "numpy")
CAUSES: Mapping[str, tuple[str, ...]] = {  # what a fail of these rules can follow from, the nearest first
    "compile": ("compile.compiler", "caches"),
    "compile.openmp": ("openmp",),
    "loader": ("shm",),
    "numpy.exchange": ("load.numpy", "version.numpy"),
    "probe.arrays": ("load.numpy", "version.numpy"),
    "version.torch": ("python.shadowed",),
    "version.cuda": ("python.shadowed", "version.torch"),
    "version.numpy": ("python.shadowed",),
    "load.torch": ("python.shadowed",),
    "load.numpy": ("python.shadowed",),
    "python.shadowed": ("python.host-variables",),
    "openmp": ("python.host-variables",),
}


def judge(lock: LockedImage, facts: Facts, reference: Mapping[str, Any] | None = None) -> list[Finding]:
    """The findings on an image in containers; reference is the fingerprint that an earlier run of it kept."""
    found = []
    for probe, once in ONCE.items():
        if seen := facts.done(probe):
            found += once(lock, seen)
    for probe, each in EACH.items():
        for setting in (USER, UID, READ_ONLY):
            if seen := facts.done(probe, setting):
                found += each(lock, setting, seen)
    return followed([*failures(facts), *found, *_fingerprints(facts, reference)], _causes)


def fingerprint(facts: Facts) -> Mapping[str, Any] | None:
    """What to keep for the next run of this image to be compared with."""
    return facts.done("fingerprint") or None


def _fingerprints(facts: Facts, reference: Mapping[str, Any] | None) -> list[Finding]:
    first, second = facts.done("fingerprint"), facts.done("fingerprint", READ_ONLY)
    found = [cpu_work.twice(first, second)] if first and second else []
    if first and reference:
        return [*found, cpu_work.since(reference, first)]
    if first:
        because = "this image was not verified before; what it computes is kept for the next time"
        found.append(Finding.skipped("fingerprint", what="what was computed before", because=because))
    return found


def _causes(finding: Finding) -> list[str]:
    """The rules that a failed one can follow from: its own, and what keeps torch from loading where it needs torch."""
    rule, _, setting = finding.rule.partition("@")
    near = [f"{name}@{setting}" if setting else name for name in CAUSES.get(rule, ())]
    named = [*near, *CAUSES.get(rule, ())]
    if rule.startswith(NEEDS_TORCH) and rule != "probe.versions":
        named += ["load.torch"]
    return [*named, *(["container"] if rule.startswith("probe.") else [])]
