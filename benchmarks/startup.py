"""How long a verb takes with start-up: medians of interleaved runs. Prints seconds beside budgets; asserts nothing.

python benchmarks/startup.py [--runs N]

`--list` and `matrix` run on a file of more than 200 cells (twelve GPUs, three torch releases, wheel and source, two
systems), `render` and `plan` on this repository. Runs of all verbs take turns, so that what else the machine does
falls on all of them alike; an empty Python is in the row, because that part is nobody's to save.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GPUS = ("t4", "v100-sxm2-16gb", "rtx-2080-ti", "rtx-3080-ti", "a100-sxm4-40gb", "a100-sxm4-80gb", "rtx-4090", "l4",
        "l40s", "h100-sxm5-80gb", "h200", "rtx-5090")  # fmt: skip
ENV = """\
schema: 1
project: many
hardware:
  cpu: {}
%s
matrix:
  torch: ["2.13.0", "2.14.1", "2.15.0"]
  build: [wheel, source]
  base: [{from: archive, os: debian-12}, {from: archive, os: ubuntu-24.04}]
  blas: [auto, openblas]
  exclude: [{build: wheel, blas: openblas}]
"""
YARD = [sys.executable, "-m", "torchyard"]


def main(runs: int) -> None:
    """Print the median, the quickest and the budget of each verb."""
    with tempfile.TemporaryDirectory(prefix="torchyard-startup-") as folder:
        entries = "\n".join(f"  g{number}: {{gpu: {gpu}}}" for number, gpu in enumerate(GPUS))
        Path(folder, "env.yaml").write_text(ENV % entries)
        verbs = (
            ("python -c ''", [sys.executable, "-c", ""], folder, None),
            ("--list", [*YARD, "--list"], folder, 0.4),
            ("matrix, 200 cells", [*YARD, "matrix"], folder, 0.7),
            ("render --check", [*YARD, "render", "--check"], str(ROOT), 1.5),
            ("plan", [*YARD, "plan"], str(ROOT), None),
        )
        taken: dict[str, list[float]] = {name: [] for name, *_ in verbs}
        for number in range(runs + 1):
            for name, argv, where, _ in verbs:
                spent = timed(argv, where)
                if number:  # the first round fills caches of the disk and of bytecode
                    taken[name].append(spent)
    for name, _, _, budget in verbs:
        told = f"budget {budget:.1f} s" if budget else ""
        print(
            f"{name:20} median {statistics.median(taken[name]):.2f} s  best {min(taken[name]):.2f} s  {told}".rstrip()
        )


def timed(argv: list[str], where: str) -> float:
    """The seconds that a command takes from start to end."""
    began = time.perf_counter()
    subprocess.run(argv, cwd=where, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How long verbs take with start-up.")
    parser.add_argument("--runs", type=int, default=9)
    main(parser.parse_args().runs)
