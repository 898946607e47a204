"""What verbs answered, for people or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .. import report
from ..lock import LockedImage
from ..plan import Image
from ..receipt import Receipt
from . import matrix as matrices
from .project import Project

if TYPE_CHECKING:
    from .lock import Outcome  # reaches the archives, the indexes and the engine, which showing does not

say = report.say


def receipts(project: Project, made: Sequence[Receipt]) -> None:
    """One row an image: who shares it, how far it was proven, its size and digest."""
    rows = []
    for each in made:
        passed = sum(f.state.value == "pass" for f in each.findings)
        rows.append(
            (
                each.image,
                ", ".join(project.plan.sharers(each.image)),
                f"{each.level}: {passed} of {len(each.findings)} pass",
                report.size(each.size) if each.size else "-",
                each.digest or f"(no digest kept by this engine) {each.layers[-1]}",
            )
        )
    report.table(("image", "for", "checked", "size", "digest"), rows)
    report.lines([f"overruled in {each.image}: {rule}: {why}" for each in made for rule, why in each.allowed])
    for each in made:
        report.lines([f"run it:  ./yard docker run --rm {each.tag} python -c 'import torch; print(torch.__version__)'"])


def locked(outcome: Outcome) -> None:
    """One row an image, and the files that changed."""
    report.table(("image", "lock"), outcome.images)
    written(outcome.written)


def written(paths: Sequence[PurePosixPath]) -> None:
    """The files that changed, or that none did."""
    report.lines([f"wrote {path}" for path in paths] or ["nothing changed"])


def fetched(project: Project, locks: Sequence[LockedImage], came: int) -> None:
    """How much came, and how to go on without torchyard."""
    report.lines([f"fetched {report.size(came)}" if came else "nothing to fetch: everything is in the store"])
    report.table(
        ("image", "wheels", "packages"), [(x.id, str(len(x.wheels) + len(x.dev_wheels)), str(len(x.os))) for x in locks]
    )


def engine(*, up: bool, down: bool, env: bool, purge: bool, as_json: bool) -> None:
    """Do what was asked of the engine and say how it is."""
    from . import engine as engines

    if env:
        return print(engines.env(say), end="")
    if down:
        return say("stopped" if engines.down(say, purge=purge) else "no private engine was running")
    if up:
        engines.up(say)
    status = dataclasses.asdict(engines.status())
    if as_json:
        return report.as_json(status)
    return report.table(("engine", ""), [(k, str(v)) for k, v in status.items()])


def matrix(project: Project, *, as_json: bool) -> None:
    """Every cell: the image it selects and who shares it, or why it is refused and what works instead."""
    if as_json:
        return report.as_json(matrices.document(project.plan))
    return report.table(matrices.HEAD, matrices.table(project.plan))


def planned(project: Project, images: Sequence[Image], *, as_json: bool) -> None:
    """What a change would make anew, fetch and take; what nobody can know yet is said to be unknown."""
    from . import plan as plans

    made = plans.plan(project, images)
    if as_json:
        return report.as_json(plans.document(project, made))
    report.table(plans.HEAD, plans.table(project, made))
    return report.lines(["", *plans.summary(project, made)])


def ci_matrix(project: Project, *, style: str, since: str) -> None:
    """A CI matrix of the images whose lock changed since a commit, or of all images."""
    changed = matrices.changed_since(project.work.root, since) if since else {i.id for i in project.plan.images}
    report.as_json(matrices.ci(project.plan, changed, style))


def started(root: Path) -> None:
    """Write a first env.yaml and say what was written and what comes next."""
    from . import init as initial

    made = initial.init(root)
    gpus = ", ".join(made.gpus) or "none seen"
    report.lines([f"GPUs: {gpus}" + (f" (driver {made.driver})" if made.driver else "")])
    report.lines([f"wrote {name}" for name in made.written] + [f"kept {name}, which was there" for name in made.kept])
    report.lines(["next: look at env.yaml, then: torchyard matrix, torchyard build"])
