"""Which pinned wheel goes into which layer: from rarely to often changed, and none of the CUDA layers huge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .wheelpin import WheelPin

LARGE = 200_000_000  # bytes; a CUDA wheel above it is a layer of its own, shared by every image that pins it
SMALL = 1_000_000  # bytes; what torch requires below it is a layer of its own, so that moving such a one is quick
_CUDA_NAMES = frozenset({"cuda-bindings", "cuda-pathfinder", "cuda-toolkit"})
_TORCH_NAMES = frozenset({"torch", "triton", "pytorch-triton"})
# What belongs to torch without being required by its wheel, and the tools that install.
_EVERYWHERE = frozenset({"mkl", "numpy", "pip", "setuptools", "uv"})
# What torch requires beside CUDA and triton (METADATA of 2.0 to 2.15), for a source build, which pins no torch wheel.
_REQUIRED = frozenset({"filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"})


OWN = "wheels-own"  # the context of what the user adds


class Kind(StrEnum):
    """What a wheel is to the image."""

    CUDA = "cuda"
    TORCH = "torch"
    REST = "rest"


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelLayer:
    """One layer of framework wheels: what it is called, and the wheels in it, sorted by name."""

    title: str
    wheels: tuple[WheelPin, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """One layer of wheels that a build step installs: the step's context, what they are, and the wheels, by name."""

    context: str
    words: str
    wheels: tuple[WheelPin, ...]


def kind(name: str) -> Kind:
    """What a distribution of this normalised name is to the image."""
    if name in _TORCH_NAMES:
        return Kind.TORCH
    if name.startswith("nvidia-") or name in _CUDA_NAMES:
        return Kind.CUDA
    return Kind.REST


def framework(wheels: Iterable[WheelPin]) -> tuple[WheelLayer, ...]:
    """The layers below everything else: each large CUDA wheel, the small ones together, torch with triton."""
    by_kind = _by_kind(wheels)
    large = [w for w in by_kind[Kind.CUDA] if w.size > LARGE]
    small = [w for w in by_kind[Kind.CUDA] if w.size <= LARGE]
    layers = [WheelLayer(title=f"{w.name} {w.version}", wheels=(w,)) for w in large]
    if small:
        layers.append(WheelLayer(title="the smaller CUDA wheels", wheels=tuple(small)))
    torch = by_kind[Kind.TORCH]
    if torch:
        layers.append(WheelLayer(title=" and ".join(f"{w.name} {w.version}" for w in torch), wheels=tuple(torch)))
    return tuple(layers)


def companions(wheels: Sequence[WheelPin]) -> tuple[WheelPin, ...]:
    """The wheels of the layer above the framework: what torch requires, and what every image has.

    Another requirement of the user leaves this layer alone, unless it moves one of these to another version.
    """
    pins = {pin.name: pin for pin in wheels}
    torch = [pins[name] for name in sorted(_TORCH_NAMES & set(pins))]
    asked = [*_EVERYWHERE, *(name for pin in torch for name in pin.requires)]
    asked += _REQUIRED if "torch" not in pins else ()
    found: set[str] = set()
    while asked:
        name = asked.pop()
        if name in pins and name not in found and kind(name) is Kind.REST:
            found.add(name)
            asked += pins[name].requires
    return tuple(pins[name] for name in sorted(found))


def own(wheels: Sequence[WheelPin]) -> tuple[WheelPin, ...]:
    """The wheels of the last layer: what packages.pip adds, with what that requires."""
    below = companions(wheels)
    return tuple(pin for pin in _by_kind(wheels)[Kind.REST] if pin not in below)


def installed(wheels: Sequence[WheelPin]) -> tuple[Installed, ...]:
    """The layers that build steps install, from the lowest; the user's own is the last, where there is one."""
    below, both = companions(wheels), "that torch requires or every image has"
    groups = (
        ("wheels", f"{both}, the large ones", tuple(pin for pin in below if pin.size > SMALL)),
        ("wheels-small", f"{both}, the small ones", tuple(pin for pin in below if pin.size <= SMALL)),
        (OWN, "that packages.pip of env.yaml adds, with what they require", own(wheels)),
    )
    return tuple(Installed(context=name, words=words, wheels=pins) for name, words, pins in groups if pins)


def _by_kind(wheels: Iterable[WheelPin]) -> dict[Kind, Sequence[WheelPin]]:
    ordered = sorted(wheels, key=lambda w: w.name)
    return {k: [w for w in ordered if kind(w.name) is k] for k in Kind}
