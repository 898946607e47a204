"""Images a second of a loader-bound job with our number of loader processes and with the two that are preached.

python benchmarks/loader_workers.py [--runs N] [--batches N]

Needs a Python with torch. The job reads synthetic images of ImageNet's shape and computes nothing. "Half the cores" and
"four times the cores" run beside ours, in turns. Prints JSON: images a second of the whole job, with the start of its
processes, and of its steady state alone, in which every number of processes that keeps the cores busy is as fast as
any other; and ours as a part of the others', with an interval from resampling the rounds; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import medians
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from training import data, host, options  # they lie in examples/


def rates(samples: data.Samples, workers: int, batches: int, batch: int, prefetch: int) -> tuple[float, float]:
    """Images a second of the whole job, the start of its processes with it, and of the steady state.

    The steady state leaves out what lay ready at the start, and has all processes at work to the end.
    """
    ready = workers * prefetch
    warm = ready + 2 * workers
    order = [list(range(first * batch, (first + 1) * batch)) for first in range(warm + batches + ready)]
    how = host.Loading(workers=workers, prefetch=prefetch, why="")
    began = time.perf_counter()
    stream = iter(data.loader(samples, order, how, pin=torch.cuda.is_available()))
    for _ in range(warm):
        next(stream)
    steady = time.perf_counter()
    for _ in range(batches):
        next(stream)
    now = time.perf_counter()
    return (warm + batches) * batch / (now - began), batches * batch / (now - steady)


def main() -> None:
    """Print each choice and its rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=400)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cores, batch = os.cpu_count() or 1, 16
    source = data.load(options.parse(["--data", "synthetic"]))
    ours = host.loading(
        asked=-1,
        prefetch=4,
        cpus=host.cpus(),
        ranks=1,
        in_memory=False,
        bytes_a_batch=batch * 3 * 224 * 224,
        shared_memory=host.shared_memory(),
    )
    choices = {"ours": ours.workers, "half the cores": max(1, cores // 2), "four times the cores": 4 * cores}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in choices}
    for number in range(asked.runs):
        for name, workers in list(choices.items())[:: 1 if number % 2 else -1]:
            seen[name].append(rates(source.train, workers, asked.batches, batch, ours.prefetch))
            whole, steady = seen[name][-1]
            told = f"{name}, {workers} processes: {whole:.0f} images/s, steady {steady:.0f}"
            print(told, file=sys.stderr, flush=True)
    figures: dict[str, dict[str, Any]] = {}
    ratios: dict[str, dict[str, Any]] = {}
    for index, what in enumerate(("whole job", "steady state")):
        of = {name: [pair[index] for pair in pairs] for name, pairs in seen.items()}
        figures[what] = {name: {"processes": choices[name], **medians.told(each, 0)} for name, each in of.items()}
        for name in list(choices)[1:]:
            pairs = [a / b for a, b in zip(of["ours"], of[name], strict=True)]
            ratios.setdefault(what, {})[f"ours / {name}"] = {**medians.told(pairs), "budget": 1.0}
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"runs": asked.runs, "cpus": cores, "load": load, "ratio": ratios, "images/s": figures}, indent=1))


if __name__ == "__main__":
    main()
