"""Rules about the driver: minor-version and forward compatibility, PTX, and the GPUs that a branch knows."""

from __future__ import annotations

from torchyard.catalog import Catalog, Gpu
from torchyard.catalog.rows import Branch
from torchyard.rules.code import only_ptx
from torchyard.rules.gpus import NO_GPU
from torchyard.rules.request import Cell
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import below, names, numbers

CPU = "a CPU build needs no driver"


def driver_cuda(cell: Cell, catalog: Catalog) -> Answer:
    """The driver meets the floor of the CUDA major (minor-version compatibility), or cuda-compat carries it."""
    floor = catalog.driver_floor(_major(cell.cuda)) if cell.cuda else None
    if floor is None:
        return passed(CPU if cell.cuda is None else f"no driver floor of CUDA {cell.cuda} is known")
    needs = f"CUDA {cell.cuda} runs from driver {floor.min_driver}"
    if cell.driver is None:
        return passed(needs, floor)
    branch = catalog.branch_of(cell.driver)
    has = f"driver {cell.driver}" + (f" (reports CUDA {branch.max_cuda})" if branch else "")
    if not below(cell.driver, floor.min_driver):
        return passed(f"{has}; {needs}", floor)
    if cell.cuda_compat:
        return _forward(cell, catalog)
    return refused(f"{has}; {needs}", floor, proven=floor.proven())


def driver_note(cell: Cell, catalog: Catalog) -> str:
    """Which number of a host counts, and that an older driver of the same CUDA major does; empty without a driver."""
    branch = catalog.branch_of(cell.driver) if cell.driver and cell.cuda else None
    if cell.driver is None or cell.cuda is None or branch is None:
        return ""
    counts = "the driver's version (nvidia-smi) counts; a CUDA toolkit (nvcc) on the host is never used"
    floor = catalog.driver_floor(_major(cell.cuda))
    if not below(branch.max_cuda, cell.cuda) or floor is None or below(cell.driver, floor.min_driver):
        return counts
    return (
        f"driver {cell.driver} reports CUDA {branch.max_cuda}; CUDA {cell.cuda} runs on it by minor-version "
        f"compatibility, for code that is not only PTX; {counts}"
    )


def _forward(cell: Cell, catalog: Catalog) -> Answer:
    base = catalog.forward_base(_major(cell.cuda))
    branch = catalog.branch_of(cell.driver or "")
    if base is None:
        return passed(f"driver {cell.driver} with cuda-compat; which drivers it starts from was not read")
    kind = branch.kind if branch else "unknown"
    told = f"cuda-compat of CUDA {base.major} starts from production branches from {base.min_branch} on"
    if branch is None or below(branch.number, base.min_branch) or kind not in base.kinds:
        return refused(f"driver {cell.driver} ({kind}); {told}", base, proven=base.proven())
    return passed(f"driver {cell.driver} with cuda-compat; {told}", base)


def driver_ptx(cell: Cell, catalog: Catalog) -> Answer:
    """Code that is only PTX needs a driver of the toolkit's own branch."""
    compiled = only_ptx(cell, catalog)
    if not compiled or cell.cuda is None:
        return passed("all code that runs is SASS" if cell.cuda and cell.gpus else NO_GPU if cell.cuda else CPU)
    branch = own_branch(cell.cuda, catalog)
    who = ", ".join(g.id for g in compiled)
    if branch is None:
        return passed(f"{who} compiles PTX of CUDA {cell.cuda}; the branch of that toolkit is not known")
    needs = f"{who} compiles PTX of CUDA {cell.cuda}, which needs driver branch {branch.number} or newer"
    if cell.driver is None or cell.cuda_compat:
        return passed(needs + (" (cuda-compat brings its own)" if cell.cuda_compat else ""), branch)
    if numbers(cell.driver)[:1] < numbers(branch.number):
        return refused(f"driver {cell.driver}; {needs}", branch, proven=branch.proven("max_cuda"))
    return passed(f"driver {cell.driver}; {needs}", branch)


def own_branch(cuda: str, catalog: Catalog) -> Branch | None:
    """The oldest driver branch that reports a CUDA line."""
    return next((b for b in catalog.branches if not below(b.max_cuda, cuda)), None)


