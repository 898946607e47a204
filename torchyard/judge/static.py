"""Tier 1: whether an image is what its lock says, by its files and configuration alone."""

from __future__ import annotations

from ..finding import Finding
from . import static_causes, static_config, static_loader, static_packages, static_tools, static_torch, static_traces
from .static_case import Judged, Reference
from .static_facts import ImageFacts

BUDGET = 4_000_000_000  # bytes of one layer, unpacked, where env.yaml says nothing
IMAGE_BUDGET = 12_000_000_000  # bytes of all layers


def judge(ref: Reference, facts: ImageFacts) -> list[Finding]:
    """The findings, causes before consequences, and what failed before what holds."""
    return static_causes.ordered(judged(ref, facts))


def judged(ref: Reference, facts: ImageFacts) -> list[Judged]:
    """Every check's answer, the more telling ones first: a finding can be the consequence of those before it."""
    return [
        static_torch.machine(ref, facts),
        static_config.environment(ref, facts),
        static_torch.kind(ref, facts),
        static_torch.release(ref, facts),
        *static_torch.code(ref, facts),
        static_loader.majors(ref, facts),
        static_loader.copies(ref, facts),
        static_loader.openmp(ref, facts),
        *static_loader.folders(ref, facts),
        static_tools.compiler(ref, facts),
        static_tools.rdma(ref, facts),
        static_traces.shadows(ref, facts),
        static_packages.wheels_locked(ref, facts),
        static_packages.os_locked(ref, facts),
        *static_packages.files(ref, facts),
        static_loader.needed(ref, facts),
        static_traces.secrets(ref, facts),
        static_traces.proxies(ref, facts),
        static_traces.certificates(ref, facts),
        static_traces.addresses(ref, facts),
        static_traces.setuid(ref, facts),
        static_traces.writable(ref, facts),
        static_traces.bytecode(ref, facts),
        static_traces.times(ref, facts),
        static_traces.documents(ref, facts),
        static_tools.size(ref, facts),
        static_tools.total(ref, facts),
    ]
