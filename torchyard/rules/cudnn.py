"""Rules about cuDNN: it exists, it serves the GPU and the CUDA major, and a wheel fixes its own."""

from __future__ import annotations

from torchyard.catalog import Catalog
from torchyard.catalog.rows import CudnnLine
from torchyard.rules.code import build_of
from torchyard.rules.request import Cell
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import below, names, newest, numbers

_NONE = "a CPU build has no cuDNN"


def line_of(version: str, catalog: Catalog) -> CudnnLine | None:
    """The range that a cuDNN version lies in, or None."""
    for line in reversed(catalog.cudnn_lines()):
        if not below(version, line.first):
            last = numbers(line.to)
            return line if not last or numbers(version)[: len(last)] <= last else None
    return None


def known(cell: Cell, catalog: Catalog) -> Answer:
    """The cuDNN version exists and is not withdrawn."""
    if cell.cudnn is None:
        return passed("no cuDNN is asked for" if cell.cuda else _NONE)
    build = build_of(cell, catalog)
    if build is not None and build.cudnn == cell.cudnn:
        return passed(f"cuDNN {cell.cudnn} is the one of the wheel", build.row)
    packages = [p for major in ("11", "12", "13") if (p := catalog.cudnn_package(major))]
    if any(names(cell.cudnn, v) for p in packages for v in p.all):
        return passed(f"cuDNN {cell.cudnn} is published", *packages[:1])
    if any(cell.cudnn in p.withdrawn for p in packages):
        return refused(f"cuDNN {cell.cudnn} is withdrawn", *packages[:1])
    if any(cell.cudnn in p.pre_releases for p in packages):
        return refused(f"cuDNN {cell.cudnn} is a pre-release", *packages[:1])
    ends = [v for p in packages for v in (p.all[0], p.all[-1])]
    first, last = (min(ends, key=numbers), newest(ends)) if ends else ("none", "none")
    return refused(
        f"cuDNN {cell.cudnn} is not among NVIDIA's wheels in the catalogue ({first} to {last})", *packages[:1]
    )


def on_gpu(cell: Cell, catalog: Catalog) -> Answer:
    """cuDNN supports the compute capability of every GPU."""
    if cell.cudnn is None or cell.cuda is None or not cell.gpus:
        return passed("no cuDNN, or no GPU, to compare")
    line = line_of(cell.cudnn, catalog)
    if line is None:
        return passed(f"which GPUs cuDNN {cell.cudnn} serves was not read")
    top = line.cc_max_below if line.cuda_for_max and below(cell.cuda, line.cuda_for_max) else line.cc_max
    serves = f"cuDNN {cell.cudnn} with CUDA {cell.cuda} serves {line.cc_min} to {top}"
    for gpu in cell.gpus:
        if not numbers(line.cc_min) <= numbers(gpu.cc) <= numbers(top):
            return refused(f"{gpu.name} is {gpu.cc}; {serves}", line, gpu, proven=line.proven() and gpu.proven("cc"))
    return passed(serves, line)


def for_cuda(cell: Cell, catalog: Catalog) -> Answer:
    """cuDNN has a build for the CUDA major, and for this CPU where it is installed apart."""
    if cell.cudnn is None:
        return passed("no cuDNN is asked for" if cell.cuda else _NONE)
    if cell.cuda is None:
        return refused(f"cuDNN {cell.cudnn} is asked for; {_NONE}")
    major = cell.cuda.split(".")[0]
    line = line_of(cell.cudnn, catalog)
    if line is not None and major not in line.cuda:
        has = " and ".join(line.cuda)
        return refused(f"CUDA {cell.cuda}; cuDNN {cell.cudnn} has builds for CUDA {has}", line, proven=line.proven())
    package = catalog.cudnn_package(major)
    if package is not None and cell.build == "source":
        if not any(names(cell.cudnn, v) for v in package.all) and _published(cell.cudnn, catalog):
            return refused(f"CUDA {cell.cuda}; {package.package} has no {cell.cudnn}", package)
        first = package.aarch64_from
        if cell.arch == "aarch64" and (first is None or below(cell.cudnn, first)):
            since = f"starts with {first}" if first else "has no aarch64 wheel"
            return refused(f"cuDNN {cell.cudnn} for aarch64 is asked for; {package.package} {since}", package)
    return passed(f"cuDNN {cell.cudnn} has a build for CUDA {major}", *([line] if line else []))


def _published(version: str, catalog: Catalog) -> bool:
    packages = [p for major in ("11", "12", "13") if (p := catalog.cudnn_package(major))]
    return any(names(version, v) for p in packages for v in p.all)


def pin(cell: Cell, catalog: Catalog) -> Answer:
    """A wheel fixes its cuDNN; it is free only in a source build."""
    if cell.build == "source" or cell.cuda is None:
        return passed("free in a source build" if cell.cuda else _NONE)
    build = build_of(cell, catalog)
    if build is None or (build.cudnn is None and cell.cudnn is None):
        return passed("the cuDNN of this wheel is not in the catalogue")
    what = f"torch {cell.torch} {build.tag} fixes cuDNN {build.cudnn or '(not seen)'}"
    if cell.cudnn is None:
        return passed(what, build.row)
    if build.cudnn is None or not names(cell.cudnn, build.cudnn):
        proven = build.cudnn is not None and build.row.proven("cudnn")
        return refused(f"cuDNN {cell.cudnn} is asked for; {what}", build.row, proven=proven)
    return passed(what, build.row)
