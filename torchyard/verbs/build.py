"""build: the whole pipeline for images: lock what is not locked, render, fetch, build, check, write the receipt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import receipt, render, report
from ..errors import CheckFailed, Incompatible, Surroundings, raise_all
from ..finding import State
from ..lock import LockedImage
from ..plan import BuildKind, Image
from ..receipt import Level, Receipt, Tier
from ..world import bases, builds, conditions, containers, engine, offline
from ..world.engine import Engine
from ..world.workspace import write_whole
from . import fetch as fetching
from . import lock as locking
from . import project as projects
from . import render as rendering
from . import tiers
from . import verify as verifying
from .project import Project
from .tiers import Case
from .tiers import receipt_path as receipt_path

Say = Callable[[str], None]
LEVELS = (Level.IDENTITY, Level.STATIC, Level.CPU)
HEADROOM = 1_000_000_000  # bytes that a build needs beside what it keeps


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """no_cache executes every step again; frozen forbids a new lock; dev builds the dev target as well.

    offline forbids a new lock too, and says at once what is missing instead of asking a network for it.
    level is how far the image is looked at: identity, static or cpu.
    """

    no_cache: bool = False
    frozen: bool = False
    offline: bool = False
    level: str = Level.CPU.value
    dev: bool = False


def build(project: Project, images: Sequence[Image], options: Options, *, say: Say) -> tuple[list[Receipt], Engine]:
    """Build and check these images; answers their receipts and the engine that has them.

    Raises CheckFailed where a finding fails.
    """
    tiers.level_of(options.level, LEVELS)
    raise_all([_compiles_not(image) for image in images if image.build is BuildKind.SOURCE])
    _lock(project, images, options, say)
    locks = [projects.fresh_lock(project.work, image) for image in images]
    found = engine.ensure(say)
    with builds.requiring(found, locking.BUILDKIT_MIN) as version:
        containers.sweep(found, say)
        for lock in locks:
            check_room(project, lock, found)
        buildkit = version()
    fetching.fetch(project, locks, say=say)
    made = [_one(project, lock, found, buildkit, options, say) for lock in locks]
    raise_all([problem for each in made if (problem := _bad(each)) is not None])
    return made, found


def _compiles_not(image: Image) -> Incompatible:
    return Incompatible(
        f"{image.id}: this torchyard locks, fetches and renders source builds, and does not compile them itself yet",
        hint=f"./yard lock --id {image.id}, ./yard fetch --id {image.id}, then: ./yard docker buildx bake -f"
        f" images/docker-bake.json {render.target_name(image.id)}; or build: wheel",
    )


def _lock(project: Project, images: Sequence[Image], options: Options, say: Say) -> None:
    """Lock the images that have no lock for what env.yaml says now, where that is allowed."""
    if options.offline:
        return offline.require([projects.fresh_lock(project.work, image) for image in images], project.work.store)
    if options.frozen:
        return rendering.check(project)
    outcome = locking.lock(project, images, say=say)
    for path in outcome.written:
        say(f"wrote {path}")
    return None


def _one(project: Project, lock: LockedImage, found: Engine, buildkit: str, options: Options, say: Say) -> Receipt:
    shared = project.plan.sharers(lock.id)
    say(f"building {lock.id}" + (f" (for {', '.join(shared)})" if len(shared) > 1 else ""))
    titles = render.step_titles(lock)
    with project.work.alone(say):  # a fetch for another lock would swap the contexts of a running build
        bake = partial(builds.bake, project.work, found, lock.id, buildkit=buildkit, say=say)
        made = bake(stage="runtime", titles=titles, no_cache=options.no_cache)
        if options.dev:
            more = [*titles, "dev packages"]
            bake(stage="dev", titles=more, no_cache=False)
    checked = _checked(project, lock, made, found, options, say)
    verifying.findings(tiers.told(checked.tiers), whole=False)
    write_whole(tiers.receipt_path(project.work, lock.id), receipt.to_text(checked).encode())
    return checked


def _checked(
    project: Project, lock: LockedImage, made: builds.Built, found: Engine, options: Options, say: Say
) -> Receipt:
    """The receipt of what was built, with the findings of every level that was asked for; identity is a gate."""
    tag = render.tag(project.plan.project, lock.id)
    image = made.digest or tag  # the tag may have moved to another build since
    known = _unchecked(project, lock, tag, made, found)
    case = Case(engine=found, tag=image, lock=lock, project=project, told=known)
    top = tiers.level_of(options.level, LEVELS)
    kept = 0
    for level in LEVELS[: LEVELS.index(top) + 1]:
        before = known.tier(level)
        if before is not None and _holds(case, before):
            kept += len(before.findings)
            continue
        say(f"checking {lock.id} ({level})")
        known = tiers.look(case, level, say).within(known)
        if level is Level.IDENTITY and any(each.state is State.FAIL for each in known.findings):
            break
    if kept:
        say(f"{kept} findings are those of its receipt: the image, its lock, the checks and the machine are the same")
    return known


def _holds(case: Case, before: Tier) -> bool:
    """Whether the same checks on the same machine gave these findings."""
    here = before.level is not Level.CPU or before.on == conditions.machine(case.engine)
    return here and before.checks == tiers.checks(case, before.level)


def _unchecked(project: Project, lock: LockedImage, tag: str, made: builds.Built, found: Engine) -> Receipt:
    """The receipt of what was built, with what an earlier one says of the same image, or of the image before."""
    known = containers.describe(found, made.digest or tag)
    if known is None:
        raise Surroundings(f"the engine has no image {tag} after building it", hint="./yard engine --status")
    new = Receipt(
        image=lock.id,
        tag=tag,
        digest=made.digest,
        layers=tuple(known["RootFS"]["Layers"]),
        lock=tiers.lock_hash(project.work, lock.id),
        fingerprint=lock.fingerprint,
        buildkit=made.buildkit,
        allowed=lock.image.allowed,
        size=int(known.get("Size", 0)) if found.containerd_store else 0,
    )
    return receipt.following(tiers.read_receipt(project.work, lock.id), new)


def _bad(checked: Receipt) -> CheckFailed | None:
    """The error for an image with a finding that fails; its receipt says so too."""
    first = next((f for f in tiers.told(checked.tiers) if f.state is State.FAIL), None)
    if first is None:
        return None
    return CheckFailed(
        f"{checked.image} does not pass: {first.what}: expected {first.expected}, seen {first.seen}",
        where=checked.tag,
        hint=f"{first.fix or 'the findings are above'}; the image stays, and its receipt says that it failed",
    )


def needed(project: Project, lock: LockedImage) -> tuple[int, int]:
    """Bytes that fetching (first) and building (second) this image need, from the sizes that the lock has.

    The store keeps each file; a layer of the framework is as large as its wheels; the engine keeps it compressed and
    unpacked, which is about 2.2 times its size.
    """
    to_fetch = fetching.missing(project, lock) + fetching.missing_base(project, lock)
    base = sum(bases.layers(lock, project.work.store).values())
    wheels = sum(w.size for w in lock.wheels)
    packages = sum(p.size for p in lock.os if p.group != "dev")
    return to_fetch, wheels + int(3.2 * (wheels + base)) + 5 * packages + HEADROOM


def check_room(project: Project, lock: LockedImage, found: Engine, *, again: bool = False) -> None:
    """Raise Surroundings before anything is written where the disk cannot hold what will be.

    again: the image is built a second time, so one that is there already counts for nothing.
    """
    tag = render.tag(project.plan.project, lock.id)
    if not again and containers.describe(found, tag) is not None:
        return
    to_fetch, to_build = needed(project, lock)
    for place, needs in _disks(project, found, to_fetch, to_build).items():
        free = shutil.disk_usage(place).free
        if free < needs:
            raise Surroundings(
                f"{lock.id} needs about {report.size(needs)} of disk"
                f" ({report.size(to_fetch)} to fetch, {report.size(to_build)} to build), {report.size(free)} are free",
                where=str(place),
                hint="free some: ./yard docker system df shows what the engine holds, ./yard clean frees what this"
                " project keeps",
            )


def _disks(project: Project, found: Engine, to_fetch: int, to_build: int) -> dict[Path, int]:
    """How many bytes each disk needs; the engine's is counted where it is on this machine and another one."""
    store = project.work.root
    engine_root = containers.data_root(found)
    if engine_root is None or not engine_root.is_dir():
        return {store: to_fetch + to_build}
    if os.stat(engine_root).st_dev == os.stat(store).st_dev:
        return {store: to_fetch + to_build}
    return {store: to_fetch + to_build // 4, engine_root: to_build}
