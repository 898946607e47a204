"""The container engine: one that answers is used; a private one is set up where none does and the user is root."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import docker
from docker.constants import DEFAULT_TIMEOUT_SECONDS
from docker.errors import DockerException

from torchyard import json_text
from torchyard.errors import InputError, Surroundings
from torchyard.world import engine_client, engine_home, engine_private, engine_root, engine_sources, process
from torchyard.world.engine_home import Home

INSTALL = (
    "install Docker Engine with its buildx and compose plugins "
    "(Debian 13: apt-get install docker.io docker-cli docker-buildx docker-compose; "
    "Ubuntu: apt-get install docker.io docker-buildx docker-compose-v2), then add yourself to the group docker"
)
THREADS = (20, 10, 10)  # https://docs.docker.com/engine/release-notes/20.10/#201010
LIMITS = "it is for builds and CPU tests only, it gives containers no GPU"


class Choice(StrEnum):
    """What TORCHYARD_ENGINE asks for."""

    AUTO = "auto"  # the engine that answers, else a private one
    NONE = "none"  # the engine that answers, never a private one
    PRIVATE = "private"  # the private one, also beside another


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine that answers, and how to reach it.

    docker, buildx and compose are the starts of commands; env is laid over the environment of every such command.
    docker is empty where no client is there (the SDK needs none), compose where its plugin is missing.
    """

    docker_host: str
    private: bool
    docker: tuple[str, ...]
    buildx: tuple[str, ...]
    compose: tuple[str, ...]
    version: str
    containerd_store: bool
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """A place where an engine may be, and why we look there."""

    host: str
    why: str
    tls: tuple[tuple[str, str], ...] = ()  # DOCKER_TLS_VERIFY and DOCKER_CERT_PATH
    explicit: bool = False  # the user named it: where it does not answer, nothing else is tried

    @property
    def env(self) -> dict[str, str]:
        """The variables that lead a client there."""
        return {"DOCKER_HOST": self.host, **dict(self.tls)}


def ensure(say: Callable[[str], None]) -> Engine:
    """The engine to use, set up or started first where that is needed and allowed."""
    environment = dict(os.environ)
    choice = _choice(environment)
    home = engine_home.home_of(environment)
    if choice is not Choice.PRIVATE:
        found = _existing(environment, home)
        if found is not None:
            return _described(found, home, environment, choice, say)
    if choice is Choice.NONE:
        raise Surroundings(
            f"no container engine answers ({_tried(environment)}), and TORCHYARD_ENGINE=none forbids a private one",
            hint=INSTALL,
        )
    _check_private_possible(environment)
    announce(home, say)
    engine_private.up(home, say)
    return private(home, environment)


def client(engine: Engine) -> Any:
    """A client of the Docker SDK for this engine."""
    return _client({**os.environ, **engine.env}, engine.docker_host)


_SPOKEN: dict[str, str] = {}  # by address: the version of the API that was agreed on; a new client asks else


def _client(environment: Mapping[str, str], host: str, *, timeout: int = DEFAULT_TIMEOUT_SECONDS) -> Any:
    made = docker.from_env(
        environment=dict(environment),
        version=_SPOKEN.get(host),
        timeout=timeout,
        use_ssh_client=host.startswith("ssh:"),
    )
    _SPOKEN[host] = made.api.api_version
    return made


def announce(home: Home, say: Callable[[str], None]) -> None:
    """Say that a private engine is set up or started, where it is, what it is for and how it goes away."""
    if engine_private.running(home) is not None:
        return
    if engine_root.made(home.root):
        say(f"no container engine answers on this machine: starting the private one in {home.path} ({LIMITS})")
        return
    say(
        f"no container engine answers on this machine: setting up a private one in {home.path}, from the "
        f"distribution's own packages; nothing is installed on the system. {LIMITS[0].upper()}{LIMITS[1:]}. "
        "./yard engine --down ends it, ./yard engine --down --purge removes it"
    )


def addresses(environment: Mapping[str, str], context: Address | None) -> Iterator[Address]:
    """Where an engine may be, in the order in which it is looked for."""
    host = environment.get("DOCKER_HOST", "")
    if host:
        names = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
        tls = tuple((name, environment[name]) for name in names if environment.get(name))
        yield Address(host=host, why="DOCKER_HOST", tls=tls, explicit=True)
        return
    if context is not None:
        yield context
        if context.explicit:
            return
    yield Address(host="unix:///var/run/docker.sock", why="the system's socket")
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime:
        yield Address(host=f"unix://{runtime}/docker.sock", why="a rootless engine's socket")
    user = environment.get("HOME", "")
    if user:
        yield Address(host=f"unix://{user}/.docker/run/docker.sock", why="Docker Desktop's socket")
        yield Address(host=f"unix://{user}/.docker/desktop/docker.sock", why="Docker Desktop's socket")


def _choice(environment: Mapping[str, str]) -> Choice:
    text = environment.get("TORCHYARD_ENGINE", "") or Choice.AUTO
    try:
        return Choice(text)
    except ValueError:
        raise InputError(
            f"TORCHYARD_ENGINE is {text!r}; it can be {', '.join(Choice)}",
            where="the environment",
            hint="unset it: auto is what it is without it",
        ) from None


def _context(environment: Mapping[str, str]) -> Address | None:
    """The current context of the docker client, where there is a client and a context other than the default."""
    if shutil.which("docker") is None:
        return None
    shown = process.run(["docker", "context", "inspect"], check=False)
    try:
        context = json_text.loads(shown.out)[0]
        host = context["Endpoints"]["docker"]["Host"]
    except (ValueError, LookupError, TypeError):
        return None
    if context.get("Name") == "default" or not host:
        return None
    tls: tuple[tuple[str, str], ...] = ()
    if context.get("TLSMaterial"):
        folder = str(Path(context.get("Storage", {}).get("TLSPath", "")) / "docker")
        tls = (("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", folder))
    return Address(
        host=host,
        why=f"the docker context {context.get('Name')!r}",
        tls=tls,
        explicit=bool(environment.get("DOCKER_CONTEXT")),
    )


