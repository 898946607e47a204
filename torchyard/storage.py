"""What a registry and a node hold for several images together: layers that images share are held once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import layering
from .lock import LockedImage
from .ospin import OsPin
from .plan import BaseKind
from .wheelpin import WheelPin


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One layer: the same key is the same layer. packed: bytes in a registry; unpacked: bytes on a node."""

    key: str
    packed: int
    unpacked: int
    exact: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """The layers of an image as it was built here, lowest first: id, compressed bytes, unpacked bytes."""

    layers: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What one image adds: all of it, and what no image before it in the list has."""

    image: str
    packed: int
    unpacked: int
    new_packed: int
    new_unpacked: int
    exact: bool


GROWS = 2.6  # a package of the distribution, unpacked
BYTECODE = 0.11  # of the framework's wheels: the bytecode of their Python files


def pieces(lock: LockedImage, built: Built | None) -> list[Piece]:
    """The layers of an image: as they are where it was built, else about as large as what goes into them."""
    below = _below(lock)
    if built is None:
        return below + _above(lock)
    shared = below if lock.base.kind is BaseKind.ARCHIVE else []  # the same keys as for an image that is not built yet
    keys = [piece.key for piece in shared] + [key for key, _, _ in built.layers[len(shared) :]]
    return [
        Piece(key=key, packed=packed, unpacked=unpacked, exact=True)
        for key, (_, packed, unpacked) in zip(keys, built.layers)
    ]


def _below(lock: LockedImage) -> list[Piece]:
    """The base and the framework's layers, which depend on nothing below them; zstd layers are others than gzip's."""
    kind = lock.image.compression or ""
    found = [_about(f"{kind}base", lock.group("base"), GROWS)]
    return found + [_about(f"{kind}wheels", layer.wheels, 2.0) for layer in layering.framework(lock.wheels)]


def _above(lock: LockedImage) -> list[Piece]:
    """The layers of build steps: each depends on all that is below it."""
    framework = [wheel for layer in layering.framework(lock.wheels) for wheel in layer.wheels]
    os, user = lock.group("os"), lock.group("user")
    installed = {each.context: each.wheels for each in layering.installed(lock.wheels)}
    own = installed.pop(layering.OWN, ())
    base = lock.group("base")
    kind = lock.image.compression or ""
    found = [_about(f"{kind}os", os, GROWS, on=base)]
    found.append(_about(f"{kind}bytecode", framework, 2.0, on=(*base, *os), share=BYTECODE))
    found += [_about(f"{kind}{name}", wheels, 3.0, on=(*base, *os)) for name, wheels in installed.items()]
    if user:
        found.append(_about(f"{kind}user", user, GROWS, on=(*base, *os)))
    if own:
        found.append(_about(f"{kind}own", own, 3.0, on=(*base, *os, *user)))
    return found


def _about(
    kind: str,
    pins: Sequence[OsPin | WheelPin],
    grows: float,
    *,
    on: Sequence[OsPin | WheelPin] = (),
    share: float = 1.0,
) -> Piece:
    size = int(share * sum(pin.size for pin in pins))
    key = f"{kind} {' '.join(sorted(pin.sha256 for pin in (*pins, *on)))}"
    return Piece(key=key, packed=size, unpacked=int(grows * size), exact=False)


def held(images: Mapping[str, Sequence[Piece]]) -> list[Held]:
    """What each image adds to those before it, in the order given."""
    seen: set[str] = set()
    found = []
    for image, layers in images.items():
        own = {piece.key: piece for piece in layers}
        new = [piece for key, piece in own.items() if key not in seen]
        seen |= set(own)
        found.append(
            Held(
                image=image,
                packed=sum(piece.packed for piece in own.values()),
                unpacked=sum(piece.unpacked for piece in own.values()),
                new_packed=sum(piece.packed for piece in new),
                new_unpacked=sum(piece.unpacked for piece in new),
                exact=all(piece.exact for piece in own.values()),
            )
        )
    return found
