"""A first env.yaml, and the reading of one from a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard import catalog, first_env, matrix, resolve
from torchyard.errors import InputError
from torchyard.plan import CellState
from torchyard.verbs.init import init
from torchyard.world import env_file, host_gpu

CATALOG = catalog.load()
LAB = first_env.Seen(
    driver="580.65.06",
    gpus=(
        ("NVIDIA GeForce RTX 4090", 24564), ("NVIDIA GeForce RTX 4090", 24564), ("Tesla V100-SXM2-32GB", 32768),
        ("NVIDIA A100-SXM4-80GB", 81920), ("Quadro K600", 1024),
    ),
)  # fmt: skip
SMI = "580.65.06, NVIDIA GeForce RTX 4090, 24564\n580.65.06, NVIDIA GeForce RTX 4090, [N/A]\n"


@pytest.mark.parametrize(
    "seen",
    [LAB, first_env.Seen(), first_env.Seen(arch="aarch64"), first_env.Seen(driver="x; id", gpus=(("a\nb: {}", 1),))],
)
def test_a_first_file_is_right_and_nothing_in_it_is_refused(seen: first_env.Seen) -> None:
    text = first_env.text(seen, CATALOG, "My Lab")
    plan = resolve.plan(matrix.parse(text, known=resolve.names(CATALOG)), CATALOG)
    assert plan.project == "my-lab"
    assert all(cell.state is not CellState.REFUSED for cell in plan.cells)


def test_a_first_file_has_each_gpu_of_the_host_with_its_number() -> None:
    plan = resolve.plan(matrix.parse(first_env.text(LAB, CATALOG, "x")), CATALOG)
    assert [(c.hardware, c.count) for c in plan.cells] == [
        ("cpu", 1), ("rtx-4090", 2), ("v100-sxm2-32gb", 1), ("a100-sxm4-80gb", 1),
    ]  # fmt: skip


def test_init_writes_what_is_not_there_and_keeps_what_is(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine")
    first = init(tmp_path)
    assert (first.written, first.kept) == (("env.yaml", "schema/env.schema.json"), ("tasks.py",))
    assert (tmp_path / "tasks.py").read_text() == "mine"
    read = env_file.read(tmp_path)
    assert matrix.parse(read.text, files=read.files, known=resolve.names(CATALOG)).cells
    assert init(tmp_path).written == ()


def test_what_nvidia_smi_prints_is_read() -> None:
    found = host_gpu.parse_smi(SMI)
    assert found is not None
    assert (found.driver, [(gpu.name, gpu.memory_mib) for gpu in found.gpus]) == (
        "580.65.06", [("NVIDIA GeForce RTX 4090", 24564), ("NVIDIA GeForce RTX 4090", 0)],
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate\n"]
)
def test_what_is_no_list_of_gpus_is_none(text: str) -> None:
    assert host_gpu.parse_smi(text) is None


def folder(root: Path, text: str = "packages: {pip: r.txt}\nextend: x\n") -> Path:
    """A folder with this env.yaml."""
    (root / "env.yaml").write_text(text)
    return root


def test_what_env_yaml_names_is_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("numpy\n")
    assert env_file.read(folder(tmp_path)).files == {"r.txt": "numpy\n", "x": None}


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "x").symlink_to(tmp_path / "secret")
    (inside / "r.txt").mkdir()
    assert env_file.read(folder(inside)).files == {"r.txt": None, "x": None}


def test_a_pipe_in_the_place_of_a_named_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    assert env_file.read(folder(tmp_path)).files["x"] is None


def test_what_is_no_file_in_the_place_of_env_yaml_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no env\.yaml"):
        env_file.read(tmp_path)
    os.mkfifo(tmp_path / "env.yaml")
    with pytest.raises(InputError, match="is a pipe, device or socket"):
        env_file.read(tmp_path)
    (tmp_path / "env.yaml").unlink()
    (tmp_path / "env.yaml").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        env_file.read(tmp_path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "env.yaml").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(InputError, match="the limit, which is"):
        env_file.read(tmp_path)
