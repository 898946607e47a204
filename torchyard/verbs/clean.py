"""clean: free what this project keeps locally and can make or fetch again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from . import project as projects
from .project import Project


def clean(project: Project, *, everything: bool, say: Callable[[str], None]) -> int:
    """Remove laid-out contexts, and the files of the store that no lock pins; everything: the whole store. Bytes freed.

    Receipts and logs stay.
    """
    with project.work.alone(say):
        return _clean(project, everything)


def _clean(project: Project, everything: bool) -> int:
    work = project.work
    before = _used(work.local)
    for folder in ("context", "overlay", "run"):
        shutil.rmtree(work.local / folder, ignore_errors=True)
    if everything:
        for folder in ("store", "layers", "bases", "archives", "tool-wheels"):
            shutil.rmtree(work.local / folder, ignore_errors=True)
    else:
        _unpinned(project)
    return before - _used(work.local)


def _unpinned(project: Project) -> None:
    """Remove stored files that no lock pins; layers made of wheels are made again from them in seconds."""
    pinned = {sha256 for lock in projects.locks(project.work, project.plan) for sha256 in lock.files()}
    root = project.work.store.root
    for path in [*root.glob("*/*"), *root.glob("incoming/*")]:
        if path.name not in pinned:
            path.unlink(missing_ok=True)
    shutil.rmtree(project.work.local / "layers", ignore_errors=True)


def _used(folder: Path) -> int:
    """Bytes on disk below a folder, hard links counted once."""
    seen = {}
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file() and not path.is_symlink():
            found = path.stat()
            seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())
