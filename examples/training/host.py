"""What the machine gives a process: CPUs of the cgroup, shared memory; and what the loader makes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MOST_WORKERS = 16  # for each rank: more only cost memory once a GPU is fed


@dataclass(frozen=True, kw_only=True, slots=True)
class Loading:
    """How samples are read."""

    workers: int
    prefetch: int
    why: str  # for the person who wonders about the number


def cpus() -> float:
    """The CPUs that this process may use: its affinity, or less where the cgroup has a quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota(
        v2=_read(CGROUP / "cpu.max"),
        v1=(_read(CGROUP / "cpu/cpu.cfs_quota_us"), _read(CGROUP / "cpu/cpu.cfs_period_us")),
    )
    return min(allowed, quota or allowed)


def cpu_quota(*, v2: str, v1: tuple[str, str]) -> float | None:
    """The CPUs that a cgroup allows, or None where it does not limit them."""
    quota, period = (v2.split() if v2.strip() else v1)[:2]
    if quota.strip() in ("max", "-1", "") or not period.strip():
        return None
    return int(quota) / int(period)


def threads(cpus: float, ranks: int, environment: Mapping[str, str]) -> int:
    """Threads of one rank's operators: those asked for, or the rank's part of the CPUs.

    torchrun sets OMP_NUM_THREADS to 1 where nobody has set it, which looks as if somebody had asked for 1.
    """
    asked = environment.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and (int(asked) > 1 or "TORCHELASTIC_RUN_ID" not in environment):
        return int(asked)
    return max(1, int(cpus / ranks))


def loading(
    *, asked: int, prefetch: int, cpus: float, ranks: int, in_memory: bool, bytes_a_batch: int, shared_memory: int
) -> Loading:
    """Workers and read-ahead of one rank, `ranks` of which share this machine."""
    if asked >= 0:
        return Loading(workers=asked, prefetch=prefetch, why="as asked for")
    if in_memory:
        return Loading(workers=0, prefetch=prefetch, why="the data is in memory")
    workers = max(1, min(MOST_WORKERS, int(cpus / ranks)))
    why = f"{cpus:g} CPUs, {ranks} processes here"
    room = shared_memory // (2 * ranks)  # half of it: others use it too
    if workers * prefetch * bytes_a_batch > room:
        prefetch = max(1, min(prefetch, room // (workers * bytes_a_batch)))
        workers = min(workers, room // (prefetch * bytes_a_batch))
        why += f", /dev/shm has {shared_memory / 2**20:.0f} MiB only (raise it: --shm-size, shm_size)"
    return Loading(workers=workers, prefetch=prefetch, why=why)


def shared_memory() -> int:
    """Bytes that are free in /dev/shm, through which loader processes hand over their batches."""
    try:
        seen = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return seen.f_bavail * seen.f_frsize


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(samples: Sequence[tuple[int, int]], least: int) -> float | None:
    """Bytes a step by which live memory grows, or None where it has settled.

    The last third of the samples has to lie above the third before it, all of it, and more than `least` higher: caches
    that fill and buffers that come and go do not look like that, a list that keeps tensors does.
    """
    third = len(samples) // 3
    if third < 3:
        return None
    middle, last = samples[-2 * third : -third], samples[-third:]
    lowest = min(size for _, size in last)
    if lowest <= max(size for _, size in middle) or lowest - min(size for _, size in middle) <= least:
        return None
    return (last[-1][1] - middle[0][1]) / (last[-1][0] - middle[0][0])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
