"""What is said of a wheel that cannot be had: what there is instead, and the nearest thing that works; no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchyard.errors import Incompatible, InputError, Surroundings, YardError
from torchyard.world import wheel_tags
from torchyard.world.wheel_index import Offers
from torchyard.world.wheel_pages import WheelFile
from torchyard.world.wheel_resolver import Target
from torchyard.world.wheel_view import View

NEAREST = 6  # versions listed beside one that is not there


def missing(name: str, asked: Sequence[str], target: Target, view: View) -> YardError | None:
    """The error for a project of which no wheel fits, or no version that was asked for."""
    wanted = next((r for r in map(Requirement, asked) if canonicalize_name(r.name) == name), None)
    versions = {offer.wheel.version for offer in view.of(name).values()}
    specifier = wanted.specifier if wanted else SpecifierSet()
    if versions and any(specifier.contains(version, prereleases=True) for version in versions):
        return None
    return not_there(name, str(specifier), view.asked[name], target, bound=name in view.bound)


def not_there(name: str, specifier: str, offers: Offers, target: Target, bound: bool = False) -> YardError:
    """The error for a version that no index or directory of this build has as a wheel for the target."""
    where = f"requirement {name}{specifier}, index {target.index}"
    fits = SpecifierSet(specifier)
    ranks = wheel_tags.ranked(target.python, target.arch, target.glibc)
    wheels = [offer.wheel for offer in offers.wheels.values()]
    of_build = [each for each in wheels if not bound or each.version.local == target.torch.local]
    asked_for = [each for each in of_build if fits.contains(each.version, prereleases=True)]
    usable = [each.version for each in of_build if any(tag in ranks for tag in each.tags)]
    near = ", ".join(nearest(specifier, usable))
    source = [each for each in offers.sources if fits.contains(each, prereleases=True)]
    if offers.silent and not asked_for:
        return Surroundings(
            f"{name}{specifier} is in no place that answers, and index {target.index} does not: "
            + offers.silent[0].what,
            where=offers.silent[0].where,
            hint="check the name, and the network; a directory with the wheel, named by pip's find-links, does as well"
            + (f"; versions that are there: {near}" if near else ""),
        )
    if not wheels and not source:
        return InputError(
            f"there is no distribution {name}{specifier} on any index or in any directory of this build",
            where=where,
            hint="check the spelling, and the indexes that pip is configured with: `python3 -m pip config list`",
        )
    if asked_for and not any(tag in ranks for each in asked_for for tag in each.tags):
        return Incompatible(
            f"{name}{specifier} has no wheel for {target.words}; it has wheels for {_kinds(asked_for, target.arch)}",
            where=where,
            hint=f"the nearest versions with such a wheel: {near}"
            if near
            else "choose another python or base in env.yaml, or leave the distribution out",
        )
    if source and not asked_for and not (bound and wheels):
        return Incompatible(
            f"{name} {source[-1]} exists only as source, and only wheels are installed",
            where=where,
            hint=f"the nearest versions with a wheel for this target: {near}"
            if near
            else f"build a wheel (`python3 -m pip wheel --no-deps {name}`) into a directory of pip's find-links",
        )
    builds = sorted({str(each.version) for each in wheels if each not in of_build}) if bound else []
    others = f"; what is there belongs to other builds of torch: {_few(builds[::-1])}" if builds else ""
    return InputError(
        f"no wheel of {name} fits {specifier or 'torch ' + str(target.torch)} for {target.words}{others}",
        where=where,
        hint=f"the nearest versions there: {near or 'none'}",
    )


def _kinds(wheels: Sequence[WheelFile], arch: str) -> str:
    """What these wheels are for, in few words: the Pythons on this processor, else the platforms."""
    tags = {tag for each in wheels for tag in each.tags}
    pythons = {
        tag.interpreter
        for tag in tags
        if tag.platform.endswith(f"linux_{arch}") or ("linux" in tag.platform and tag.platform.endswith(arch))
    }
    if pythons:
        return f"{', '.join(sorted(pythons, key=lambda each: (len(each), each)))} on {arch}"
    return _few(sorted({tag.platform for tag in tags}))


def nearest(specifier: str, versions: Sequence[Version]) -> tuple[str, ...]:
    """The versions around the one that a specifier names, in ascending order; the newest, where it names none."""
    ordered = sorted({each for each in versions if not each.is_prerelease} or set(versions))
    named = re.search(r"[=<>~]=?=?\s*([0-9][^,\s*]*)", specifier)
    if not named:
        return tuple(map(str, ordered[-NEAREST:]))
    try:
        wanted = Version(named[1].rstrip("."))
    except ValueError:
        return tuple(map(str, ordered[-NEAREST:]))
    below = [each for each in ordered if each < wanted][-NEAREST // 2 :]
    above = [each for each in ordered if each >= wanted][: NEAREST // 2]
    return tuple(map(str, [*below, *above]))


def named(name: str, text: str) -> bool:
    """Whether a text of the resolver names this project."""
    return re.search(rf"(?<![A-Za-z0-9._-]){re.escape(name)}(?![A-Za-z0-9_-])", text, re.IGNORECASE) is not None


def _few(items: Sequence[str]) -> str:
    return ", ".join(items[:NEAREST]) + (f" and {len(items) - NEAREST} more" if len(items) > NEAREST else "")
