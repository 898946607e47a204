"""The values that deciding ends in: every cell decided, and the images they select."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class BaseKind(StrEnum):
    """Where the root file system of an image starts."""

    ARCHIVE = "archive"  # bootstrapped from the distribution's package archive
    IMAGE = "image"  # a registry image, pinned by digest


class BuildKind(StrEnum):
    """Where torch comes from."""

    WHEEL = "wheel"
    SOURCE = "source"


class Compression(StrEnum):
    """How the layers of an image are compressed."""

    GZIP = "gzip"
    ZSTD = "zstd"


class CellState(StrEnum):
    """What the rules say of a cell."""

    OK = "ok"
    UNPROVEN = "unproven"  # only an unverified row of the catalogue stands against it
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """The base of an image: `os` is a distribution id (`debian-12`), `ref` a registry reference for kind `image`."""

    kind: BaseKind
    os: str
    ref: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """What the user adds to an image; `name` is empty for the default set of env.yaml."""

    name: str = ""
    apt: tuple[str, ...] = ()  # sorted package names
    pip: tuple[str, ...] = ()  # requirement lines, sorted, comments and blanks removed
    env: tuple[tuple[str, str], ...] = ()  # sorted pairs
    extend: str = ""  # a Dockerfile fragment, verbatim


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceBuild:
    """How torch is compiled; everything here changes the image's bytes."""

    ref: str  # tag or branch of the PyTorch repository
    commit: str = ""  # empty: the one that the release wheel names
    archive: str = ""  # the sha256 of a source archive that takes the place of git; empty: git
    flags: tuple[tuple[str, str], ...] = ()  # sorted switches
    cpu: str = ""  # the -march
    arch_list: tuple[str, ...] = ()  # TORCH_CUDA_ARCH_LIST; empty for CPU
    gcc: str = ""  # major version


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """What is built, resolved completely but for pins; equal images are one image.

    cuda and cudnn are None for a CPU build. torch_requirement is what the resolver of wheels is given, with the
    local part where the index has one (`2.13.0+cpu`); cuda_tag is the build's name (`cu130`, `cpu`); sass and ptx
    are compute capabilities as text (`8.6`); arch is `x86_64` or `aarch64`.
    """

    id: str
    torch: str
    torch_requirement: str
    build: BuildKind
    cuda_tag: str
    cuda: str | None
    cudnn: str | None
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    python: str
    python_from: str  # "distribution" | "standalone"
    base: Base
    arch: str
    index: str  # the named index that serves this torch build (of a source build: the release's build for this CUDA,
    # whose commit and CUDA wheels it takes): "pypi", "pytorch-cpu", "pytorch-cu126"; empty where there is none
    blas: str  # "mkl" | "openblas"
    driver_require: str = ""  # value of NVIDIA_REQUIRE_CUDA, from the driver rule; empty for CPU
    pairs: tuple[tuple[str, str], ...] = ()  # torchvision, torchaudio with their versions
    allowed: tuple[tuple[str, str], ...] = ()  # sorted (rule, reason) that env.yaml overrules and this image breaks
    packages: PackageSet = field(default_factory=PackageSet)
    source: SourceBuild | None = None  # for a source build
    compression: Compression | None = None  # None: gzip, and then no lock says anything of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one rule says of one cell."""

    rule: str
    ok: bool
    what: str
    source: str
    unproven: bool = False
    allowed: str = ""  # the reason with which env.yaml overrules this rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One hardware entry with one choice of every axis: it selects an image, or is refused."""

    hardware: str  # the entry's name in env.yaml
    gpus: tuple[str, ...]  # catalogue ids; empty for CPU
    compute_capability: tuple[str, ...]
    count: int
    site: str
    choice: tuple[tuple[str, str], ...]  # (axis, value), in the order of env.yaml; empty without axes
    default: bool  # the first value of every axis
    state: CellState
    image: str  # image id; empty when refused
    driver_min: str  # the least driver for this cell; empty for CPU
    verdicts: tuple[Verdict, ...] = ()
    nearest: str = ""  # the nearest thing that works, in words
    where: str = ""  # env.yaml:LINE:COL  path
    candidate: Image | None = None  # of a refused cell: the image that it would select if no rule stood against it


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every cell decided, in the order of env.yaml, and the images they select, sorted by id."""

    project: str
    cells: tuple[Cell, ...]
    images: tuple[Image, ...]
    jobs: tuple[tuple[str, str], ...] = ()  # (image id, compiler jobs) where env.yaml says it: no byte depends on it

    def image(self, image_id: str) -> Image:
        """The image of this id (KeyError if the plan has none)."""
        return next(i for i in self.images if i.id == image_id)

    def cell(self, hardware: str) -> Cell | None:
        """The default cell of a hardware entry, or None if there is no such entry."""
        return next((c for c in self.cells if c.hardware == hardware and c.default), None)

    def sharers(self, image_id: str) -> tuple[str, ...]:
        """The hardware entries whose cells select this image, in the order of env.yaml, each once."""
        return tuple(dict.fromkeys(c.hardware for c in self.cells if c.image == image_id))