def _existing(environment: Mapping[str, str], home: Home) -> Address | None:
    """The first engine that answers; one that the user named and that does not answer is an error."""
    for address in addresses(environment, _context(environment) if not environment.get("DOCKER_HOST") else None):
        if address.host == home.docker_host:
            return address if _answer(address) is not None else None
        if _answer(address) is not None:
            return address
        if address.explicit:
            raise Surroundings(
                f"no container engine answers at {address.host}",
                where=address.why,
                hint=f"start that engine, or unset {address.why.split()[0]}"
                if " " not in address.why
                else "start that engine, or unset DOCKER_CONTEXT",
            )
    return None


def _tried(environment: Mapping[str, str]) -> str:
    return "tried " + ", ".join(_told(a.host) for a in addresses(environment, _context(environment)))


def _told(host: str) -> str:
    """The address; a socket that is there and closed to this user says so."""
    path = host.removeprefix("unix://")
    closed = path != host and os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)
    return f"{host}: permission denied" if closed else host


def _answer(address: Address) -> dict[str, Any] | None:
    """What the engine at this address says of itself; None where none answers."""
    path = address.host.removeprefix("unix://")
    if path != address.host and not os.path.exists(path):
        return None
    try:
        sdk = _client(address.env, address.host, timeout=10)
        try:
            info: dict[str, Any] = sdk.info()
        finally:
            sdk.close()
    except (DockerException, OSError, ValueError):
        return None
    return info


def _check_private_possible(environment: Mapping[str, str]) -> None:
    host = engine_sources.read_host()
    if not host.supported:
        raise Surroundings(
            f"no container engine answers ({_tried(environment)}), and on {host.name} none can be set up "
            "(that works on Debian 12 or newer and Ubuntu 24.04 or newer)",
            hint=INSTALL,
        )
    if os.geteuid() != 0:
        raise Surroundings(
            f"no container engine answers ({_tried(environment)}), and only root can have a private one set up",
            hint=INSTALL,
        )


def private(home: Home, environment: Mapping[str, str]) -> Engine:
    """The private engine of this directory, which runs, with its client."""
    made = engine_client.install(home.root, home.client, environment)
    address = Address(host=home.docker_host, why="the private engine")
    info = _answer(address)
    if info is None:
        raise Surroundings(
            f"the private engine in {home.path} ended just after its start; the last lines of {home.log}:\n"
            + process.last_lines(home.log.read_text(errors="replace")),
            hint="see docs/engine.md",
        )
    start = (str(made.docker),)
    env = {**address.env, "DOCKER_CONFIG": str(made.config), "BUILDX_BUILDER": "default"}
    return Engine(
        docker_host=home.docker_host,
        private=True,
        docker=start,
        buildx=made.buildx,
        compose=(*start, "compose"),
        version=info.get("ServerVersion", ""),
        containerd_store=_containerd_store(info),
        env=env,
    )


def _described(
    address: Address, home: Home, environment: Mapping[str, str], choice: Choice, say: Callable[[str], None]
) -> Engine:
    """An existing engine with a client for it: the machine's own, else the plugins from the distribution's packages."""
    if address.host == home.docker_host:
        return private(home, environment)
    info = _answer(address) or {}
    check_threads(str(info.get("ServerVersion", "")))
    env = address.env
    start: tuple[str, ...] = ("docker",) if shutil.which("docker") else ()
    buildx = bool(start) and process.run([*start, "buildx", "version"], env=env, check=False).code == 0
    if not buildx:
        host = engine_sources.read_host()
        if choice is Choice.NONE or not host.supported or os.geteuid() != 0:
            raise Surroundings(
                f"the engine at {address.host} answers, but this machine has no docker buildx",
                hint="install the package docker-buildx (docker-buildx-plugin where Docker's own packages are used)",
            )
        if not engine_root.made(home.root):
            say(f"this machine has no docker buildx: unpacking a client into {home.root} (nothing is installed)")
        with engine_home.locked(home, say) as lock:
            engine_private.make_programs(home, say, lock)
        made = engine_client.install(home.root, home.client, environment)
        start, env = (str(made.docker),), {**env, "DOCKER_CONFIG": str(made.config)}
    compose = process.run([*start, "compose", "version"], env=env, check=False).code == 0
    return Engine(
        docker_host=address.host,
        private=False,
        docker=start,
        buildx=(*start, "buildx"),
        compose=(*start, "compose") if compose else (),
        version=info.get("ServerVersion", ""),
        containerd_store=_containerd_store(info),
        env=env,
    )


def check_threads(version: str) -> None:
    """Raise where programs of today's distributions cannot start a thread in this engine's containers.

    glibc starts threads by clone3 since 2.34. The seccomp profile of an engine before 20.10.10 answers "not permitted"
    to it, not "no such call", after which glibc would take the older call.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if len(numbers) == 3 and (17,) <= numbers < THREADS:  # before 17 it is another engine's numbering
        raise Surroundings(
            f"Docker {version} lets no program of a newer distribution start a thread (operation not permitted);"
            f" from {'.'.join(map(str, THREADS))} on it does",
            hint="upgrade Docker, to 25 or newer; limits (ulimit) are not the cause and raising them does not help",
        )


def _containerd_store(info: Mapping[str, Any]) -> bool:
    """Whether images live in containerd's store, which has real manifest digests."""
    return any("io.containerd.snapshotter" in str(value) for _, value in info.get("DriverStatus") or [])
