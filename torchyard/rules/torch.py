"""Rules about the torch release: it exists, has this wheel and this Python, and what its sources need."""

from __future__ import annotations

from torchyard.catalog import Catalog, Release, line_of, tag_of
from torchyard.rules.request import Cell
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import above, below, numbers


def minor(python: str) -> str:
    """The Python that wheels are made for: `3.14.1t` is 3.14t."""
    free = "t" if python.endswith("t") else ""
    return ".".join(python.removesuffix("t").split(".")[:2]) + free


def known(cell: Cell, catalog: Catalog) -> Answer:
    """The torch version exists."""
    release = catalog.exact_release(cell.torch)
    if release is not None:
        return passed(f"torch {cell.torch} was released {release.released}", release)
    newest = catalog.releases[0]
    if numbers(cell.torch) > numbers(newest.version):
        return refused(
            f"torch {cell.torch} is newer than the catalogue of {catalog.date}, whose newest is {newest.version}: "
            "read its wheel with `catalog inspect WHEEL`"
        )
    return refused(f"torch {cell.torch} is not in the catalogue ({catalog.releases[-1].version} to {newest.version})")


def cuda_known(cell: Cell, catalog: Catalog) -> Answer:
    """The CUDA version exists."""
    if cell.cuda is None:
        return passed("a CPU build")
    gone = catalog.no_toolkit(cell.toolkit or "") or catalog.no_toolkit(cell.cuda)
    if gone is not None:
        return refused(f"there is no CUDA toolkit {gone.version}: {gone.why}", gone)
    toolkit = catalog.toolkit(cell.cuda)
    if toolkit is None:
        row = catalog.wheel_line(cell.cuda)
        if row is not None and cell.build == "wheel":
            return passed(f"CUDA {cell.cuda} exists only inside wheels", row)
        lines = catalog.lines()
        only = "; it exists only inside wheels" if row else ""
        return refused(f"CUDA {cell.cuda} has no toolkit in the catalogue ({lines[-1]} to {lines[0]}){only}")
    if cell.toolkit is not None and cell.toolkit not in toolkit.patches:
        has = ", ".join(toolkit.patches)
        return refused(f"CUDA {cell.toolkit} is asked for; CUDA {toolkit.version} has {has}", toolkit)
    return passed(f"CUDA {toolkit.version} of {toolkit.released}", toolkit)


def cuda_build(cell: Cell, catalog: Catalog) -> Answer:
    """The release has a wheel for this CUDA line and CPU architecture (at the index, where one is given)."""
    if cell.build == "source":
        return passed("a source build needs no wheel")
    release = catalog.exact_release(cell.torch)
    if release is None:
        return passed(f"torch {cell.torch} is not in the catalogue")
    build = catalog.build(cell.torch, tag_of(cell.cuda), cell.arch)
    if build is None:
        return _no_build(cell, release, catalog)
    if cell.index not in (None, build.index, f"pytorch-{build.tag}"):
        served = release.pypi.get(cell.arch, "no wheel")
        at = f"PyPI serves torch {cell.torch} for {cell.arch} as {served}" if cell.index == "pypi" else build.index
        return refused(f"{build.tag} is asked for at {cell.index}; {at}", release)
    if cell.toolkit and build.toolkit and build.toolkit.count(".") == 2 and cell.toolkit != build.toolkit:
        return refused(f"CUDA {cell.toolkit} is asked for; the wheel carries {build.toolkit}", build.row)
    return passed(f"torch {cell.torch} has a {build.tag} wheel for {cell.arch} at {build.index}", release, build.row)


def _no_build(cell: Cell, release: Release, catalog: Catalog) -> Answer:
    for end in catalog.no_builds():
        if not below(cell.torch, end.first) and below(cell.cuda or "0", end.cuda_below):
            return refused(f"torch {cell.torch} has no wheel for CUDA {cell.cuda}: {end.why}", end)
    lines = [line for tag in release.cuda.get(cell.arch, ()) if (line := line_of(tag))]
    has = f"wheels for CUDA {', '.join(lines)}" if lines else "no CUDA wheel"
    return refused(
        f"CUDA {cell.cuda}; torch {cell.torch} for {cell.arch} has {has}",
        release,
        proven=release.proven("cuda"),
    )


def python_wheel(cell: Cell, catalog: Catalog) -> Answer:
    """The release has a wheel for this Python (free-threaded ones counted apart), or its sources take it."""
    release = catalog.exact_release(cell.torch)
    if release is None:
        return passed(f"torch {cell.torch} is not in the catalogue")
    wanted, has = minor(cell.python), release.python.get(cell.arch, ())
    wheels = f"torch {cell.torch} for {cell.arch} has wheels for Python {', '.join(has)}"
    if wanted in has:
        return passed(wheels, release)
    only = catalog.index_pythons(cell.torch)
    if only is not None and index_only(cell, catalog) and cell.index != "pypi":
        return passed(f"torch {cell.torch} has a wheel for Python {wanted} {only.note}", only)
    floor = release.requires_python.removeprefix(">=")
    if cell.build == "wheel":
        return refused(f"Python {cell.python}; {wheels}", release, proven=release.proven("python"))
    if below(wanted, ".".join(floor.split(".")[:2])):
        return refused(f"Python {cell.python}; torch {cell.torch} requires Python {release.requires_python}", release)
    return refused(f"Python {cell.python} was never built for: {wheels}", release, proven=False)


def index_only(cell: Cell, catalog: Catalog) -> bool:
    """Whether only the PyTorch index has the wheel for this Python."""
    only = catalog.index_pythons(cell.torch)
    return only is not None and cell.build == "wheel" and minor(cell.python) in only.python


def host_gcc_floor(cell: Cell, catalog: Catalog) -> Answer:
    """The host gcc is not below what the torch sources need."""
    release = catalog.exact_release(cell.torch)
    if cell.build != "source" or cell.gcc is None or release is None:
        return passed("no compiler is needed" if cell.build != "source" else "no gcc to compare")
    floor = release.source_build.get("gcc_min") or "0"
    needs = f"the sources of torch {cell.torch} need gcc {floor}"
    if below(cell.gcc, floor):
        return refused(f"gcc {cell.gcc}; {needs}", release, proven=release.proven("gcc_min"))
    return passed(f"gcc {cell.gcc}; {needs}", release)


def cuda_floor(cell: Cell, catalog: Catalog) -> Answer:
    """CUDA is not below what the torch sources need, nor of a major that the release was never built with."""
    release = catalog.exact_release(cell.torch)
    if cell.build != "source" or cell.cuda is None or release is None:
        return passed("no toolkit is needed" if cell.build != "source" or cell.cuda is None else "nothing to compare")
    floor = release.source_build.get("cuda_min")
    if floor and below(cell.cuda, floor):
        return refused(
            f"CUDA {cell.cuda}; the sources of torch {cell.torch} need {floor}",
            release,
            proven=release.proven("cuda_min"),
        )
    lines = [line for tags in release.cuda.values() for tag in tags if (line := line_of(tag))]
    top = max(lines, key=numbers, default="")
    if top and above(cell.cuda, top.split(".")[0]):
        return refused(f"CUDA {cell.cuda}; torch {cell.torch} was never built above {top}", release, proven=False)
    return passed(f"CUDA {cell.cuda}; the sources need {floor or 'no known version'}", release)
