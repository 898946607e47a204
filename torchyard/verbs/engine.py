"""The verb `engine`: start, end, show and reach the engine that torchyard uses."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torchyard.errors import Surroundings
from torchyard.world import engine, engine_home, engine_private, engine_root
from torchyard.world.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What there is of the private engine; `programs` is the suite it was unpacked from, empty where it is not."""

    home: str
    running: bool
    answers: bool
    pid: int | None
    docker_host: str
    programs: str
    network: str
    log: str


def up(say: Callable[[str], None]) -> Engine:
    """Have an engine: the one that answers, else the private one, set up and started."""
    return engine.ensure(say)


def down(say: Callable[[str], None], *, purge: bool = False) -> bool:
    """End the private engine and keep its data, or remove everything of it; whether there was anything to do."""
    return engine_private.down(engine_home.home_of(os.environ), say, purge=purge)


def status() -> Status:
    """What there is of the private engine of this user, without starting anything."""
    home = engine_home.home_of(os.environ)
    now = engine_private.running(home)
    net = engine_home.saved_net(home)
    stamp = engine_root.made(home.root).splitlines()
    return Status(
        home=str(home.path),
        running=now is not None,
        answers=now is not None and engine_private.answers(home.socket),
        pid=None if now is None else now.guard,
        docker_host=home.docker_host,
        programs=next((line.removeprefix("suite ") for line in stamp if line.startswith("suite ")), ""),
        network="" if net is None else f"{net.bridge} {net.pool}",
        log=str(home.log),
    )


def env(say: Callable[[str], None]) -> str:
    """The lines that make a shell's own `docker` reach the engine: eval "$(./yard engine --env)"."""
    found = engine.ensure(say)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(found.env.items())]
    if found.docker and os.path.isabs(found.docker[0]):
        folder = Path(found.env["DOCKER_CONFIG"]).parent / "bin"
        lines.append(f'export PATH={shlex.quote(str(folder))}:"$PATH"')
    return "\n".join(lines) + "\n"


def docker(arguments: Sequence[str], say: Callable[[str], None]) -> NoReturn:
    """Become the docker client of the engine, with these arguments."""
    found = engine.ensure(say)
    if not found.docker:
        raise Surroundings("no docker client is on this machine", hint=engine.INSTALL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(found.docker[0], [*found.docker, *arguments], {**os.environ, **found.env})
