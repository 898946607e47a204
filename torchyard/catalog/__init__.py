"""The catalogue: facts that nobody decides (GPUs, drivers, CUDA, torch, distributions), each row with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import TypeVar, cast

from torchyard.catalog import names, read
from torchyard.catalog.rows import (
    ArchEntries,
    ArchName,
    BlasLibrary,
    BlasWheel,
    Branch,
    Build,
    BuildRow,
    CompileFloor,
    Consumer,
    CudnnLine,
    CudnnPackage,
    Disagreement,
    Distribution,
    DriverFloor,
    DriverGpu,
    Exclusive,
    Extension,
    ForwardBase,
    ForwardKind,
    Gpu,
    IndexPythons,
    KernelModules,
    LibraryGap,
    NoBuilds,
    Note,
    NoToolkit,
    Pair,
    PairExact,
    PairPython,
    PairWithdrawn,
    Pins,
    Release,
    Row,
    RuleRow,
    SameDevice,
    Serves,
    Switch,
    Toolkit,
    TritonWheels,
    WheelLine,
    line_of,
    tag_of,
)
from torchyard.errors import InputError
from torchyard.versions import descending, numbers
from torchyard.versions import names as version_names

__all__ = [
    "ARCHES",
    "Build",
    "Catalog",
    "Distribution",
    "Gpu",
    "Pair",
    "Release",
    "Toolkit",
    "line_of",
    "load",
    "tag_of",
]

ARCHES = ("x86_64", "aarch64")

# What the PyTorch index serves beside the CUDA builds: a CPU build of every release, for both CPUs.
_CPU = "cpu"

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalog:
    """Every row, and the look-ups that rules and resolver need; compared by identity."""

    sources: Mapping[str, str]
    date: str  # the newest day on which a row was checked
    rows: Mapping[str, tuple[Row, ...]]
    gpus: tuple[Gpu, ...]
    releases: tuple[Release, ...]  # newest first
    toolkits: tuple[Toolkit, ...]  # newest first
    branches: tuple[Branch, ...]  # oldest first
    distributions: tuple[Distribution, ...]  # in the order of preference
    builds: tuple[Build, ...]
    _gpus: Mapping[str, Gpu]
    _names: names.Names
    _releases: Mapping[str, Release]
    _toolkits: Mapping[str, Toolkit]
    _builds: Mapping[tuple[str, str, str], Build]
    _builds_of: Mapping[tuple[str, str], tuple[Build, ...]]
    _distributions: Mapping[str, Distribution]
    _pairs: Mapping[str, Pair]

    def gpu(self, name: str, *, memory_gb: int | None = None) -> Gpu:
        """The GPU that a name means; with a short alias, a memory size may choose the sibling that has it."""
        found = self._gpus[self._names.find(name)]
        if memory_gb is not None and memory_gb not in found.memory_gb and names.squeezed(name) in self._names.short:
            sibling = self._names.written.get(names.squeezed(f"{name}{memory_gb}gb"))
            return self._gpus[sibling] if sibling else found
        return found

    def release(self, version: str) -> Release:
        """The torch release of a version, `2.14` being its newest patch (InputError if there is none)."""
        found = self.find_release(version)
        if found is None:
            near = ", ".join(sorted(self._releases, key=lambda v: _distance(v, version))[:3])
            raise InputError(
                f"torch {version} is not in the catalogue of {self.date}",
                hint=f"nearest: {near}; for a newer release read its wheel with `catalog inspect WHEEL`",
            )
        return found

    def find_release(self, version: str) -> Release | None:
        """The torch release of a version, or None."""
        return self._releases.get(version) or next(
            (r for r in self.releases if numbers(version) and version_names(version, r.version)), None
        )

    def exact_release(self, version: str) -> Release | None:
        """The torch release of exactly this version, or None."""
        return self._releases.get(version)

    def build(self, torch: str, tag: str, arch: str) -> Build | None:
        """The build of a release with this tag (`cu130`, `cpu`) for a CPU architecture, or None."""
        return self._builds.get((torch, tag, arch))

    def builds_of(self, torch: str, arch: str) -> tuple[Build, ...]:
        """The builds of a release for a CPU architecture: what PyPI serves, then newest CUDA first, CPU last."""
        return self._builds_of.get((torch, arch), ())

    def toolkit(self, line: str) -> Toolkit | None:
        """The CUDA toolkit of a line (`13.0`), or None."""
        return self._toolkits.get(line)

    def distribution(self, name: str) -> Distribution:
        """The distribution of a name, `debian-12` or `debian12` (InputError with the nearest names)."""
        found = self._distributions.get(names.squeezed(name))
        if found is None:
            raise InputError(f"unknown OS {name[:80]!r}", hint=f"known: {', '.join(d.os for d in self.distributions)}")
        return found

    def pair(self, torch: str) -> Pair | None:
        """torchvision and torchaudio of a release, or None."""
        return self._pairs.get(torch)

    def cudnn_lines(self) -> tuple[CudnnLine, ...]:
        """The cuDNN ranges, oldest first."""
        return self._all(CudnnLine, "cudnn_lines")

    def cudnn_package(self, major: str) -> CudnnPackage | None:
        """Every cuDNN of a CUDA major, or None."""
        return next((p for p in self._all(CudnnPackage, "cudnn_packages") if p.cuda == major), None)

    def driver_floor(self, major: str) -> DriverFloor | None:
        """The oldest driver of a CUDA major, or None."""
        return next((f for f in self._all(DriverFloor, "driver_floors") if f.major == major), None)

    def branch_of(self, driver: str) -> Branch | None:
        """The newest branch that is not newer than a driver, or None."""
        reached = [b for b in self.branches if numbers(b.number) <= numbers(driver)[:1]]
        return reached[-1] if reached else None

    def driver_gpu(self, arch: str) -> DriverGpu | None:
        """The drivers that know a GPU architecture, or None where no bound is known."""
        return next((r for r in self._all(DriverGpu, "driver_gpus") if r.arch == arch), None)

    def kernel_modules(self, gpu: Gpu) -> KernelModules | None:
        """The kernel modules that a GPU must have, or None where both kinds do."""
        rows = self._all(KernelModules, "kernel_modules")
        return next((r for r in rows if gpu.id == r.gpu or (r.arch and r.arch == gpu.arch)), None)

    def forward_kind(self, kind: str) -> ForwardKind | None:
        """Whether cuda-compat works on a kind of GPU, or None."""
        return next((r for r in self._all(ForwardKind, "forward_compatibility") if r.kind == kind), None)

    def forward_base(self, major: str) -> ForwardBase | None:
        """The branches that cuda-compat of a CUDA major starts from, or None."""
        return next((r for r in self._all(ForwardBase, "forward_bases") if r.major == major), None)

    def exclusive(self) -> tuple[Exclusive, ...]:
        """The compute capabilities that run only their own code."""
        return self._all(Exclusive, "code_exclusive")

    def serves(self) -> tuple[Serves, ...]:
        """The exceptions to that."""
        return self._all(Serves, "code_serves")

    def same_devices(self) -> tuple[SameDevice, ...]:
        """Compute capabilities with two names."""
        return self._all(SameDevice, "code_same")

    def arch_entries(self) -> tuple[ArchEntries, ...]:
        """What TORCH_CUDA_ARCH_LIST takes."""
        return self._all(ArchEntries, "arch_entries")

    def arch_names(self) -> tuple[ArchName, ...]:
        """The family names that it takes, the longer ones first where one begins with another."""
        return self._all(ArchName, "arch_names")

    def compile_floor(self, feature: str) -> CompileFloor | None:
        """The compute capability from which a feature works, or None."""
        return next((r for r in self._all(CompileFloor, "compile_floors") if r.feature == feature), None)

    def triton_wheels(self, arch: str) -> TritonWheels | None:
        """The first triton for a CPU architecture, or None where every one has a wheel."""
        return next((r for r in self._all(TritonWheels, "triton_wheels") if r.arch == arch), None)

    def library_gaps(self) -> tuple[LibraryGap, ...]:
        """Libraries inside wheels that lack a GPU generation's code."""
        return self._all(LibraryGap, "library_gaps")

    def wheel_line(self, line: str) -> WheelLine | None:
        """The row of a CUDA line that exists only inside wheels, or None."""
        return next((r for r in self._all(WheelLine, "wheel_only") if r.version == line), None)

    def no_toolkit(self, version: str) -> NoToolkit | None:
        """The row of a CUDA version that was never released, or None."""
        return next((r for r in self._all(NoToolkit, "no_toolkits") if r.version == version), None)

    def index_pythons(self, torch: str) -> IndexPythons | None:
        """The Pythons for which only the PyTorch index has wheels of a release, or None."""
        return next((r for r in self._all(IndexPythons, "torch_index_pythons") if r.torch == torch), None)

    def no_builds(self) -> tuple[NoBuilds, ...]:
        """From which release on there are no wheels below which CUDA."""
        return self._all(NoBuilds, "torch_ends")

    def pins(self, torch: str) -> Pins | None:
        """What the PyPI wheel of a release pins, or None."""
        return next((p for p in self._all(Pins, "torch_pins") if p.torch == torch), None)

    def pair_exact(self) -> tuple[PairExact, ...]:
        """Up to which version torchvision and torchaudio pin torch exactly."""
        return self._all(PairExact, "pair_exact")

    def pair_withdrawn(self) -> tuple[PairWithdrawn, ...]:
        """Withdrawn versions of torchvision and torchaudio."""
        return self._all(PairWithdrawn, "pair_withdrawn")

    def pair_python(self) -> tuple[PairPython, ...]:
        """Pythons that torchvision or torchaudio refuse."""
        return self._all(PairPython, "pair_python")

    def extensions(self, package: str, version: str) -> tuple[Extension, ...]:
        """The wheels of an extension that somebody inspected."""
        rows = self._all(Extension, "extensions")
        return tuple(r for r in rows if r.package == package and version_names(version, r.version))

    def blas_wheels(self) -> tuple[BlasWheel, ...]:
        """Which BLAS wheels carry."""
        return self._all(BlasWheel, "blas_wheels")

    def blas_libraries(self) -> tuple[BlasLibrary, ...]:
        """Where each BLAS exists."""
        return self._all(BlasLibrary, "blas_libraries")

    def consumers(self) -> tuple[Consumer, ...]:
        """What runs images, and what it reads of their layers."""
        return self._all(Consumer, "consumers")

    def rules(self) -> tuple[RuleRow, ...]:
        """What each rule states, in the order in which rules are told."""
        return self._all(RuleRow, "rules")

    def switches(self) -> tuple[Switch, ...]:
        """The variables that a source build of torch reads."""
        return self._all(Switch, "switches")

    def notes(self) -> tuple[Note, ...]:
        """Facts that no rule computes with."""
        return self._all(Note, "notes")

    def disagreements(self) -> tuple[Disagreement, ...]:
        """Where documents and files disagree."""
        return self._all(Disagreement, "disagreements")

    def lines(self) -> tuple[str, ...]:
        """Every CUDA line, newest first, those that exist only inside wheels too."""
        wheel_only = [r.version for r in self._all(WheelLine, "wheel_only")]
        return descending([t.version for t in self.toolkits] + wheel_only)

    def pythons(self) -> tuple[str, ...]:
        """Every Python that some release has a wheel for, newest first, free-threaded ones after their sister."""
        found = {p for r in self.releases for pythons in r.python.values() for p in pythons}
        return tuple(sorted(found, key=lambda p: (numbers(p), not p.endswith("t")), reverse=True))

    def _all(self, kind: type[R], section: str) -> tuple[R, ...]:
        return cast(tuple[R, ...], self.rows[section])


