"""The start-up: what ./yard installs is locked, and only the user's indexes are taken from his pip configuration."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("tool", "dev")
SETTINGS = """\
:env:.cert='/etc/house.pem'
:env:.constraint='/env/constraints.txt'
global.cert='/etc/other.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='\\nhttps://a.example.com/simple\\nhttps://b.example.com/simple'
global.index-url='https://me:pass=word@i.example.com/simple'
global.target='/somewhere'
install.index-url='https://install.example.com/simple'
"""


@pytest.fixture(scope="module")
def make_venv() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_venv", ROOT / "requirements" / "make_venv.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_link_in_place_of_the_environment_is_refused_and_what_it_leads_to_stays(
    make_venv: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("kept")
    monkeypatch.setattr(make_venv, "VENV", tmp_path / ".venv")
    for name in ("PLACE", "MAKING"):
        monkeypatch.setattr(make_venv, name, tmp_path / ".venv" / name.lower())
    (tmp_path / ".venv").symlink_to(other)
    with pytest.raises(SystemExit) as ended:
        make_venv.make("tool", 0)
    assert ended.value.code == 3
    assert "is a link to" in capsys.readouterr().err
    assert (other / "kept").read_text() == "kept"


def pins(kind: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


def test_only_where_packages_come_from_is_taken_from_pips_configuration(make_venv: ModuleType) -> None:
    environment = {
        "PATH": "/bin",
        "PIP_CONSTRAINT": "/env/constraints.txt",
        "PIP_USER": "1",
        "PIP_CERT": "/etc/house.pem",
    }
    assert make_venv.pip_environment(SETTINGS, environment) == {
        "PATH": "/bin",
        "PIP_CERT": "/etc/house.pem",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "https://a.example.com/simple https://b.example.com/simple",
        "PIP_INDEX_URL": "https://install.example.com/simple",
    }


@pytest.mark.parametrize("kind", LOCKS)
def test_every_dependency_is_locked_within_what_the_project_asks_for(kind: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = pins(kind)
    for requirement in map(Requirement, project["project"]["dependencies"]):
        assert locked[requirement.name.lower()] in requirement.specifier


def test_tests_run_on_the_versions_that_users_have() -> None:
    assert pins("tool").items() <= pins("dev").items()


@pytest.mark.parametrize("kind", LOCKS)
def test_every_locked_file_has_a_hash_and_none_an_address(kind: str) -> None:
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE)
    for block in re.split(r"\n(?=[a-z])", text):
        assert "==" not in block or "--hash=sha256:" in block, block


def test_the_start_up_is_a_plain_posix_script() -> None:
    assert (ROOT / "yard").read_text().startswith("#!/bin/sh\n")
    assert (ROOT / "yard").stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(ROOT / "yard")], check=False).returncode == 0
