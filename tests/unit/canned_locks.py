"""A lock for any image of a plan, with answers made up instead of asked."""

from __future__ import annotations

from lock_samples import package, wheel

from torchyard import groups, wheelpin
from torchyard import lock as locking
from torchyard.lock import LockedBase, LockedImage, Tools
from torchyard.plan import BaseKind, BuildKind, Image
from torchyard.sourcepin import SourceKind, SourcePin
from torchyard.wheelpin import WheelPin

EPOCH = 1783764997
COMMIT = "c0ffee" + "0" * 34


def canned(image: Image) -> LockedImage:
    """A whole lock of this image."""
    compiled = image.build is BuildKind.SOURCE
    found = _wheels(image)
    runtime = tuple(pin for pin in found if not (compiled and pin.name == "torch"))
    kind = image.base.kind
    return LockedImage(
        image=image,
        fingerprint=locking.fingerprint(image),
        epoch=EPOCH,
        base=LockedBase(kind=kind, tar="a" * 64)
        if kind is BaseKind.ARCHIVE
        else LockedBase(kind=kind, digest="sha256:" + "b" * 64),
        os=_packages(image),
        wheels=runtime,
        dev_wheels=(wheel("py-spy", "0.4.3"),),
        tools=Tools(base_format="1", layer_format="1", uv=wheel("uv", "0.13.9"), buildkit_min="0.12"),
        archives=(("release", EPOCH), ("security", EPOCH - 7)),
        source=_source(image) if compiled else None,
        build_wheels=_build_wheels(image, found) if compiled else (),
    )


def _wheels(image: Image) -> tuple[WheelPin, ...]:
    pins = [wheel("jinja2", "3.1.6"), wheel("numpy", "2.4.6"), wheel("uv", "0.13.9")]
    pins.append(wheel("torch", image.torch, size=500_000_000, index=image.index or "pypi"))
    if image.cuda is not None:
        pins.append(wheel("cuda-toolkit", f"{image.cuda}.1"))
        pins.append(wheel("nvidia-cublas", "13.1.1.3", size=400_000_000))
        pins.append(wheel("nvidia-cudnn-cu13", image.cudnn or "9.24.0.43", size=500_000_000))
        pins.append(wheel("nvidia-nvtx", "13.0.85"))
        pins.append(wheel("triton", "3.8.0", size=200_000_001))
    pins += [wheel(name, version) for name, version in image.pairs]
    return tuple(sorted(pins, key=lambda pin: pin.name))


def _build_wheels(image: Image, found: tuple[WheelPin, ...]) -> tuple[WheelPin, ...]:
    """One wheel for each requirement of the builder, and the toolkit's parts."""
    names = {line.partition("<")[0].partition(">")[0] for line in groups.build_wheels(image)}
    names |= set(wheelpin.COMPILER[""]) if wheelpin.dev_requirements(found, groups.toolkit()) else set()
    return tuple(wheel(name) for name in sorted(names))


def _packages(image: Image) -> tuple:  # type: ignore[type-arg]
    wanted = {**groups.wanted(image), "base": ("bash",)}
    if image.build is BuildKind.SOURCE:
        wanted["build"] = groups.builder(image)
    return tuple(package(name, group) for group, names in sorted(wanted.items()) for name in sorted(names))


def _source(image: Image) -> SourcePin:
    assert image.source is not None
    given = image.source
    kind = SourceKind.ARCHIVE if given.archive else SourceKind.GIT
    commit = given.commit or ("" if given.archive else COMMIT)
    return SourcePin(kind=kind, ref=given.ref, commit=commit, sha256=given.archive or "d" * 64, size=1_000_000)
