"""The tasks of this repository, for `invoke` and `./yard`: those of torchyard, and those of its own development."""

from __future__ import annotations

import sys
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from torchyard.tasks import collection
from torchyard.world import process

ROOT = Path(__file__).parent
# What runs in images: no torch is needed to check it, its values count as Any. What compose runs is not annotated.
LOOSE = ("mypy", "--config-file=", "--ignore-missing-imports", "--check-untyped-defs")
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    (*LOOSE, "--disallow-untyped-defs", "examples/train.py", "examples/training"),
    (*LOOSE, "--disable-error-code=var-annotated", "templates/compose"),
    ("importlinter.cli", "lint"),
)


@task(
    help={
        "docker": "also those that start engines, servers and processes (needs root or an engine; tens of minutes)",
        "gpu": "also those that need a GPU which torch sees, without Docker (TORCHYARD_PYTHON: which Python has torch)",
        "long": "with --docker, also the tests that CI leaves out for the minutes that they take",
        "no-skips": "fail where a test of a suite that was asked for is skipped",
        "only": "a pytest expression: run the tests whose names match",
        "accept": "write what the golden tests see as what they expect",
    }
)
def test(
    c: Context,
    docker: bool = False,
    gpu: bool = False,
    long: bool = False,
    no_skips: bool = False,
    only: str = "",
    accept: bool = False,
) -> None:
    """Run the checks of the code and the tests. Example: test --docker"""
    for module, *arguments in CHECKS if not only else ():
        if code := process.attached([sys.executable, "-m", module, *arguments], cwd=ROOT):
            sys.exit(code)
    # Two processes, because an engine's work leaves one of two cores idle half of the time. What fails among servers,
    # engines and archives runs once more, and is named at the end as unsteady where it then passes.
    options = ["--docker", "--numprocesses", "2", "--dist", "loadscope", "--durations", "30"] if docker else []
    options += ["--reruns", "1"] if docker else []
    options += ["--gpu"] if gpu else []
    options += ["--long"] if long else []
    options += ["-k", only] if only else []
    options += ["--no-skips"] if no_skips else []
    options += ["--accept"] if accept else []
    sys.exit(process.attached([sys.executable, "-m", "pytest", *options], cwd=ROOT))


ns = collection(test)
