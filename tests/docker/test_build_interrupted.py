"""Ctrl-C and kill in the middle of lock, fetch and build: nothing half-written stays, and the next run goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone, Ended

pytestmark = pytest.mark.docker

SIGNALS = [signal.SIGINT, signal.SIGKILL]
SEED = 20260729
FILLED = r"""
mount -t tmpfs -o size=64m tmpfs .torchyard || exit 99
"$@"
code=$?
find .torchyard -type f -size +0 >&2
exit $code
"""


@pytest.fixture(scope="module")
def clone(place: Path, yard: Clone) -> Iterator[Clone]:
    """A clone with all fetched files and nothing made of them, on the engine that the others use."""
    made = Clone(root=place / "interrupted", engine=yard.engine, home=yard.home)
    clones.copy_checkout(yard.root, made.root)
    clones.seed(made, yard.store)
    yield made
    clones.end_tree(made.root)


def interrupt(clone: Clone, number: int, moment: Callable[[subprocess.Popen[str]], None], *arguments: str) -> Ended:
    """Start a command, wait for the moment, send the signal as a terminal or an administrator would."""
    child = clone.start(clone.argv(*arguments))
    try:
        moment(child)
        assert child.poll() is None, f"it ended before it was interrupted: {child.communicate()}"
        if number == signal.SIGINT:
            os.killpg(child.pid, number)
        else:
            os.kill(child.pid, number)
        out, err = child.communicate()
    finally:
        child.kill()
    assert child.returncode == (130 if number == signal.SIGINT else -number), err
    assert "Traceback" not in err
    return Ended(code=child.returncode, out=out, err=err)


def after_lines(count: int, first: str) -> Callable[[subprocess.Popen[str]], None]:
    """The moment when so many lines were printed from the one on that starts with `first`."""

    def wait(child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None
        seen: list[str] = []
        for line in child.stderr:
            if seen or line.startswith(first):
                seen.append(line)
            if len(seen) == count:
                return
        raise AssertionError(f"it ended after {len(seen)} of {count} lines: {''.join(seen)}")

    return wait


def after_bytes(clone: Clone, count: int) -> Callable[[subprocess.Popen[str]], None]:
    """The moment when a file of the store has grown to so many bytes and is not whole yet."""

    def wait(child: subprocess.Popen[str]) -> None:
        while child.poll() is None:
            if any(size >= count for size in incoming(clone).values()):
                return
            time.sleep(0.001)

    return wait


def incoming(clone: Clone) -> dict[str, int]:
    """The unfinished files of the store, and how large they are."""
    found = {}
    for path in (clone.store / "incoming").glob("*"):
        try:
            found[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def half_made(clone: Clone) -> list[str]:
    """Files and folders in images/ and .torchyard whose names say that they are not finished."""
    places = [clone.root / "images", *(clone.root / ".torchyard" / name for name in ("bases", "context", "receipts"))]
    found = [path for place in places for path in place.rglob("*") if path.name.startswith((".", "making-"))]
    return [str(path) for path in found] + list(incoming(clone))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_lock_changes_nothing(clone: Clone, number: signal.Signals) -> None:
    lines = random.Random(f"{SEED} lock {number}").randint(1, 4)
    interrupt(clone, number, after_lines(lines, "locking "), "lock", "--upgrade", "os", "--gpu", "cpu")
    assert clone.git("status", "--porcelain") == ""
    assert clone.spoiled() == []
    assert "unchanged" in clone.yard("lock", "--gpu", "cpu").good().out


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_fetch_goes_on_where_it_was(clone: Clone, number: signal.Signals) -> None:
    chance = random.Random(f"{SEED} fetch {number}")
    for name in ("bases", "context", "layers"):
        shutil.rmtree(clone.root / ".torchyard" / name, ignore_errors=True)
    lock = (clone.root / "images" / clone.image("cpu") / "lock.yaml").read_text()
    (torch,) = (clones.HEXADECIMAL.findall(line)[0] for line in lock.splitlines() if '{"name": "torch",' in line)
    for name in [torch, *chance.sample(sorted(set(clones.HEXADECIMAL.findall(lock)) - {torch}), 12)]:
        (clone.store / name[:2] / name).unlink(missing_ok=True)
    interrupt(clone, number, after_bytes(clone, chance.randint(1, 100_000_000)), "fetch", "--gpu", "cpu")
    assert clone.spoiled() == []
    assert number == signal.SIGKILL or half_made(clone) == []
    clone.yard("fetch", "--gpu", "cpu").good()
    assert clone.spoiled() == half_made(clone) == []
    assert clone.git("status", "--porcelain") == ""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_interrupted_build_leaves_no_receipt_and_the_next_one_makes_it(
    clone: Clone, cpu: dict[str, Any], number: signal.Signals
) -> None:
    receipts = clone.root / ".torchyard" / "receipts"
    shutil.rmtree(receipts, ignore_errors=True)
    lines = random.Random(f"{SEED} build {number}").randint(1, 6)
    interrupt(clone, number, after_lines(lines, "building "), "build", "--gpu", "cpu", "--no-cache")
    assert not list(receipts.glob("*"))
    assert clone.spoiled() == []
    clone.yard("build", "--gpu", "cpu", "--level", "identity").good()
    assert clone.receipt(clone.image("cpu")) == cpu
    assert half_made(clone) == []
    assert clone.docker("ps", "--all", "--quiet", "--filter", "label=torchyard.owned").good().out == ""


@pytest.mark.parametrize("verb", ["fetch", "build"])
def test_a_full_disk_is_said_with_both_numbers_before_anything_is_written(
    place: Path, yard: Clone, cpu: dict[str, Any], verb: str
) -> None:
    clone = Clone(root=place / "full", engine=yard.engine, home=yard.home)
    clones.copy_checkout(yard.root, clone.root)
    try:
        (clone.root / ".torchyard").mkdir()
        ended = clone.yard(verb, "--gpu", "cpu", before=["unshare", "--mount", "sh", "-c", FILLED, "sh"])
        assert ended.code == 3
        said, _, files = ended.err.partition(" hint: ")
        assert " needs about " in said and " of disk" in said and " MB are free" in said
        assert files.splitlines()[1:] == []
    finally:
        clones.end_tree(clone.root)
