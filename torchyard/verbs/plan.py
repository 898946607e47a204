"""plan: which images a change would make anew, how much is fetched, roughly how long; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from .. import forecast, receipt, render, report
from ..forecast import Forecast, Seen
from ..lock import LockedImage
from ..plan import Image
from . import lock as locking
from . import project as projects
from .project import Project

HEAD = ("image", "for", "rebuilt", "fetch", "time", "why")


def plan(project: Project, images: Sequence[Image]) -> list[Forecast]:
    """What would happen to each of these images."""
    return [forecast.forecast(_seen(project, image)) for image in images]


def gone(project: Project) -> list[str]:
    """The images that have files here and that no cell selects any more."""
    wanted = {image.id for image in project.plan.images}
    return sorted({path.parts[1] for path in project.work.generated() if len(path.parts) == 3} - wanted)


def document(project: Project, made: Sequence[Forecast]) -> dict[str, Any]:
    """The forecasts as data."""
    return {
        "images": [
            {
                "id": each.image,
                "hardware": list(project.plan.sharers(each.image)),
                "change": each.change.value,
                "rebuilt": each.rebuilt,
                "built_here": each.built,
                "why": list(each.why),
                "fetch_bytes": each.fetch,
                "seconds": each.seconds,
            }
            for each in made
        ],
        "gone": gone(project),
        "assumed": {
            "fetch_bytes_per_second": forecast.FETCH_RATE,
            "build_bytes_per_second": forecast.BUILD_RATE,
            "build_seconds": forecast.BUILD_BASE,
        },
    }


def table(project: Project, made: Sequence[Forecast]) -> list[tuple[str, ...]]:
    """The lines under `HEAD`."""
    return [
        (
            each.image,
            ", ".join(project.plan.sharers(each.image)),
            "yes" if each.rebuilt else "no" if each.built else "not built here",
            "unknown until it is locked"
            if each.fetch is None
            else report.size(each.fetch)
            if each.fetch
            else "nothing",
            _time(each),
            "; ".join(each.why) or "-",
        )
        for each in made
    ]


def summary(project: Project, made: Sequence[Forecast]) -> list[str]:
    """The sums, what is not in them, and what they assume."""
    rebuilt = [each for each in made if each.rebuilt]
    fetch = sum(each.fetch or 0 for each in made)
    unknown = sum(each.fetch is None for each in made)
    more = f", and what {unknown} more will pin when they are locked" if unknown else ""
    lines = [f"{len(rebuilt)} of {len(made)} images would be rebuilt; to fetch: {report.size(fetch)}{more}"]
    lines += [f"{image}: no cell selects it any more; render removes its files" for image in gone(project)]
    return [*lines, forecast.ASSUMED]


def _time(each: Forecast) -> str:
    if each.seconds is None:
        return "unknown"
    return "-" if each.seconds == 0 else f"about {max(1, round(each.seconds / 60))} min"


def _seen(project: Project, image: Image) -> Seen:
    found = projects.read_lock(project.work, image.id)
    if found is None:
        return Seen(image=image, lock=None, stale=(), drift=(), missing=0, built=False)
    store = project.work.store
    return Seen(
        image=image,
        lock=found,
        stale=tuple(locking.stale(found, image)),
        drift=_drift(project, found),
        missing=sum(size for digest, size in found.files().items() if not store.has(digest, size)),
        built=_built(project, found),
    )


def _drift(project: Project, found: LockedImage) -> tuple[str, ...]:
    wanted = render.image_files(found, project.work.template)
    there = {path: project.work.read(path) for path in wanted}
    return tuple(render.drift(wanted, there))


def _built(project: Project, found: LockedImage) -> bool:
    """Whether there is a receipt here for the lock as it is now."""
    text = project.work.read(PurePosixPath(".torchyard/receipts") / f"{found.id}.json")
    locked = project.work.read(projects.lock_path(found.id)) or ""
    try:
        return text is not None and receipt.from_text(text).lock == sha256(locked.encode()).hexdigest()
    except ValueError:
        return False
