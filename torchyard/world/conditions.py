"""What findings depend on beside the image: the code that looks and judges, and the machine that the image ran on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import docker.errors
import requests

from ..errors import Surroundings
from . import catalog_files
from . import engine as engines
from .engine import Engine

_READ = (".py", ".yaml")


def checks(root: Path, reference: str) -> str:
    """A hash of this torchyard's code and catalogue, the project's own rows, and the words of a reference."""
    digest = _code().copy()
    for name, text in catalog_files.texts(root):
        digest.update(f"{name}\0{text}\0".encode())
    digest.update(reference.encode())
    return digest.hexdigest()


@cache
def _code() -> hashlib._Hash:
    """The hash of this torchyard's code and catalogue, which stay as they are while it runs."""
    digest = hashlib.sha256()
    for name, data in _files(resources.files("torchyard"), ""):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_READ):
            yield prefix + entry.name, entry.read_bytes()


def machine(engine: Engine) -> str:
    """The machine that containers of this engine run on, in words that are the same as long as it is."""
    client = engines.client(engine)
    try:
        info: dict[str, Any] = client.info()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()
    model = _model(Path("/proc/cpuinfo")) if engine.docker_host.startswith("unix:") else ""
    parts = (
        model,
        f"{info.get('NCPU', '?')} CPUs",
        str(info.get("Architecture", "")),
        f"kernel {info.get('KernelVersion', '?')}",
        f"Docker {info.get('ServerVersion', '?')}",
    )
    return ", ".join(part for part in parts if part)


def _model(path: Path) -> str:
    """The name of this machine's CPU; empty where the kernel does not tell it."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
