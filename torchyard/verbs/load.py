"""load: an archive that `bundle` made: its files into the store, or the finished image into the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import receipt, render, report
from ..errors import CheckFailed
from ..receipt import Receipt
from ..world import bundle_file, engine, image_deliver, registry_taking
from ..world.bundle_file import Loaded
from ..world.workspace import write_whole
from . import tiers
from .project import Project

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What was loaded, in words, and what comes next."""

    words: str
    next: str


def load(project: Project, file: Path, *, say: Say) -> Done:
    """Take over what is in an archive, each file checked against its name."""
    with project.work.alone(say):
        say(f"reading {file.name}")
        bar = report.Bar(file.name, file.stat().st_size if file.is_file() else 0)
        found = bundle_file.load(file, project.work.store, progress=bar.add)
        bar.end()
    if found.made is None:
        return _image(project, found, file, say)
    images = ", ".join(found.made.images)
    return Done(words=f"{found.files} new files for {images} in the store", next="./yard build --offline")


def _image(project: Project, found: Loaded, file: Path, say: Say) -> Done:
    """The finished image in the engine under its name here; its receipt too where it is of the lock that is here."""
    told = _receipt(found.receipt, file)
    result = registry_taking.read(found.manifest)
    seen = registry_taking.layer_ids(result, project.work.store)
    if told.layers != seen or told.digest not in ("", result.digest):
        raise CheckFailed(
            f"{file.name} has {result.digest}, its receipt is of {told.digest or told.layers[-1]}",
            where=str(file),
            hint="it was changed: copy it anew",
        )
    name = render.tag(project.plan.project, told.image)
    image_deliver.to_docker(engine.ensure(say), result, name, project.work.store)
    if "/" not in told.image and tiers.lock_hash(project.work, told.image) == told.lock:
        write_whole(tiers.receipt_path(project.work, told.image), found.receipt.encode())
    return Done(words=f"{name} is {result.digest}", next=f"./yard docker run --rm {name} python -c 'import torch'")


def _receipt(text: str, file: Path) -> Receipt:
    try:
        return receipt.from_text(text)
    except ValueError as error:
        raise CheckFailed(f"{file.name}: {error}", where=str(file), hint="copy it anew") from error


def show(done: Done) -> None:
    """What was loaded, and what comes next."""
    report.lines([done.words, f"next: {done.next}"])
