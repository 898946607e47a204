"""lock: pin everything of every image. Asks the archives and the indexes; writes images/ and env.lock.yaml."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import groups, keeping, layering, requirements, wheelpin
from .. import lock as locks
from ..errors import CheckFailed, Incompatible, InputError, YardError, raise_all
from ..lock import LockedImage, Tools
from ..ospin import OsPin
from ..plan import Base, BaseKind, BuildKind, Image
from ..sourcepin import SourcePin
from ..versions import numbers
from ..wheelpin import WheelPin
from ..world import (
    archive,
    bases,
    engine,
    pipconf,
    sources,
    wheel_fetch,
    wheel_layer,
    wheel_metadata,
    wheel_mirrors,
    wheels,
)
from ..world.archive import ArchiveAnswer, Archives
from ..world.bases import Means, RegistryBase
from ..world.wheel_index import WheelIndex
from . import project as projects
from . import render as rendering
from .project import Project

Say = Callable[[str], None]
UV = "0.13.9"  # installs wheels inside images; in every lock with its hash
BUILDKIT_MIN = "0.12"
# torch.compile imports setuptools; releases before 2.13 say so for Python 3.12 and newer only.
TOOLS_IN_IMAGE = ("pip", "setuptools", f"uv=={UV}")
TORCH = "torch"
NVCC_IN_WHEELS = (13,)  # before CUDA 13.0, NVIDIA's wheels have ptxas only
OS = "os"  # what --upgrade calls all packages of the distributions


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What locking did: per image whether it was locked anew, and the files that were written."""

    images: tuple[tuple[str, str], ...]  # (id, what happened)
    written: tuple[PurePosixPath, ...]


def lock(project: Project, images: Sequence[Image], *, upgrade: str = "", say: Say) -> Outcome:
    """Lock the images that need it, all at once or none, and render what follows from the locks.

    upgrade: `os` takes all distribution packages anew (for every image of the distributions concerned, so that they go
    on sharing their base), a distribution's or package's name moves that one alone, where its pins allow it.
    """
    with project.work.alone(say):
        return _lock(project, images, upgrade, say)


def _lock(project: Project, images: Sequence[Image], upgrade: str, say: Say) -> Outcome:
    previous = {image.id: projects.read_lock(project.work, image.id) for image in project.plan.images}
    wanted = [i for i in images if upgrade or _stale(previous[i.id], i)]
    if upgrade == OS:
        systems = {i.base.os for i in wanted}
        wanted = [i for i in project.plan.images if i.base.os in systems and (previous[i.id] or i in wanted)]
    elif upgrade:
        wanted = [i for i in wanted if _has(previous[i.id], upgrade)]
        if not wanted:
            raise InputError(
                f"no lock pins a package {upgrade!r}", hint="--upgrade takes `os` or the name of a pinned package"
            )
    raise_all([problem for image in wanted for problem in (*_not_yet(image), *_asked_against(image))])
    locker = _Locker(project, [each for each in previous.values() if each], upgrade, say)
    made = {image.id: locker.image(image, previous[image.id]) for image in wanted}
    done = {key: value for key, value in {**previous, **made}.items() if value is not None}
    written = project.work.write_tree(rendering.files(project, list(done.values())))
    changed = {i for i, new in made.items() if previous[i] != new}
    told = tuple((i.id, "locked" if i.id in changed else "unchanged") for i in images)
    others = tuple((i, "locked") for i in sorted(changed) if i not in {image.id for image in images})
    return Outcome(images=told + others, written=tuple(written))