def load(extra: Sequence[tuple[str, str]] = ()) -> Catalog:
    """The packaged catalogue, extended and corrected by the user's files: (name, text) of each, in order."""
    return _load(tuple(extra))


@lru_cache(maxsize=8)
def _load(extra: tuple[tuple[str, str], ...]) -> Catalog:
    known = _packaged_sources()
    data: read.Data = {section: {k: dict(r) for k, r in rows.items()} for section, rows in _packaged().items()}
    for name, text in extra:
        known = known | read.sources(text, where=name)
        read.merge(data, text, where=name, known_sources=None)
    return _catalog(data, known)


@cache
def _packaged_sources() -> dict[str, str]:
    return read.sources(dict(_texts())["sources.yaml"], where="sources.yaml")


@cache
def _packaged() -> read.Data:
    data: read.Data = {}
    for name, text in _texts():
        read.merge(data, text, where=name, known_sources=_packaged_sources())
    return data


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    folder = resources.files("torchyard") / "data" / "catalog"
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".yaml"))
    return tuple((name, (folder / name).read_text(encoding="utf-8")) for name in files)


def _catalog(data: read.Data, sources: Mapping[str, str]) -> Catalog:
    rows = {section: read.build(section, data) for section in read.SECTIONS}
    gpus = cast(tuple[Gpu, ...], rows["gpus"])
    releases = tuple(sorted(cast(tuple[Release, ...], rows["torch_releases"]), key=_version, reverse=True))
    toolkits = tuple(sorted(cast(tuple[Toolkit, ...], rows["toolkits"]), key=_version, reverse=True))
    branches = tuple(sorted(cast(tuple[Branch, ...], rows["driver_branches"]), key=lambda b: numbers(b.branch)))
    distributions = cast(tuple[Distribution, ...], rows["distributions"])
    builds = _builds(releases, cast(tuple[BuildRow, ...], rows["torch_builds"]))
    return Catalog(
        sources=sources,
        date=max(row.checked for section in rows.values() for row in section),
        rows=rows,
        gpus=gpus,
        releases=releases,
        toolkits=toolkits,
        branches=branches,
        distributions=distributions,
        builds=builds,
        _gpus={g.id: g for g in gpus},
        _names=names.index(gpus),
        _releases={r.version: r for r in releases},
        _toolkits={t.version: t for t in toolkits},
        _builds={(b.torch, b.tag, b.arch): b for b in builds},
        _builds_of={
            (r.version, arch): tuple(b for b in builds if b.torch == r.version and b.arch == arch)
            for r in releases
            for arch in ARCHES
        },
        _distributions={names.squeezed(d.os): d for d in distributions},
        _pairs={p.torch: p for p in cast(tuple[Pair, ...], rows["pairs"])},
    )


