"""render: write the recipes that follow from the locks, or say what differs from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from .. import lock, report, stack_files
from .. import render as rendering
from ..errors import CheckFailed, InputError, raise_all
from ..lock import LockedImage
from ..world import stack_tree
from . import project as projects
from .project import Project


def render(project: Project) -> list[PurePosixPath]:
    """Write every generated file whose text changed, remove those of images that are gone; answers the paths."""
    with project.work.alone(report.say):
        wanted = files(project, projects.locks(project.work, project.plan))
        written = project.work.write_tree(wanted)
        known = {**project.work.generated(), **stack_tree.generated(project.work)}
        gone = [path for path in known if path not in wanted]
        for path in gone:
            project.work.remove(path)
    return [*written, *gone]


def check(project: Project) -> None:
    """Raise CheckFailed for every generated file that is not what locks and templates make; writes nothing."""
    locked = projects.locks(project.work, project.plan)
    wanted = files(project, locked)
    found = {path: project.work.read(path) for path in wanted}
    found |= {**project.work.generated(), **stack_tree.generated(project.work)}
    if not locked and not any(found.values()):
        return  # a project that has not locked anything yet has nothing that could differ
    told = [CheckFailed(line, hint="./yard render") for line in rendering.drift(wanted, found)]
    for image in project.plan.images:
        if projects.lock_path(image.id) not in wanted:
            told.append(CheckFailed(f"{image.id} is not locked", hint="./yard lock"))
    raise_all(told)


def files(project: Project, done: Sequence[LockedImage]) -> dict[PurePosixPath, str]:
    """Every file that these locks make: the locks themselves, the recipes, what all images share."""
    made: dict[PurePosixPath, str] = {}
    for each in done:
        made[projects.lock_path(each.id)] = lock.to_text(each)
        made.update(rendering.image_files(each, project.work.template))
    made.update(rendering.shared_files(done, project.plan))
    made[PurePosixPath("env.lock.yaml")] = lock.shared_text(done)
    made.update(_stacks(project))
    return made


def _stacks(project: Project) -> dict[PurePosixPath, str]:
    """The files of the stacks; a compose.yaml of the user's own is left alone, anything else in the way is said."""
    made = stack_files.files(project.plan, project.matrix, project.work.template)
    own = [path for path in made if stack_tree.is_own(project.work, path)]
    for path in own:
        if path.name != "compose.yaml":
            raise InputError(
                f"{path} is there and was not made by torchyard", where=str(path), hint="move it, then ./yard render"
            )
        del made[path]
    return made
