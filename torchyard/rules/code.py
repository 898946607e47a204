"""Rules about device code: what the wheel or the arch list holds, what a GPU runs, what a toolkit emits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from torchyard.catalog import Build, Catalog, Gpu, tag_of
from torchyard.catalog.rows import Row, Toolkit
from torchyard.rules.gpus import NO_GPU
from torchyard.rules.request import Cell
from torchyard.rules.verdicts import Answer, passed, refused
from torchyard.versions import above, below, numbers

_ENTRY = re.compile(r"(?P<cc>\d+\.\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The device code of a torch: from its wheel, or from the arch list of its source build."""

    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    of: str  # what holds it, in words
    rows: tuple[Row, ...] = ()
    proven: bool = True


def code_of(cell: Cell, catalog: Catalog) -> Code | None:
    """The device code that a cell's torch has, None where the catalogue has not seen it; empty for a CPU build."""
    if cell.cuda is None:
        return Code(sass=(), ptx=(), of="a CPU build")
    if cell.build == "source":
        entries = arch_entries(cell, catalog)
        return Code(
            sass=tuple(e.removesuffix("+PTX") for e in entries),
            ptx=tuple(e.removesuffix("+PTX") for e in entries if e.endswith("+PTX")),
            of=f"the arch list {';'.join(entries) or '(empty)'}",
        )
    build = catalog.build(cell.torch, tag_of(cell.cuda), cell.arch)
    if build is None or not build.sass:
        return None
    return Code(
        sass=build.sass,
        ptx=build.ptx,
        of=f"torch {build.torch} {build.tag} for {build.arch}",
        rows=(build.row,),
        proven=build.row.proven("sass", "ptx"),
    )


def arch_entries(cell: Cell, catalog: Catalog) -> tuple[str, ...]:
    """The entries of the arch list, family names spelled out; from the GPUs where none is given."""
    if cell.arch_list is None:
        return default_arch_list(cell, catalog)
    return written_entries(cell.arch_list, catalog)


def written_entries(arch_list: str, catalog: Catalog) -> tuple[str, ...]:
    """The entries of a written arch list, family names spelled out."""
    named = {n.name: n.entries for n in catalog.arch_names()}
    entries = [e for e in re.split(r"[; ]", arch_list) if e]
    return tuple(dict.fromkeys(e for entry in entries for e in named.get(entry, (entry,))))


def default_arch_list(cell: Cell, catalog: Catalog) -> tuple[str, ...]:
    """The targets for the GPUs of a cell that its toolkit can emit; without GPUs, those of the release's own wheel."""
    toolkit = catalog.toolkit(cell.cuda or "")
    if toolkit is None:
        return tuple(sorted({g.cc for g in cell.gpus}, key=numbers))
    if not cell.gpus:
        builds = catalog.builds_of(cell.torch, cell.arch)
        same = [b for b in builds if b.cuda == cell.cuda] or [b for b in builds if b.cuda]
        return tuple(t for t in (same[0].sass if same else ()) if t in toolkit.targets)
    return tuple(sorted({_target_for(g, toolkit, cell.torch, catalog) for g in cell.gpus}, key=numbers))


@lru_cache(maxsize=1 << 14)
def _target_for(gpu: Gpu, toolkit: Toolkit, torch: str, catalog: Catalog) -> str:
    runs = [t for t in toolkit.targets if sass_runs(t, gpu.cc, toolkit.version, catalog) and taken(t, torch, catalog)]
    return gpu.cc if gpu.cc in runs or not runs else max((t for t in runs if t[-1].isdigit()), key=numbers)


def taken(entry: str, torch: str, catalog: Catalog) -> bool:
    """Whether a torch takes this entry in its arch list."""
    return any(entry in r.entries and _holds(r.first, r.to, torch) for r in catalog.arch_entries())


@lru_cache(maxsize=1 << 14)
def sass_runs(code: str, cc: str, cuda: str, catalog: Catalog) -> bool:
    """Whether SASS of one target runs on a GPU of this compute capability."""
    suffix = code[-1] if code[-1] in "af" else ""
    code, cc = _one_name(code.removesuffix(suffix), catalog), _one_name(cc, catalog)
    if code == cc:
        return True
    if suffix == "a":
        return False
    if any(e.cc in (code, cc) for e in catalog.exclusive()):
        return any(s.gpu == cc and code in s.code and not below(cuda, s.cuda_min) for s in catalog.serves())
    return numbers(code)[0] == numbers(cc)[0] and numbers(code) <= numbers(cc)


