"""A builder that has nothing of an earlier build and is gone afterwards; or what is said where none can be had."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from . import containers, engine_home, engine_private, engine_root, process
from . import engine as engines
from .engine import Engine
from .engine_home import Home

PREFIX = "reproduce-"
AGAIN = "again-"
BUILDKIT = ("moby/buildkit:buildx-stable-1", "moby/buildkit:latest")


class State(StrEnum):
    """What the builder had before."""

    ENGINE = "a second private engine, empty before"
    BUILDER = "a builder of its own, empty before"
    SAME = "the same engine, every step executed again"
    ELSEWHERE = "the builder that is in use, every step executed again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Builder:
    """engine: where to build; state: what it had before; loads: whether a result has to become an image of that engine.

    Where it need not, it is written as a file: that takes no unpacking, and leaves no name in the engine.
    """

    engine: Engine
    state: State
    loads: bool
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def empty(found: Engine, say: Callable[[str], None]) -> Iterator[Builder]:
    """A builder that has nothing of what this engine built; it is gone afterwards."""
    if found.private:
        with _second_engine(say) as second:
            yield Builder(engine=second, state=State.ENGINE, loads=not second.containerd_store)
        return
    driver = driver_of(found)
    if driver not in ("docker", "docker-container"):
        yield Builder(
            engine=dataclasses.replace(found, containerd_store=True),  # its results have digests of their own
            state=State.ELSEWHERE,
            loads=False,
            notes=(
                f"the builder in use has the driver {driver}, and what it keeps is not torchyard's to remove: every"
                " step was executed again, but files that an earlier build left in that builder were within reach;"
                " to rule that out, name a new builder: BUILDX_BUILDER",
            ),
        )
        return
    image = next((name for name in BUILDKIT if containers.describe(found, name) is not None), "")
    if image:
        with _own_builder(found, image, say) as own:
            yield Builder(engine=own, state=State.BUILDER, loads=False)
        return
    yield Builder(
        engine=found,
        state=State.SAME,
        loads=driver == "docker" and not found.containerd_store,
        notes=(
            "the engine is the one that built the first image: every step was executed again, so it shows that the"
            " steps give the same bytes twice; it does not show that they need nothing of what that engine keeps, nor"
            f" that another engine gives the same. For that: docker pull {BUILDKIT[0]}, or"
            " TORCHYARD_ENGINE=private, then run it again",
        ),
    )


@contextlib.contextmanager
def room(folder: Path) -> Iterator[Path]:
    """A new folder for the result of a build; those of commands that were killed are removed."""
    for rest in folder.glob(f"{AGAIN}*"):
        if containers.is_gone(rest.name.removeprefix(AGAIN).rpartition("-")[0]):
            shutil.rmtree(rest, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{AGAIN}{containers.owner()}-", dir=folder) as made:
        yield Path(made)


def driver_of(found: Engine) -> str:
    """The driver of the buildx builder in use."""
    out = process.run([*found.buildx, "inspect"], env=found.env, check=False).out
    match = re.search(r"^Driver:\s+(\S+)", out, re.MULTILINE)
    return match[1] if match else "docker"


@contextlib.contextmanager
def _second_engine(say: Callable[[str], None]) -> Iterator[Engine]:
    first = engine_home.home_of(os.environ)
    _sweep(first.path.parent, say)
    home = engine_home.home_of({"TORCHYARD_ENGINE_HOME": str(first.path.parent / f"{PREFIX}{containers.owner()}")})
    say(f"starting a second, empty engine in {home.path}; it is removed afterwards")
    try:
        home.path.mkdir()
        if engine_root.made(first.root):  # its programs are those of the first one, its state is empty
            process.run(["cp", "--archive", "--link", str(first.root), str(home.root)])
        engine_private.up(home, say)
        yield engines.private(home, os.environ)
    finally:
        say("removing the second engine")
        _remove(home)


def _remove(home: Home) -> None:
    engine_private.down(home, lambda _: None, purge=True)


def _sweep(folder: Path, say: Callable[[str], None]) -> None:
    """Remove the second engines of commands that were killed."""
    for rest in sorted(folder.glob(f"{PREFIX}*")):
        if containers.is_gone(rest.name.removeprefix(PREFIX)):
            say(f"removing {rest}: the command that started it was killed")
            _remove(engine_home.home_of({"TORCHYARD_ENGINE_HOME": str(rest)}))


@contextlib.contextmanager
def _own_builder(found: Engine, image: str, say: Callable[[str], None]) -> Iterator[Engine]:
    name = f"torchyard-{PREFIX}{containers.owner()}"
    _sweep_builders(found, say)
    say(f"starting a builder of its own from {image}; it is removed afterwards")
    create = [*found.buildx, "create", "--name", name, "--driver", "docker-container"]
    env = {**found.env, "BUILDX_BUILDER": name}
    try:
        process.run([*create, "--driver-opt", f"image={image},network=none", "--bootstrap"], env=found.env)
        yield dataclasses.replace(found, env=env, containerd_store=True)  # its results have digests of their own
    finally:
        process.run([*found.buildx, "rm", "--force", name], env=found.env, check=False)


def _sweep_builders(found: Engine, say: Callable[[str], None]) -> None:
    """Remove the builders of commands that were killed."""
    out = process.run([*found.buildx, "ls"], env=found.env, check=False).out
    for name in sorted(set(re.findall(rf"^torchyard-{PREFIX}(\S+?)\*?\s", out, re.MULTILINE))):
        if containers.is_gone(name):
            say(f"removing the builder torchyard-{PREFIX}{name}: the command that started it was killed")
            process.run([*found.buildx, "rm", "--force", f"torchyard-{PREFIX}{name}"], env=found.env, check=False)