def check(project: Project, images: Sequence[Image], *, say: Say) -> list[str]:
    """What is stale, in words: locks made for another plan, packages and wheels that left their archives."""
    told: list[str] = []
    seen: dict[tuple[str, str], list[OsPin]] = {}
    locked: list[LockedImage] = []
    for image in images:
        found = projects.read_lock(project.work, image.id)
        if found is None:
            told.append(f"{image.id}: not locked")
            continue
        if _stale(found, image):
            told.append(f"{image.id}: made for another env.yaml or catalogue ({'; '.join(_differences(found, image))})")
        locked.append(found)
        key = (image.base.os, image.arch)
        known = seen.setdefault(key, [])
        known += [pin for pin in found.os if pin not in known]
        if base := bases.moved(found):
            told.append(f"{image.id}: {base}")
    for (system, arch), pins in seen.items():
        for stale in archive.stale(pins, os=system, arch=arch, archives=archives(project, say)):
            newest = f"the archive has {stale.newest}" if stale.newest else "the archive has none"
            kind = "gone" if stale.gone else "newer"
            told.append(f"{system}: {stale.pin.name} {stale.pin.version} {kind}: {newest}")
    index = wheel_index(project)
    pinned = {pin.sha256: pin for found in locked for pin in (*found.wheels, *found.dev_wheels)}
    told += wheel_fetch.gone(sorted(pinned.values(), key=lambda pin: pin.name), index, say)
    return told


def raise_if_stale(told: Sequence[str]) -> None:
    """Raise CheckFailed for what `check` found."""
    raise_all([CheckFailed(line, hint="./yard lock, or ./yard lock --upgrade os") for line in told])


def stale(found: LockedImage, image: Image) -> list[str]:
    """What a lock says otherwise than what env.yaml, the catalogue and this version say now, in words."""
    if not _stale(found, image):
        return []
    return _differences(found, image) or ["the packages that every image gets are others now"]


def archives(project: Project, say: Say) -> Archives:
    """How this project reaches the package archives."""
    work = project.work
    return Archives(store=work.store, cache=work.local / "archives", mirrors=work.mirrors, say=say)


def means(project: Project, say: Say) -> Means:
    """How this project makes its bases."""
    return Means(work=project.work, archives=archives(project, say), engine=lambda: engine.ensure(say), say=say)


def wheel_index(project: Project) -> WheelIndex:
    """How this project reaches the indexes of wheels."""
    return WheelIndex(pipconf.read(), mirrors=wheel_mirrors.read(project.work.mirrors))