@lru_cache(maxsize=1 << 14)
def ptx_runs(code: str, cc: str, catalog: Catalog) -> bool:
    """Whether PTX of one target can be compiled for a GPU of this compute capability by its driver."""
    suffix = code[-1] if code[-1] in "af" else ""
    code, cc = _one_name(code.removesuffix(suffix), catalog), _one_name(cc, catalog)
    if suffix == "a":
        return code == cc
    if suffix == "f":
        return numbers(code)[0] == numbers(cc)[0] and numbers(code) <= numbers(cc)
    return numbers(code) <= numbers(cc)


@lru_cache(maxsize=4096)
def _one_name(cc: str, catalog: Catalog) -> str:
    return next((s.names[-1] for s in catalog.same_devices() if cc in s.names), cc)


def only_ptx(cell: Cell, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs of a cell on which no SASS of its torch runs, but PTX can be compiled."""
    code = code_of(cell, catalog)
    if code is None or cell.cuda is None:
        return ()
    return tuple(
        g
        for g in cell.gpus
        if not _runs(code.sass, g, cell.cuda, catalog) and any(ptx_runs(p, g.cc, catalog) for p in code.ptx)
    )


def _runs(sass: Iterable[str], gpu: Gpu, cuda: str, catalog: Catalog) -> list[str]:
    return [s for s in sass if sass_runs(s, gpu.cc, cuda, catalog)]


def gpu_code(cell: Cell, catalog: Catalog) -> Answer:
    """Some SASS of the wheel or arch list runs on every GPU of the cell, or its PTX can be compiled there."""
    if not cell.gpus:
        return passed(NO_GPU)
    code = code_of(cell, catalog)
    if code is None:
        return passed(f"the code inside torch {cell.torch} for CUDA {cell.cuda} is not in the catalogue")
    if cell.cuda is None:
        return refused(f"a CPU build has no code for {cell.gpus[0].name}", *cell.gpus)
    told: list[str] = []
    for gpu in cell.gpus:
        runs = _runs(code.sass, gpu, cell.cuda, catalog)
        compiled = [p for p in code.ptx if ptx_runs(p, gpu.cc, catalog)]
        if not runs and not compiled:
            ptx = f"PTX for {', '.join(code.ptx)}" if code.ptx else "no PTX"
            return refused(
                f"{gpu.name} is {gpu.cc}; {code.of} has code for {', '.join(code.sass) or 'nothing'} and {ptx}",
                gpu,
                *code.rows,
                proven=code.proven and gpu.proven("cc"),
            )
        used = f"sm_{_digits(max(runs, key=numbers))}" if runs else f"PTX {max(compiled, key=numbers)}"
        told.append(f"{gpu.id} ({gpu.cc}) through {used}")
    return passed(f"{code.of} runs on {'; '.join(told)}", *code.rows)


def last_wheels(cell: Cell, catalog: Catalog) -> tuple[str, ...]:
    """For each GPU that newer releases have no wheel for: the last one that has, and its builds."""
    if cell.cuda is None:
        return ()
    told = []
    for gpu in cell.gpus:
        last = _last_served(gpu.cc, cell.arch, catalog) if gpu.proven("cc") else None
        if last is not None and last[0] != catalog.releases[0].version:
            release, tags = last
            since = f"no later wheel of the catalogue of {catalog.date} runs on it"
            told.append(
                f"{gpu.id} ({gpu.cc}): torch {release} ({', '.join(tags)}) is the last with code for it; {since}"
            )
    return tuple(told)


@lru_cache(maxsize=1024)
def _last_served(cc: str, arch: str, catalog: Catalog) -> tuple[str, tuple[str, ...]] | None:
    """The newest release with a wheel that runs on this compute capability, and the tags of those; None: unknown."""
    for release in catalog.releases:
        builds = [b for b in catalog.builds_of(release.version, arch) if b.cuda]
        tags = tuple(
            b.tag
            for b in builds
            if any(sass_runs(s, cc, b.cuda or "", catalog) for s in b.sass)
            or any(ptx_runs(p, cc, catalog) for p in b.ptx)
        )
        if tags:
            return release.version, tags
        if not all(b.sass for b in builds):  # what is inside was not read
            return None
    return None


def _digits(target: str) -> str:
    return target.replace(".", "")


def toolkit_emits(cell: Cell, catalog: Catalog) -> Answer:
    """The toolkit can emit the targets of the arch list, and code for every GPU (floor and ceiling)."""
    toolkit = catalog.toolkit(cell.cuda or "")
    if toolkit is None:
        return passed("a CPU build" if cell.cuda is None else f"CUDA {cell.cuda} has no toolkit in the catalogue")
    if cell.build == "source":
        for entry in arch_entries(cell, catalog):
            if entry.removesuffix("+PTX") not in toolkit.targets and _ENTRY.fullmatch(entry):
                return refused(
                    f"the arch list has {entry}; {_emits(toolkit)}", toolkit, proven=toolkit.proven("targets")
                )
    for gpu in cell.gpus:
        if not _runs(toolkit.targets, gpu, toolkit.version, catalog):
            by_ptx = gpu in only_ptx(cell, catalog)  # the libraries of the toolkit have no code for it either
            return refused(
                f"{gpu.name} is {gpu.cc}; {_emits(toolkit)}",
                toolkit,
                gpu,
                proven=gpu.proven("cc") and not by_ptx and toolkit.proven("targets"),
            )
    return passed(_emits(toolkit), toolkit)


def never_emits(cell: Cell, catalog: Catalog) -> bool:
    """Whether the toolkit has no target that runs on some GPU."""
    toolkit = catalog.toolkit(cell.cuda or "")
    return toolkit is not None and any(not _runs(toolkit.targets, g, toolkit.version, catalog) for g in cell.gpus)


@lru_cache(maxsize=256)
def _emits(toolkit: Toolkit) -> str:
    plain = sorted((t for t in toolkit.targets if t[-1].isdigit()), key=numbers)
    return f"CUDA {toolkit.version} emits code for {plain[0]} to {plain[-1]}"


def arch_list(cell: Cell, catalog: Catalog) -> Answer:
    """TORCH_CUDA_ARCH_LIST is spelled M.m[a][+PTX], in entries that this torch takes."""
    if cell.arch_list is None:
        return passed("no arch list is asked for")
    entries = written_entries(cell.arch_list, catalog)
    if not entries:
        return refused("the arch list is empty; write entries such as 8.6 or 9.0a+PTX")
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None or match["suffix"] == "f":
            return refused(f"{entry[:60]!r} is no entry of an arch list; write {_spelled(entry)}")
        bare = entry.removesuffix("+PTX")
        rows = [r for r in catalog.arch_entries() if bare in r.entries]
        if not rows:
            return refused(f"torch takes no entry {bare}", *catalog.arch_entries()[:1])
        bounds = [r for r in rows if _holds(r.first, r.to, cell.torch)]
        if not bounds:
            row = rows[0]
            since = f"from torch {row.first} on" if row.first else f"up to torch {row.to}"
            return refused(f"{bare} is an entry {since}; this is torch {cell.torch}", row, proven=row.proven())
    return passed(f"{';'.join(entries)} is spelled as torch takes it", *catalog.arch_entries()[:1])


def _holds(first: str, to: str, torch: str) -> bool:
    return not (first and below(torch, first)) and not (to and above(torch, to))


def _spelled(entry: str) -> str:
    """The entry as it was probably meant: `sm_86` and `86` are 8.6."""
    digits = re.sub(r"^(sm|compute)_", "", entry.lower())
    match = re.fullmatch(r"(\d{1,2})[.,]?(\d)(a?)f?(?:\+?ptx)?", digits)
    return f"{match[1]}.{match[2]}{match[3]}" if match else "M.m, M.ma or M.m+PTX, as in 8.6 or 9.0a+PTX"


def build_of(cell: Cell, catalog: Catalog) -> Build | None:
    """The wheel build of a cell, None for a source build or where there is no such wheel."""
    return None if cell.build == "source" else catalog.build(cell.torch, tag_of(cell.cuda), cell.arch)
