"""Which pinned wheel goes into which layer: from rarely to often changed, and none of the CUDA layers huge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .wheelpin import WheelPin

LARGE = 200_000_000  # bytes; a CUDA wheel above it is a layer of its own, shared by every image that pins it
_CUDA_NAMES = frozenset({"cuda-bindings", "cuda-pathfinder", "cuda-toolkit"})
_TORCH_NAMES = frozenset({"torch", "triton", "pytorch-triton"})


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


def rest(wheels: Iterable[WheelPin]) -> tuple[WheelPin, ...]:
    """The wheels of the last layer: every distribution that is neither torch nor CUDA, the user's among them."""
    return tuple(_by_kind(wheels)[Kind.REST])


def _by_kind(wheels: Iterable[WheelPin]) -> dict[Kind, Sequence[WheelPin]]:
    ordered = sorted(wheels, key=lambda w: w.name)
    return {k: [w for w in ordered if kind(w.name) is k] for k in Kind}
