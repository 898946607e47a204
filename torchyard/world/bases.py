"""What images start from: bootstrapped from a package archive, or taken from a registry; its layers in the store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import oci
from ..errors import CheckFailed
from ..lock import LockedBase, LockedImage
from ..ospin import OsPin
from ..plan import BaseKind, Image
from . import archive, boot_oci, bootstrap, registry
from .archive import Archives
from .bootstrap import Builder
from .engine import Engine
from .store import Store
from .workspace import Workspace

FORMAT = bootstrap.RECIPE


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Where it is kept, how the archives and the engine are reached (the engine only when needed)."""

    work: Workspace
    archives: Archives
    engine: Callable[[], Engine]
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryBase:
    """A registry image as a lock takes it: its manifest digest, and what it has installed (dpkg's status)."""

    digest: str
    installed: str


def from_registry(image: Image, locked: str, means: Means) -> RegistryBase:
    """The registry image that this one starts from, pulled: that of the digest `locked`, or what its tag means now."""
    ref, store = image.base.ref, means.work.store
    digest = locked or registry.resolve(ref, image.arch)
    start = registry.pull(ref, digest, image.arch, store, means.say)
    for remark in registry.remarks(start, ref, image.cuda):
        means.say(remark)
    return RegistryBase(digest=digest, installed=registry.packages(start, ref, image.base.os, store))


def moved(lock: LockedImage) -> str:
    """What the reference of a lock's registry image means now, in words, where that is another image; else empty."""
    if lock.base.kind is not BaseKind.IMAGE:
        return ""
    now = registry.resolve(lock.image.base.ref, lock.image.arch)
    return "" if now == lock.base.digest else f"base {lock.image.base.ref} is {now} now, locked is {lock.base.digest}"


def pin(
    image: Image,
    found: RegistryBase | None,
    pins: Sequence[OsPin],
    *,
    epoch: int,
    dates: Mapping[str, int],
    means: Means,
) -> LockedBase:
    """What the lock says of the base of an image: the hash of its tar, or the digest of the registry image `found`."""
    if found is not None:
        return LockedBase(kind=BaseKind.IMAGE, digest=found.digest)
    start = _bootstrapped(image, pins, epoch=epoch, dates=dates, means=means)
    return LockedBase(kind=BaseKind.ARCHIVE, tar=start.layers[0].diff_id.removeprefix("sha256:"))


def start(lock: LockedImage, means: Means, *, dates: Mapping[str, int]) -> oci.Start:
    """The base that the lock pins, its layers in the store; raises CheckFailed when it comes out otherwise."""
    match lock.base.kind:
        case BaseKind.ARCHIVE:
            made = _bootstrapped(lock.image, lock.group("base"), epoch=lock.epoch, dates=dates, means=means)
            seen = made.layers[0].diff_id.removeprefix("sha256:")
            if seen != lock.base.tar:
                raise CheckFailed(
                    f"the base of {lock.id} came out as tar {seen[:16]}, locked is {lock.base.tar[:16]}",
                    where=f"images/{lock.id}/lock.yaml  base.tar",
                    hint="the same packages should give the same bytes: ./yard engine --status, then report it",
                )
            return made
        case BaseKind.IMAGE:
            return registry.pull(lock.image.base.ref, lock.base.digest, lock.image.arch, means.work.store, means.say)


def layers(lock: LockedImage, store: Store) -> dict[str, int]:
    """The layers of the registry image that the lock starts from, with their sizes; none of a bootstrapped base."""
    if lock.base.kind is not BaseKind.IMAGE:
        return {}
    return registry.sizes(lock.image.base.ref, lock.base.digest, store)


def _bootstrapped(
    image: Image, pins: Sequence[OsPin], *, epoch: int, dates: Mapping[str, int], means: Means
) -> oci.Start:
    archive.fetch(pins, os=image.base.os, arch=image.arch, archives=means.archives, dates=dates)
    cache = means.work.local / "bases"
    layout = boot_oci.read(cache / bootstrap.key(pins, epoch=epoch, os=image.base.os, arch=image.arch))
    if layout is None:
        engine = means.engine()
        layout = bootstrap.build_base(
            pins,
            store=means.work.store,
            epoch=epoch,
            os=image.base.os,
            arch=image.arch,
            builder=Builder(argv=engine.buildx, env=engine.env),
            cache=cache,
            say=means.say,
        )
    hexadecimal = layout.layer.digest.removeprefix("sha256:")
    target = means.work.store.path(hexadecimal)
    if not target.is_file():
        _adopt(layout.blob, target, means.work.store)
    return oci.Start(layers=(layout.layer,), words=f"{image.base.os} from its package archive")


def _adopt(blob: Path, target: Path, store: Store) -> None:
    """Have a file of the cache in the store too: as a link, or a copy where links do not work."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(blob, target)
    except FileExistsError:  # another build was first
        pass
    except OSError:
        with store.incoming() as stream, blob.open("rb") as source:
            shutil.copyfileobj(source, stream)
            stream.flush()
            store.keep(Path(stream.name))