class _Locker:
    """Locks images one after the other; what two of them share is asked once."""

    def __init__(self, project: Project, previous: Sequence[LockedImage], upgrade: str, say: Say) -> None:
        self.project = project
        self.previous = previous
        self.upgrade = upgrade
        self.say = say
        self._systems: dict[tuple[Base, str, str], ArchiveAnswer] = {}
        self._bases: dict[tuple[Base, str], RegistryBase] = {}

    @cached_property
    def index(self) -> WheelIndex:
        """The indexes of wheels; pip is asked about them only where something has to be resolved."""
        return wheel_index(self.project)

    def image(self, image: Image, before: LockedImage | None) -> LockedImage:
        self.say(f"locking {image.id}")
        answer = self._system(image, before)
        glibc = self.project.catalog.distribution(image.base.os).glibc
        found = self._wheels(image, glibc, before)
        dev = self._dev_wheels(image, glibc, found, before)
        source = self._source(image, found) if image.build is BuildKind.SOURCE else None
        builder = self._builder_wheels(image, glibc, found, before) if source else ()
        packages = (*answer.pins, *self._builder_packages(image, answer)) if source else answer.pins
        found = tuple(w for w in found if w.name != TORCH) if source else found
        base = bases.pin(
            image,
            self._registry_base(image),
            tuple(pin for pin in answer.pins if pin.group == "base"),
            epoch=answer.epoch,
            dates=answer.dates,
            means=means(self.project, self.say),
        )
        return LockedImage(
            image=image,
            fingerprint=locks.fingerprint(image),
            epoch=answer.epoch,
            base=base,
            os=packages,
            wheels=found,
            dev_wheels=dev,
            tools=Tools(
                base_format=bases.FORMAT,
                layer_format=wheel_layer.FORMAT,
                uv=next(w for w in found if w.name == "uv"),
                buildkit_min=BUILDKIT_MIN,
            ),
            archives=tuple(sorted(answer.dates.items())),
            source=source,
            build_wheels=builder,
        )

    def _system(self, image: Image, before: LockedImage | None) -> ArchiveAnswer:
        key = (image.base, image.arch, str(groups.wanted(image)))
        if key not in self._systems and (kept := self._as_before(image, before)):
            self._systems[key] = kept
        if key not in self._systems:
            siblings = [one for one in self.previous if (one.image.base, one.image.arch) == key[:2]]
            prefer = [] if self.upgrade == OS else [p for one in siblings for p in one.os if p.name != self.upgrade]
            made = [a for (base, arch, _), a in self._systems.items() if (base, arch) == key[:2]]
            prefer += [pin for each in made for pin in each.pins]
            found = self._registry_base(image)
            answer = archive.resolve(
                image.base.os,
                image.arch,
                groups.wanted(image),
                archives=archives(self.project, self.say),
                prefer=list({(p.name, p.architecture): p for p in prefer}.values()),
                installed=found.installed if found else "",
            )
            self._systems[key] = _dated(answer, siblings if self.upgrade != OS else [])
        return self._systems[key]

    def _as_before(self, image: Image, before: LockedImage | None) -> ArchiveAnswer | None:
        """The packages of the lock before, where they are what is asked for and all of them are in the store.

        Solving would keep these very versions; one that is not in the store may have left its archive.
        """
        if before is None or self.upgrade or not keeping.same_packages(before, image):
            return None
        pins = tuple(pin for pin in before.os if pin.group != "build")
        if not all(self.project.work.store.has(pin.sha256, pin.size) for pin in pins):
            return None
        return ArchiveAnswer(pins=pins, dates=dict(before.archives))

    def _registry_base(self, image: Image) -> RegistryBase | None:
        """The registry image that this one starts from, of the locked digest; None for a bootstrapped base."""
        if image.base.kind is not BaseKind.IMAGE:
            return None
        key = (image.base, image.arch)
        if key not in self._bases:
            locked = [one.base.digest for one in self.previous if (one.image.base, one.image.arch) == key]
            keep = locked[0] if locked and self.upgrade != OS else ""
            self._bases[key] = bases.from_registry(image, keep, means(self.project, self.say))
        return self._bases[key]

    def _wheels(self, image: Image, glibc: str, before: LockedImage | None) -> tuple[WheelPin, ...]:
        asked = [*image.packages.pip, *(f"{name}=={version}" for name, version in image.pairs)]
        named = {_name(line) for line in asked}
        asked += [tool for tool in TOOLS_IN_IMAGE if _name(tool) not in named]

        def resolved(overrides: Sequence[str] = ()) -> tuple[WheelPin, ...]:
            return wheels.resolve(
                asked,
                torch=image.torch_requirement,
                python=image.python,
                arch=image.arch,
                glibc=glibc,
                index=image.index,
                places=self.index,
                prefer=[w for w in before.wheels if w.name != canonicalize_name(self.upgrade)] if before else (),
                overrides=overrides,
                say=self.say,
            )

        found = resolved()
        if other := _other_cudnn(image, found):
            found = resolved(other)
        foreign(image, found, self.say)
        return found

    def _source(self, image: Image, found: Sequence[WheelPin]) -> SourcePin:
        """The source that is compiled: the commit given, else the one that the release's own wheel names."""
        assert image.source is not None
        given, store = image.source, self.project.work.store
        mirrors = sources.read_mirrors(self.project.work.mirrors)
        commit = given.commit
        if not commit and not given.archive:
            commit = self._commit(next(w for w in found if w.name == TORCH))
        if given.archive:
            session = self.index.session
            return sources.pin_archive(given.ref, commit, given.archive, store, session, mirrors, self.say)
        return sources.pin_git(given.ref, commit, store, mirrors, self.say)

    def _commit(self, torch: WheelPin) -> str:
        wheels.fetch([torch], self.project.work.store, self.index, say=self.say)
        facts = wheel_metadata.read(self.project.work.store.path(torch.sha256)).torch
        if facts is None or len(facts.git_commit) != 40:
            raise CheckFailed(
                f"{torch.file} does not name the commit that it was made from",
                where=f"torch {torch.version}, index {torch.index}",
                hint="give it with source.commit in env.yaml",
            )
        return facts.git_commit

    def _builder_packages(self, image: Image, answer: ArchiveAnswer) -> tuple[OsPin, ...]:
        """What the builder has of the distribution beside the groups `base` and `os`."""
        wanted = {name: groups.wanted(image)[name] for name in ("base", "os")}
        base = self._registry_base(image)
        made = archive.resolve(
            image.base.os,
            image.arch,
            {**wanted, "build": groups.builder(image)},
            archives=archives(self.project, self.say),
            prefer=answer.pins,
            installed=base.installed if base else "",
        )
        return tuple(pin for pin in made.pins if pin.group == "build")

    def _builder_wheels(
        self, image: Image, glibc: str, found: Sequence[WheelPin], before: LockedImage | None
    ) -> tuple[WheelPin, ...]:
        """The toolkit and the tools of the build; the framework's wheels are in the builder's base already."""
        resolved = wheels.resolve(
            [*groups.build_wheels(image), *wheels.dev_requirements(found, groups.toolkit())],
            torch=image.torch_requirement,
            python=image.python,
            arch=image.arch,
            glibc=glibc,
            index=image.index,
            places=self.index,
            constraints=[f"{w.name}=={w.version}" for w in found if w.name != TORCH],
            prefer=[*found, *(before.build_wheels if before else ())],
            overrides=_other_cudnn(image, found) or [f"{w.name}=={w.version}" for w in found if _is_cudnn(w)],
            say=self.say,
        )
        there = {w.name for layer in layering.framework(found) for w in layer.wheels}
        return tuple(w for w in resolved if w.name not in there)

    def _dev_wheels(
        self, image: Image, glibc: str, found: Sequence[WheelPin], before: LockedImage | None
    ) -> tuple[WheelPin, ...]:
        """nvcc and py-spy; what the runtime has already is left out."""
        asked = [*wheels.dev_requirements(found), *groups.dev_wheels()]
        if before is not None and not self.upgrade and keeping.same_target(before, image):
            then = [*wheels.dev_requirements(before.wheels), *groups.dev_wheels()]
            kept = keeping.additions(asked, found, before.wheels, before.dev_wheels) if then == asked else None
            if kept is not None:
                return kept
        resolved = wheels.resolve(
            asked,
            torch=image.torch_requirement,
            python=image.python,
            arch=image.arch,
            glibc=glibc,
            index=image.index,
            places=self.index,
            constraints=[f"{w.name}=={w.version}" for w in found],
            prefer=[*found, *(before.dev_wheels if before else ())],
            overrides=[f"{w.name}=={w.version}" for w in found if _is_cudnn(w)],
            say=self.say,
        )
        names = {w.name for w in found}
        return tuple(w for w in resolved if w.name not in names)


