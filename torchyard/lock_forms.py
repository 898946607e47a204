"""The forms of the words in a lock: a file name stays a file name, and a line one line."""

from __future__ import annotations

import re

from .ospin import OsPin
from .plan import Image
from .sourcepin import SourcePin
from .wheelpin import WheelPin

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\.whl")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PYTHON = re.compile(r"[0-9]+\.[0-9]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_PACKAGE_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:-]*")
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_COMMIT = re.compile(r"([0-9a-f]{40})?")
_MARCH = re.compile(r"[a-z0-9][a-z0-9_.+-]*")
_TARGET = re.compile(r"[0-9]{1,2}\.[0-9][af]?(\+PTX)?")
_PATH = re.compile(r"([A-Za-z0-9][A-Za-z0-9.+~:%_-]*/)*[A-Za-z0-9][A-Za-z0-9.+~:%_-]*\.deb")


def image(found: Image) -> None:
    """Raise ValueError for an image whose words could leave their folder or their line."""
    _check("image.id", found.id, _ID)
    _check("image.python", found.python, _PYTHON)
    word("image.base.os", found.base.os)
    if found.index:  # a source build may have none
        word("image.index", found.index)
    word("image.cuda_tag", found.cuda_tag)
    if found.arch not in ("x86_64", "aarch64"):
        raise ValueError(f"image.arch is {found.arch!r}")
    for version in (found.torch, found.torch_requirement, found.cuda, found.cudnn):
        if version is not None:
            _check("image", version, _VERSION)
    for text in (found.base.ref, found.driver_require, *(word for pair in found.allowed for word in pair)):
        if not text.isprintable():
            raise ValueError(f"{text!r} is not one line")
    for name, _ in found.packages.env:
        _check("image.packages.env", name, _VARIABLE)


def source(pin: SourcePin, found: Image) -> None:
    """Raise ValueError for a source build whose words could leave their place or their line."""
    _check("source.ref", pin.ref, _REF)
    _check("source.commit", pin.commit, _COMMIT)
    _check("source.sha256", pin.sha256, _SHA256)
    _size("source", pin.size)
    if found.source is None:
        raise ValueError("image.source is missing")
    _check("image.source.cpu", found.source.cpu, _MARCH)
    _check("image.source.gcc", found.source.gcc, _VERSION)
    for target in found.source.arch_list:
        _check("image.source.arch_list", target, _TARGET)
    for name, value in found.source.flags:
        _check("image.source.flags", name, _VARIABLE)
        if not value.isprintable():
            raise ValueError(f"{value!r} is not one line")


def base(tar: str, digest: str) -> None:
    """Raise ValueError for a base that is not told by a sha256."""
    _check("base", tar or digest.removeprefix("sha256:"), _SHA256)


def package(pin: OsPin) -> None:
    """Raise ValueError for a package whose name, version or path could be anything but that."""
    _check("os.name", pin.name, _PACKAGE)
    _check("os.version", pin.version, _PACKAGE_VERSION)
    word("os.architecture", pin.architecture)
    word("os.archive", pin.archive)
    word("os.group", pin.group)
    _check("os.path", pin.path, _PATH)
    _check("os.sha256", pin.sha256, _SHA256)
    _size(pin.name, pin.size)


def wheel(pin: WheelPin) -> None:
    """Raise ValueError for a wheel whose name, version or file could be anything but that."""
    for name in (pin.name, *pin.requires):
        _check("wheels.name", name, _NAME)
    _check("wheels.version", pin.version, _VERSION)
    _check("wheels.file", pin.file, _WHEEL)
    _check("wheels.sha256", pin.sha256, _SHA256)
    word("wheels.index", pin.index)
    _size(pin.name, pin.size)


def word(place: str, value: str) -> None:
    """Raise ValueError for what is not one plain word."""
    _check(place, value, _WORD)


def _check(place: str, value: str, form: re.Pattern[str]) -> None:
    if not form.fullmatch(value):
        raise ValueError(f"{place} is {value!r}")


def _size(name: str, size: int) -> None:
    if size < 0:
        raise ValueError(f"{name} has {size} bytes")
