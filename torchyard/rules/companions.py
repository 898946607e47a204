"""Rules about what comes with torch: triton for torch.compile, torchvision and torchaudio."""

from __future__ import annotations

from torchyard.catalog import Catalog
from torchyard.catalog.rows import Pair
from torchyard.rules.request import Cell
from torchyard.rules.torch import minor
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import above, below, names, numbers

_BOUND = ("torchvision", "torchaudio")


def triton(cell: Cell, catalog: Catalog) -> Answer:
    """torch.compile on CUDA needs a new enough GPU, and a triton wheel for this Python and CPU."""
    if "compile" not in cell.features or cell.cuda is None:
        return passed(
            "torch.compile is not asked for" if "compile" not in cell.features else "on the CPU, without triton"
        )
    floor = catalog.compile_floor("compile")
    for gpu in cell.gpus:
        if floor and numbers(gpu.cc) < numbers(floor.cc):
            return refused(
                f"{gpu.name} is {gpu.cc}; torch.compile on CUDA needs {floor.cc}", floor, gpu, proven=gpu.proven("cc")
            )
    release = catalog.exact_release(cell.torch)
    if release is None:
        return passed(f"torch {cell.torch} is not in the catalogue")
    if release.triton is None:
        return refused(f"torch.compile is asked for; torch {cell.torch} has no triton", release)
    wheels = catalog.triton_wheels(cell.arch)
    if wheels is not None and below(release.triton, wheels.first):
        return refused(
            f"triton {release.triton} of torch {cell.torch}; triton for {cell.arch} starts with {wheels.first}",
            wheels,
            release,
        )
    top = release.triton_python_max
    if top and above(minor(cell.python), top):
        return refused(
            f"Python {cell.python}; triton {release.triton} of torch {cell.torch} goes up to Python {top}", release
        )
    return passed(f"triton {release.triton} for Python {minor(cell.python)} and {cell.arch}", release)


def pair(cell: Cell, catalog: Catalog) -> Answer:
    """torchvision and torchaudio belong to this torch and have a wheel for this Python."""
    row = catalog.pair(cell.torch)
    if not cell.packages:
        return passed("no torchvision or torchaudio is asked for")
    for name, full in cell.packages:
        version, _, local = full.partition("+")
        if local and name in _BOUND and local != _tag(cell):
            return refused(f"{name} {full} is asked for; this torch is {_tag(cell)}")
        match name:
            case "triton":
                broken = _triton(cell, version, catalog)
            case "torchvision" | "torchaudio":
                broken = _broken(cell, name, version, row, catalog)
            case _:
                broken = _extension(cell, name, version, catalog)
        if broken is not None:
            return broken
    asked = ", ".join(f"{name} {version}" for name, version in cell.packages)
    return passed(f"nothing against {asked} with torch {cell.torch}", *([row] if row else []))


def _tag(cell: Cell) -> str:
    return "cu" + cell.cuda.replace(".", "") if cell.cuda else "cpu"


def _triton(cell: Cell, version: str, catalog: Catalog) -> Answer | None:
    release = catalog.exact_release(cell.torch)
    if release is None or release.triton is None or names(version, release.triton):
        return None
    return refused(f"triton {version} is asked for; torch {cell.torch} takes {release.triton}", release)


def never_pair(cell: Cell, catalog: Catalog) -> bool:
    """Whether a version belongs to no Python of this torch."""
    row = catalog.pair(cell.torch)
    return any(
        _foreign(cell, name, full.partition("+")[0], row, catalog) is not None
        for name, full in cell.packages
        if name in _BOUND
    )


def _broken(cell: Cell, name: str, version: str, row: Pair | None, catalog: Catalog) -> Answer | None:
    foreign = _foreign(cell, name, version, row, catalog)
    return foreign if foreign or row is None else _python(cell, name, version, row, catalog)


def _foreign(cell: Cell, name: str, version: str, row: Pair | None, catalog: Catalog) -> Answer | None:
    gone = next((w for w in catalog.pair_withdrawn() if (w.package, w.version) == (name, version)), None)
    if gone is not None:
        return refused(f"{name} {version} is withdrawn", gone)
    if row is None:
        return None
    belongs = (row.torchvision,) if name == "torchvision" else row.torchaudio
    if not any(names(version, b) for b in belongs):
        exact = next((e for e in catalog.pair_exact() if e.package == name), None)
        bound = exact is not None and not above(version, exact.to)
        return refused(
            f"{name} {version} is asked for; to torch {cell.torch} belongs {' or '.join(belongs)}",
            row,
            proven=bound or row.proven(name),
        )
    return None


def _python(cell: Cell, name: str, version: str, row: Pair, catalog: Catalog) -> Answer | None:
    for ban in catalog.pair_python():
        if ban.package == name and not below(version, ban.first) and cell.python.removesuffix("t") == ban.python:
            return refused(f"Python {cell.python}; {name} {version} refuses Python {ban.python}", ban)
    has = row.torchvision_python if name == "torchvision" else row.torchaudio_python
    if has is not None and minor(cell.python) not in has:
        return refused(f"Python {cell.python}; {name} {version} has wheels for {', '.join(has)}", row)
    return None


def _extension(cell: Cell, name: str, version: str, catalog: Catalog) -> Answer | None:
    """What inspected wheels of an extension say against this torch, CUDA major, CPU and Python."""
    found = catalog.extensions(name, version)
    if not found:
        return None
    told: list[str] = []
    for row in found:
        wants = row.torch.removeprefix("==")
        if row.torch.startswith("==") and not names(wants, cell.torch):
            told.append(f"torch {wants}")
        elif row.cuda and row.cuda != (cell.cuda or "").split(".")[0]:
            told.append(f"CUDA {row.cuda}")
        elif row.arch not in ("any", cell.arch) or row.python not in ("any", minor(cell.python)):
            told.append(f"Python {row.python} on {row.arch}")
        else:
            return None
    made = " or ".join(dict.fromkeys(told))
    return refused(f"{name} {version} was made for {made}; this is torch {cell.torch} {_tag(cell)}", *found)
