"""The lock: one image with everything pinned. Plan and answers in, text out, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import yaml

from . import groups, lock_forms, lock_lines, oci
from .errors import InputError
from .ospin import OsPin
from .plain import from_plain, to_plain
from .plan import BaseKind, BuildKind, Compression, Image
from .sourcepin import SourcePin
from .wheelpin import WheelPin

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedBase:
    """The root file system that an image starts from.

    kind archive: tar is the sha256 of the bootstrapped, uncompressed tar, made from the pins of group `base`.
    kind image: digest is the manifest digest of the registry image.
    """

    kind: BaseKind
    tar: str = ""
    digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """What makes bytes of an image beside its pins: a change of any of these is a change of the image."""

    base_format: str
    layer_format: str
    uv: WheelPin
    buildkit_min: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedImage:
    """One image with everything pinned. epoch: seconds, the one time that may appear in it."""

    image: Image
    fingerprint: str  # of what was resolved when this lock was made
    epoch: int
    base: LockedBase
    os: tuple[OsPin, ...]  # sorted by group and name
    wheels: tuple[WheelPin, ...]  # sorted by name
    dev_wheels: tuple[WheelPin, ...]
    tools: Tools
    archives: tuple[tuple[str, int], ...] = ()  # (archive, date of its Release file in seconds)
    source: SourcePin | None = None  # of a source build: what is compiled
    build_wheels: tuple[WheelPin, ...] = ()  # of a source build: what its builder has beside the runtime's wheels

    @property
    def id(self) -> str:
        return self.image.id

    def group(self, name: str) -> tuple[OsPin, ...]:
        """The OS packages of one group."""
        return tuple(pin for pin in self.os if pin.group == name)

    def files(self) -> dict[str, int]:
        """Every file that the store must have for this image: its sha256 and its size in bytes."""
        wheels = (*self.wheels, *self.dev_wheels, *self.build_wheels, self.tools.uv)
        found = {wheel.sha256: wheel.size for wheel in wheels} | {pin.sha256: pin.size for pin in self.os}
        return found | ({self.source.sha256: self.source.size} if self.source else {})

    def wheel(self, name: str) -> WheelPin | None:
        """The runtime wheel of this normalised name, if there is one."""
        return next((w for w in self.wheels if w.name == name), None)


def fingerprint(image: Image) -> str:
    """The sha256 of what was resolved for this image: what asks for a new lock when it changes.

    Made of the plain values alone, and of those only that say something, so that neither an unrelated row of the
    catalogue nor a new field of our classes changes it; and of the packages that every image gets.
    """
    resolved: dict[str, Any] = {
        "image": plain(image),
        "packages": groups.wanted(image),
        "dev_wheels": groups.dev_wheels(),
    }
    if image.build is BuildKind.SOURCE and image.source is not None:
        resolved["builder"] = [groups.builder(image), groups.build_wheels(image), groups.toolkit()]
    if image.compression is Compression.ZSTD:
        resolved["zstd"] = [oci.ZSTD_FORMAT, oci.ZSTD_LEVEL]
    return hashlib.sha256(json.dumps(resolved, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plain(image: Image) -> dict[str, Any]:
    """An image as nested plain data, without what is empty."""
    return cast(dict[str, Any], to_plain(image))


def to_text(lock: LockedImage) -> str:
    """The text of lock.yaml."""
    lines = [
        f"# Everything that {lock.id} is made of. Made by `torchyard lock` from env.yaml; do not edit.",
        f"schema: {SCHEMA}",
        f"fingerprint: {flow(lock.fingerprint)}",
        f"epoch: {lock.epoch}",
        *_section("image", plain(lock.image)),
        *_section("base", to_plain(lock.base)),
        *_section("archives", dict(lock.archives)),
        "tools:",
        f"  base_format: {flow(lock.tools.base_format)}",
        f"  layer_format: {flow(lock.tools.layer_format)}",
        f"  buildkit_min: {flow(lock.tools.buildkit_min)}",
        f"  uv: {flow(to_plain(lock.tools.uv))}",
        *(_section("source", to_plain(lock.source)) if lock.source else []),
        *_rows("wheels", [to_plain(w) for w in lock.wheels]),
        *_rows("dev_wheels", [to_plain(w) for w in lock.dev_wheels]),
        *(_rows("build_wheels", [to_plain(w) for w in lock.build_wheels]) if lock.source else []),
        *_rows("os", [to_plain(p) for p in lock.os]),
    ]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=32)
def from_text(text: str, *, name: str) -> LockedImage:
    """The lock that `to_text` wrote; raises InputError when it is not one of this schema."""
    try:
        data = lock_lines.read(text) or yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if data["schema"] != SCHEMA:
            raise InputError(
                f"{name} has schema {data['schema']}, this torchyard reads {SCHEMA}",
                where=name,
                hint=f"use the torchyard that wrote it, or remove {name} and run ./yard lock",
            )
        found = LockedImage(
            image=from_plain(Image, data["image"]),
            fingerprint=str(data["fingerprint"]),
            epoch=int(data["epoch"]),
            base=from_plain(LockedBase, data["base"]),
            archives=tuple(sorted((archive, int(date)) for archive, date in dict(data["archives"]).items())),
            os=tuple(from_plain(OsPin, row) for row in data["os"]),
            wheels=tuple(from_plain(WheelPin, row) for row in data["wheels"]),
            dev_wheels=tuple(from_plain(WheelPin, row) for row in data["dev_wheels"]),
            tools=from_plain(Tools, data["tools"]),
            source=from_plain(SourcePin, data["source"]) if "source" in data else None,
            build_wheels=tuple(from_plain(WheelPin, row) for row in data.get("build_wheels", [])),
        )
        _check_forms(found)
        return found
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, yaml.YAMLError) as error:
        raise InputError(
            f"{name} is not a lock that torchyard wrote: {error}",
            where=name,
            hint=f"restore it from git, or remove {name} and run ./yard lock",
        ) from error


def _check_forms(lock: LockedImage) -> None:
    """Raise ValueError where a value could name a file outside its folder, or add a line to a generated file.

    A lock is committed, reviewed and merged by people, so it is not trusted to be what `to_text` wrote.
    """
    lock_forms.image(lock.image)
    lock_forms.base(lock.base.tar, lock.base.digest)
    for pin in lock.os:
        lock_forms.package(pin)
    if (lock.image.build is BuildKind.SOURCE) != (lock.source is not None):
        raise ValueError("a source build has a pinned source, and nothing else has one")
    if lock.source is not None:
        lock_forms.source(lock.source, lock.image)
    for wheel in (*lock.wheels, *lock.dev_wheels, *lock.build_wheels, lock.tools.uv):
        lock_forms.wheel(wheel)
    for archive, _ in lock.archives:
        lock_forms.word("archives", archive)
    if lock.epoch < 0:
        raise ValueError(f"epoch {lock.epoch} is before 1970")


def shared_text(locks: Sequence[LockedImage]) -> str:
    """The text of env.lock.yaml: what all images share, which is the dates of their archives and the tools."""
    systems: dict[str, dict[str, int]] = {}
    for each in locks:
        systems.setdefault(f"{each.image.base.os}-{each.image.arch}", {}).update(dict(each.archives))
    tools = sorted(
        {(t.base_format, t.layer_format, t.uv.version, t.buildkit_min) for t in (one.tools for one in locks)}
    )
    lines = [
        "# What all images share. Made by `torchyard lock`; do not edit. Dates are of the archives' Release files,",
        "# in seconds since 1970; the newest of a system is SOURCE_DATE_EPOCH of its images.",
        f"schema: {SCHEMA}",
        *_section("archives", systems),
        *_rows("tools", [dict(zip(("base_format", "layer_format", "uv", "buildkit_min"), row)) for row in tools]),
    ]
    return "\n".join(lines) + "\n"


def requirements_text(wheels: Sequence[WheelPin], title: str) -> str:
    """A requirements file with one exact version and hash a line."""
    lines = [f"# {title}. Made by `torchyard lock`; do not edit."]
    lines += [f"{w.name}=={w.version} --hash=sha256:{w.sha256}" for w in sorted(wheels, key=lambda w: w.name)]
    return "\n".join(lines) + "\n"


def _section(name: str, values: Mapping[str, Any]) -> list[str]:
    return (
        [f"{name}:", *(f"  {key}: {flow(value)}" for key, value in sorted(values.items()))]
        if values
        else [f"{name}: {{}}"]
    )


def _rows(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{name}:", *(f"  - {flow(row)}" for row in rows)] if rows else [f"{name}: []"]


def flow(value: Any) -> str:
    """A value as JSON in ASCII, which is YAML on one line and never guesses a type."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isascii() and c != "\x7f" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # JSON's surrogate pairs are not YAML
