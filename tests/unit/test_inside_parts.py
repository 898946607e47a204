"""What the probes read of a machine, from files and logs as machines have them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

INSIDE = Path(__file__).resolve().parents[2] / "torchyard" / "inside"
sys.path.insert(0, str(INSIDE))

import cgroup  # type: ignore[import-not-found]  # noqa: E402  (as in a container, where this folder is all there is)
from probes import caches, devices, fingerprint, libraries, mapped, ranks  # type: ignore  # noqa: E402

from torchyard.world import probing  # noqa: E402

ONE_ARGUMENT = 128 * 1024  # bytes that Linux takes as one argument of a program

MAPS = """\
7f1000-7f2000 r-xp 00000000 00:2f 12 /opt/venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1
7f2000-7f3000 r--p 00000000 00:2f 12 /opt/venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1
7f4000-7f5000 r-xp 00000000 00:2f 13 /opt/my libs/libiomp5.so (deleted)
7f6000-7f7000 r-xp 00000000 00:2f 14 /usr/lib/x86_64-linux-gnu/libc.so.6
7f8000-7f9000 rw-p 00000000 00:00 0
7f8000-7f9000 r--p 00000000 00:2f 15 /opt/openblas/notes.txt
"""
NCCL = """\
host:71:71 [0] NCCL INFO NET/IB : No device found.
host:71:71 [0] NCCL INFO Using network Socket
host:71:98 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
host:71:98 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct
"""


def tree(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4.0),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5),
        ({"proc/self/cgroup": "0::/gone\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3.0),
        ({}, None),
    ],
)
def test_a_quota_of_cpus_is_read_in_both_versions_of_control_groups(
    tmp_path: Path, files: dict[str, str], cpus: float | None
) -> None:
    assert cgroup.cpus(tree(tmp_path, files)) == cpus


@pytest.mark.parametrize(
    ("files", "limit", "kills", "version"),
    [
        (
            {
                "sys/fs/cgroup/memory.max": "1073741824\n",
                "sys/fs/cgroup/memory.events": "oom 3\noom_kill 2\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            },
            1 << 30,
            2,
            2,
        ),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
                "sys/fs/cgroup/cpu/cpu.shares": "1024\n",
            },
            None,
            1,
            1,
        ),
        ({}, None, 0, 0),
    ],
)
def test_memory_and_kills_for_want_of_it_are_read_in_both_versions(
    tmp_path: Path, files: dict[str, str], limit: int | None, kills: int, version: int
) -> None:
    root = tree(tmp_path, files)
    assert (cgroup.memory(root), cgroup.oom_kills(root), cgroup.version(root)) == (limit, kills, version)


def test_libraries_that_are_mapped_are_each_named_once() -> None:
    assert mapped(MAPS) == [
        "/opt/my libs/libiomp5.so",
        "/opt/venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1",
    ]


def test_the_build_of_torch_names_its_libraries() -> None:
    shown = "PyTorch built with:\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605\n"
    shown += "  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa)\n  - Build settings: BLAS_INFO=mkl, USE_NCCL=OFF, \n"
    assert libraries.config(shown) == {
        "BLAS_INFO": "mkl",
        "USE_NCCL": "OFF",
        "mkl": "2024.2-Product",
        "onednn": "3.12.0",
    }


def test_a_cpu_is_its_maker_and_the_features_that_choose_code() -> None:
    text = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 fma avx512f sse\n\nprocessor\t: 1\nflags\t: x\n"
    )
    assert fingerprint.cpu(text) == ("AuthenticAMD", "avx2 fma avx512f")
    assert fingerprint.cpu("CPU implementer\t: 0x41\nFeatures\t: fp asimd sve\n") == ("0x41", "asimd sve")


def test_nccls_log_names_its_ways() -> None:
    assert ranks.transport(NCCL) == ["NET/Socket", "P2P/CUMEM", "SHM/direct/direct"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC", "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
        ("", ""),
    ],
)
def test_the_kernel_module_tells_the_driver(text: str, version: str) -> None:
    assert devices.of_module(text) == version


def test_the_slices_of_cards_are_those_that_nvidia_smi_lists() -> None:
    listed = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-a1b2)
"""
    assert devices.slices(listed) == [["NVIDIA A100-SXM4-40GB", ["3g.20gb", "3g.20gb"]]]
    assert devices.slices("No devices were found\n") == []


def test_a_folder_is_tried_without_leaving_anything(tmp_path: Path) -> None:
    assert caches.tried(str(tmp_path / "a" / "b")) == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert caches.tried(str(tmp_path / "file" / "below")) != ""


def test_all_probes_fit_in_one_argument() -> None:
    assert len(probing.bundle()) < ONE_ARGUMENT / 2


@pytest.mark.parametrize("path", sorted(INSIDE.rglob("*.py")), ids=lambda path: path.stem)
def test_what_runs_inside_imports_nothing_of_this_package(path: Path) -> None:
    names: list[Any] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
    assert not [name for name in names if str(name).startswith("torchyard")]


def test_every_probe_has_a_limit_and_a_setting() -> None:
    files = {path.stem for path in (INSIDE / "probes").glob("*.py")} - {"__init__"}
    assert files == {*probing.LIMITS, *probing.ON_GPU}
    assert set(probing.LIMITS) == set(probing.PROBES["user"])
