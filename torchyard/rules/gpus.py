"""Rules about the GPU alone: its name, memory, MIG profile, host and number formats."""

from __future__ import annotations

from torchyard.catalog import Catalog, Gpu
from torchyard.rules.request import Cell
from torchyard.rules.verdicts import Answer, passed, refused

NO_GPU = "no GPU is asked for"
_MIG_SUFFIXES = ("+me.all", "+me", "-me", "+gfx")


def known(cell: Cell, catalog: Catalog) -> Answer:
    """The GPU is one of the catalogue (an unknown name never comes this far: it is an input error)."""
    if not cell.gpus:
        return passed(NO_GPU)
    return passed("; ".join(f"{g.id} is {g.name}, compute capability {g.cc}" for g in cell.gpus), *cell.gpus)


def memory(cell: Cell, catalog: Catalog) -> Answer:
    """A memory size, where given, is one the model was sold with."""
    if cell.memory_gb is None or not cell.gpus:
        return passed("no memory size is asked for")
    for gpu in cell.gpus:
        if cell.memory_gb not in gpu.memory_gb:
            sold = " or ".join(str(m) for m in gpu.memory_gb)
            return refused(
                f"{cell.memory_gb} GB is asked for; {gpu.name} was sold with {sold} GB",
                gpu,
                proven=gpu.proven("memory_gb"),
            )
    return passed(f"{cell.memory_gb} GB is a size of {_ids(cell.gpus)}", *cell.gpus)


def mig_profile(cell: Cell, catalog: Catalog) -> Answer:
    """A MIG profile belongs to this model and memory size."""
    if cell.mig is None:
        return passed("no MIG profile is asked for")
    if not cell.gpus:
        return passed(f"MIG profile {cell.mig} without a GPU: nothing to compare")
    profile = cell.mig
    for suffix in _MIG_SUFFIXES:
        profile = profile.removesuffix(suffix)
    for gpu in cell.gpus:
        if profile not in gpu.mig:
            has = f"has the profiles {', '.join(gpu.mig)}" if gpu.mig else "has no MIG"
            return refused(f"MIG profile {cell.mig} is asked for; {gpu.name} {has}", gpu, proven=gpu.proven("mig"))
    return passed(f"{cell.mig} is a profile of {_ids(cell.gpus)}", *cell.gpus)


def host_arch(cell: Cell, catalog: Catalog) -> Answer:
    """The GPU is sold beside the CPU architecture of the image, which is one."""
    for gpu in cell.gpus:
        if cell.arch not in gpu.host:
            beside = " or ".join(gpu.host)
            return refused(
                f"the image is for {cell.arch}; {gpu.name} sits in {beside} hosts", gpu, proven=gpu.proven("host")
            )
    return passed(f"{_ids(cell.gpus)} in {cell.arch} hosts" if cell.gpus else NO_GPU, *cell.gpus)


def precision(cell: Cell, catalog: Catalog) -> Answer:
    """The GPU has the number format in hardware."""
    wanted = cell.precision
    if wanted is None or wanted in ("fp32", "fp64") or not cell.gpus:
        return passed("no number format is asked for" if wanted is None else f"{wanted} needs no tensor core")
    for gpu in cell.gpus:
        if wanted not in gpu.precision:
            has = f"has {', '.join(gpu.precision)}" if gpu.precision else "has no tensor cores"
            emulated = "; torch only emulates bf16 below 8.0" if wanted == "bf16" else ""
            return refused(
                f"{wanted} is asked for; {gpu.name} ({gpu.cc}) {has}{emulated}",
                gpu,
                proven=gpu.proven("precision", "cc"),
            )
    partly = any(wanted == "fp4" and gpu.cc.startswith("12.") for gpu in cell.gpus)
    return passed(
        f"{_ids(cell.gpus)} has {wanted}" + (" (on 12.x partly served by libraries)" if partly else ""), *cell.gpus
    )


def _ids(gpus: tuple[Gpu, ...]) -> str:
    return ", ".join(g.id for g in gpus)
