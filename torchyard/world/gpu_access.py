"""How containers of an engine get GPUs: by CDI, by NVIDIA's runtime, or not at all, and then why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors
import requests
from docker.types import DeviceRequest

from ..errors import Surroundings
from ..judge.cpu_facts import NoGpu
from . import devices, host_gpu
from . import engine as engines
from .devices import Specification
from .engine import Engine

GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
NVIDIA = "0x10de"  # PCI vendor
DISPLAY = ("0x0300", "0x0302")  # PCI classes: VGA and 3D controllers
_SLICE = re.compile(r"\d+:\d+")  # a MIG slice: the number of its card, and its own there
ANSWERS = (  # of engines to a request for GPUs that they cannot serve, and what is missing then
    ("could not select device driver", NoGpu.NO_RUNTIME),
    ('"nvidia-container-runtime-hook": executable file not found', NoGpu.NO_RUNTIME),
    ("nvml error: driver not loaded", NoGpu.NO_DRIVER),
    ("unresolvable CDI devices", NoGpu.NO_CDI),
    ("CDI device injection failed", NoGpu.NO_CDI),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """The requests that hand over GPUs, or what is missing for it and what was seen."""

    requests: tuple[DeviceRequest, ...] = ()
    missing: NoGpu | None = None
    detail: str = ""


NONE = Access()


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What a machine and its engine say of GPUs: names in CDI specifications, whether CDI is on, NVIDIA's runtime.

    remote is the address of an engine on another machine, of which the GPUs and files of this one tell nothing.
    """

    gpus: int
    on_bus: int
    cdi: frozenset[str]
    cdi_on: bool
    runtime: bool
    remote: str = ""
    stale: str = ""  # how the specification differs from the driver that runs
    apart: str = ""  # specifications that the engine does not read, and where it reads
    whose: str = ""  # whose engine it is that answers, where its configuration is not the system's


def look(engine: Engine, count: int) -> Access:
    """How this engine hands over the first `count` GPUs (0: all)."""
    client = engines.client(engine)
    try:
        info: dict[str, Any] = client.info()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()
    return choose(_host(info, engine.docker_host), count)


def choose(host: Host, count: int) -> Access:
    """CDI where there is a specification and the engine reads it, else NVIDIA's runtime, else what is missing."""
    wanted = [str(index) for index in range(count)]
    if host.cdi and host.cdi_on:
        ids = [f"{devices.CDI_KIND}={name}" for name in _named(host.cdi, wanted)]
        return Access(requests=(DeviceRequest(driver="cdi", device_ids=ids),), detail=host.stale)
    if host.runtime:
        if wanted:
            return Access(requests=(DeviceRequest(device_ids=wanted, capabilities=[["gpu"]]),))
        return Access(requests=(DeviceRequest(count=-1, capabilities=[["gpu"]]),))
    return _missing(host)


def _named(cdi: frozenset[str], wanted: list[str]) -> list[str]:
    """The names in a specification for the wanted devices: by number, else as many MIG slices, UUIDs, or all."""
    if not wanted and "all" in cdi:
        return ["all"]
    numbers = sorted((name for name in cdi if name.isdigit()), key=int)
    slices = sorted(
        (name for name in cdi if _SLICE.fullmatch(name)), key=lambda name: [int(n) for n in name.split(":")]
    )
    cards = numbers or slices or sorted(name for name in cdi if name.startswith("GPU-"))
    chosen = (wanted if cdi.issuperset(wanted) else cards[: len(wanted)]) if wanted else cards
    return chosen or (["all"] if "all" in cdi else sorted(cdi))


def options(engine: Engine, count: int, say: Callable[[str], None]) -> list[str]:
    """The `docker run` options that hand over the first `count` GPUs (0: all); none where there are none, said so."""
    access = look(engine, count)
    if access.missing is not None:
        say(f"the container gets no GPU: {access.detail}")
    elif access.detail:
        say(access.detail)
    return [part for request in access.requests for part in option(request)]


def option(request: DeviceRequest) -> list[str]:
    """The options of `docker run` for one request."""
    ids = request["DeviceIDs"]
    if request["Driver"] == "cdi":
        return [part for name in ids for part in ("--device", name)]
    return ["--gpus", f'"device={",".join(ids)}"' if ids else "all"]


def refused(problem: str, requests: Sequence[DeviceRequest]) -> Access | None:
    """What is missing where an engine did not start a container for want of the GPUs that it was asked for."""
    missing = next((kind for words, kind in ANSWERS if words in problem), None) if requests else None
    return Access(missing=missing, detail=problem) if missing is not None else None


