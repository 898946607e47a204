"""What holds over the whole grid of GPU, torch, CUDA, Python and OS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard import catalog, explain, rules
from torchyard.catalog import Catalog, Gpu
from torchyard.explain import Completion
from torchyard.plan import CellState

C = catalog.load()
TORCHES = [r.version for r in C.releases]
LINES = [*C.lines(), "12.7", "cpu"]
PYTHONS = list(C.pythons())
SYSTEMS = [d.os for d in C.distributions]
DRIVERS = ["450.80.02", "470.82", "525.60.11", "535", "550.54.14", "570.26", "580.65.06", "590.44.01", "620.10"]

BRANCH = "- {branch: R640, max_cuda: '13.7', kind: PB, end_of_life: not seen, source: [test], checked: '2027-01-01'}"
SYSTEM = "- {os: debian-14, glibc: '2.45', python: '3.14', gcc: '15.1', source: [test], checked: '2027-01-01'}"
LATER = catalog.load([("later.yaml", f"driver_branches:\n{BRANCH}\ndistributions:\n{SYSTEM}\n")])


def kinds_of_gpu() -> list[Gpu]:
    """One GPU of each kind that a rule can tell apart."""
    return list({(g.cc, g.arch, g.kind, g.host, g.precision, g.unverified): g for g in C.gpus}.values())


def complete(request: dict[str, Any], known: Catalog = C, *, nearest: bool = True) -> Completion:
    """The completion of a request in its JSON form."""
    return explain.complete(rules.parse_request(request), known, nearest=nearest, runners_up=False)


def check(request: dict[str, Any], done: Completion) -> None:
    """Every refusal has a rule with a source, and every nearest cell is itself ok."""
    for verdict in done.verdicts:
        assert verdict.what and verdict.source, (request, verdict)
    assert (done.state is CellState.OK) == (not done.broken)
    assert done.state is not CellState.OK or done.nearest is None
    if done.nearest is not None:
        again = complete(done.nearest.choice.request())
        assert again.state is CellState.OK, (request, done.nearest.words(), again.broken)
        assert done.nearest.changes
        assert done.nearest.choice.gpus == done.choice.gpus


def cells() -> Iterator[dict[str, Any]]:
    """Every GPU kind with every torch and CUDA line, Pythons and systems taking turns."""
    for turn, (gpu, torch, cuda) in enumerate(product(kinds_of_gpu(), TORCHES, LINES)):
        yield {
            "gpu": gpu.id,
            "torch": torch,
            "cuda": cuda,
            "python": PYTHONS[turn % len(PYTHONS)],
            "os": SYSTEMS[turn % len(SYSTEMS)],
        }


@pytest.mark.parametrize("part", range(4))
def test_over_the_grid_nothing_crashes_and_every_answer_stands(part: int) -> None:
    for turn, request in enumerate(cells()):
        if turn % 4 == part:
            done = complete(request, nearest=turn % 16 == part)
            if done.state is CellState.OK:
                assert done.nearest is None
            check(request, done)


OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "gpu": st.sampled_from([g.id for g in C.gpus]),
    "gpus": st.lists(st.sampled_from([g.id for g in C.gpus]), max_size=3),
    "torch": st.sampled_from([*TORCHES, "2.6", "2", "2.99.0", "1.12"]),
    "cuda": st.sampled_from([*LINES, "12", "13", "cu118", "12.8.1"]),
    "cudnn": st.sampled_from(["9.24.0.43", "9.10.2.21", "9", "8.5.0.96", "9.25.0.15", "99.1"]),
    "python": st.sampled_from([*PYTHONS, "3.14.1", "3.6"]),
    "python_from": st.sampled_from(["distribution", "standalone"]),
    "blas": st.sampled_from(["mkl", "openblas", "nvpl"]),
    "build": st.sampled_from(["wheel", "source"]),
    "os": st.sampled_from(SYSTEMS),
    "arch": st.sampled_from(["x86_64", "aarch64"]),
    "driver": st.sampled_from([*DRIVERS, "999", "100.1"]),
    "gcc": st.sampled_from(["9.3", "12", "13", "16", "4"]),
    "arch_list": st.sampled_from(["8.0;8.6+PTX", "9.0a", "sm_86", "7.0;12.0", "Hopper"]),
    "index": st.sampled_from(["pypi", "pytorch-cu126"]),
    "memory_gb": st.sampled_from([16, 24, 80]),
    "mig": st.sampled_from(["1g.10gb", "3g.20gb"]),
    "features": st.just(["compile"]),
    "precision": st.sampled_from(["bf16", "fp8", "fp4"]),
    "cuda_compat": st.booleans(),
    "compression": st.sampled_from(["gzip", "zstd"]),
    "consumers": st.sampled_from([["docker"], ["enroot", "apptainer"], ["enroot 3.5"], ["singularity 4.1"], ["x 1"]]),
    "packages": st.sampled_from([{"torchvision": "0.29.1"}, {"torchaudio": "2.11.0"}, {"torchvision": "0.20.0"}]),
}
REQUESTS = st.fixed_dictionaries({}, optional=OPTIONAL)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
def test_any_request_has_an_answer_that_stands(request_: dict[str, Any]) -> None:
    check(request_, complete(request_))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
def test_an_ok_cell_asked_again_is_ok_and_the_same(request_: dict[str, Any]) -> None:
    done = complete(request_, nearest=False)
    again = complete(done.choice.request(), nearest=False)
    assert again.choice.request() == done.choice.request()
    assert again.state is done.state


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
def test_new_rows_of_branches_and_distributions_turn_no_ok_into_refused(request_: dict[str, Any]) -> None:
    if complete(request_, nearest=False).state is CellState.OK:
        assert complete(request_, LATER, nearest=False).state is CellState.OK


def test_a_newer_driver_turns_no_ok_into_refused_where_no_ceiling_applies() -> None:
    for gpu, torch, driver in product(kinds_of_gpu(), TORCHES[::3], DRIVERS):
        request = {"gpu": gpu.id, "torch": torch, "driver": driver}
        if gpu.arch not in ("Pascal", "Volta") and complete(request, LATER, nearest=False).state is CellState.OK:
            assert complete({**request, "driver": "640.10"}, LATER, nearest=False).state is CellState.OK


def test_a_newer_distribution_turns_no_wheel_cell_into_a_refused_one() -> None:
    for gpu, torch, system in product(kinds_of_gpu(), TORCHES[::3], SYSTEMS):
        request = {"gpu": gpu.id, "torch": torch, "os": system, "python_from": "standalone"}
        if complete(request, LATER, nearest=False).state is CellState.OK:
            assert complete({**request, "os": "debian-14"}, LATER, nearest=False).state is CellState.OK
