"""Images a second of a loader-bound job with our number of loader processes and with the two that are preached.

python benchmarks/loader_workers.py [--runs N] [--batches N]

Needs a Python with torch. The job reads synthetic images of ImageNet's shape and computes nothing. "Half the cores" and
"four times the cores" run beside ours, in turns; medians are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from training import data, host, options  # they lie in examples/


def rate(samples: data.Samples, workers: int, batches: int, batch: int, prefetch: int) -> float:
    """Images a second of the steady state: not of what lay ready at the start, and with all processes at work."""
    ready = workers * prefetch
    warm = ready + 2 * workers
    order = [list(range(first * batch, (first + 1) * batch)) for first in range(warm + batches + ready)]
    how = host.Loading(workers=workers, prefetch=prefetch, why="")
    stream = iter(data.loader(samples, order, how, pin=torch.cuda.is_available()))
    for _ in range(warm):
        next(stream)
    start = time.perf_counter()
    for _ in range(batches):
        next(stream)
    return batches * batch / (time.perf_counter() - start)


def main() -> None:
    """Print each choice and its rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=60)
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
    rates: dict[str, list[float]] = {name: [] for name in choices}
    for _ in range(asked.runs):
        for name, workers in choices.items():
            rates[name].append(rate(source.train, workers, asked.batches, batch, ours.prefetch))
    for name, workers in choices.items():
        print(f"{name:22} {workers:3} processes  {statistics.median(rates[name]):8.0f} images/s")
    for name in list(choices)[1:]:
        pairs = statistics.median(a / b for a, b in zip(rates["ours"], rates[name], strict=True))
        print(f"ours / {name}: {pairs:.3f} (budget 1 or more)")
    print(f"load {os.getloadavg()[0]:.1f} on {cores} CPUs")


if __name__ == "__main__":
    main()
