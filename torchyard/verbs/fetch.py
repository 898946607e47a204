"""fetch: have everything that locks pin in the store, checked, and lay out the contexts of the builds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from .. import report
from ..errors import Surroundings
from ..lock import LockedImage
from ..world import archive, bases, context, sources, wheels
from . import lock as locking
from .project import Project


def fetch(project: Project, locks: Sequence[LockedImage], *, say: Callable[[str], None]) -> int:
    """Fetch what is missing for these images and lay out their contexts; answers how many bytes came."""
    means = locking.means(project, say)
    with project.work.alone(say):
        _check_room(project, locks)
        came = sum(_wheels(project, lock, say) + _debs(project, lock, say) for lock in locks)
        came += sum(_source(project, lock, say) for lock in locks)
        for lock in locks:
            context.lay_out(lock, bases.start(lock, means, dates=dict(lock.archives)), project.work, say=say)
    return came


def missing(project: Project, lock: LockedImage) -> int:
    """How many bytes a fetch of this image would bring."""
    return sum(size for sha256, size in lock.files().items() if not project.work.store.has(sha256, size))


def missing_base(project: Project, lock: LockedImage) -> int:
    """How many bytes a fetch would bring of the registry image that this one starts from."""
    found = bases.layers(lock, project.work.store)
    return sum(size for sha256, size in found.items() if not project.work.store.has(sha256, size))


def _check_room(project: Project, locks: Sequence[LockedImage]) -> None:
    """Raise Surroundings before anything is fetched where the disk that holds the store cannot take all of it."""
    needed = sum(
        missing(project, lock) + missing_base(project, lock) + context.unmade(lock, project.work) for lock in locks
    )
    free = shutil.disk_usage(project.work.local).free
    if needed > free:
        raise Surroundings(
            f"fetching {', '.join(lock.id for lock in locks)} needs about {report.size(needed)} of disk,"
            f" {report.size(free)} are free",
            where=str(project.work.local),
            hint="free some: ./yard clean removes what no lock pins, ./yard docker system prune what no image needs",
        )


def _wheels(project: Project, lock: LockedImage, say: Callable[[str], None]) -> int:
    pins = (*lock.wheels, *lock.dev_wheels, *lock.build_wheels)
    wanted = wheels.missing(pins, project.work.store)
    if not wanted:
        return 0
    bar = report.Bar(f"wheels of {lock.id}", sum(pin.size for pin in wanted))
    wheels.fetch(pins, project.work.store, locking.wheel_index(project), say=say, progress=lambda p: bar.to(p.done))
    bar.end()
    return sum(pin.size for pin in wanted)


def _source(project: Project, lock: LockedImage, say: Callable[[str], None]) -> int:
    work = project.work
    if lock.source is None or work.store.has(lock.source.sha256, lock.source.size):
        return 0
    session = locking.wheel_index(project).session
    sources.fetch(lock.source, work.store, session, sources.read_mirrors(work.mirrors), say)
    return lock.source.size


def _debs(project: Project, lock: LockedImage, say: Callable[[str], None]) -> int:
    wanted = {pin.sha256: pin for pin in lock.os if not project.work.store.has(pin.sha256, pin.size)}
    if not wanted:
        return 0
    total = sum(pin.size for pin in wanted.values())
    bar = report.Bar(f"packages of {lock.id}", total)
    archive.fetch(
        lock.os,
        os=lock.image.base.os,
        arch=lock.image.arch,
        archives=locking.archives(project, say),
        dates=dict(lock.archives),
        progress=bar.add,
    )
    bar.end()
    return total
