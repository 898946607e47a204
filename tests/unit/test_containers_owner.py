"""Whose container it is: only one whose process was here and is gone is left behind."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.verbs.run import mount
from torchyard.world import containers, devices


def test_this_process_is_not_gone() -> None:
    assert not containers.is_gone(containers.owner())


def owner_that_is_gone() -> str:
    """What a process of this machine called itself, which ended."""
    code = "from torchyard.world import containers; print(containers.owner())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_of_this_machine_that_ended_is_gone() -> None:
    assert containers.is_gone(owner_that_is_gone())


@pytest.mark.parametrize("label", ["", "17", "0123456789abcdef-999999999", "-", "a-b", "0123456789abcdef-"])
def test_what_another_machine_or_nobody_owns_is_left_alone(label: str) -> None:
    assert not containers.is_gone(label)


def test_another_users_process_is_not_gone() -> None:
    assert not containers.is_gone(f"{containers.owner().partition('-')[0]}-1")


@pytest.mark.parametrize("path", ["/a b", "/a:b", "/a,b", '/a"b', "/größe", "/a%20b"])
def test_a_mount_is_one_value_whatever_the_path_holds(path: str) -> None:
    flag, value = mount(Path(path), "/workspace", "readonly")
    assert flag == "--mount"
    (fields,) = csv.reader(io.StringIO(value, newline=""))
    assert fields == ["type=bind", f"source={path}", "target=/workspace", "readonly"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kind: nvidia.com/gpu\ndevices: [{name: '0'}, {name: all}]", {"0", "all"}),
        ("kind: vendor.com/net\ndevices: [{name: '0'}]", set()),
        ("kind: nvidia.com/gpu\ndevices: null", set()),
        ("kind: nvidia.com/gpu\ndevices: {a: 1}", set()),
        ("kind: nvidia.com/gpu\ndevices: [{}]", set()),
        ("[", set()),
        ("- 1", set()),
    ],
)
def test_gpus_are_those_of_a_sound_specification(tmp_path: Path, text: str, names: set[str]) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    (tmp_path / "notes.txt").write_text("kind: nvidia.com/gpu\ndevices: [{name: '9'}]")
    assert devices.cdi_devices([str(tmp_path), str(tmp_path / "gone")]) == names


def test_whether_limits_may_be_raised_is_known_here() -> None:
    assert devices.may_raise_limits() in (True, False)
    assert devices.memory() > 1 << 28
