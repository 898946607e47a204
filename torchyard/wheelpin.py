"""One wheel pinned, and what follows from a set of them; no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# The parts of the CUDA compiler by the suffix that NVIDIA's wheels of a major release have.
COMPILER = {
    "": ("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvvm"),
    "-cu12": ("nvidia-cuda-cccl", "nvidia-cuda-nvcc"),
    "-cu11": ("nvidia-cuda-nvcc",),
}

_MAJOR = re.compile(r"-(?:cu|cuda)(\d{2})x?$")
_OF_NVIDIA = ("nvidia-", "cuda-")


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPin:
    """One distribution as the lock has it: exactly one file, by name, hash and size, from a named index."""

    name: str  # normalised
    version: str  # with the local part
    file: str
    sha256: str
    size: int
    index: str  # "pypi", "pytorch-cpu"
    requires: tuple[str, ...] = ()  # normalised names of direct dependencies among the pins, sorted


def dev_requirements(pins: Sequence[WheelPin], extras: Sequence[str] = ("cccl", "nvcc")) -> tuple[str, ...]:
    """What the development target adds to these pins: the CUDA compiler of their toolkit; nothing for a CPU build.

    To be resolved with every pin as a constraint, so that what runs stays what it is. NVIDIA's cuda-toolkit says which
    parts belong to one release; before torch depended on it, the parts are named by the runtime's major.minor.
    """
    versions = {pin.name: pin.version for pin in pins}
    if toolkit := versions.get("cuda-toolkit"):
        # A newer cccl may be there already (nvidia-nvshmem brings one without a bound): it then stays.
        wanted = [each for each in extras if each != "cccl" or "nvidia-cuda-cccl" not in versions]
        return (f"cuda-toolkit[{','.join(wanted)}]=={toolkit}",)
    for suffix, parts in COMPILER.items():
        if runtime := versions.get(f"nvidia-cuda-runtime{suffix}"):
            release = ".".join(runtime.split(".")[:2])
            return tuple(f"{part}{suffix}=={release}.*" for part in parts if f"{part}{suffix}" not in versions)
    return ()


def cuda_major(name: str) -> str:
    """The major version of CUDA that a distribution names as its own (nvidia-nccl-cu12, cupy-cuda12x), else empty."""
    found = _MAJOR.search(name)
    return found[1] if found else ""


def strangers(pins: Sequence[WheelPin], cuda: str | None) -> tuple[tuple[WheelPin, tuple[str, ...]], ...]:
    """The pins of another CUDA than the image's (of any, in a CPU image), each with who requires it."""
    want = cuda.split(".")[0] if cuda else ""
    found = [
        pin for pin in pins if cuda_major(pin.name) not in ("", want) or (not cuda and pin.name.startswith(_OF_NVIDIA))
    ]
    return tuple((pin, tuple(sorted(each.name for each in pins if pin.name in each.requires))) for pin in found)


def carries_nvcc(pins: Sequence[WheelPin]) -> bool:
    """Whether these pins hold an nvcc executable: NVIDIA's have one from CUDA 13.0 on, before that ptxas only."""
    return any(pin.name == "nvidia-cuda-nvcc" for pin in pins)
