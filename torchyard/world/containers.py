"""Containers through the Docker SDK: run one to its end, and leave none behind."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as counter
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests

from .. import json_text
from ..errors import CheckFailed, Surroundings
from . import engine as engines
from .engine import Engine

LABEL = "torchyard.owned"  # by which process of which machine, see `owner`
ASK_AGAIN = 30  # seconds after which the engine is asked again whether a container has ended
_NUMBERS = counter()
CREATE_TIMEOUT = 300  # seconds; a busy host answers late, and a container it makes after we gave up would stay


class Removed(Surroundings):
    """Somebody else removed a container that was at work."""

    def __init__(self, image: str) -> None:
        super().__init__(
            f"something else removed the container of {image} while it was at work",
            where=image,
            hint="run the command again when nothing cleans up the engine's containers meanwhile",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What a container answered: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


def run(
    engine: Engine,
    image: str,
    argv: Sequence[str],
    *,
    user: str = "",
    timeout: float = 600,
    read_only: bool = False,
    tmpfs: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command in a fresh container without a network, and remove the container whatever happens."""
    name = f"torchyard-probe-{owner()}-{next(_NUMBERS)}"
    client = engines.client(engine)
    client.api.timeout = CREATE_TIMEOUT
    try:
        container = client.containers.create(
            image,
            list(argv),
            name=name,
            network_mode="none",
            user=user or None,
            read_only=read_only,
            tmpfs=dict(tmpfs or {}),
            environment=dict(environment or {}),
            labels={LABEL: owner()},
            init=False,
        )
        container.start()
        code = ended(container, timeout, image)
        if code is None:
            raise CheckFailed(f"the container of {image} did not end within {timeout:.0f} s", hint="look at what hangs")
        return Ended(code=code, out=printed(container, image), err=printed(container, image, errors=True))
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine did not run {image}: {error}", hint="./yard engine --status") from error
    finally:
        remove(engine, name)  # also one that an engine made although its answer came too late
        client.close()


def ended(container: Any, limit: float, image: str) -> int | None:
    """The exit code of a started container of this image; None where it still runs after so many seconds.

    The engine is asked anew now and then, because a busy one has been seen never to answer for a container that is
    gone. Raises Removed where somebody else removed it.
    """
    until = time.monotonic() + limit
    try:
        while (left := until - time.monotonic()) > 0:
            try:
                code = int(container.wait(timeout=min(left, ASK_AGAIN))["StatusCode"])
            except (requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError):
                container.reload()
                if container.status not in ("exited", "dead", "removing"):
                    continue
                code = int(container.attrs["State"]["ExitCode"])
            if code:  # what is removed by force is killed first
                container.reload()
                if container.status in ("dead", "removing"):
                    raise Removed(image)
            return code
    except docker.errors.NotFound as error:
        raise Removed(image) from error
    return None


def printed(container: Any, image: str, *, errors: bool = False) -> str:
    """What a container of this image printed, to its standard error or output; raises Removed where it is gone."""
    try:
        data: bytes = container.logs(stdout=not errors, stderr=errors)
    except docker.errors.NotFound as error:
        raise Removed(image) from error
    return data.decode("utf-8", "replace")


def probe(engine: Engine, image: str, source: str, **options: Any) -> dict[str, Any]:
    """The JSON that a Python program prints inside the image; the program is given as its text."""
    ended = run(engine, image, ["python", "-c", source], **options)
    try:
        if ended.code == 0:
            found: dict[str, Any] = json_text.loads(ended.out)
            return found
    except json.JSONDecodeError:
        pass
    last = "\n".join((ended.err or ended.out).strip().splitlines()[-5:])
    raise CheckFailed(
        f"the probe ended with code {ended.code} in {image}: {last}", hint="the image cannot run Python as it should"
    )


def describe(engine: Engine, image: str) -> dict[str, Any] | None:
    """What the engine knows of a local image (Id, RootFS.Layers, RepoTags, Size), or None where it has none."""
    client = engines.client(engine)
    try:
        found: dict[str, Any] = client.api.inspect_image(image)
        return found
    except docker.errors.ImageNotFound:
        return None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()


def data_root(engine: Engine) -> Path | None:
    """Where the engine keeps its data, as it tells; None where it does not answer."""
    client = engines.client(engine)
    try:
        return Path(str(client.info()["DockerRootDir"]))
    except (KeyError, docker.errors.DockerException, requests.exceptions.RequestException):
        return None
    finally:
        client.close()


def data_roots(engine: Engine) -> list[Path]:
    """The folder where the engine keeps its data, where it is one of this machine."""
    root = data_root(engine)
    return [root] if root is not None and root.is_dir() else []


def untag(engine: Engine, tag: str) -> None:
    """Take a name from an image, which goes with its last name."""
    client = engines.client(engine)
    try:
        client.api.remove_image(tag, noprune=False)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        pass
    finally:
        client.close()


def remove(engine: Engine, name: str) -> None:
    """Remove a container by name, if it is still there."""
    client = engines.client(engine)
    try:
        client.containers.get(name).remove(force=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        pass
    finally:
        client.close()


def owner() -> str:
    """This process, told from those of other machines and of other process namespaces, whose engine may be the same."""
    return f"{_place()}-{os.getpid()}"


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:16]


def is_gone(label: str) -> bool:
    """Whether the owner that this label names was a process here, and is no more."""
    place, _, pid = label.partition("-")
    if place != _place() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        return False
    return False


def sweep(engine: Engine, say: Callable[[str], None]) -> None:
    """Remove containers of ours whose torchyard process, on this machine, is gone, as after a kill."""
    client = engines.client(engine)
    try:
        for container in client.containers.list(all=True, filters={"label": LABEL}):
            if is_gone(container.labels.get(LABEL, "")):
                say(f"removing {container.name}: the command that started it was killed")
                container.remove(force=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        pass
    finally:
        client.close()
