"""What was seen of an image without starting anything: its configuration, and what matters of its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..plain import from_plain, to_plain

SHOWN = 8  # names that a sample keeps


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer: its id, the words of its history, bytes of its files (unpacked) and how many they are."""

    diff_id: str
    words: str
    size: int
    files: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """An installed package of the distribution; first: the lowest layer whose list has it in some version."""

    name: str
    version: str
    architecture: str
    first: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """An installed Python distribution, and the folder (`/opt/venv/lib/python3.11/site-packages`) that it lies in.

    layer: the one that put its metadata there.
    """

    name: str
    version: str
    folder: str
    layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A file of machine code: what it is called, what it needs, where it looks, and the device code in it.

    owner: `python torch`, `os libgomp1`, or empty where no package has it.
    """

    path: str
    machine: str  # "x86_64", "aarch64", "i386", ...
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    owner: str = ""
    layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A place in a layer, and what was seen there; hidden: the layer that removes or replaces it, 0 where none does."""

    path: str
    layer: int
    what: str = ""
    hidden: int = 0
    owner: str = ""  # the package that brought it, as it is


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """How many files of a layer something holds for, and the first of them."""

    layer: int
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Files of one package that are not there or not as long as the package says; layer: the one that took them."""

    owner: str
    count: int
    first: tuple[str, ...]
    layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFacts:
    """Everything that judging needs of an image; see the functions of `world/image_files.py` that gather it."""

    image: str  # the reference that was asked for
    arch: str  # as the configuration has it: "amd64"
    env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    user: str
    history: tuple[tuple[str, int], ...]  # every step, and the layer that it made, or else the last one before it
    layers: tuple[Layer, ...]
    packages: tuple[Package, ...]
    distributions: tuple[Distribution, ...]
    torch_version: str = ""  # torch/version.py; empty where there is no torch
    torch_cuda: str = ""  # the CUDA of torch/version.py; empty for a CPU build
    libraries: tuple[Library, ...] = ()
    links: tuple[tuple[str, str], ...] = ()  # a name of a library that is a link, and the file it leads to
    loader_conf: tuple[str, ...] = ()  # folders of /etc/ld.so.conf, in their order
    loader_cache: tuple[str, ...] = ()  # folders that /etc/ld.so.cache leads to
    loader_layer: int = -1  # the layer that set the loader's folders last
    present: tuple[str, ...] = ()  # of what `WANTED` names, what is there
    missing: tuple[Spot, ...] = ()  # of what `WANTED` names, what a layer removed
    losses: tuple[Loss, ...] = ()
    changes: tuple[Loss, ...] = ()
    status_layer: int = -1  # the layer that wrote the distribution's list of packages last
    setuid: tuple[Spot, ...] = ()
    writable: tuple[Spot, ...] = ()
    late: tuple[Sample, ...] = ()
    late_documents: tuple[Spot, ...] = ()  # fields of the configuration; what: the time
    timed_bytecode: tuple[Sample, ...] = ()
    secrets: tuple[Spot, ...] = ()
    addresses: tuple[Spot, ...] = ()
    certificates: tuple[Spot, ...] = ()
    shadows: tuple[Spot, ...] = ()
    epoch: int = 0  # what `late` was measured by

    @property
    def base(self) -> int:
        """How many layers the base has: they share their words."""
        words = [layer.words for layer in self.layers]
        return next((number for number, each in enumerate(words) if each != words[0]), len(words))

    def variable(self, name: str) -> str:
        """The value of an environment variable; empty where it is not set."""
        return dict(self.env).get(name, "")

    def set_in(self, name: str) -> int:
        """The last layer under the step of the history that set a variable last; -1 where none did."""
        steps = [layer for words, layer in self.history if words.startswith("ENV") and f"{name}=" in words]
        return steps[-1] if steps else -1


# Programs and headers that torch.compile needs, and RDMA's parts, by the names under which judging asks for them.
WANTED: Mapping[str, tuple[str, ...]] = {
    "cc": ("/usr/bin/cc", "/usr/bin/gcc"),
    "c++": ("/usr/bin/c++", "/usr/bin/g++"),
    "ld": ("/usr/bin/ld",),
    "as": ("/usr/bin/as",),
    "libc headers": ("/usr/include/stdio.h",),
    "Python headers": ("/usr/include/python{python}/Python.h",),
    "libibverbs.so.1": ("{lib}/libibverbs.so.1",),
    "librdmacm.so.1": ("{lib}/librdmacm.so.1",),
    "libnuma.so.1": ("{lib}/libnuma.so.1",),
    "provider mlx5": ("{lib}/libmlx5.so.1",),
    "provider list": ("/etc/libibverbs.d/mlx5.driver",),
}


def to_data(facts: ImageFacts) -> dict[str, Any]:
    """The facts as JSON data; what is empty is left out."""
    return cast(dict[str, Any], to_plain(facts))


def from_data(data: Mapping[str, Any]) -> ImageFacts:
    """The facts that `to_data` gave."""
    filled = {f.name: data.get(f.name, _blank(f)) for f in dataclasses.fields(ImageFacts)}
    return from_plain(ImageFacts, filled)


def _blank(which: dataclasses.Field[Any]) -> Any:
    if which.default is dataclasses.MISSING:
        return [] if "tuple" in str(which.type) else ""
    return [] if which.default == () else which.default