def _missing(host: Host) -> Access:
    if host.remote:
        return Access(
            missing=NoGpu.NO_RUNTIME,
            detail=f"the engine at {host.remote} has no runtime of NVIDIA; GPUs, driver and CDI files of this machine"
            " do not count there",
        )
    if not host.gpus and not host.on_bus:
        return Access(missing=NoGpu.NO_GPU, detail="this machine has no NVIDIA GPU")
    if not host.gpus:
        return Access(
            missing=NoGpu.NO_DRIVER, detail=f"{host.on_bus} NVIDIA GPU(s) on the PCI bus, and no driver answers"
        )
    more = "".join(f"; {each}" for each in (host.apart, host.whose) if each)
    if host.cdi_on:
        return Access(
            missing=NoGpu.NO_CDI,
            detail=f"{host.gpus} GPU(s); the engine reads CDI specifications, and none is of {devices.CDI_KIND}{more}",
        )
    beside = ", a CDI specification that it does not read" if host.cdi else ""
    return Access(
        missing=NoGpu.NO_RUNTIME,
        detail=f"{host.gpus} GPU(s){beside}; the engine has neither NVIDIA's runtime nor CDI{more}",
    )


def _host(info: Mapping[str, Any], address: str) -> Host:
    folders = info.get("CDISpecDirs")
    runtime = "nvidia" in (info.get("Runtimes") or {})
    if not address.startswith("unix:"):
        return Host(gpus=0, on_bus=0, cdi=frozenset(), cdi_on=False, runtime=runtime, remote=address)
    here = host_gpu.look()
    read = devices.cdi_specifications(folders or devices.CDI_FOLDERS)
    return Host(
        gpus=len(here.gpus),
        on_bus=on_bus(Path("/sys/bus/pci/devices")),
        cdi=frozenset(name for spec in read for name in spec.names),
        cdi_on=bool(folders),  # an engine that has CDI off, or does not know it, names no folders
        runtime=runtime,
        stale=stale(read, here.driver),
        apart=apart(folders or (), devices.CDI_FOLDERS),
        whose=whose(info),
    )


def stale(read: Sequence[Specification], driver: str) -> str:
    """What to say where every specification names another driver's libraries than those of the driver that runs."""
    named = {each for spec in read for each in spec.drivers}
    if not driver or not named or driver in named:
        return ""
    paths = ", ".join(str(spec.path) for spec in read if spec.drivers)
    return f"{paths} is of driver {', '.join(sorted(named))}, and {driver} runs: make it anew: {GENERATE}"


def apart(reads: Sequence[str], known: Sequence[str]) -> str:
    """What to say of specifications in known folders that an engine with these folders does not read."""
    reached = {Path(folder).resolve() for folder in reads}
    found = devices.cdi_specifications([folder for folder in known if Path(folder).resolve() not in reached])
    there = [str(spec.path) for spec in found if spec.readable]
    closed = [str(spec.path) for spec in (*found, *devices.cdi_specifications(tuple(reads))) if not spec.readable]
    parts = [f"{', '.join(closed)} cannot be read"] if closed else []
    if there and reads:
        parts.append(f"{', '.join(there)} is there, and this engine reads {', '.join(reads)} only: {GENERATE}")
    return "; ".join(parts)


def whose(info: Mapping[str, Any]) -> str:
    """Whose engine it is that tells this of itself, and which file it is configured by, where not the system's."""
    if any("rootless" in str(each) for each in info.get("SecurityOptions") or ()):
        return (
            "it is a rootless engine, which reads ~/.config/docker/daemon.json and not /etc/docker/daemon.json:"
            " nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json"
        )
    if str(info.get("DockerRootDir", "")).startswith("/var/snap/"):
        return (
            "it is the engine of the snap, which reads /var/snap/docker/current/config/daemon.json and not"
            " /etc/docker/daemon.json: configure that one, or use the engine of the distribution or of docker.com"
        )
    if info.get("OperatingSystem") == "Docker Desktop":
        return "it is Docker Desktop's engine, which reads its own settings and not /etc/docker/daemon.json"
    return ""


def on_bus(folder: Path) -> int:
    """How many of NVIDIA's GPUs the kernel sees on the PCI bus."""
    found = 0
    for device in folder.glob("*") if folder.is_dir() else ():
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        found += vendor == NVIDIA and kind[:6] in DISPLAY
    return found
