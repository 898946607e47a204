"""A step of the reference training against the barest loop that learns the same: medians of interleaved pairs.

python benchmarks/train_step.py [--runs N] [--steps N] [--threads N] [-- OPTIONS OF train.py]

Needs a Python with torch. The bare loop has the same model, data, optimiser, clipping and precision, and no
accumulation, guard, log, checkpoint or prefetcher. Prints JSON: milliseconds, and their ratio beside its budget, with
an interval from resampling the pairs, by the clock and by the CPUs' time; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import medians
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import train as script  # it lies in examples/
from training import data, models, options, parallel, watch

BUDGET = 1.02
Moment = tuple[float, float]  # seconds of the clock, and of the CPUs: the ones that a busy machine changes less
FIRST = 5  # steps that warm up


def reference(chosen: options.Options) -> Moment:
    """The median step of the script: from one to the next."""
    ends: list[Moment] = []
    real = watch.Watch.note

    def note(self: Any, *values: Any) -> None:
        real(self, *values)
        ends.append(now(self.ranks.device))

    watch.Watch.note = note  # type: ignore[method-assign]
    try:
        ranks = parallel.Ranks.of({})
        ranks.device = parallel.choose_device(chosen, ranks)
        script.train(chosen, ranks)
    finally:
        watch.Watch.note = real  # type: ignore[method-assign]
    return median(ends)


def bare(chosen: options.Options) -> Moment:
    """The median step of the bare loop."""
    ranks = parallel.Ranks.of({})
    device = parallel.choose_device(chosen, ranks)
    source = data.load(chosen)
    model = models.build(chosen, source.shape).to(device)
    if device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), lr=chosen.lr, weight_decay=chosen.weight_decay, fused=True)
    kind = script.precision(chosen, device)
    images, labels = source.train.images, source.train.labels  # type: ignore[attr-defined]
    order = torch.randperm(len(labels))
    ends: list[Moment] = []
    for step in range(chosen.steps):
        some = order[torch.arange(step * chosen.batch, (step + 1) * chosen.batch) % len(labels)]
        with torch.autocast(device.type, kind, enabled=kind != torch.float32):
            loss = functional.cross_entropy(model(images[some].to(device)), labels[some].to(device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), chosen.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(now(device))
    return median(ends)


def now(device: torch.device) -> Moment:
    """The time. A GPU is waited for, in both loops: what is compared is the whole step."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def median(ends: list[Moment]) -> Moment:
    """The median of the steps after the first ones."""
    pairs = list(pairwise(ends[FIRST:]))
    wall, cpu = (statistics.median(after[kind] - before[kind] for before, after in pairs) for kind in (0, 1))
    return wall, cpu


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("rest", nargs="*", help="options of train.py, after --")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    pairs = []
    with tempfile.TemporaryDirectory(prefix="train-step-") as folder, open(os.devnull, "w") as nowhere:
        flags = ["--steps", str(asked.steps), "--save-every", "100000", "--fresh", "--out", folder, *asked.rest]
        chosen = options.parse(flags)
        for number in range(asked.runs):
            pair: dict[str, Moment] = {}
            for name, loop in (("bare", bare), ("reference", reference))[:: 1 if number % 2 else -1]:
                shown, sys.stdout = sys.stdout, nowhere
                try:
                    pair[name] = loop(chosen)
                finally:
                    sys.stdout = shown
            pairs.append(pair)
            told = (f"{name} {wall * 1e3:.2f} ms, CPU {cpu * 1e3:.2f} ms" for name, (wall, cpu) in sorted(pair.items()))
            print("; ".join(told), file=sys.stderr, flush=True)
    figures: dict[str, Any] = {}
    for kind, words in enumerate(("clock", "CPU")):
        milliseconds = {
            name: medians.told([pair[name][kind] * 1e3 for pair in pairs]) for name in ("bare", "reference")
        }
        ratio = medians.told([pair["reference"][kind] / pair["bare"][kind] for pair in pairs])
        figures[words] = {"ratio": {**ratio, "budget": BUDGET}, "milliseconds": milliseconds}
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"runs": asked.runs, "cpus": os.cpu_count(), "load": load, "by": figures}, indent=1))


if __name__ == "__main__":
    main()
