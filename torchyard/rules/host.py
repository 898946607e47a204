"""Rules about what surrounds torch: glibc, gcc, BLAS, the distribution's Python, and what reads the image's layers."""

from __future__ import annotations

from torchyard import consumers
from torchyard.catalog import Catalog
from torchyard.catalog.rows import BlasLibrary, BlasWheel, Consumer
from torchyard.rules.code import build_of
from torchyard.rules.request import Cell
from torchyard.rules.torch import minor
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import above, below

_MUSL = "musl"


def glibc(cell: Cell, catalog: Catalog) -> Answer:
    """The base's glibc is at least that of the wheel; musl never is."""
    base = catalog.distribution(cell.os)
    if base.glibc == _MUSL:
        return refused(f"{base.os} has musl; torch needs glibc", base, proven=base.proven("glibc"))
    build = build_of(cell, catalog)
    if build is None:
        return passed(f"{base.os} has glibc {base.glibc}", base)
    what = f"{base.os} has glibc {base.glibc}; the wheel needs {build.glibc_min}"
    if below(base.glibc, build.glibc_min):
        return refused(what, base, build.row, proven=base.proven("glibc") and build.row.proven("glibc_min"))
    return passed(what, base, build.row)


def never_glibc(cell: Cell, catalog: Catalog) -> bool:
    """Whether the base has no glibc at all."""
    return catalog.distribution(cell.os).glibc == _MUSL


def nvcc_glibc(cell: Cell, catalog: Catalog) -> Answer:
    """The build base's glibc is not above what the toolkit's headers know."""
    base, toolkit = catalog.distribution(cell.os), catalog.toolkit(cell.cuda or "")
    if cell.build != "source" or toolkit is None or base.glibc == _MUSL:
        return passed("no nvcc is needed" if cell.build != "source" or cell.cuda is None else "nothing to compare")
    if toolkit.max_glibc is None:
        return passed(f"no glibc ceiling of CUDA {toolkit.version} is known", toolkit)
    what = f"{base.os} has glibc {base.glibc}; the headers of CUDA {toolkit.version} take up to {toolkit.max_glibc}"
    if above(base.glibc, toolkit.max_glibc):
        return refused(what, base, toolkit, proven=toolkit.proven("max_glibc") and base.proven("glibc"))
    return passed(what, base, toolkit)


def nvcc_gcc(cell: Cell, catalog: Catalog) -> Answer:
    """The host gcc is not above the toolkit's limit."""
    toolkit = catalog.toolkit(cell.cuda or "")
    if cell.build != "source" or toolkit is None or cell.gcc is None:
        return passed("no nvcc is needed" if cell.build != "source" or cell.cuda is None else "nothing to compare")
    what = f"gcc {cell.gcc}; nvcc {toolkit.version} takes up to gcc {toolkit.max_gcc}"
    if above(cell.gcc, toolkit.max_gcc):
        return refused(what, toolkit, proven=toolkit.proven("max_gcc"))
    return passed(what, toolkit)


def blas(cell: Cell, catalog: Catalog) -> Answer:
    """Wheels carry the BLAS that they carry; a source build may choose one that exists for its CPU."""
    library = _library(cell.blas, catalog)
    if library is not None and cell.arch not in library.arch:
        has = " and ".join(library.arch)
        return refused(
            f"{cell.blas} for {cell.arch} is asked for; it exists for {has}", library, proven=library.proven()
        )
    if cell.build == "source":
        return passed(f"a source build may choose {cell.blas}", *([library] if library else []))
    row = carried(cell.torch, cell.cuda, cell.arch, catalog)
    if row is None:
        return passed("the BLAS of this wheel is not in the catalogue")
    kind = "CUDA" if cell.cuda else "CPU"
    what = f"the {kind} wheel for {cell.arch} carries {row.blas}"
    if cell.blas != row.blas:
        return refused(
            f"{cell.blas} is asked for; {what}, and only a source build may choose", row, proven=row.proven()
        )
    return passed(what, row)


def never_blas(cell: Cell, catalog: Catalog) -> bool:
    """Whether the BLAS does not exist for this CPU."""
    library = _library(cell.blas, catalog)
    return library is not None and cell.arch not in library.arch


def _library(blas: str, catalog: Catalog) -> BlasLibrary | None:
    return next((b for b in catalog.blas_libraries() if b.blas == blas), None)


def carried(torch: str, cuda: str | None, arch: str, catalog: Catalog) -> BlasWheel | None:
    """The BLAS that a wheel carries, or None where it was not read."""
    kind = "cuda" if cuda else "cpu"
    for row in catalog.blas_wheels():
        early = row.torch_from and below(torch, row.torch_from)
        late = row.torch_to and above(torch, row.torch_to)
        if row.arch == arch and kind in row.kinds and not early and not late:
            return row
    return None


def distro_python(cell: Cell, catalog: Catalog) -> Answer:
    """Where Python comes from the distribution, its archive has that version."""
    if cell.python_from != "distribution":
        return passed("Python does not come from the distribution")
    base, wanted = catalog.distribution(cell.os), minor(cell.python)
    has = (base.python, *base.more_python)
    if wanted in has:
        return passed(f"{base.os} has Python {wanted}", base)
    only = f" ({base.note})" if wanted in base.not_python else ""
    return refused(
        f"Python {cell.python} of the distribution is asked for; {base.os} has {', '.join(has)}{only}",
        base,
        proven=base.proven("python", "more_python"),
    )


def compression(cell: Cell, catalog: Catalog) -> Answer:
    """gzip layers are read everywhere, zstd layers where each program that reads the image is new enough."""
    if cell.compression != "zstd":
        return passed("gzip layers are read everywhere")
    if not cell.consumers:
        return passed("zstd layers are asked for, and no site says what reads them")
    found = [each for word in cell.consumers if (each := consumers.unread(word, catalog)) is not None]
    if not found:
        who = " and ".join(cell.consumers)
        verb = "read" if len(cell.consumers) > 1 else "reads"
        return passed(f"zstd layers are asked for; {who} {verb} them", *_rows(cell, catalog))
    what = "; ".join(words for _, words in found)
    proven = any(row.proven() for row, _ in found)
    return refused(f"zstd layers are asked for; {what}", *(row for row, _ in found), proven=proven)


def _rows(cell: Cell, catalog: Catalog) -> list[Consumer]:
    names = [word.partition(" ")[0] for word in cell.consumers]
    return [row for row in catalog.consumers() if row.consumer in names]
