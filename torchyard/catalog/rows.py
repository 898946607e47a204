"""The rows of the catalogue as values: facts that nobody decides, each with its source and the date it was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Row:
    """What every row has: where it comes from, when that was read, and which fields were not read."""

    source: tuple[str, ...]
    checked: str
    verified: bool = True  # False: the whole row is unverified
    unverified: tuple[str, ...] = ()  # the fields that were not read in a source
    note: str = ""

    def proven(self, *names: str) -> bool:
        """Whether these fields of the row were read in a source."""
        return self.verified and not any(name in self.unverified for name in names)

    @property
    def cited(self) -> str:
        """The sources as a verdict names them."""
        return ", ".join(self.source)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gpu(Row):
    """One GPU model of one memory size (or of the sizes that share a name)."""

    id: str
    name: str  # what nvidia-smi prints
    kind: str  # datacenter | workstation | consumer | embedded
    arch: str
    cc: str  # compute capability
    memory_gb: tuple[int, ...]
    memory: str
    nvlink: bool
    host: tuple[str, ...]  # CPU architectures it is sold beside
    precision: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    nvswitch: bool = False  # boards of eight join theirs by NVSwitch: they need the fabric manager
    tflops: Mapping[str, float] = field(default_factory=dict)
    tflops_source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DriverFloor(Row):
    """The oldest driver of a CUDA major, by minor-version compatibility."""

    major: str
    min_driver: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Branch(Row):
    """A driver branch and the CUDA version that it reports."""

    branch: str  # R580
    max_cuda: str
    kind: str
    end_of_life: str

    @property
    def number(self) -> str:
        """The branch as drivers begin: `580`."""
        return self.branch.removeprefix("R")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DriverGpu(Row):
    """The drivers that know a GPU architecture: from a version, or up to a branch."""

    arch: str
    min_driver: str = ""
    last_branch: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KernelModules(Row):
    """The kind of kernel modules that an architecture, or one GPU, must have."""

    modules: str  # open | closed
    arch: str = ""
    gpu: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ForwardKind(Row):
    """Whether cuda-compat works on a kind of GPU."""

    kind: str
    allowed: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ForwardBase(Row):
    """The driver branches below which cuda-compat of a CUDA major does not work."""

    major: str
    min_branch: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exclusive(Row):
    """A compute capability that runs only its own code, and whose code runs nowhere else."""

    cc: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Serves(Row):
    """Code that an exclusive GPU runs all the same, from a CUDA version on."""

    code: tuple[str, ...]
    gpu: str
    cuda_min: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SameDevice(Row):
    """Two names of one compute capability."""

    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArchEntries(Row):
    """Entries that TORCH_CUDA_ARCH_LIST takes, from or up to a release."""

    entries: tuple[str, ...]
    first: str = ""
    to: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArchName(Row):
    """A family name that TORCH_CUDA_ARCH_LIST takes, and the entries it stands for."""

    name: str
    entries: tuple[str, ...]
    first: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompileFloor(Row):
    """The compute capability from which a feature works."""

    feature: str
    cc: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TritonWheels(Row):
    """The first triton with a wheel for a CPU architecture."""

    arch: str
    first: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LibraryGap(Row):
    """A library inside wheels that lacks the code of one GPU generation."""

    library: str
    cuda_major: str
    cc: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Toolkit(Row):
    """A CUDA toolkit: what nvcc emits and what it needs around it."""

    version: str
    released: str
    patches: tuple[str, ...]
    targets: tuple[str, ...]
    max_gcc: str
    max_clang: str
    max_glibc: str | None  # None: no ceiling known
    min_driver: str
    own_driver: Mapping[str, str] = field(default_factory=dict)
    base_images: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WheelLine(Row):
    """A CUDA line that exists only inside wheels."""

    version: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NoToolkit(Row):
    """A CUDA version that people ask for and that was never released."""

    version: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CudnnLine(Row):
    """The GPUs and CUDA majors that a range of cuDNN versions serves; `to` empty: and newer."""

    first: str
    cuda: tuple[str, ...]
    cc_min: str
    cc_max: str
    to: str = ""
    cuda_for_max: str = ""  # cc_max holds from this CUDA on, cc_max_below before it
    cc_max_below: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CudnnPackage(Row):
    """Every cuDNN version published for one CUDA major."""

    package: str
    cuda: str
    all: tuple[str, ...]
    withdrawn: tuple[str, ...] = ()
    pre_releases: tuple[str, ...] = ()
    aarch64_from: str | None = None  # None: no aarch64 wheel


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Release(Row):
    """A torch release; mappings are by CPU architecture."""

    version: str
    released: str
    requires_python: str
    python: Mapping[str, tuple[str, ...]]
    glibc_min: Mapping[str, str]
    pypi: Mapping[str, str]  # the tag that PyPI serves: cu130, cpu
    cuda: Mapping[str, tuple[str, ...]]  # the tags of its CUDA wheels
    triton: str | None
    source_build: Mapping[str, str | None]
    cxx11_abi: bool
    file_tag: Mapping[str, str] = field(default_factory=dict)
    wheel_mb: Mapping[str, float] = field(default_factory=dict)
    triton_python_max: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IndexPythons(Row):
    """Pythons for which only the PyTorch index has wheels of a release."""

    torch: str
    python: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NoBuilds(Row):
    """From a release on there are no wheels below a CUDA line."""

    first: str
    cuda_below: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BuildRow(Row):
    """The inside of a CUDA wheel of one release and CPU architecture."""

    torch: str
    tag: str  # cu130
    arch: str
    toolkit: str
    cudnn: str | None  # None: not seen
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    glibc_min: str
    nccl: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pins(Row):
    """What the PyPI wheel of a release pins."""

    torch: str
    arch: tuple[str, ...]
    pins: Mapping[str, str]
    not_exact: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pair(Row):
    """torchvision and torchaudio of a torch; the first torchaudio is preferred."""

    torch: str
    torchvision: str
    torchaudio: tuple[str, ...]
    torchvision_python: tuple[str, ...] | None  # None: any Python 3
    torchaudio_python: tuple[str, ...] | None = None  # None: not read


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairExact(Row):
    """Up to this version a package pins torch exactly."""

    package: str
    to: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairWithdrawn(Row):
    """A withdrawn version of a package."""

    package: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairPython(Row):
    """A Python that a package refuses, from a version on."""

    package: str
    first: str
    python: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Extension(Row):
    """The inside of an extension wheel: the torch and CUDA it was made for, and its device code."""

    package: str
    version: str
    torch: str  # a requirement: ==2.14.1
    cuda: str  # the major of the CUDA runtime that it links; empty for none
    arch: str
    python: str  # 3.11, or any
    glibc_min: str
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Distribution(Row):
    """A distribution as its archive offers it."""

    os: str
    glibc: str  # "musl" where there is none
    python: str
    gcc: str
    more_python: tuple[str, ...] = ()
    more_gcc: tuple[str, ...] = ()
    not_python: tuple[str, ...] = ()  # there, but only as a pre-release


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlasWheel(Row):
    """The BLAS inside the wheels of a CPU architecture."""

    arch: str
    kinds: tuple[str, ...]  # cuda, cpu
    blas: str
    lapack: str = ""
    onednn: str = ""
    openmp: str = ""
    torch_from: str = ""
    torch_to: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlasLibrary(Row):
    """The CPU architectures for which a BLAS exists."""

    blas: str
    arch: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Consumer(Row):
    """A program that runs images, and its first version that reads zstd layers (empty: none was seen)."""

    consumer: str
    zstd: str
    granted: bool  # a version that nobody says is taken to be new enough
    instead: str = ""  # what to do where it does not read them


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RuleRow(Row):
    """What a rule states."""

    id: str
    statement: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Switch(Row):
    """A variable that a source build of torch reads."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Note(Row):
    """A fact that no rule computes with."""

    fact: str
    about: str = ""
    caveat: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Disagreement(Row):
    """Where a document says one thing and the files another."""

    says: str
    but: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One torch wheel build, a CPU build too: what resolving and locking need to know of it."""

    torch: str
    tag: str  # cu130 | cpu
    arch: str
    cuda: str | None  # the line, 13.0
    toolkit: str | None  # as far as it is known, 13.0.3
    cudnn: str | None
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    glibc_min: str
    python: tuple[str, ...]
    index: str  # pypi | pytorch-<tag>
    requirement: str  # 2.14.1 | 2.13.0+cpu
    default: bool  # the build that PyPI serves
    row: Row


def line_of(tag: str) -> str | None:
    """The CUDA line of a build's tag: `cu130` is 13.0, `cpu` None."""
    digits = tag.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else None


def tag_of(line: str | None) -> str:
    """The tag of a CUDA line: 13.0 is `cu130`, None `cpu`."""
    return "cu" + "".join(line.split(".")[:2]) if line else "cpu"