def _dated(answer: ArchiveAnswer, siblings: Sequence[LockedImage]) -> ArchiveAnswer:
    """The answer with the dates of an existing lock of the same system, where no pin has changed since.

    The archive's date moves every day; a lock moves only when one of its packages does.
    """
    pins = {(p.name, p.version, p.sha256) for p in answer.pins if p.group in ("base", "os")}
    for one in siblings:
        if {(p.name, p.version, p.sha256) for p in one.os if p.group in ("base", "os")} == pins and one.archives:
            return dataclasses.replace(answer, dates=dict(one.archives))
    return answer


def _not_yet(image: Image) -> list[Incompatible]:
    """What env.yaml can say and this version cannot build."""
    told = []
    if image.build is BuildKind.SOURCE and not image.index:
        told.append(
            Incompatible(
                f"{image.id}: torch {image.torch} was not released for {image.cuda_tag} on {image.arch}, so no wheels"
                " say what to compile with and link to",
                hint="choose a cuda: that the release has wheels for",
            )
        )
    elif image.build is BuildKind.SOURCE and image.cuda and numbers(image.cuda) < NVCC_IN_WHEELS:
        told.append(
            Incompatible(
                f"{image.id}: NVIDIA's wheels carry nvcc from CUDA 13.0 on, and this build is for CUDA {image.cuda}",
                hint='cuda: "13.0" or newer for a source build, or build: wheel',
            )
        )
    if image.python_from != "distribution":
        told.append(
            Incompatible(
                f"{image.id}: this torchyard does not install {image.python_from} builds of Python {image.python} yet",
                hint="take the Python of a distribution: debian-12 has 3.11, ubuntu-24.04 has 3.12, debian-13 has 3.13",
            )
        )
    return told


