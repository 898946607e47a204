"""The wheel of the tool, in an environment that has nothing else, for a repository that has nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import clones
import pytest

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a clone as a release would be."""
    room = tmp_path_factory.mktemp("release")
    clones.copy_checkout(clones.ROOT, room / "clone")
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(room), str(room / "clone")]
    subprocess.run(argv, check=True)
    (made,) = room.glob("torchyard-*.whl")
    return made


@pytest.fixture(scope="module")
def tool(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console command of an environment with the locked requirements and the wheel."""
    venv = tmp_path_factory.mktemp("tool") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    install = [str(venv / "bin" / "pip"), "install", "--quiet", "--no-deps"]
    locked = clones.ROOT / "requirements" / "tool.txt"
    subprocess.run([*install, "--require-hashes", "--requirement", str(locked)], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    return venv / "bin" / "torchyard"


@pytest.fixture(scope="module")
def repository(tool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty repository in which `torchyard init` was run."""
    folder = tmp_path_factory.mktemp("acme train")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    done = run(tool, folder, "init")
    assert done.returncode == 0, done.stderr
    return folder


def run(tool: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command; nothing of this checkout is on its path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(tool), *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_every_template_and_datum_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        packed = {name.removeprefix("torchyard/") for name in opened.namelist()}
    for folder, pattern in (("templates", "**/*"), ("torchyard/data", "**/*"), ("torchyard/inside", "*.py")):
        files = [path for path in (clones.ROOT / folder).glob(pattern) if path.is_file() and path.suffix != ".pyc"]
        names = {path.relative_to(clones.ROOT).as_posix().removeprefix("torchyard/") for path in files}
        assert names and names <= packed


def test_init_writes_what_a_repository_needs_and_keeps_what_is_there(tool: Path, repository: Path) -> None:
    assert {"env.yaml", "tasks.py", "schema"} <= {path.name for path in repository.iterdir()}
    (repository / "tasks.py").write_text("# mine\n")
    assert run(tool, repository, "init").returncode == 0
    assert (repository / "tasks.py").read_text() == "# mine\n"


def test_a_first_env_yaml_resolves(tool: Path, repository: Path) -> None:
    shown = run(tool, repository, "matrix", "--json")
    assert shown.returncode == 0, shown.stderr
    cells = json.loads(shown.stdout)["cells"]
    assert cells and all(cell["image"] for cell in cells)


def test_render_check_passes_before_anything_is_locked(tool: Path, repository: Path) -> None:
    checked = run(tool, repository, "render", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_wrong_option_is_the_users_mistake(tool: Path, repository: Path) -> None:
    wrong = run(tool, repository, "build", "--gpus", "a100")
    assert wrong.returncode == 2
    assert "hint: " in wrong.stderr and "Traceback" not in wrong.stderr
