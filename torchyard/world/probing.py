"""The probes of torchyard/inside in containers of an image: run in each setting, none left behind, facts come back."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import count as counter
from pathlib import Path
from typing import Any

import docker.errors
import requests
from docker.types import DeviceRequest, Ulimit

from .. import json_text
from ..errors import Surroundings
from ..judge.cpu_facts import READ_ONLY, UID, USER, Broken, End, Facts, Seen, Setting, event
from ..launch import limits
from ..lock import LockedImage
from . import containers, devices, gpu_access
from . import engine as engines
from .engine import Engine

RANDOM_UID = "1002700000:0"  # as clusters with a range of ids for each project choose them
JOBS = 2  # probes at a time in a container
PATIENCE = 6  # as in inside/run.py: a probe that computes may take so many times its limit
GRACE = 60  # seconds that a container has beyond that
WRITES = {"/tmp": "exec,mode=1777"}  # torch.compile loads what it made there
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # without a network a host's name leads nowhere
RDMA = "/dev/infiniband"
START = (
    "import base64,io,os,sys,tempfile,zipfile;d=tempfile.mkdtemp(prefix='torchyard-');"
    "zipfile.ZipFile(io.BytesIO(base64.b64decode(sys.argv[1]))).extractall(d);"
    "os.execv(sys.executable,[sys.executable,'-S','-E',os.path.join(d,'run.py'),sys.argv[2]])"
)

# Seconds that each probe has; the longest are first, so that two at a time end together.
LIMITS = {
    "compiled": 120,
    "ranks": 120,
    "loader": 90,
    "held": 60,
    "versions": 60,
    "learns": 60,
    "fingerprint": 60,
    "numerics": 60,
    "libraries": 60,
    "profiled": 60,
    "arrays": 60,
    "caches": 60,
    "isolation": 60,
}
ON_GPU = {"devices": 60, "kernels": 120, "memory": 60, "timing": 120, "peers": 60}
PROBES: Mapping[str, tuple[str, ...]] = {
    USER: tuple(LIMITS),
    UID: ("learns", "caches"),
    READ_ONLY: ("compiled", "fingerprint", "loader", "caches"),
}
GPU_PROBES = (*ON_GPU, "compiled", "ranks", "learns", "numerics", "fingerprint", "profiled", "versions")


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What containers get of the host: the kind of device, the requests for GPUs, RDMA devices, memory and limits."""

    device: str
    requests: Sequence[DeviceRequest] = ()
    rdma: bool = False
    memory: int | None = None
    limits: Sequence[Ulimit] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a container gave: the events that its runner printed, and what stopped it."""

    events: tuple[Mapping[str, Any], ...]
    broken: str = ""
    oom: bool = False


def run(
    engine: Engine,
    tag: str,
    lock: LockedImage | None,
    say: Callable[[str], None],
    *,
    device: str = "cpu",
    count: int = 0,
    shm: int | None = None,
    memory: int | None = None,
    fabric: bool = False,
    slower: float = 1.0,
    probes: Mapping[str, Sequence[str]] | None = None,
) -> Facts:
    """What the probes see in containers of this image, none of which has a network or outlives this call.

    device is cpu or cuda, count how many GPUs (0: all); fabric hands over this host's RDMA devices; shm is the bytes of
    /dev/shm, else what `run` gives; memory is the bytes that a container may have, else all; `slower` stretches the
    probes' limits; probes, by setting, are those to run, else all.
    """
    size = limits.shared_memory(devices.memory(), max(count, 1)) if shm is None else shm
    settings = tuple(replace(each, shm=size) for each in _settings(device))
    wanted = probes or (PROBES if device == "cpu" else {USER: GPU_PROBES})
    access = gpu_access.NONE
    if device == "cuda":
        access = gpu_access.look(engine, count)
        if access.missing is not None:
            return Facts(device=device, settings=settings, no_gpu=access.missing, detail=access.detail)
    given = Given(
        device=device, requests=access.requests, rdma=fabric and Path(RDMA).is_dir(), memory=memory, limits=_raised()
    )
    seen: list[Seen] = []
    broken: list[Broken] = []
    for setting in settings:
        if names := wanted.get(setting.name, ()):
            say(f"  {_told(setting)}: {len(names)} probes …")
            found, gone = _setting(engine, tag, setting, _limits(names, slower), given)
            seen += found
            broken += gone
    for each in broken:
        if (lacking := gpu_access.refused(each.what, access.requests)) is not None:
            return Facts(device=device, settings=settings, no_gpu=lacking.missing, detail=lacking.detail)
    return Facts(device=device, settings=settings, seen=tuple(seen), broken=tuple(broken))


def bundle() -> str:
    """The files of torchyard/inside as a zip file in base64, short enough to be one argument."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, resources.files("torchyard.inside"), "")
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _add(archive: zipfile.ZipFile, folder: Any, prefix: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: str(entry.name)):
        if entry.is_dir() and entry.name != "__pycache__":
            _add(archive, entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            archive.writestr(prefix + entry.name, entry.read_text(encoding="utf-8"))


def _settings(device: str) -> tuple[Setting, ...]:
    own = Setting(name=USER)
    if device == "cuda":
        return (own,)
    return (own, Setting(name=UID, user=RANDOM_UID), Setting(name=READ_ONLY, user=RANDOM_UID, read_only=True))


def _raised() -> list[Ulimit]:
    """Memory that RDMA may pin, where this host's engine may raise limits."""
    return [Ulimit(name="memlock", soft=-1, hard=-1)] if devices.may_raise_limits() else []


def _told(setting: Setting) -> str:
    match setting.name:
        case "uid":
            return f"as uid {setting.user}"
        case "read-only":
            return f"as uid {setting.user} with a read-only root"
        case _:
            return "as the image's user"


def _limits(names: Sequence[str], slower: float) -> dict[str, float]:
    known = {**LIMITS, **ON_GPU}
    return {name: max(1, math.ceil(known[name] * slower)) for name in names}


def _setting(
    engine: Engine,
    tag: str,
    setting: Setting,
    probes: Mapping[str, float],
    given: Given,
) -> tuple[list[Seen], list[Broken]]:
    """Run the probes of a setting; where their container is gone before all began, the rest go on in another one."""
    seen: list[Seen] = []
    broken: list[Broken] = []
    left = dict(probes)
    while left:
        ran = _container(engine, tag, setting, left, given)
        began = {str(e["probe"]) for e in ran.events if e["event"] == "begin"}
        ended = [event(setting.name, e) for e in ran.events if e["event"] == "end"]
        seen += ended
        lost = began - {each.probe for each in ended}
        seen += [_lost(setting, name, left[name], ran) for name in sorted(lost)]
        if ran.broken:
            broken.append(Broken(setting=setting.name, what=ran.broken))
        left = {name: limit for name, limit in left.items() if name not in began}
        if not began:
            seen += [_never(setting, name) for name in left]
            break
    return seen, broken


def _lost(setting: Setting, name: str, limit: float, ran: Ran) -> Seen:
    """A probe that was running when its container ended."""
    signal = "SIGKILL" if ran.oom else ""
    return Seen(
        setting=setting.name, probe=name, end=End.DIED, signal=signal, oom=ran.oom, lines=(ran.broken,), limit=limit
    )


def _never(setting: Setting, name: str) -> Seen:
    return Seen(setting=setting.name, probe=name, end=End.UNSTARTED)


_NUMBERS = counter()


def _container(
    engine: Engine,
    tag: str,
    setting: Setting,
    probes: Mapping[str, float],
    given: Given,
) -> Ran:
    """One container from its making to its removal, whatever happens between, Ctrl-C included."""
    asked = json.dumps({"probes": dict(probes), "device": given.device, "jobs": JOBS if given.device == "cpu" else 1})
    name = f"torchyard-verify-{containers.owner()}-{next(_NUMBERS)}"
    client = engines.client(engine)
    client.api.timeout = containers.CREATE_TIMEOUT
    try:
        container = client.containers.create(
            tag,
            ["python", "-S", "-E", "-c", START, bundle(), asked],
            entrypoint=[],
            name=name,
            labels={containers.LABEL: containers.owner()},
            network_mode="none",
            user=setting.user or None,
            read_only=setting.read_only,
            tmpfs=WRITES if setting.read_only else {},
            shm_size=setting.shm or None,
            environment=LOOPBACK,
            device_requests=list(given.requests),
            devices=[f"{RDMA}:{RDMA}:rwm"] if given.rdma else [],
            mem_limit=given.memory,
            memswap_limit=given.memory,
            ulimits=list(given.limits) if given.rdma else [],
            init=False,
        )
        try:
            container.start()
        except docker.errors.APIError as error:
            return Ran(events=(), broken=f"it does not start: {error.explanation or error}")
        return _end(container, PATIENCE * sum(probes.values()) + GRACE, tag)
    except docker.errors.ImageNotFound as error:
        raise Surroundings(f"the engine has no image {tag}", hint="./yard build") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine did not run {tag}: {error}", hint="./yard engine --status") from error
    finally:
        containers.remove(engine, name)
        client.close()


def _end(container: Any, limit: float, tag: str) -> Ran:
    """What a started container of this image printed by its end; past the limit it is ended."""
    code = containers.ended(container, limit, tag)
    broken = f"it ended with code {code}" if code else ""
    if code is None:
        broken = f"it was still running after {limit:.0f} s and was stopped"
        with contextlib.suppress(docker.errors.APIError):
            container.kill()
    oom = False
    with contextlib.suppress(docker.errors.APIError):
        container.reload()
        oom = bool(container.attrs["State"].get("OOMKilled"))
    out = containers.printed(container, tag)
    if broken:
        err = containers.printed(container, tag, errors=True).strip().splitlines()
        broken += " (out of memory)" if oom else ""
        broken += f": {' / '.join(err[-3:])}" if err else ""
    return Ran(events=tuple(_events(out)), broken=broken, oom=oom)


def _events(out: str) -> list[Mapping[str, Any]]:
    """The events of a runner; a line that was cut by its end is no event."""
    found: list[Mapping[str, Any]] = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            told = json_text.loads(line)
            if isinstance(told, dict) and told.get("event") in ("begin", "end"):
                found.append(told)
    return found