def _asked_against(image: Image) -> list[YardError]:
    """What of the user's requirements the torch or the CUDA of this image rules out, whatever the indexes have."""
    where = f"env.yaml  packages.pip, for {image.id}"
    return requirements.against(image.packages.pip, torch=image.torch_requirement, cuda=image.cuda, where=where)


def foreign(image: Image, found: Sequence[WheelPin], say: Say) -> None:
    """Raise Incompatible where wheels of another CUDA come in; say which CUDA wheels come into a CPU image."""
    strange = wheelpin.strangers(found, image.cuda)
    if not image.cuda and strange:
        told = [f"{pin.name}{_for(who)} {pin.size / 1e6:.0f} MB" for pin, who in strange]
        say(f"{image.id}: a CPU image with wheels of CUDA: {', '.join(told)}")
        return
    raise_all(
        [
            Incompatible(
                f"{pin.name} {pin.version}{_for(who)} is of CUDA {wheelpin.cuda_major(pin.name)};"
                f" torch {image.torch} brings CUDA {image.cuda}",
                where=f"env.yaml  packages.pip, for {image.id}",
                hint=f"take another version or build of {' or '.join(who) or pin.name}, or another cuda:",
            )
            for pin, who in strange
        ]
    )


def _for(who: Sequence[str]) -> str:
    return f" (for {', '.join(who)})" if who else ""


def _stale(found: LockedImage | None, image: Image) -> bool:
    if found is None or found.fingerprint != locks.fingerprint(image) or _tools(found):
        return True
    return locks.plain(found.image) != locks.plain(image)  # edited by hand


def _tools(found: LockedImage) -> list[str]:
    wanted = {"base_format": bases.FORMAT, "layer_format": wheel_layer.FORMAT, "buildkit_min": BUILDKIT_MIN, "uv": UV}
    has = {**dataclasses.asdict(found.tools), "uv": found.tools.uv.version}
    return [f"{name} {has[name]}, now {value}" for name, value in wanted.items() if has[name] != value]


def _differences(found: LockedImage, image: Image) -> list[str]:
    then, now = locks.plain(found.image), locks.plain(image)
    keys = sorted({*then, *now})
    return [f"{k}: {then.get(k)} then, {now.get(k)} now" for k in keys if then.get(k) != now.get(k)] + _tools(found)


def _has(found: LockedImage | None, name: str) -> bool:
    if found is None:
        return False
    return name in {p.name for p in found.os} or canonicalize_name(name) in {
        w.name for w in (*found.wheels, *found.dev_wheels, *found.build_wheels)
    }


def _is_cudnn(pin: WheelPin) -> bool:
    return pin.name.startswith("nvidia-cudnn-")


def _other_cudnn(image: Image, found: Sequence[WheelPin]) -> list[str]:
    """The cuDNN of a source build, where it is not the one that the release's wheel pins."""
    if image.build is not BuildKind.SOURCE or not image.cudnn:
        return []
    return [f"{w.name}=={image.cudnn}" for w in found if _is_cudnn(w) and w.version != image.cudnn]


def _name(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement as error:
        raise InputError(
            f"{requirement!r} is not a requirement: {error}",
            where="env.yaml  packages.pip",
            hint="name a distribution and versions of it, as in numpy==2.3.1",
        ) from error
