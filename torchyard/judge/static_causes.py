"""Which finding is the cause and which follow from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..finding import Finding, State
from .static_case import Judged

# Findings on packages, files and libraries follow from one before them that speaks of the same, by name.
_BY_NAME = frozenset(
    {"torch.release", "code.torch", "code.extensions", "libraries.cuda-major", "libraries.copies", "libraries.openmp"}
    | {"python.shadows", "wheels.locked", "os.locked", "wheels.files", "os.files", "libraries.needed"}
)
# They also follow from one of these where they lie in just the same layers: what else such a step changed.
_SWEEPING = frozenset(
    {"platform.machine", "torch.build", "torch.release", "libraries.cuda-major", "tools.compiler", "tools.rdma"}
)
# Traces of a step follow from whatever else that step did.
_BY_LAYER = frozenset({"times.bytecode", "rights.writable", "traces.addresses"})


def ordered(judged: Sequence[Judged]) -> list[Finding]:
    """The findings: causes, then their consequences (each with the rule that it follows from), then the others."""
    causes: list[Judged] = []
    consequences: list[tuple[Judged, str]] = []
    for each in (one for one in judged if one.failed):
        before = [*causes, *(one for one, _ in consequences)]
        cause = _cause(each, before)
        if cause is None:
            causes.append(each)
        else:
            roots = {one.finding.rule: rule for one, rule in consequences}
            consequences.append((each, roots.get(cause.finding.rule, cause.finding.rule)))
    marked = [dataclasses.replace(one.finding, because=f"consequence of {rule}") for one, rule in consequences]
    return [*(one.finding for one in causes), *marked, *(one.finding for one in judged if not one.failed)]


def _cause(each: Judged, before: Sequence[Judged]) -> Judged | None:
    """The first finding that this one follows from; None where it is a cause itself."""
    rule = each.finding.rule
    if rule in _BY_NAME and each.about and each.about <= frozenset().union(*(one.about for one in before)):
        return next(one for one in before if one.about & each.about)
    if rule in _BY_NAME and each.layers:
        found = (one for one in before if one.finding.rule in _SWEEPING and each.layers <= one.layers)
        return next(found, None)
    if rule == "times.files" and each.layers:  # whatever is built on a step that went wrong is as young as it
        return next((one for one in before if one.layers and min(one.layers) <= min(each.layers)), None)
    if rule == "times.config" and each.layers:  # whatever was put on a good image wrote the time of its making
        return next((one for one in before if one.layers and max(one.layers) >= min(each.layers)), None)
    if rule in _BY_LAYER and each.layers and each.layers <= frozenset().union(*(one.layers for one in before)):
        return next(one for one in before if one.layers & each.layers)
    return None


# What breaks what runs: of the findings on files, those that a failure of a later tier can follow from.
_BREAKING = ("platform.", "config.", "torch.", "code.", "libraries.", "loader.", "tools.", "python.", "wheels.", "os.")


def combined(static: Sequence[Finding], later: Sequence[Finding]) -> list[Finding]:
    """The findings of two tiers: causes, consequences, the others. What breaks files explains what fails to run."""
    cause = next((f.rule for f in static if _is_cause(f) and f.rule.startswith(_BREAKING)), "")
    marked = [_following(f, cause) if cause and _is_cause(f) else f for f in later]
    every = [*static, *marked]
    causes = [f for f in every if _is_cause(f)]
    consequences = [f for f in every if f.state is State.FAIL and not _is_cause(f)]
    return [*causes, *consequences, *(f for f in every if f.state is not State.FAIL)]


def _following(finding: Finding, cause: str) -> Finding:
    return dataclasses.replace(finding, because="; ".join(filter(None, (f"consequence of {cause}", finding.because))))


def _is_cause(finding: Finding) -> bool:
    return finding.state is State.FAIL and not finding.because.startswith(("consequence of ", "follows from "))
