"""How long verification takes: tier 1 on the a100 image, tiers 1 and 2 on the cpu image. Prints JSON; asserts nothing.

python benchmarks/verify_time.py [--runs 5] [--keep]

Both images must be built here (./yard build). Each run begins as after a first build: what an earlier one kept of the
layers is put aside, and comes back at the end; with --keep it stays, as when an image is verified again. The figures
are seconds from start to end of the command, its own start-up included; budgets are for two idle cores, so the load of
the machine stands beside them, and the CPU seconds of the command itself (without the engine and its containers).
`probes` are the CPU and wall seconds of each probe in one more run of tier 2.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEEN = ROOT / ".torchyard" / "seen"
MEASURED = (
    ("tier 1, a100", ("--gpu", "a100", "--level", "static"), 60),
    ("tiers 1 and 2, cpu", ("--gpu", "cpu", "--level", "cpu"), 90),
)
PROBES = """
import json, sys
from torchyard import render
from torchyard.verbs import project
from torchyard.world import engine, probing
found = project.load()
(image,) = project.select(found, gpu="cpu", image_id="")
say = lambda line: print(line, file=sys.stderr)
facts = probing.run(engine.ensure(say), render.tag(found.plan.project, image.id), None, say)
print(json.dumps({f"{each.probe} ({each.setting})": [each.cpu, each.seconds] for each in facts.seen}))
"""


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--only", choices=[name for name, *_ in MEASURED])
    asked = parser.parse_args()
    chosen = [row for row in MEASURED if asked.only in (None, row[0])]
    figures = {name: figure(options, budget, asked.runs, asked.keep) for name, options, budget in chosen}
    spent = probes() if MEASURED[1] in chosen else {}
    told = {"runs": asked.runs, "cpus": os.cpu_count(), "kept": asked.keep, "seconds": figures, "probes": spent}
    print(json.dumps(told, indent=1))


def figure(options: tuple[str, ...], budget: float, runs: int, keep: bool) -> dict[str, Any]:
    """Median, all runs, and the load before each."""
    taken, spent, loads = [], [], []
    for _ in range(runs):
        loads.append(round(os.getloadavg()[0], 1))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(round(once(options, keep), 1))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1))
        print(f"{' '.join(options)}: {taken[-1]} s, load {loads[-1]}", file=sys.stderr)
    return {
        "median": statistics.median(taken),
        "budget": budget,
        "all": taken,
        "load": loads,
        "cpu": statistics.median(spent),
    }


def once(options: tuple[str, ...], keep: bool) -> float:
    """The seconds of one verification."""
    aside = SEEN.with_name(f"seen-{os.getpid()}")
    if not keep and SEEN.is_dir():
        SEEN.rename(aside)
    try:
        began = time.perf_counter()
        done = yard("-m", "torchyard", "verify", *options, "--json")
        took = time.perf_counter() - began
    finally:
        if aside.is_dir():
            for path in aside.iterdir():
                SEEN.mkdir(exist_ok=True)
                path.replace(SEEN / path.name)
            aside.rmdir()
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return took


def probes() -> dict[str, Any]:
    """CPU and wall seconds of each probe of tier 2, the costly ones first."""
    done = yard("-c", PROBES)
    if done.returncode:
        raise SystemExit(done.stderr)
    spent: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return dict(sorted(spent.items(), key=lambda item: -item[1][0]))


def yard(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    main()
