"""TensorBoard and JupyterLab of a stack, installed and started as docs/compose.md says, in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import browser
import pytest
import requests
from browser import Browser
from clones import ROOT, Clone

pytestmark = pytest.mark.docker

STEPS = 12
CELL = "import torch\nprint('torch', torch.__version__, 'adds up to', torch.arange(20).sum().item())"
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "id": "one", "metadata": {}, "source": CELL, "outputs": [], "execution_count": None}
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
CODE = ".jp-Notebook .jp-CodeCell .cm-content"
OUTPUTS = "return [...document.querySelectorAll('.jp-OutputArea-output')].map(each => each.innerText).join('')"


@dataclass(frozen=True, kw_only=True)
class Served:
    """The services as `up` told where they are, and what the training before came to."""

    tensorboard: str
    jupyter: str
    token: str
    result: dict[str, Any]


@pytest.fixture(scope="module")
def served(yard: Clone, cpu: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A training that was logged, then both services; at the end nothing of them is left in the clone."""
    browser.install()
    folder, run = yard.root / "notebooks", yard.root / "runs" / "seen"
    folder.mkdir()
    try:
        install(yard, folder / "wheels")
        (folder / "version.ipynb").write_text(json.dumps(NOTEBOOK))
        flags = ("--steps", str(STEPS), "--samples", "512", "--log-every", "1", "--out", "runs/seen")
        yard.yard("up", "--gpu", "cpu", "--", "examples/train.py", *flags).good()
        with serving(yard, tmp_path_factory.mktemp("up") / "log") as addresses:
            yield Served(**addresses, result=json.loads((run / "result.json").read_text()))
    finally:
        for each in (folder, run, yard.root / ".torchyard" / "overlay" / yard.image("cpu")):
            shutil.rmtree(each, ignore_errors=True)


def install(clone: Clone, wheels: Path) -> None:
    """Put both into the environment on top of the image, from wheels that pip of this machine knows how to have."""
    python = re.findall(r"-py(\d)(\d+)-", clone.image("cpu"))[0]
    tags = [f"--platform={kind}_{platform.machine()}" for kind in ("manylinux_2_28", "manylinux2014")]
    asked = ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--python-version={'.'.join(python)}", *tags]
    locked = ROOT / "requirements" / "services.txt"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels), *asked, "--requirement", locked]
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    offline = ("--quiet", "--no-index", "--find-links", f"{wheels.parent.name}/{wheels.name}")
    clone.docker(
        "compose", "run", "--rm", "-T", "shell", "pip", "install", *offline, "jupyterlab", "tensorboard"
    ).good()
    clone.docker("compose", "down").good()


@contextlib.contextmanager
def serving(clone: Clone, log: Path) -> Iterator[dict[str, str]]:
    """Both services, with their addresses as `up` tells them."""
    up = clone.argv("up", "--gpu", "cpu", "--profile", "tensorboard,jupyter")
    child = clone.start(["sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), *up])
    try:
        yield addresses(child, log)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
        child.communicate()


def addresses(child: subprocess.Popen[str], log: Path) -> dict[str, str]:
    """Where the services are, once `up` has said it."""
    wanted = r"jupyter: (?P<jupyter>http://\S+)/\?token=(?P<token>\w+).*tensorboard: (?P<tensorboard>http://\S+)"
    end = time.monotonic() + browser.LIMIT
    while not (found := re.search(wanted, log.read_text() if log.exists() else "", re.S)):
        assert child.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.2)
    return found.groupdict()


@pytest.fixture
def window(served: Served) -> Iterator[Browser]:
    """A browser that has seen nothing yet."""
    with browser.started() as window:
        yield window


def test_tensorboard_shows_in_a_browser_what_the_training_logged(
    served: Served, window: Browser, tmp_path: Path
) -> None:
    def logged() -> bool:
        """TensorBoard has read the files; a page that was opened before does not look again."""
        try:
            told = requests.get(f"{served.tensorboard}/data/plugin/scalars/tags", timeout=browser.LIMIT).json()
        except (requests.RequestException, ValueError):
            return False
        return {"accuracy", "held_out_loss"} <= set(told.get("seen/tensorboard", {}))

    window.until("scalar of the run", logged)
    window.open(served.tensorboard)
    for name in ("accuracy", "held_out_loss"):
        row = rf"{name} .*? seen/tensorboard [\d.]+ (?P<value>[\d.]+) (?P<step>\d+) "

        def shown(row: str = row) -> re.Match[str] | None:
            return re.search(row, " ".join(window.text().split()))

        found = window.until(f"row of {name}", shown)
        assert abs(float(found["value"]) - served.result[name]) <= 1e-3, found[0]
        assert int(found["step"]) == STEPS - 1
    window.picture(tmp_path / "tensorboard.png")


def test_jupyter_refuses_without_its_token(served: Served, window: Browser, tmp_path: Path) -> None:
    for query in ("", "?token=guessed"):
        window.open(f"{served.jupyter}/lab/tree/notebooks/version.ipynb{query}")
        window.shows("Token authentication is enabled", "Log in")
        assert "/login" in window.do("return location.pathname")
    told = requests.get(f"{served.jupyter}/api/contents/notebooks/version.ipynb", timeout=browser.LIMIT)
    assert told.status_code == 403
    window.picture(tmp_path / "refused.png")


def test_jupyter_opens_with_its_token_and_runs_a_cell_on_the_torch_of_the_image(
    served: Served, window: Browser, tmp_path: Path, yard: Clone
) -> None:
    window.open(f"{served.jupyter}/lab/tree/notebooks/version.ipynb?token={served.token}")

    def idle() -> bool:
        """The status bar tells of the notebook in focus, which on a busy machine it is only after a click into it."""
        window.click(CODE)
        return "| Idle" in window.text()

    window.until("idle kernel", idle)

    def ran() -> str:
        """What the cell printed; a key that came before the notebook was ready is lost, so it is pressed again."""
        window.click(CODE)
        window.press(browser.SHIFT, browser.ENTER)
        with contextlib.suppress(AssertionError):
            return str(window.until("output", lambda: window.do(OUTPUTS), within=browser.LIMIT / 10))
        return ""

    version = re.findall(r"^torch([\d.]+)-", yard.image("cpu"))[0]
    assert window.until("output of the cell", ran).strip() == f"torch {version}+cpu adds up to 190"
    window.picture(tmp_path / "jupyter.png")
