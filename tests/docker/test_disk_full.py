"""A disk that is full under the store, images/, temporary files or the output: told, and the next run goes on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import clones
import pytest
from small_cases import NUMBERS, Cases, difference, own_registry, unfinished, wrong
from small_project import Small

pytestmark = pytest.mark.docker

PAGE = 4096
SIZE = 8 << 20  # of each small disk


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A small disk in the place of a folder, with what is in it."""
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which needs root")
    folder.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent.parent))
    shutil.copytree(folder, aside, symlinks=True, dirs_exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)
    try:
        shutil.copytree(aside, folder, symlinks=True, dirs_exist_ok=True)
        yield
    finally:
        shutil.rmtree(aside)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, left: int) -> Path:
    """A file that leaves so many bytes of the disk of this folder."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(folder).free - left)))
    return filler


# The command, the folder that is on the small disk, and how many bytes it still takes.
FULL = [
    ("lock", ".torchyard", 0),
    ("lock", ".torchyard", 9 * PAGE),
    ("lock", "images", 0),
    ("lock", "images", 2 * PAGE),
    ("lock", "TMPDIR", 2 * PAGE),
    ("fetch", ".torchyard", 16 * PAGE),
    ("render", "images", 0),
    ("push", ".torchyard", 3 * PAGE),
    ("push", "images", 0),
    ("pull", ".torchyard", 5 * PAGE),
    ("pull", "out.oci", 5 * PAGE),  # less than its blobs have
    ("pull", "out.oci", 14 * PAGE),  # and not enough for the files that these are in
]


@pytest.mark.parametrize(("name", "place", "left"), FULL)
def test_a_full_disk_is_told_and_the_command_goes_on_when_there_is_room(
    cases: Cases, name: str, place: str, left: int
) -> None:
    case = cases[name]
    at = case.begins.copy(f"full-{name}-{next(NUMBERS)}")
    at = own_registry(at) if name == "push" else at
    folder = at.root.parent / f"{at.root.name}-t" if place == "TMPDIR" else at.root / place
    if place == "TMPDIR":
        at = replace(at, env={**at.env, "TMPDIR": str(folder)})
    if place == "out.oci":
        folder = at.root / "out"
        case = replace(case, arguments=(*case.arguments[:-1], "out/out.oci"))
    with small_disk(folder):
        filler = fill(folder, left)
        ended = at.yard(*case.arguments)
        told(ended, folder)
        filler.unlink()
        assert wrong(at, case) == []
        assert [name for name in at.files() if unfinished(Path(name))] == []
        at.yard(*case.arguments).good()
        whole(at, case.after, place)
    clones.end_tree(at.root)


def told(ended: clones.Ended, folder: Path) -> None:
    """One error, with the place, or with what is needed and what is free."""
    assert ended.code == 3, f"{ended.code}\n{ended.out}\n{ended.err}"
    assert "Traceback" not in ended.err
    assert f"\n{ended.err}".count("\nerror: ") == 1
    error = ended.err.rpartition("\nerror: ")[2]
    print(error)
    numbers = re.search(r"needs .* of disk.* are free", error)
    path = str(folder) in error and ("No space left on device" in error or "disk is " in error)
    assert numbers or path


def whole(at: Small, after: dict[str, str], place: str) -> None:
    """The state is that of an unbroken run, but for the output, which is elsewhere here."""
    if place == "out.oci":
        made = at.root / "out" / "out.oci"
        blobs = list(made.rglob("blobs/sha256/*"))
        assert blobs and all(clones.digest_of(blob) == blob.name for blob in blobs)
    else:
        assert difference(at.files(), after) == []
