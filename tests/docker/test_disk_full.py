"""A disk that is full under the store, images/, temporary files or the output: told, and the next run goes on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import clones
import pytest
import small_project
from small_cases import COMMANDS, NUMBERS, Cases, difference, own_registry, unfinished, wrong
from small_project import Small

pytestmark = pytest.mark.docker

PAGE = 4096
SIZE = 8 << 20  # of each small disk
ENGINE_SIZE = 3 << 30  # of that of an engine: a build begins only where there is a gigabyte more than it keeps


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
    with filler.open("wb", buffering=0) as file:
        if (most := shutil.disk_usage(folder).free - left - SIZE) > 0:
            os.posix_fallocate(file.fileno(), 0, most)
            file.seek(most)
        with contextlib.suppress(OSError):  # a disk also takes some for its own books
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
    ("build", ".torchyard", 0),
    ("build", ".torchyard", PAGE),
    ("bundle", "out.tar", 5 * PAGE),  # as with out.oci
    ("bundle", "out.tar", 14 * PAGE),
    ("load", ".torchyard", 5 * PAGE),
    ("load", ".torchyard", 14 * PAGE),
]


OUTPUTS = ("out.oci", "out.tar")


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
    if place in OUTPUTS:
        folder = at.root / "out"
        case = replace(case, arguments=(*case.arguments[:-1], f"out/{place}"))
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


def test_a_build_goes_on_elsewhere_where_temporary_files_have_no_room(cases: Cases) -> None:
    case = cases["build"]
    at = case.begins.copy(f"full-build-{next(NUMBERS)}")
    folder = at.root.parent / f"{at.root.name}-t"
    with small_disk(folder):
        fill(folder, 0)
        replace(at, env={**at.env, "TMPDIR": str(folder)}).yard(*case.arguments).good()
    assert difference(at.files(), case.after) == []
    clones.end_tree(at.root)


@pytest.fixture(scope="module")
def engine_on_small_disk() -> Iterator[tuple[dict[str, str], Path]]:
    """The variables of a private engine of its own, and its data folder, which is on a disk of a few gigabytes."""
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which needs root")
    with tempfile.TemporaryDirectory(prefix="yard-full-") as folder:
        image, home = Path(folder) / "disk", Path(folder) / "engine"
        (home / "data").mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(ENGINE_SIZE)  # a hole: it takes what is written, no more
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(home / "data")], check=True)
        variables = {"TORCHYARD_ENGINE": "private", "TORCHYARD_ENGINE_HOME": str(home)}
        engine = [sys.executable, "-m", "torchyard", "engine", "--down"]
        try:
            yield variables, home / "data"
        finally:
            subprocess.run(engine, cwd=small_project.ROOT, env={**os.environ, **variables}, check=True)
            subprocess.run(["umount", str(home / "data")], check=True)


@pytest.mark.parametrize("left", [0, 4 * PAGE])
def test_a_full_disk_of_the_engine_is_told_and_the_build_goes_on_when_there_is_room(
    cases: Cases, engine_on_small_disk: tuple[dict[str, str], Path], left: int
) -> None:
    variables, data = engine_on_small_disk
    at = cases["fetch"].ends.copy(f"full-engine-{next(NUMBERS)}", env=variables)
    build = COMMANDS["build"].arguments
    at.yard(*build).good()
    good = at.files()
    filler = fill(data, left)
    try:
        ended = at.yard(*build)
        if not left or ended.code:  # what the engine writes of a build that it knows may fit into a few pages
            told(ended, data)
    finally:
        filler.unlink()
    assert difference(at.files(), good) == []
    at.yard(*build).good()
    assert difference(at.files(), good) == []
    clones.end_tree(at.root)


def test_an_image_that_the_engine_has_no_room_for_is_not_begun(
    cases: Cases, engine_on_small_disk: tuple[dict[str, str], Path]
) -> None:
    variables, data = engine_on_small_disk
    case = cases["load"]
    at = case.begins.copy(f"full-engine-{next(NUMBERS)}", env=variables)
    at.yard("docker", "image", "rm", "--force", f"small:{at.image()}")
    filler = fill(data, PAGE)
    try:
        ended = at.yard(*case.arguments)
        told(ended, data)
        assert "in the engine needs" in ended.err
        assert wrong(at, case) == []
    finally:
        filler.unlink()
    at.yard(*case.arguments).good()
    assert difference(at.files(), case.after) == []
    clones.end_tree(at.root)


def told(ended: clones.Ended, folder: Path) -> None:
    """One error, with the place, or with what is needed and what is free, and with what frees some."""
    assert ended.code == 3, f"{ended.code}\n{ended.out}\n{ended.err}"
    assert "Traceback" not in ended.err
    assert f"\n{ended.err}".count("\nerror: ") == 1
    error = ended.err.rpartition("\nerror: ")[2]
    print(error)
    numbers = re.search(r"needs .* of disk.* are free", error)
    path = str(folder) in error and ("No space left on device" in error or "disk is " in error)
    assert numbers or path
    assert "free some: " in error and "./yard clean" in error


def whole(at: Small, after: dict[str, str], place: str) -> None:
    """The state is that of an unbroken run, but for the output, which is elsewhere here."""
    if place == "out.oci":
        made = at.root / "out" / "out.oci"
        blobs = list(made.rglob("blobs/sha256/*"))
        assert blobs and all(clones.digest_of(blob) == blob.name for blob in blobs)
    elif place == "out.tar":
        assert clones.digest_of(at.root / "out" / "out.tar") == after["out.tar"]
    else:
        assert difference(at.files(), after) == []
