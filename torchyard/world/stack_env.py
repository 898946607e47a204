""".env of the stacks: what this machine and its engine give, decided for one hardware entry, and written."""

from __future__ import annotations

import hashlib
import os
import resource
import secrets
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker.errors
import requests

from .. import stack, stack_lines
from ..errors import InputError, Surroundings
from ..stack import Entry, Handover, Host, Settings, Wish
from . import devices, gpu_access, host_gpu, process
from . import engine as engines
from .engine import Engine
from .workspace import Workspace, write_whole

ENV = ".env"
FOLDERS = ("data", "runs")
MOUNTED = {"TORCHYARD_DATA": "data", "TORCHYARD_RUNS": "runs"}  # and where that is if .env does not say it
NOTHING = Wish()


def write(work: Workspace, entry: Entry, image: str, engine: Engine, wish: Wish = NOTHING) -> Settings:
    """Write .env for this entry with the image of this digest, and make the folders that a stack mounts."""
    former = work.read(ENV) or ""
    values = stack_lines.values(former)
    decided = stack.settings(entry, host(work, engine, entry), wish, image, values, secrets.token_hex(24))
    save(work, {**decided.variables})
    for name in FOLDERS:
        (work.root / name).mkdir(exist_ok=True)
    (work.local / "overlay").mkdir(parents=True, exist_ok=True)
    return decided


def save(work: Workspace, variables: dict[str, str]) -> None:
    """Write these variables into .env; the user's own lines stay. Only the user can read it: it holds a token."""
    former = work.read(ENV) or ""
    text = stack_lines.text(variables, former)
    if text != former:
        write_whole(work.root / ENV, text.encode(), mode=0o600)


def host(work: Workspace, engine: Engine, entry: Entry) -> Host:
    """What this machine and its engine give to the stacks of this clone."""
    handover, names, detail = _gpus(engine, entry)
    return Host(
        place=place(work.root),
        uid=os.getuid(),
        gid=os.getgid(),
        cpus=len(os.sched_getaffinity(0)),
        memory=devices.memory(),
        may_raise=devices.may_raise_limits(),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        handover=handover,
        names=names,
        detail=detail,
    )


def place(root: Path) -> str:
    """What tells this clone from others: their stacks run side by side."""
    return hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]


def _gpus(engine: Engine, entry: Entry) -> tuple[Handover, frozenset[str], str]:
    """How GPUs are handed over, the names that CDI knows, and why there are none or what is wrong with them."""
    if not entry.gpus:
        return Handover.NONE, frozenset(), ""
    info = _info(engine)
    folders = info.get("CDISpecDirs") if engine.docker_host.startswith("unix:") else None
    read = devices.cdi_specifications(folders or ())
    if names := frozenset(name for spec in read for name in spec.names):
        return Handover.CDI, names, gpu_access.stale(read, host_gpu.look().driver)
    if "nvidia" in (info.get("Runtimes") or {}):
        return Handover.NVIDIA, frozenset(), ""
    return Handover.NONE, frozenset(), gpu_access.look(engine, entry.gpus).detail


def _info(engine: Engine) -> dict[str, Any]:
    client = engines.client(engine)
    try:
        info: dict[str, Any] = client.info()
        return info
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()


def is_ignored(work: Workspace) -> bool:
    """Whether git leaves .env out, which holds a token; true where there is no git to ask."""
    try:
        return process.run(["git", "check-ignore", "--quiet", ENV], cwd=work.root, check=False).code != 1
    except Surroundings:
        return True


def check_folders(work: Workspace, values: Mapping[str, str]) -> None:
    """Raise where a folder that a stack mounts is not there; nobody but its owner should make it."""
    for name, usual in MOUNTED.items():
        given = values.get(name) or usual
        if "$" in given:  # Compose knows what that means
            continue
        path = work.root / os.path.expanduser(given)
        if not os.path.isdir(path):
            raise InputError(
                f"the folder {path} is not there, or not for you to see",
                where=f"{name} in .env",
                hint=f"create it yourself, as the one whose it shall be: mkdir -p {shlex.quote(str(path))}",
            )


def port_is_free(port: int) -> bool:
    """Whether nothing listens on this port of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as an engine binds it: a closed one is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