def driver_gpu(cell: Cell, catalog: Catalog) -> Answer:
    """The driver supports every GPU; GPUs that need opposite kernel modules are told apart."""
    told: list[str] = []
    rows = []
    for gpu in cell.gpus:
        bound = catalog.driver_gpu(gpu.arch)
        if bound is None:
            continue
        rows.append(bound)
        driver = cell.driver
        if bound.min_driver:
            told.append(f"{gpu.name} ({gpu.arch}) runs from driver {bound.min_driver}")
            if driver and below(driver, bound.min_driver):
                return refused(f"driver {driver}; {told[-1]}", bound, proven=bound.proven("min_driver"))
        if bound.last_branch:
            told.append(f"{gpu.name} ({gpu.arch}) runs up to driver branch {bound.last_branch}")
            if driver and numbers(driver)[:1] > numbers(bound.last_branch):
                return refused(f"driver {driver}; {told[-1]}", bound, proven=bound.proven("last_branch"))
    if split := split_modules(cell.gpus, catalog):
        told.append(split)
    fallback = "no driver bound of these GPUs is known" if cell.gpus else NO_GPU
    head = f"driver {cell.driver}; " if cell.driver and told else ""
    return passed(head + ("; ".join(dict.fromkeys(told)) or fallback), *rows)


def split_modules(gpus: tuple[Gpu, ...], catalog: Catalog) -> str:
    """Why no single host can drive all of these GPUs, or nothing."""
    needs = {gpu: row.modules for gpu in gpus if (row := catalog.kernel_modules(gpu))}
    opened = [g.id for g, modules in needs.items() if modules == "open"]
    closed = [g.id for g, modules in needs.items() if modules == "closed"]
    if not opened or not closed:
        return ""
    return (
        f"no one host can drive both: {', '.join(opened)} needs the open kernel modules, {', '.join(closed)} the "
        "closed ones, and these exclude each other; one image can still serve both"
    )


def forward_compat(cell: Cell, catalog: Catalog) -> Answer:
    """cuda-compat works on data-centre GPUs (and selected workstation cards and Jetson), never on GeForce."""
    if not cell.cuda_compat:
        return passed("cuda-compat is not asked for")
    rows = []
    for gpu in cell.gpus:
        row = catalog.forward_kind(gpu.kind)
        if row is None or not row.allowed:
            only = f" ({row.note})" if row and row.note else ""
            return refused(
                f"cuda-compat is asked for; {gpu.name} is a {gpu.kind} GPU, and it works on data-centre GPUs{only}",
                *([row] if row else []),
                proven=row.proven("allowed") if row else False,
            )
        rows.append(row)
    return passed("cuda-compat works on " + (", ".join(g.id for g in cell.gpus) or "data-centre GPUs"), *rows)


def driver_min(cell: Cell, catalog: Catalog) -> str:
    """The oldest driver for a cell, from CUDA, GPU and PTX together; empty for a CPU build."""
    if cell.cuda is None:
        return ""
    floors = [_cuda_floor(cell, catalog)]
    floors += [row.min_driver for gpu in cell.gpus if (row := catalog.driver_gpu(gpu.arch)) and row.min_driver]
    if only_ptx(cell, catalog) and not cell.cuda_compat:
        floors.append(_own_driver(cell.cuda, catalog))
    return max((f for f in floors if f), key=numbers, default="")


def _cuda_floor(cell: Cell, catalog: Catalog) -> str:
    major = _major(cell.cuda)
    base = catalog.forward_base(major)
    if cell.cuda_compat and base:
        return base.min_branch
    floor = catalog.driver_floor(major)
    return floor.min_driver if floor else ""


def _own_driver(cuda: str, catalog: Catalog) -> str:
    toolkit = catalog.toolkit(cuda)
    own = min(toolkit.own_driver.values(), key=numbers, default="") if toolkit else ""
    branch = own_branch(cuda, catalog)
    return own or (branch.number if branch else "")


def driver_max(gpus: tuple[Gpu, ...], catalog: Catalog) -> str:
    """The newest driver branch that still knows every GPU; empty where none is the last."""
    last = [row.last_branch for gpu in gpus if (row := catalog.driver_gpu(gpu.arch)) and row.last_branch]
    return min(last, key=numbers, default="")


def driver_require(cuda: str | None, catalog: Catalog) -> str:
    """NVIDIA_REQUIRE_CUDA of an image: the CUDA that the floor driver of this major reports; empty for CPU."""
    floor = catalog.driver_floor(_major(cuda)) if cuda else None
    branch = catalog.branch_of(floor.min_driver) if floor else None
    return f"cuda>={branch.max_cuda}" if branch else ""


def in_branch(driver: str, branch: str) -> bool:
    """Whether a driver is of this branch."""
    return names(branch, driver)


def _major(cuda: str | None) -> str:
    return (cuda or "").split(".")[0]
