"""./yard in a checkout as new: it sets up its environment, also when it is killed or started twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
MAIN = "import sys, docker, pydantic, yaml\nprint('ran', sys.argv[1:])\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout whose path has a space, with a package that only tells how it was called."""
    path = tmp_path_factory.mktemp("a b") / "clone"
    shutil.copytree(ROOT / "requirements", path / "requirements")
    shutil.copyfile(ROOT / "yard", path / "yard")
    (path / "yard").chmod(0o755)
    (path / "torchyard").mkdir()
    (path / "torchyard" / "__init__.py").touch()
    (path / "torchyard" / "__main__.py").write_text(MAIN)
    yield path
    shutil.rmtree(path)


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(checkout / "yard"), *arguments],
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_set_up_is_made_again_and_two_at_once_share_one(checkout: Path) -> None:
    killed = start(checkout, "build")
    while not (checkout / ".venv" / "torchyard-making").exists():
        assert killed.poll() is None
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (checkout / ".venv" / "torchyard-place").exists()

    both = [start(checkout, "build", "--gpu", "two words") for _ in range(2)]
    texts = [each.communicate() for each in both]
    assert [out for out, _ in texts] == ["ran ['build', '--gpu', 'two words']\n"] * 2
    assert sum("putting what torchyard needs" in err for _, err in texts) == 1


def test_a_second_run_says_and_does_nothing(checkout: Path) -> None:
    start(checkout, "build").communicate()
    again = start(checkout, "build")
    assert again.communicate() == ("ran ['build']\n", "")


def test_a_checkout_that_was_moved_gets_its_environment_anew(checkout: Path) -> None:
    start(checkout, "build").communicate()
    moved = checkout.with_name("moved")
    checkout.rename(moved)
    try:
        out, err = start(moved, "x").communicate()
        assert out == "ran ['x']\n"
        assert "putting what torchyard needs" in err
    finally:
        moved.rename(checkout)


def test_a_file_that_is_not_the_locked_one_is_refused(checkout: Path) -> None:
    file = checkout / "requirements" / "tool.txt"
    text = file.read_text()
    file.write_text("\n".join(_spoiled(line) for line in text.splitlines()) + "\n")
    try:
        refused = start(checkout, "build")
        out, err = refused.communicate()
        assert refused.returncode == 3
        assert out == ""
        assert "DO NOT MATCH THE HASHES" in err
        assert "hint: " in err
    finally:
        file.write_text(text)


def _spoiled(line: str) -> str:
    """The line with another hash."""
    head, mark, digest = line.partition("sha256:")
    return head + mark + digest.translate(str.maketrans("0123456789abcdef", "123456789abcdef0")) if mark else line
