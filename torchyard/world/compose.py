"""docker compose for the stacks of a project: its command line, its containers, and a guard that takes all away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

import docker.errors
import requests

from ..errors import CheckFailed, InputError, Surroundings, YardError
from . import engine as engines
from . import process
from .engine import Engine

LEAST = (2, 20)  # includes files by names with variables
PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
POLL = 0.3
GRACE = 15.0  # seconds in which the other nodes end by themselves after one has failed
LOG_WITHIN = 20.0  # seconds for the last lines of a container that has ended
STOP = 10  # seconds between SIGTERM and SIGKILL for what is stopped
GUARD = 'cat >/dev/null; exec "$@" >/dev/null 2>&1'  # waits for the end of its standard input, then takes down


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A compose project on an engine: where its files are, and the variables over those of .env."""

    engine: Engine
    root: Path
    name: str
    files: tuple[str, ...]
    variables: Mapping[str, str]

    def argv(self, *words: str) -> list[str]:
        """A command of docker compose for this project, with every profile."""
        files = [part for file in self.files for part in ("--file", file)]
        if files:
            files = ["--project-directory", str(self.root), *files]
        return [
            *self.engine.compose,
            *("--ansi", "never", "--project-name", self.name, *files),
            *("--profile", "*", *words),
        ]

    @property
    def env(self) -> dict[str, str]:
        """What such a command sees."""
        return {**self.engine.env, **self.variables}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A container that ended: of which service, its exit code, and when, as the engine writes it."""

    service: str
    code: int
    when: str
    error: str = ""


def require(engine: Engine) -> None:
    """Raise where the engine's client has no docker compose, or one that is too old."""
    if not engine.compose:
        raise Surroundings("docker compose is not on this machine", hint=engines.INSTALL)
    told = process.run([*engine.compose, "version", "--short"], env=engine.env, timeout=30).out.strip()
    match = re.search(r"(\d+)\.(\d+)", told)
    if match is None or (int(match[1]), int(match[2])) < LEAST:
        raise Surroundings(
            f"docker compose is {told or 'of an unknown version'}; {'.'.join(map(str, LEAST))} or newer is needed",
            hint="install docker-compose-v2 (Ubuntu) or docker-compose (Debian 13), or TORCHYARD_ENGINE=private",
        )


@contextlib.contextmanager
def turn(path: Path) -> Iterator[int | None]:
    """Hold a clone's stack; None where another `up` has it. What is given the descriptor holds it too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file.fileno()


@contextlib.contextmanager
def guarded(stack: Stack, held: int) -> Iterator[None]:
    """Take the whole stack down when this ends, however it ends: also when this process is killed.

    The guard holds the turn until it is done, so that it cannot meet the stack of the next `up`.
    """
    down = stack.argv("down", "--remove-orphans", "--timeout", str(STOP))
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "torchyard-guard", *down],
        cwd=stack.root,
        env={**os.environ, **stack.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
        pass_fds=(held,),
    )
    try:
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        _wait_through_interrupts(guard)
    if guard.returncode:
        raise Surroundings(
            f"taking the stack down failed with exit code {guard.returncode}", hint="./yard down says why"
        )


def _wait_through_interrupts(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child that is cleaning up; a second Ctrl-C does not leave things behind."""
    while True:
        try:
            child.wait()
            return
        except KeyboardInterrupt:
            continue


def start(stack: Stack, services: Sequence[str]) -> None:
    """Have fresh containers of these services running."""
    done = process.run(
        stack.argv("up", "--detach", "--force-recreate", "--remove-orphans", *services),
        cwd=stack.root,
        env=stack.env,
        check=False,
    )
    if done.code:
        raise unstarted(done)


def unstarted(done: process.Completed) -> YardError:
    """What a failed start means, for the faults that users meet."""
    said = [line.strip() for line in done.err.splitlines() if line.strip()]
    last = next((line for line in reversed(said) if "rror" in line), said[-1] if said else "no word")
    if "port is already allocated" in last or "address already in use" in last:
        return Surroundings(f"a port is in use: {last}", hint="end what holds it, or set another one in .env")
    if "No such image" in last:
        return CheckFailed(
            f"an image is not there: {last}",
            hint="./yard build; those of the profile monitor: docker pull, or other ones in .env (docs/compose.md)",
        )
    if "bind source path does not exist" in last:
        return InputError(
            f"a folder that the stack mounts is not there: {last}",
            where="TORCHYARD_DATA or TORCHYARD_RUNS in .env",
            hint="create it yourself, as the one whose it shall be",
        )
    if any(each in last for each in ("could not select device driver", "CDI device", "unknown or invalid runtime")):
        return Surroundings(f"the engine does not hand over the GPUs: {last}", hint="docs/compose.md, section GPUs")
    return process.failed(done, hint="docker compose config shows what was asked for")


