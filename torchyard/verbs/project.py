"""What every verb begins with: the project's env.yaml resolved against the catalogue, and its locks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .. import catalog, lock, resolve
from .. import matrix as matrix_file
from ..catalog import Catalog
from ..errors import CheckFailed, InputError
from ..lock import LockedImage
from ..matrix import Matrix
from ..plan import Cell, CellState, Image, Plan
from ..world import catalog_files, env_file, workspace
from ..world.workspace import Workspace


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A workspace with its matrix, the catalogue that applies to it, and its plan."""

    work: Workspace
    matrix: Matrix
    catalog: Catalog
    plan: Plan


def load(start: Path | None = None) -> Project:
    """Read and resolve the project that holds the current folder."""
    work = workspace.find(start)
    known = catalog.load(catalog_files.texts(work.root))
    matrix = read_matrix(work.root, known)
    return Project(work=work, matrix=matrix, catalog=known, plan=resolve.plan(matrix, known))


def select(project: Project, *, gpu: str = "", image_id: str = "") -> list[Image]:
    """The images that a command is about: of one hardware entry, of one id, or all that are not refused."""
    if gpu and image_id:
        raise InputError("--gpu and --id were both given", hint="give one of them")
    if gpu:
        return [project.plan.image(chosen_cell(project.plan, gpu).image)]
    if image_id:
        ids = [image.id for image in project.plan.images]
        if image_id not in ids:
            raise InputError(f"no cell of env.yaml selects an image {image_id!r}", hint=_closest(image_id, ids))
        return [project.plan.image(image_id)]
    return list(project.plan.images)


def chosen_cell(plan: Plan, hardware: str) -> Cell:
    """The default cell of a hardware entry; raises for an unknown entry and for a refused cell."""
    cell = plan.cell(hardware)
    if cell is None:
        names = list(dict.fromkeys(c.hardware for c in plan.cells))
        raise InputError(
            f"env.yaml has no hardware entry {hardware!r}", where="env.yaml  hardware", hint=_closest(hardware, names)
        )
    if cell.state is CellState.REFUSED:
        raise resolve.refusal(cell)
    return cell


def lock_path(image_id: str) -> PurePosixPath:
    """Where the lock of an image is, from the repository's top."""
    return PurePosixPath("images") / image_id / "lock.yaml"


def read_lock(work: Workspace, image_id: str) -> LockedImage | None:
    """The lock of an image, or None where there is none."""
    path = lock_path(image_id)
    text = work.read(path)
    if text is None:
        return None
    found = lock.from_text(text, name=str(path))
    if found.id != image_id:
        raise InputError(
            f"{path} is the lock of {found.id}",
            where=str(path),
            hint=f"restore it from git, or remove {path} and run ./yard lock",
        )
    return found


def fresh_lock(work: Workspace, image: Image) -> LockedImage:
    """The lock of an image, made for just what env.yaml says now; raises where it is missing or stale."""
    path = lock_path(image.id)
    found = read_lock(work, image.id)
    if found is None:
        raise CheckFailed(f"{image.id} is not locked", where=str(path), hint=f"./yard lock --id {image.id}")
    if found.fingerprint != lock.fingerprint(image) or lock.plain(found.image) != lock.plain(image):
        raise CheckFailed(
            f"the lock of {image.id} was made for another env.yaml or catalogue", where=str(path), hint="./yard lock"
        )
    return found


def locks(work: Workspace, plan: Plan) -> list[LockedImage]:
    """The locks of the plan's images that have one, sorted by id."""
    found = (read_lock(work, image.id) for image in plan.images)
    return [each for each in found if each is not None]


def read_matrix(root: Path, known: Catalog) -> Matrix:
    """The matrix of the env.yaml in this folder."""
    read = env_file.read(root)
    return matrix_file.parse(read.text, files=read.files, known=resolve.names(known))


def _closest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
