"""The distributions' package archives as the catalogue tells of them: suites, components, keys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from torchyard.errors import InputError

ARCHIVES = ("release", "updates", "security")  # the order in which one is named for a file that several have
DEB_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What all releases of one distribution share."""

    name: str
    keyring: str  # file name below /usr/share/keyrings
    keyring_package: str
    keyring_in: tuple[str, ...]  # distributions of another family that carry that package
    default_mirror_script: str
    security_beside_release: bool
    mirror_per_architecture: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """One release of a distribution: `suites` maps release, updates and security to suite names."""

    id: str
    family: Family
    suites: Mapping[str, str]
    components: tuple[str, ...]
    base: tuple[str, ...]


@cache
def distributions() -> Mapping[str, Distribution]:
    """Every known distribution, by id."""
    text = (resources.files("torchyard") / "data" / "distributions-os.yaml").read_text(encoding="utf-8")
    return parse(text)


def parse(text: str) -> Mapping[str, Distribution]:
    """The distributions in the text of a distributions-os.yaml."""
    raw: dict[str, dict[str, Any]] = yaml.safe_load(text)
    families = {
        name: Family(
            name=name,
            keyring=row["keyring"],
            keyring_package=row["keyring_package"],
            keyring_in=tuple(row["keyring_in"]),
            default_mirror_script=row["default_mirror_script"],
            security_beside_release=row["security_beside_release"],
            mirror_per_architecture=row["mirror_per_architecture"],
        )
        for name, row in raw["families"].items()
    }
    return {
        name: Distribution(
            id=name,
            family=families[row["family"]],
            suites={archive: row["suites"][archive] for archive in ARCHIVES},
            components=tuple(row["components"]),
            base=tuple(row["base"]),
        )
        for name, row in raw["distributions"].items()
    }


def distribution(os: str) -> Distribution:
    """The distribution of this id; an unknown one is an `InputError` with the nearest that is known."""
    known = distributions()
    if os in known:
        return known[os]
    nearest = difflib.get_close_matches(os, known, n=1, cutoff=0.0)
    raise InputError(
        f"the distribution {os!r} is not known; known are {', '.join(sorted(known))}",
        hint=f"use os: {nearest[0]}",
    )


def deb_architecture(arch: str) -> str:
    """The package architecture for `x86_64` or `aarch64`."""
    if arch not in DEB_ARCHITECTURES:
        raise InputError(
            f"the architecture {arch!r} is not known; known are {', '.join(sorted(DEB_ARCHITECTURES))}",
            hint="use x86_64 or aarch64",
        )
    return DEB_ARCHITECTURES[arch]