def _version(row: Release | Toolkit) -> tuple[int, ...]:
    return numbers(row.version)


def _distance(version: str, asked: str) -> tuple[int, ...]:
    have, want = numbers(version), numbers(asked)
    return tuple(abs(a - b) for a, b in zip(have, (*want, 0, 0, 0), strict=False))


def _builds(releases: Sequence[Release], rows: Sequence[BuildRow]) -> tuple[Build, ...]:
    """Every build of every release, in the order of `builds_of`."""
    known = {(r.torch, r.tag, r.arch): r for r in rows}
    found: list[Build] = []
    for release in releases:
        for arch in ARCHES:
            tags = list(dict.fromkeys([*release.cuda.get(arch, ()), *_extra_tags(known, release.version, arch)]))
            tags.sort(key=lambda tag: numbers(line_of(tag) or "0"), reverse=True)
            default = release.pypi.get(arch, "")
            ordered = sorted([*tags, _CPU], key=lambda tag: tag != default)
            found += [_build(release, arch, tag, known.get((release.version, tag, arch))) for tag in ordered]
    return tuple(found)


def _extra_tags(known: Mapping[tuple[str, str, str], BuildRow], torch: str, arch: str) -> list[str]:
    return [tag for (version, tag, cpu) in known if version == torch and cpu == arch]


def _build(release: Release, arch: str, tag: str, row: BuildRow | None) -> Build:
    default = release.pypi.get(arch) == tag
    return Build(
        torch=release.version,
        tag=tag,
        arch=arch,
        cuda=line_of(tag),
        toolkit=row.toolkit if row else line_of(tag),
        cudnn=row.cudnn if row else None,
        sass=row.sass if row else (),
        ptx=row.ptx if row else (),
        glibc_min=row.glibc_min if row else release.glibc_min.get(arch, "2.17"),
        python=release.python.get(arch, ()),
        index="pypi" if default else f"pytorch-{tag}",
        requirement=release.version if default else f"{release.version}+{tag}",
        default=default,
        row=row or release,
    )
