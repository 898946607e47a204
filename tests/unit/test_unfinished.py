"""What is on its way to be a file or folder: nothing of it stays, and nothing of another process is taken."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchyard.world import unfinished
from torchyard.world.workspace import write_whole

HOLDS = """
import sys
from pathlib import Path
from torchyard.world import unfinished
with unfinished.{kind}(Path(sys.argv[1]), unfinished.beside(Path(sys.argv[1]) / "made")):
    print("holding", flush=True)
    sys.stdin.read()
"""


def holding(folder: Path, kind: str) -> subprocess.Popen[str]:
    """A process that is at work on something beside `made`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(kind=kind), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "holding\n"
    return child


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(tmp_path: Path, kind: str) -> None:
    dead, living = holding(tmp_path, kind), holding(tmp_path, kind)
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    write_whole(tmp_path / "made", b"whole")
    assert len(list(tmp_path.iterdir())) == 2 and (tmp_path / "made").read_bytes() == b"whole"
    living.communicate("")
    assert living.returncode == 0 and [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("name", [".made.swp", ".made.unfinished-", ".made.unfinished-12345678.bak", ".made.old"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    write_whole(tmp_path / "made", b"whole")
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_with_such_a_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / ".made.unfinished-12345678").symlink_to(tmp_path / "other")
    write_whole(tmp_path / "made", b"whole")
    assert (tmp_path / "other" / "file").exists()


def test_a_write_that_fails_for_lack_of_room_says_where(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, unfinished.file(tmp_path / "folder", "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "folder")
    assert list((tmp_path / "folder").iterdir()) == []


def test_folders_that_are_put_in_one_place_at_once_are_each_whole(tmp_path: Path) -> None:
    target = tmp_path / "made"

    def put(number: int) -> None:
        for _ in range(50):
            with unfinished.directory(tmp_path, unfinished.beside(target)) as folder:
                for name in ("one", "two"):
                    (folder / name).write_text(str(number))
                unfinished.put(folder, target)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert sorted(path.name for path in target.iterdir()) == ["one", "two"]
    assert (target / "one").read_text() == (target / "two").read_text()


def test_one_file_that_many_write_at_once_is_one_of_theirs(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_whole(tmp_path / "made", str(number).encode() * 9), range(200)))
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made").read_bytes() in {str(number).encode() * 9 for number in range(200)}
