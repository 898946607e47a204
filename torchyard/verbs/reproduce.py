"""reproduce: whether a build comes out the same again, in a builder that has nothing of the first one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from .. import receipt as receipts
from .. import render
from ..differ import times
from ..differ import verdict as verdicts
from ..differ.values import Compared, Late, Outline
from ..differ.verdict import Made, Verdict
from ..errors import CheckFailed, InputError
from ..lock import LockedImage
from ..plan import Image
from ..receipt import Receipt
from ..world import builds, containers, empty_builder, engine, image_engine, image_open, offline
from ..world.empty_builder import Builder, State
from ..world.engine import Engine
from ..world.image_open import Opened
from . import build as building
from . import comparison
from . import fetch as fetching
from . import lock as locking
from . import project as projects
from . import render as rendering
from .project import Project

Say = Callable[[str], None]
TAG = "again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduced:
    """What a second build of an image came to. compared: None where both are equal."""

    image: str
    state: State
    first: Made
    second: Made
    verdict: Verdict
    compared: Compared | None
    notes: tuple[str, ...]
    late: tuple[Late, ...] = ()  # times after the epoch in the documents of the second build

    @property
    def equal(self) -> bool:
        """Whether the second build is the first one again."""
        return self.verdict.equal


def compare(names: Sequence[str], *, epoch: int | None, look: bool, say: Say) -> Compared:
    """What differs between two images that are named on the command line; look: let diffoscope look at files."""
    if len(names) != 2:
        raise InputError(f"--compare takes two images, {len(names)} given", hint="reproduce --compare A B")
    return comparison.compare(names[0], names[1], epoch=epoch, look=look, say=say)


def number(text: str) -> int | None:
    """The seconds that were given; None for none."""
    if text and not text.isdigit():
        raise InputError(f"{text!r} is no time in seconds", where="--epoch", hint="for example the lock's `epoch`")
    return int(text) if text else None


def reproduce(project: Project, images: Sequence[Image], *, look: bool, say: Say) -> list[Reproduced]:
    """Build these images again, each in an empty builder, and compare them with their receipts."""
    rendering.check(project)
    pairs = [(lock := projects.fresh_lock(project.work, image), _receipt(project, lock)) for image in images]
    offline.require([lock for lock, _ in pairs], project.work.store)
    found = engine.ensure(say)
    for lock, _ in pairs:
        building.check_room(project, lock, found, again=True)
    fetching.fetch(project, [lock for lock, _ in pairs], say=say)  # lays out what the store has
    return [_one(project, lock, told, found, look, say) for lock, told in pairs]


def _receipt(project: Project, lock: LockedImage) -> Receipt:
    """The receipt of an image, made for just the lock that there is now."""
    path = building.receipt_path(project.work, lock.id)
    hint = f"./yard build --id {lock.id}"
    try:
        found = receipts.from_text(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckFailed(f"{lock.id} has no receipt: nothing to compare a build with", where=str(path), hint=hint)
    except ValueError as error:
        raise CheckFailed(f"the receipt of {lock.id} cannot be read: {error}", where=str(path), hint=hint) from error
    text = project.work.read(projects.lock_path(lock.id)) or ""
    if found.lock != sha256(text.encode()).hexdigest():
        raise CheckFailed(f"{lock.id} was locked anew since it was built", where=str(path), hint=hint)
    return found


def _one(project: Project, lock: LockedImage, told: Receipt, found: Engine, look: bool, say: Say) -> Reproduced:
    with empty_builder.empty(found, say) as builder:
        buildkit = builds.require(builder.engine, locking.BUILDKIT_MIN)
        say(f"building {lock.id} again, in {builder.state}")
        with _built(project, lock, builder, buildkit, say) as (again, made):
            second = Made(
                digest=made.digest,
                layers=tuple(step.diff_id for step in again.outline.steps),
                buildkit=made.buildkit,
            )
            first = Made(digest=told.digest, layers=told.layers, buildkit=told.buildkit)
            answer = verdicts.verdict(first, second)
            compared = None
            if not answer.equal:
                compared = _compared(project, lock, told, found, again, look, say)
    return Reproduced(
        image=lock.id,
        state=builder.state,
        first=first,
        second=second,
        verdict=answer,
        compared=compared,
        notes=(*answer.notes, *builder.notes),
        late=tuple(times.in_documents(again.outline, lock.epoch)),
    )


@contextlib.contextmanager
def _built(
    project: Project, lock: LockedImage, builder: Builder, buildkit: str, say: Say
) -> Iterator[tuple[Opened, builds.Built]]:
    """The second build, opened for reading; what it leaves is removed."""
    tag = f"{render.tag(project.plan.project, lock.id)}-{TAG}"
    with empty_builder.room(project.work.local) as folder:
        file = folder / "image.tar"
        target = file.relative_to(project.work.root)  # bake would take a comma in the project's own path for its own
        output = render.archive_output(project.work.read(render.BAKE), lock.id, str(target))
        settings = (f"tags={tag}",) if builder.loads else (f"tags={tag}", f"output={output}")
        try:
            with project.work.alone(say):
                made = builds.bake(
                    project.work,
                    builder.engine,
                    lock.id,
                    stage="runtime",
                    titles=render.step_titles(lock),
                    no_cache=True,
                    buildkit=buildkit,
                    say=say,
                    settings=settings,
                    log_name="reproduce",
                )
            opened = image_engine.image(builder.engine, tag, say) if builder.loads else image_open.file(str(file))
            with opened as again:
                yield again, made
        finally:
            if builder.loads and builder.state is State.SAME:
                containers.untag(builder.engine, tag)


def _compared(
    project: Project, lock: LockedImage, told: Receipt, found: Engine, again: Opened, look: bool, say: Say
) -> Compared:
    """What differs: file by file where the first image is still there, else by the ids of its layers."""
    for name in (told.digest, told.tag):
        known = containers.describe(found, name) if name else None
        if known is not None and tuple(known["RootFS"]["Layers"] or ()) == told.layers:
            with image_engine.image(found, name, say) as first:
                pair = _named(first, "the first build"), _named(again, "the second build")
                return comparison.of(*pair, epoch=lock.epoch, look=look, say=say)
    first_outline = Outline(name=told.tag, digest=told.digest, manifest={}, config={}, steps=())
    return Compared(
        first=first_outline,
        second=again.outline,
        differences=tuple(verdicts.by_ids(told.layers, again.outline)),
        epoch=lock.epoch,
        notes=(f"the first image is no longer in the engine, so files were not compared: ./yard build --id {lock.id}",),
    )


def _named(opened: Opened, name: str) -> Opened:
    return replace(opened, outline=replace(opened.outline, name=name))
