"""What the last command of every build step does to times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

CLAMP = Path(__file__).parents[2] / "templates" / "steps" / "clamp.py"
EPOCH = 1_700_000_000
OLD = 1_600_000_000


def clamp(root: Path, epoch: int = EPOCH) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(CLAMP), str(root)],
        env={"SOURCE_DATE_EPOCH": str(epoch)},
        capture_output=True,
        text=True,
        check=False,
    )


def when(path: Path) -> int:
    return path.lstat().st_mtime_ns


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A new file, a new link and an old file, each in old folders of its own."""
    for folder in ("new/deep", "linked", "old"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "new/deep/file").write_text("x")
    (tmp_path / "linked/link").symlink_to("/nowhere")
    (tmp_path / "old/file").write_text("x")
    for path in ("old/file", "new/deep", "new", "linked", "old"):
        os.utime(tmp_path / path, (OLD, OLD))
    return tmp_path


def test_what_is_newer_gets_the_time_of_the_lock_and_what_is_older_keeps_its_own(tree: Path) -> None:
    assert clamp(tree).returncode == 0
    assert when(tree / "new/deep/file") == when(tree / "linked/link") == EPOCH * 10**9
    assert when(tree / "old/file") == when(tree / "old") == OLD * 10**9


def test_a_folder_that_holds_something_new_gets_that_time_whatever_its_own_was(tree: Path) -> None:
    # The overlay file system gives a folder back its former time when two processes work in it at once.
    clamp(tree)
    assert {when(tree / path) for path in ("new", "new/deep", "linked")} == {EPOCH * 10**9}


def test_a_part_of_a_second_after_the_lock_is_later(tree: Path) -> None:
    os.utime(tree / "old/file", ns=(EPOCH * 10**9 + 1, EPOCH * 10**9 + 1))
    clamp(tree)
    assert when(tree / "old/file") == when(tree / "old") == EPOCH * 10**9


def test_a_clock_before_the_lock_is_refused_because_new_and_old_cannot_be_told_apart(tree: Path) -> None:
    ended = clamp(tree, epoch=int(time.time()) + 3600)
    assert ended.returncode == 1
    assert "set it" in ended.stderr and "Traceback" not in ended.stderr
    assert when(tree / "old/file") == OLD * 10**9
