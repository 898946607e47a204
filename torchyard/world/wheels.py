"""Wheels pinned for one build: what its requirements resolve to, and one file of each distribution."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchyard import requirements as reqs
from torchyard.errors import CheckFailed, Incompatible, Problems, Surroundings, YardError, raise_all
from torchyard.wheelpin import WheelPin, dev_requirements
from torchyard.world import process, wheel_errors, wheel_resolver, wheel_tags
from torchyard.world.wheel_fetch import Progress, fetch, missing
from torchyard.world.wheel_index import Offer, Offers, WheelIndex
from torchyard.world.wheel_resolver import Target
from torchyard.world.wheel_view import Broken, View, serving

__all__ = ["Progress", "WheelPin", "dev_requirements", "fetch", "missing", "resolve"]

Say = Callable[[str], None]


def resolve(
    requirements: Sequence[str],
    *,
    torch: str,
    python: str,
    arch: str,
    glibc: str,
    index: str,
    places: WheelIndex,
    constraints: Sequence[str] = (),
    exclude_newer: date | None = None,
    prefer: Sequence[WheelPin] = (),
    overrides: Sequence[str] = (),
    say: Say = lambda _: None,
) -> tuple[WheelPin, ...]:
    """Every distribution that torch and the requirements need, each pinned to one wheel, sorted by name.

    torch is the exact version with its local part, where this build has one; pins in `prefer` stay where they still
    satisfy; what `overrides` names is taken in place of what others require of it. Nothing but wheels for the target
    is seen, and of torch and what is bound to it only this build's.
    """
    target = Target(
        torch=Version(torch), python=python, arch=arch, glibc=glibc, index=index, exclude_newer=exclude_newer
    )
    asked = _checked(requirements, torch)
    ranks = wheel_tags.ranked(python, arch, glibc)
    view = View(
        choose=lambda project: _fitting(places, project, target, ranks),
        metadata=places.metadata,
        bound=places.bound,
    )
    _torch_is_there(view, target, say)
    say(f"resolving torch {torch} and {len(asked)} more requirements for {target.words} from index {index}")
    with serving(view):
        needed = _compile([f"torch=={torch}", *asked], constraints, target, view, prefer, overrides)
    kept = {pin.name: pin for pin in prefer}
    problems: list[YardError] = []
    pins: list[WheelPin] = []
    for name, (version, requires) in needed.items():
        try:
            offer = _one(name, version, view.of(name), ranks, kept.get(name))
            wheel = places.complete(offer.wheel)
        except YardError as error:
            problems.append(error)
            continue
        assert wheel.size is not None
        home = index if view.asked[name].fallback else places.home(index, name)
        pins.append(
            WheelPin(
                name=name,
                version=str(version),
                file=wheel.file,
                sha256=wheel.sha256,
                size=wheel.size,
                index=home,
                requires=tuple(sorted(requires)),
            )
        )
    raise_all(problems)
    _torch_is_the_one(pins, target)
    say(f"{len(pins)} wheels, {sum(pin.size for pin in pins) / 1e6:.0f} MB")
    return tuple(sorted(pins, key=lambda pin: pin.name))


def _checked(requirements: Sequence[str], torch: str) -> tuple[str, ...]:
    """The requirements without those that the torch pin already is; all that are wrong are told at once."""
    problems: list[YardError] = []
    good: set[str] = set()
    for text in requirements:
        try:
            requirement = reqs.parse_requirement(text.strip(), f"requirement {text.strip()!r}")
            reqs.check_torch(requirement, torch, f"requirement {text.strip()!r}")
        except YardError as error:
            problems.append(error)
        else:
            if canonicalize_name(requirement.name) != "torch" or requirement.extras:
                good.add(str(requirement))
    raise_all(problems)
    return tuple(sorted(good, key=str.lower))


def _fitting(
    places: WheelIndex, project: str, target: Target, ranks: Mapping[Tag, int]
) -> tuple[Offers, dict[str, Offer]]:
    """Everything offered of a project, and the wheels of it that this build may take."""
    offers = places.offers(project, target.index, strict=target.torch.local is None)
    fitting = {
        file: offer
        for file, offer in offers.wheels.items()
        if any(tag in ranks for tag in offer.wheel.tags)
        and not (project in places.bound and offer.wheel.version.local != target.torch.local)
        and _old_enough(offer, target.exclude_newer)
        and not (project == "torch" and offer.wheel.version != target.torch)
    }
    return offers, fitting


def _old_enough(offer: Offer, newest: date | None) -> bool:
    """Whether a wheel was there at the end of that day; one whose place tells no time was."""
    if newest is None or offer.wheel.uploaded is None:
        return True
    return offer.wheel.uploaded < datetime.combine(newest + timedelta(days=1), datetime.min.time(), UTC)


def _torch_is_there(view: View, target: Target, say: Say) -> None:
    """Nothing, or the error that says which versions of torch there are instead."""
    if not view.of("torch"):
        raise wheel_errors.not_there("torch", f"=={target.torch}", view.asked["torch"], target, bound=True)
    for silent in view.asked["torch"].silent:
        say(f"index {target.index} does not answer ({silent.where}); another place has torch {target.torch}")


def _compile(
    asked: Sequence[str],
    constraints: Sequence[str],
    target: Target,
    view: View,
    prefer: Sequence[WheelPin] = (),
    overrides: Sequence[str] = (),
) -> dict[str, tuple[Version, list[str]]]:
    """What the resolver chose: of each name its version and the names that it requires."""
    done = wheel_resolver.run(asked, constraints, target, view, prefer, overrides)
    for failure in view.failures:
        if isinstance(failure, Broken):
            raise failure.cause
    if done.code != 0:  # else what failed was of a wheel that was not needed
        raise_all(list({(str(failure), failure.where): failure for failure in view.failures}.values()))
        raise _explained(done, asked, constraints, target, view)
    return wheel_resolver.compiled(done.out)


def _one(
    name: str, version: Version, fitting: Mapping[str, Offer], ranks: Mapping[Tag, int], kept: WheelPin | None
) -> Offer:
    """The one wheel of this version: the one that was locked, else the one whose tags fit best."""
    of_version = [offer for offer in fitting.values() if offer.wheel.version == version]
    if kept and kept.version == str(version) and kept.file in fitting:
        offer = fitting[kept.file]
        if offer.wheel.sha256 and offer.wheel.sha256 != kept.sha256:
            raise CheckFailed(
                f"{kept.file} changed since it was locked: expected sha256 {kept.sha256}, seen {offer.wheel.sha256}",
                where=f"{name} {version}, index {kept.index}",
                hint=f"if the new file is meant: `./yard lock --upgrade {name}`",
            )
        return offer
    return min(
        of_version,
        key=lambda offer: (
            min(ranks[tag] for tag in offer.wheel.tags if tag in ranks),
            tuple(-number if isinstance(number, int) else 0 for number in offer.wheel.build[:1]),
            offer.wheel.file,
        ),
    )


def _torch_is_the_one(pins: Iterable[WheelPin], target: Target) -> None:
    seen = next((pin.version for pin in pins if pin.name == "torch"), "none")
    if Version(seen) != target.torch:
        raise CheckFailed(
            f"torch resolved to {seen}, expected exactly {target.torch}",
            where=f"index {target.index}",
            hint="this is a fault of the resolver; report it with the output of `python3 -m pip config list`",
        )


def _explained(
    done: process.Completed, asked: Sequence[str], constraints: Sequence[str], target: Target, view: View
) -> YardError:
    """The user's error behind a resolution that failed."""
    told = " ".join(re.sub(r"[×╰─▶│]", " ", done.err).split())
    direct = {canonicalize_name(each.name) for each in map(Requirement, asked) if each.marker is None}
    named = {name for name in view.asked if wheel_errors.named(name, told)}
    if found := [
        error for name in sorted(direct | named) if (error := wheel_errors.missing(name, asked, target, view))
    ]:
        return found[0] if len(found) == 1 else Problems(found)
    if "No solution found" not in told and "unsatisfiable" not in told:
        return process.failed(done, error=Surroundings, hint="the resolver itself failed")
    told = re.sub(r"^.*?Because", "Because", told)
    agreeing = _agreeing(asked, constraints, target, view, told)
    return Incompatible(
        f"these requirements cannot be had together with torch {target.torch}: {told}",
        where=", ".join(
            each
            for each in asked
            if wheel_errors.named(Requirement(each).name, told) and not each.startswith("torch==")
        ),
        hint=agreeing or "change the requirement that is named, or the key software.torch of env.yaml",
    )


def _agreeing(asked: Sequence[str], constraints: Sequence[str], target: Target, view: View, told: str) -> str:
    """Which version of a bounded requirement would agree with the others, if freeing one of them is enough."""
    for text in asked[1:]:
        requirement = Requirement(text)
        if not requirement.specifier or not wheel_errors.named(requirement.name, told):
            continue
        freed = [requirement.name if each == text else each for each in asked]
        done = wheel_resolver.run(freed, constraints, target, view, ())
        if done.code == 0:
            version = wheel_resolver.compiled(done.out)[canonicalize_name(requirement.name)][0]
            return f"{requirement.name} {version} agrees with everything else: ask for {requirement.name}=={version}"
    return ""
