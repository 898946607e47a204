"""Reports of real failures with caches and disks while images are built, each with its right outcome."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from canned_locks import canned
from fake_engine import FakeEngine
from test_context import lay, ready
from test_reported_cases import ROWS

from torchyard import catalog, matrix, resolve
from torchyard.errors import Exit, Surroundings
from torchyard.lock import LockedImage
from torchyard.verbs import build
from torchyard.verbs.project import Project
from torchyard.world.workspace import Workspace

ENV = 'schema: 1\nproject: a\nsoftware: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\n'


def digest(folder: Path) -> str:
    """A hash of names, modes and bytes of a folder's files: what a builder's cache goes by."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)} {path.stat().st_mode:o} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def laid(place: Path, umask: int) -> tuple[Workspace, Any]:
    """The contexts of a build, made in a new clone."""
    old = os.umask(umask)
    try:
        work, made, base = ready(place)
        lay(work, made, base)
    finally:
        os.umask(old)
    return work, made


def test_b118_clones_of_any_umask_give_a_builder_the_same_and_one_changed_byte_another(tmp_path: Path) -> None:
    one, _ = laid(tmp_path / "one", 0o002)
    two, _ = laid(tmp_path / "two", 0o022)
    for path in (two.local / "context").rglob("*"):
        os.utime(path, (1, 1))  # an old clone
    assert digest(one.local / "context") == digest(two.local / "context")
    (changed, *_) = sorted(path for path in (two.local / "context" / "steps").iterdir() if path.name == "seal")
    text = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    assert digest(one.local / "context") != digest(two.local / "context")


def test_b120_a_disk_that_is_too_small_is_told_before_anything_with_both_numbers(tmp_path: Path) -> None:
    """The same with a disk that is really small is in test_build_interrupted.py."""
    (tmp_path / "env.yaml").write_text(ENV)
    (tmp_path / "data").mkdir()
    known = catalog.load()
    read = matrix.parse(ENV, files={}, known=resolve.names(known))
    plan = resolve.plan(read, known)
    project = Project(work=Workspace(tmp_path), matrix=read, catalog=known, plan=plan)
    lock = large(plan.images[0])
    with FakeEngine(info={"DockerRootDir": str(tmp_path / "data")}) as fake:
        with pytest.raises(Surroundings, match=r"needs about .* of disk .* are free") as caught:
            build.check_room(project, lock, fake.engine)
        assert {method for method, _ in fake.asked} == {"GET"}  # nothing is pruned
    assert caught.value.code is Exit.SURROUNDINGS
    assert "docker system df" in caught.value.hint and "./yard clean" in caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "env.yaml"]


def test_b120_a_build_needs_more_than_twice_its_wheels(tmp_path: Path) -> None:
    known = catalog.load()
    read = matrix.parse(ENV, files={}, known=resolve.names(known))
    plan = resolve.plan(read, known)
    project = Project(work=Workspace(tmp_path), matrix=read, catalog=known, plan=plan)
    lock = large(plan.images[0])
    to_fetch, to_build = build.needed(project, lock)
    assert to_fetch > 0 and to_build > 2 * sum(wheel.size for wheel in lock.wheels)


def large(image: Any) -> LockedImage:
    """A lock whose wheels fit on no disk."""
    made = canned(image)
    return replace(made, wheels=tuple(replace(pin, size=10**15) for pin in made.wheels))


def test_b122_no_step_mounts_a_cache_that_two_builds_could_write_at_once() -> None:
    """Every cache mount says how it is shared: test_reported_cases.py. Those of wheels and packages are read only."""
    for text in ROWS:
        for mount in text.replace("\\\n", " ").split("--mount=")[1:]:
            words = mount.split()[0].split(",")
            assert ("type=cache" in words and any(word.startswith("sharing=") for word in words)) or (
                "type=bind" in words and "rw" not in words and "readwrite" not in words
            ), mount
