"""The deciding parts of the reference training, which need no torch."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

from training import faults, host, options  # noqa: E402  # it lies in examples/

MIB = 2**20


def rates(total: int, **chosen: float) -> list[float]:
    """The learning rates of a whole run."""
    picked = options.Options(**chosen)  # type: ignore[arg-type]
    return [options.learning_rate(picked, step, total) for step in range(total)]


def test_the_learning_rate_rises_in_a_line_then_falls_to_nothing() -> None:
    seen = rates(100, lr=1.0, warmup=0.1)
    assert seen[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert seen[10] == pytest.approx(1.0)
    assert seen[55] == pytest.approx(0.5)
    assert all(after < before for before, after in pairwise(seen[10:]))
    assert 0 < seen[-1] < 0.001


def test_a_run_of_one_step_without_warm_up_has_a_learning_rate() -> None:
    assert rates(1, lr=1.0, warmup=0.0) == [1.0]


@pytest.mark.parametrize(
    ("batch", "micro_batch", "ranks", "parts"),
    [(64, 64, 1, 1), (64, 16, 1, 4), (64, 16, 2, 2), (64, 10, 3, 3), (64, 1, 64, 1), (65, 1, 64, 1), (7, 3, 2, 2)],
)
def test_all_ranks_compute_the_same_number_of_micro_batches_and_none_is_empty(
    batch: int, micro_batch: int, ranks: int, parts: int
) -> None:
    assert options.micro_batches(options.Options(batch=batch, micro_batch=micro_batch), ranks) == parts
    assert parts <= batch // ranks


def test_a_batch_smaller_than_the_processes_is_refused() -> None:
    with pytest.raises(faults.Fault, match="less than one sample for each of 8"):
        options.micro_batches(options.Options(batch=7), 8)


@pytest.mark.parametrize(
    "flags",
    [
        ["--batch", "0"],
        ["--warmup", "1"],
        ["--timeout", "0"],
        ["--profile", "5"],
        ["--profile", "9:3"],
        ["--lr", "nan"],
        ["--lr", "-1"],
        ["--clip", "nan"],
    ],
)
def test_an_option_that_makes_no_sense_is_named(flags: list[str]) -> None:
    with pytest.raises(faults.Fault, match=flags[0]) as seen:
        options.parse(flags)
    assert seen.value.code == faults.INPUT


def test_every_option_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--help"])
    told = capsys.readouterr().out
    assert all("--" + name.replace("_", "-") in told for name in options.Options.__dataclass_fields__)


def test_the_folder_of_a_run_follows_what_decides_its_numbers_alone() -> None:
    usual = options.folder(options.Options())
    assert options.folder(options.Options(workers=3, micro_batch=8, log_every=1, timeout=5.0)) == usual
    assert options.folder(options.Options(lr=1e-4)) != usual
    assert options.folder(options.Options(out="here")) == "here"


@pytest.mark.parametrize(
    ("v2", "v1", "seen"),
    [
        ("max 100000\n", ("", ""), None),
        ("150000 100000\n", ("", ""), 1.5),
        ("", ("-1\n", "100000\n"), None),
        ("", ("200000\n", "100000\n"), 2.0),
        ("", ("", ""), None),
    ],
)
def test_the_cpus_of_a_cgroup_are_read_in_both_versions(v2: str, v1: tuple[str, str], seen: float | None) -> None:
    assert host.cpu_quota(v2=v2, v1=v1) == seen


def test_threads_are_a_ranks_part_unless_somebody_asked() -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1"}
    assert host.threads(8, 2, {}) == 4
    assert host.threads(8, 2, torchrun) == 4
    assert host.threads(8, 2, {"OMP_NUM_THREADS": "1"}) == 1
    assert host.threads(8, 2, {**torchrun, "OMP_NUM_THREADS": "3"}) == 3
    assert host.threads(1.5, 4, {}) == 1


def loading(**given: object) -> host.Loading:
    """How to load, on a machine with eight CPUs, two ranks and plenty of shared memory."""
    usual = {"asked": -1, "prefetch": 4, "cpus": 8.0, "ranks": 2, "in_memory": False, "bytes_a_batch": MIB}
    return host.loading(**{**usual, "shared_memory": 1024 * MIB, **given})  # type: ignore[arg-type]


def test_loader_processes_are_the_ranks_part_of_the_cpus() -> None:
    assert (loading().workers, loading().prefetch) == (4, 4)
    assert loading(cpus=256.0).workers == host.MOST_WORKERS
    assert loading(cpus=1.0).workers == 1
    assert loading(in_memory=True).workers == 0
    assert loading(asked=3, in_memory=True).workers == 3


def test_loader_processes_fit_in_shared_memory_and_it_is_said_why() -> None:
    small = loading(shared_memory=64 * MIB)
    assert (small.workers, small.prefetch) == (4, 4)
    smaller = loading(shared_memory=32 * MIB)
    assert smaller.workers * smaller.prefetch <= 8
    assert "/dev/shm has 32 MiB" in smaller.why
    assert loading(shared_memory=MIB).workers == 0


def test_memory_that_settles_does_not_grow() -> None:
    filling = [(step, min(step, 20) * MIB) for step in range(60)]
    wavy = [(step, (100 + step % 7) * MIB) for step in range(60)]
    assert host.grown(filling, MIB) is None
    assert host.grown(wavy, MIB) is None
    assert host.grown(filling[:6], 0) is None


def test_memory_that_grows_step_by_step_is_seen_with_its_rate() -> None:
    growing = [(10 * step, 10 * step * MIB) for step in range(30)]
    assert host.grown(growing, MIB) == pytest.approx(MIB)


def test_faults_are_known_by_what_torch_says_of_them() -> None:
    memory = faults.of(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 64)
    assert isinstance(memory, faults.Fault)
    assert "--micro-batch 32" in memory.hint
    shared = faults.of(RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible"), 64)
    assert isinstance(shared, faults.Fault)
    assert "/dev/shm" in shared.what
    disk = faults.of(OSError(28, "No space left on device", "/runs/x"), 64)
    assert isinstance(disk, faults.Fault)
    assert (disk.code, "/runs/x" in disk.what) == (faults.SURROUNDINGS, True)
    assert isinstance(faults.of(RuntimeError("[gloo] Connection closed by peer [127.0.0.1]"), 64), faults.Elsewhere)
    assert faults.of(KeyError("a bug"), 64) is None
