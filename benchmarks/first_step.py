"""Seconds to the first training step of plain `docker compose up` with two processes, and of the two-node rehearsal.

python benchmarks/first_step.py [--runs 5] [--gpu cpu]

The image has to be built here (./yard build --gpu cpu), and nothing of this clone may run. The two take turns. The
clock runs from the start of the command to the first line of progress of examples/train.py, which the first rank prints
once a step has been taken; what was started is taken down before the next. Prints JSON: medians, an interval from
resampling, every run and the load before it, beside budgets for two idle cores; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import medians

ROOT = Path(__file__).resolve().parents[1]
YARD = [sys.executable, "-P", "-m", "torchyard"]
YARD_ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
JOB = "examples/train.py --steps 1 --log-every 1 --fresh --out runs/first-step"
STARTED = "[rank0]: step 1/1 "
MEASURED = (
    ("docker compose up, 2 processes", ("up",), 15.0),
    ("rehearsal, 2 nodes", ("--profile", "rehearse", "up", "node0", "node1"), 25.0),
)


def main() -> None:
    """Measure in turns, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gpu", default="cpu", help="the hardware entry")
    asked = parser.parse_args()
    require(asked.gpu)
    taken: dict[str, list[float]] = {name: [] for name, *_ in MEASURED}
    loads: dict[str, list[float]] = {name: [] for name, *_ in MEASURED}
    for number in range(asked.runs + 1):
        for name, words, _ in MEASURED if number % 2 else MEASURED[::-1]:
            load = round(os.getloadavg()[0], 1)
            spent = once(words)
            print(f"{name}: {spent:.1f} s, load {load}", file=sys.stderr, flush=True)
            if number:  # the first round fills the caches of the disk
                taken[name].append(spent)
                loads[name].append(load)
    figures = {
        name: medians.told(taken[name]) | {"budget": budget, "load": loads[name]} for name, _, budget in MEASURED
    }
    print(json.dumps({"runs": asked.runs, "cpus": os.cpu_count(), "seconds": figures}, indent=1))


def require(gpu: str) -> None:
    """Have .env written for this entry, by a job that does next to nothing."""
    done = subprocess.run(
        [*YARD, "up", "--gpu", gpu, "--", "-m", "this"],
        cwd=ROOT,
        env=YARD_ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)


def once(words: Sequence[str]) -> float:
    """Seconds until the first step was taken."""
    command = [*YARD, "docker", "compose", "--ansi", "never", *words]
    env = {**YARD_ENV, "TORCHYARD_TRAIN": JOB}
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, first = "", 0.0
    assert child.stdout is not None
    for line in child.stdout:
        said += line
        if STARTED in line and not first:
            first = time.perf_counter() - began
    child.wait()
    down = [*YARD, "docker", "compose", "--profile", "*", "down"]
    subprocess.run(down, cwd=ROOT, env=YARD_ENV, capture_output=True, check=True)
    if not first:
        raise SystemExit(f"no step was taken\n{said[-4000:]}")
    return first


if __name__ == "__main__":
    main()
