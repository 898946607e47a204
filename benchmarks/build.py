"""Speed and size of builds against hand-written Dockerfiles (benchmarks/baselines). Asserts nothing.

python benchmarks/build.py NAME [NAME ...] [--pairs N] [--no-write]

    cold         CPU image from an empty engine and an empty store, against naive.Dockerfile
    cold-a100    the image that a100 selects, against two-stage.Dockerfile; torchyard in a file system of 20 GB that
                 holds engine, store and temporary files (the other side does not fit in there and has 40: --large)
    again        the same build again
    requirement  one more pure-Python requirement; one that moves fsspec, which torch requires
    reproducible the CPU image with an empty build cache, with and without what makes its bytes the same each time
    another      another image with the same torch
    size         compressed and unpacked bytes
    start        from `docker run` to `import torch` done
    pull         bytes and time on a second engine, for a first and a second image
    where        where the time of the cold CPU build goes
    where-a100   the same of the a100 image

Needs root, Debian 12 or Ubuntu 24.04 or newer, and about 15 GB of disk (60 GB for a100). What is measured touches no
network: wheels come from a directory, packages from an archive on loopback; both are filled first. What was filled is
kept in /var/tmp/torchyard-bench (TORCHYARD_BENCH); remove it when done. Results go into benchmarks/results, and
benchmarks/page.py makes docs/performance.md of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "docker")]  # clones with engines of their own are made there

from building import baseline, figures, inputs, places, runs, served, sides  # noqa: E402
from building import where as where_module  # noqa: E402

TOGETHER = {
    "again": runs.again,
    "requirement": runs.requirement,
    "reproducible": runs.reproducible,
    "another": runs.another,
    "size": runs.size,
    "start": runs.start,
    "pull": runs.pull,
}
ADDING = ("requirement", "another")  # each pair adds a requirement of its own
NAMES = ("cold", "cold-a100", *TOGETHER, "where", "where-a100")


def main() -> None:
    """Measure what was asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--small", type=float, default=runs.SMALL, help="GB for torchyard's a100 image")
    parser.add_argument("--large", type=float, default=runs.LARGE, help="GB for two-stage.Dockerfile")
    parser.add_argument("--no-write", action="store_true", help="keep no result")
    asked = parser.parse_args()
    for name in (baseline.NAIVE, baseline.TWO_STAGE):
        baseline.dockerfile(name)
    limited = [name for name in asked.names if name in ADDING]
    if limited and asked.pairs > inputs.MOST:
        parser.error(f"at most {inputs.MOST} pairs of {limited[0]}: there are no more requirements to add")
    gpus = ["cpu"] + (["a100"] if any("a100" in name for name in asked.names) else [])
    given = inputs.prepare(gpus, others=asked.pairs if "another" in asked.names else 0)
    with served.served(given.archive) as address:
        for name in asked.names:
            if name in TOGETHER:
                continue
            keep(name, asked, alone(name, given, address, asked))
        if together := [name for name in asked.names if name in TOGETHER]:
            with sides.pair(given, address) as pair:
                for name in together:
                    keep(name, asked, TOGETHER[name](pair, asked.pairs))


def alone(name: str, given: inputs.Inputs, address: str, asked: argparse.Namespace) -> dict[str, Any]:
    """A measurement that has engines of its own."""
    match name:
        case "cold":
            return runs.cold(given, address, "cpu", baseline.NAIVE, asked.pairs, small=0, large=0)
        case "cold-a100":
            large = {"small": asked.small, "large": asked.large}
            return runs.cold(given, address, "a100", baseline.TWO_STAGE, asked.pairs, **large)
        case "where":
            return where_module.where(given, address, "cpu", 0)
        case _:
            return where_module.where(given, address, "a100", asked.small)


def keep(name: str, asked: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the medians, and keep the result unless told not to."""
    result["machine"] = figures.machine(places.home())
    for line in figures.lines(name, result):
        print(line)
    if not asked.no_write:
        print(f"wrote {figures.write(name, result).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