def follow(stack: Stack, services: Sequence[str], ends: Sequence[str], say: Callable[[str], None]) -> list[Ended]:
    """Show what the services print until those of `ends` have ended; answers how, in the order in which they did.

    Where one of them fails, the others get a moment to end by themselves. One that lost its GPUs is told once.
    """
    ids = {service: container(stack, service) for service in services}
    width = max(len(service) for service in services)
    with contextlib.ExitStack() as logs:
        for service in services:
            prefix = f"{service:{width}} | " if len(services) > 1 else ""
            within = LOG_WITHIN if service in ends else 0.0
            logs.enter_context(_shown(stack, ids[service], prefix, within))
        return _watch(stack, {ids[service]: service for service in ends}, say)


@contextlib.contextmanager
def _shown(stack: Stack, container_id: str, prefix: str, within: float) -> Iterator[None]:
    """Hand on what a container prints, each stream to its own; at the end, wait so long for its last lines."""
    argv = [*stack.engine.docker, "logs", "--follow", container_id]
    piped = subprocess.PIPE if prefix else None
    log = subprocess.Popen(
        argv, env={**os.environ, **stack.env}, stdin=subprocess.DEVNULL, stdout=piped, stderr=piped, text=True
    )
    pairs = ((log.stdout, sys.stdout), (log.stderr, sys.stderr)) if prefix else ()
    readers = [threading.Thread(target=_prefixed, args=(*pair, prefix), daemon=True) for pair in pairs]
    for reader in readers:
        reader.start()
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            log.wait(timeout=within)
    finally:
        if log.poll() is None:  # it still runs
            log.terminate()
            log.wait()
        for reader in readers:
            reader.join(timeout=1)


def _prefixed(source: IO[str], target: TextIO, prefix: str) -> None:
    for line in source:
        target.write(prefix + line)
        target.flush()


def _watch(stack: Stack, services: Mapping[str, str], say: Callable[[str], None]) -> list[Ended]:
    client = engines.client(stack.engine)
    found: dict[str, Ended] = {}
    told: set[str] = set()
    deadline = float("inf")
    try:
        while len(found) < len(services) and time.monotonic() < deadline:
            for each in services.keys() - found.keys():
                state = _state(client, each)
                if (ended := _ended(state, services[each])) is not None:
                    found[each] = ended
                    deadline = min(deadline, time.monotonic() + GRACE) if ended.code else deadline
                elif (why := unhealthy(state)) and each not in told:
                    told.add(each)
                    say(f"{services[each]} runs on without its GPUs: {why}; ./yard down, then up hands them over anew")
            time.sleep(POLL)
        return sorted(found.values(), key=lambda ended: ended.when)
    finally:
        client.close()


def _state(client: Any, container_id: str) -> Mapping[str, Any]:
    """What the engine says of a container; empty where there is no such container any more."""
    try:
        state: Mapping[str, Any] = client.api.inspect_container(container_id)["State"]
        return state
    except docker.errors.NotFound:
        return {}
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error


def _ended(state: Mapping[str, Any], service: str) -> Ended | None:
    if not state:
        return Ended(service=service, code=137, when="", error="its container was removed")
    if state["Status"] not in ("exited", "dead"):
        return None
    return Ended(service=service, code=int(state["ExitCode"]), when=state["FinishedAt"], error=state.get("Error") or "")


def unhealthy(state: Mapping[str, Any]) -> str:
    """What the last check of an unhealthy container said; empty where it is healthy, or nothing looks at it."""
    health = state.get("Health") or {}
    if health.get("Status") != "unhealthy":
        return ""
    log = health.get("Log") or [{}]
    return str(log[-1].get("Output", "")).strip() or "its health check fails"


def container(stack: Stack, service: str) -> str:
    """The id of a service's container, running or not."""
    done = process.run(stack.argv("ps", "--all", "--quiet", service), cwd=stack.root, env=stack.env)
    found = done.out.split()
    if not found:
        raise Surroundings(f"the container of {service} is not there", hint="./yard down, then again")
    return found[0]


def running(stack: Stack) -> list[str]:
    """The services of this project that run, whoever started them."""
    client = engines.client(stack.engine)
    try:
        listed = client.containers.list(filters={"label": f"{PROJECT_LABEL}={stack.name}"})
        return sorted({str(each.labels.get(SERVICE_LABEL, each.name)) for each in listed})
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()


def down(stack: Stack) -> None:
    """Remove every container and network of this project."""
    process.run(
        stack.argv("down", "--remove-orphans", "--timeout", str(STOP)),
        cwd=stack.root,
        env=stack.env,
        hint="./yard docker ps --all shows what is left",
    )
