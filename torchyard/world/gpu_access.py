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
from .engine import Engine

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
    """What a machine and its engine say of GPUs: names in CDI specifications, whether CDI is on, NVIDIA's runtime."""

    gpus: int
    on_bus: int
    cdi: frozenset[str]
    cdi_on: bool
    runtime: bool


def look(engine: Engine, count: int) -> Access:
    """How this engine hands over the first `count` GPUs (0: all)."""
    client = engines.client(engine)
    try:
        info: dict[str, Any] = client.info()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not answer: {error}", hint="./yard engine --status") from error
    finally:
        client.close()
    return choose(_host(info), count)


def choose(host: Host, count: int) -> Access:
    """CDI where there is a specification and the engine reads it, else NVIDIA's runtime, else what is missing."""
    wanted = [str(index) for index in range(count)]
    if host.cdi and host.cdi_on:
        ids = [f"{devices.CDI_KIND}={name}" for name in _named(host.cdi, wanted)]
        return Access(requests=(DeviceRequest(driver="cdi", device_ids=ids),))
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
    if not host.gpus and not host.on_bus:
        return Access(missing=NoGpu.NO_GPU, detail="this machine has no NVIDIA GPU")
    if not host.gpus:
        return Access(
            missing=NoGpu.NO_DRIVER, detail=f"{host.on_bus} NVIDIA GPU(s) on the PCI bus, and no driver answers"
        )
    if host.cdi_on:
        return Access(
            missing=NoGpu.NO_CDI,
            detail=f"{host.gpus} GPU(s); the engine reads CDI specifications, and none is of {devices.CDI_KIND}",
        )
    beside = ", a CDI specification that it does not read" if host.cdi else ""
    return Access(
        missing=NoGpu.NO_RUNTIME, detail=f"{host.gpus} GPU(s){beside}; the engine has neither NVIDIA's runtime nor CDI"
    )


def _host(info: Mapping[str, Any]) -> Host:
    folders = info.get("CDISpecDirs")
    return Host(
        gpus=len(host_gpu.look().gpus),
        on_bus=on_bus(Path("/sys/bus/pci/devices")),
        cdi=frozenset(devices.cdi_devices(folders or devices.CDI_FOLDERS)),
        cdi_on=bool(folders),  # an engine that has CDI off, or does not know it, names no folders
        runtime="nvidia" in (info.get("Runtimes") or {}),
    )


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
