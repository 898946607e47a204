"""Reports of real failures with BLAS, OpenMP and CPU threads, each with its right outcome."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from canned_locks import canned
from test_reported_cases import planned, recipes
from test_stack_launch import load

from torchyard import groups
from torchyard.errors import Exit, Surroundings
from torchyard.world import engine

launch: Any = load("launch")
MKL = 'software: {torch: "2.14.1"}\nhardware: {a: {gpu: a100, cuda: "13.0", build: source, blas: mkl}}\n'


def test_b054_a_compiled_torch_has_mkl_inside_and_loads_none_that_could_lack_a_symbol() -> None:
    (image,) = planned(MKL).images
    assert image.blas == "mkl"
    assert any(line.startswith("mkl-static") for line in groups.build_wheels(image))
    (recipe,) = recipes(planned(MKL))
    assert 'USE_STATIC_MKL="1"' in recipe
    assert all(pin.name not in ("mkl", "intel-openmp") for pin in canned(image).wheels)


def test_b054_mkl_for_other_packages_beside_a_wheel_of_torch_is_no_problem() -> None:
    more = 'software: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\npackages: {pip: ["mkl==2024.1.0"]}\n'
    (image,) = planned(more).images
    assert image.packages.pip == ("mkl==2024.1.0",)


def test_b056_an_engine_in_which_no_thread_starts_is_told_and_limits_are_not_the_cause() -> None:
    with pytest.raises(Surroundings, match=r"Docker 20\.10\.7 .*thread .*operation not permitted") as caught:
        engine.check_threads("20.10.7")
    assert caught.value.code is Exit.SURROUNDINGS
    assert "upgrade Docker" in caught.value.hint and "ulimit" in caught.value.hint


@pytest.mark.parametrize("version", ["20.10.10", "20.10.24+dfsg1", "25.0.0", "28.5.2", "4.9.3", "dev", ""])
def test_b056_a_newer_engine_is_silent(version: str) -> None:
    engine.check_threads(version)


@pytest.mark.parametrize(
    ("files", "ranks", "each"),
    [
        ({"cpu.max": "400000 100000"}, 2, 2),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 2, 2),
        ({"cpu.max": "max 100000"}, 2, 32),
        ({"cpu.max": "150000 100000"}, 1, 1),
        ({"cpu.max": "150000 100000"}, 2, 1),
    ],
)
def test_b058_each_rank_gets_its_part_of_the_quota_on_a_machine_of_64_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], ranks: int, each: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert launch.threads(launch.cpus(str(tmp_path)), ranks) == each
