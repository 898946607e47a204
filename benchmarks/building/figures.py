"""Medians with their intervals, and the files that results are kept in."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
COVERED = 0.9  # the least that an interval covers, where there are enough runs for it


@dataclass(frozen=True, kw_only=True, slots=True)
class Middle:
    """A median, and the order statistics around it that hold the true one with this probability."""

    median: float
    low: float
    high: float
    covers: float
    runs: int


def middle(values: Sequence[float]) -> Middle:
    """The median of these values with its interval, by the binomial distribution: nothing is assumed of the values.

    The narrowest interval between order statistics that covers `COVERED`; with too few runs, all of them.
    """
    ordered = sorted(values)
    runs = len(ordered)
    cut = 0
    while cut + 1 < runs - cut - 1 and covers(runs, cut + 1) >= COVERED:
        cut += 1
    return Middle(
        median=statistics.median(ordered),
        low=ordered[cut],
        high=ordered[runs - 1 - cut],
        covers=covers(runs, cut),
        runs=runs,
    )


def covers(runs: int, cut: int) -> float:
    """How often the true median lies between the values of rank `cut` from below and from above (0: all of them)."""
    return 1 - 2 * sum(math.comb(runs, k) for k in range(cut + 1)) / 2**runs


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, pair by pair: what slowed the machine down slowed both of a pair."""
    return [a / b for a, b in zip(ours, theirs)]


def machine(folder: Path) -> dict[str, Any]:
    """What a result says of the machine: cores, memory, and the kind of disk under a folder."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "memory_gib": round(memory / (1 << 30)), "disk": _disk(folder)}


def _disk(folder: Path) -> str:
    """virtual, solid-state or rotating, and the file system: what the kernel says of the device."""
    device = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    kind = "unknown"
    if name.name.startswith("vd") or "virtio" in str(name):
        kind = "virtual"
    elif (name / "queue/rotational").is_file() or (name.parent / "queue/rotational").is_file():
        place = name if (name / "queue").is_dir() else name.parent
        kind = "rotating" if (place / "queue/rotational").read_text().strip() == "1" else "solid-state"
    return f"{kind}, {_file_system(folder)}"


def _file_system(folder: Path) -> str:
    best, found = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if (str(folder.resolve()) + "/").startswith(where.rstrip("/") + "/") and len(where) >= len(best):
            best, found = where, kind
    return found


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Keep a result: sorted, rounded, without a time, a host or a path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(rounded(dict(result)), indent=1, sort_keys=True) + "\n")
    return path


def read(folder: Path = RESULTS) -> dict[str, Any]:
    """Every result that is kept, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def rounded(value: Any) -> Any:
    """Seconds to the hundredth: more is noise."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return value


def lines(name: str, result: Mapping[str, Any]) -> list[str]:
    """What a result says, for the terminal: the median of each series with its interval."""
    told = [f"{name}: {result['seconds']:.1f} s"] if isinstance(result.get("seconds"), float) else []
    for kind, part in {"": result, **result}.items():
        if not isinstance(part, dict) or not isinstance(part.get("sides"), dict):
            continue
        for side, series in part["sides"].items():
            for key, values in series.items():
                if isinstance(values, list) and values and key != "layers":
                    m = middle(values)
                    told.append(
                        f"{' '.join(filter(None, (name, kind)))}, {side}: {key} {m.median:.2f}"
                        f" [{m.low:.2f}, {m.high:.2f}] ({m.runs} runs, covers {m.covers:.0%})"
                    )
    return told
