"""What env.yaml says, as values: complete, frozen, every cell of the matrix laid out but not yet decided."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from torchyard.errors import InputError
from torchyard.plan import Base, BuildKind, Compression, PackageSet
from torchyard.yaml_source import Located, Mark, Text

AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A place where things run; an empty text is what the file does not say."""

    name: str
    driver: str = ""
    registry: str = ""
    runs: str = "compose"  # compose | slurm | kubernetes
    consumer: str = ""  # what reads images there: `enroot 4.1.2`
    fabric: str = "none"  # none | ib | roce


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """How many bytes a layer, and all layers of an image, may have unpacked; None where the file does not say it."""

    layer: int | None = None
    image: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """One hardware entry: what is owned, without the software for it."""

    name: str
    gpus: tuple[str, ...]  # as written; empty for a CPU
    count: int
    memory_gb: int | None
    mig: str
    arch: str  # x86_64 | aarch64
    site: str  # empty: none
    driver: str  # the entry's own, else its site's, else empty
    shm: str
    budget: Budget = field(default_factory=Budget)  # the entry's own over the file's
    consumers: tuple[str, ...] = ()  # what reads images at its site, as consumers.of_site says it


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """What one cell wants; `auto` is left to the resolver, an empty torchvision or torchaudio is not installed."""

    base: Base
    python: str
    python_from: str  # distribution | standalone
    torch: str
    torchvision: str
    torchaudio: str
    cuda: str
    cudnn: str
    blas: str
    build: BuildKind
    compression: Compression = Compression.GZIP


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """How torch is built from source, as far as the file says it."""

    ref: str = ""
    commit: str = ""
    archive: str = ""
    flags: tuple[tuple[str, str], ...] = ()  # sorted
    cpu: str = ""
    arch_list: tuple[str, ...] = ()
    gcc: int | None = None
    jobs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Allow:
    """One rule overruled on purpose, for one image or one hardware entry."""

    rule: str
    image: str
    hardware: str
    reason: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedCell:
    """One hardware entry with one choice of every axis, before anything is decided."""

    hardware: Hardware
    software: Software
    source: Source
    packages: PackageSet  # its name is empty for the default set, else given; "*" asks for a hash
    choice: tuple[tuple[str, str], ...]
    default: bool
    path: str  # hardware.a100


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """The whole file: places, hardware, and every cell in the order of the file."""

    project: str
    sites: tuple[Site, ...]
    hardware: tuple[Hardware, ...]
    cells: tuple[WantedCell, ...]
    allow: tuple[Allow, ...]
    packages: PackageSet  # the default set
    places: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def site(self, name: str) -> Site | None:
        """The site of this name, or None."""
        return next((s for s in self.sites if s.name == name), None)

    def budget_of(self, hardware: Sequence[str]) -> Budget:
        """What an image may have that these entries share: the least that any of them says."""
        budgets = [entry.budget for entry in self.hardware if entry.name in hardware]
        return Budget(
            layer=min((each.layer for each in budgets if each.layer is not None), default=None),
            image=min((each.image for each in budgets if each.image is not None), default=None),
        )

    def where(self, path: str) -> str:
        """`env.yaml:LINE:COL  path` of this key, or of the nearest one above it that is in the file."""
        at = path
        while at and at not in self.places:
            at = at.rpartition(".")[0]
        return f"{self.places.get(at, '')}  {path}".strip()

    def problem(self, path: str, what: str, hint: str) -> InputError:
        """A mistake at this key, found when the file was already read, with its line shown as reading shows it."""
        where = self.where(path)
        if (place := re.search(r":(\d+):(\d+)  ", where)) is None:
            return InputError(what, where=where, hint=hint)
        mark = Mark(line=int(place[1]), col=int(place[2]))
        shown = Text(name="", lines=self.lines).show(mark)
        return Located(what, where=where, hint=hint, shown=shown, mark=mark)
