"""The rules of compatibility: one small pure function each, by the names that the catalogue states them under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchyard.catalog import Catalog
from torchyard.plan import CellState, Verdict
from torchyard.rules import code, companions, cudnn, drivers, gpus, host, torch
from torchyard.rules.request import KEYS, Asked, Cell, Request, asked, parse_request
from torchyard.rules.verdicts import Never, Rule

__all__ = ["KEYS", "RULES", "Asked", "Cell", "Request", "Rule", "asked", "judge", "parse_request", "state_of"]

_WHEEL = "torch cuda arch build"

# A cell without such a wheel, or on another CPU, is not close: most other rules have nothing to say of it.
_FAR = ("gpu-host-arch", "torch-known", "cuda-known", "torch-cuda-build")

# Rules that a few of their keys can already break, whatever the others are: the search need not vary those.
_NEVER: Mapping[str, tuple[str, Never]] = {
    "toolkit-emits": ("gpus cuda", code.never_emits),
    "glibc": ("os", host.never_glibc),
    "blas": ("blas arch", host.never_blas),
    "pair": ("packages torch", companions.never_pair),
}

# What a search need not ask: rules that hold where a key is open, or for the other kind of build.
_ONLY_WITH = {
    "gpu-memory": "memory_gb",
    "mig-profile": "mig",
    "gpu-host-arch": "gpus",
    "gpu-code": "gpus",
    "arch-list": "arch_list",
    "driver-cuda": "driver",
    "driver-ptx": "driver",
    "driver-gpu": "driver",
    "forward-compat": "cuda_compat",
    "cudnn-gpu": "gpus",
    "precision": "precision",
    "triton": "features",
    "pair": "packages",
    "compression": "compression",
}
_ONLY_BUILD = {
    "torch-cuda-build": "wheel",
    "toolkit-emits": "source",
    "cudnn-pin": "wheel",
    "nvcc-gcc": "source",
    "nvcc-glibc": "source",
    "torch-gcc": "source",
    "torch-cuda-floor": "source",
}
_BY_CC = ("gpu-code", "toolkit-emits", "driver-ptx", "cudnn-gpu", "triton")

RULES: tuple[Rule, ...] = tuple(
    Rule(
        id=name,
        reads=tuple(reads.split()),
        judge=judge,
        weight=5 if name in _FAR else 1,
        few=tuple(_NEVER[name][0].split()) if name in _NEVER else (),
        never=_NEVER[name][1] if name in _NEVER else None,
        only_with=_ONLY_WITH.get(name, ""),
        only_build=_ONLY_BUILD.get(name, ""),
        by_cc=name in _BY_CC,
    )
    for name, reads, judge in (
        ("gpu-known", "gpus", gpus.known),
        ("gpu-memory", "gpus memory_gb", gpus.memory),
        ("mig-profile", "gpus mig", gpus.mig_profile),
        ("gpu-host-arch", "gpus arch", gpus.host_arch),
        ("torch-known", "torch", torch.known),
        ("cuda-known", "cuda toolkit build", torch.cuda_known),
        ("cudnn-known", f"cudnn {_WHEEL}", cudnn.known),
        ("torch-cuda-build", f"{_WHEEL} index toolkit", torch.cuda_build),
        ("torch-python", "torch arch build python index", torch.python_wheel),
        ("gpu-code", f"gpus {_WHEEL} arch_list", code.gpu_code),
        ("toolkit-emits", f"gpus {_WHEEL} arch_list", code.toolkit_emits),
        ("arch-list", "arch_list torch", code.arch_list),
        ("driver-cuda", "driver cuda cuda_compat", drivers.driver_cuda),
        ("driver-ptx", f"driver cuda_compat gpus {_WHEEL} arch_list", drivers.driver_ptx),
        ("driver-gpu", "driver gpus", drivers.driver_gpu),
        ("forward-compat", "gpus cuda_compat", drivers.forward_compat),
        ("cudnn-gpu", "gpus cudnn cuda", cudnn.on_gpu),
        ("cudnn-cuda", "cudnn cuda arch build", cudnn.for_cuda),
        ("cudnn-pin", f"cudnn {_WHEEL}", cudnn.pin),
        ("glibc", f"{_WHEEL} os", host.glibc),
        ("nvcc-gcc", "build cuda gcc", host.nvcc_gcc),
        ("nvcc-glibc", "build cuda os", host.nvcc_glibc),
        ("torch-gcc", "build torch gcc", torch.host_gcc_floor),
        ("torch-cuda-floor", "build torch cuda", torch.cuda_floor),
        ("blas", f"blas {_WHEEL}", host.blas),
        ("distro-python", "python python_from os", host.distro_python),
        ("precision", "gpus precision", gpus.precision),
        ("triton", "features gpus torch cuda python arch", companions.triton),
        ("pair", "packages torch python cuda arch", companions.pair),
        ("compression", "compression consumers", host.compression),
    )
)


def judge(cell: Cell, catalog: Catalog) -> tuple[Verdict, ...]:
    """What every rule says of a cell, the passed ones too, in the order of the catalogue."""
    return tuple(rule.verdict(cell, catalog) for rule in RULES)


def state_of(verdicts: Iterable[Verdict]) -> CellState:
    """Refused if a proven rule is broken and not allowed, unproven if only unproven ones are, else ok."""
    broken = [v for v in verdicts if not v.ok and not v.allowed]
    if not broken:
        return CellState.OK
    return CellState.UNPROVEN if all(v.unproven for v in broken) else CellState.REFUSED
