"""The stack of one hardware entry on one machine: which devices, how many processes, how much memory, which limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from .errors import InputError, Surroundings
from .finding import Finding, State
from .launch import limits
from .matrix import Matrix
from .plan import Cell, Plan

MIB = 1 << 20
CPU_PROCESSES = 2  # without GPUs: enough to see that data parallel training is right
MOST_GPUS = 16  # of one container by CDI: there is an overlay for each number
HOT_SHARE = 4  # /hot gets at most this part of the host's memory
SHM_UNIT = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
PORTS = (
    ("jupyter", "TORCHYARD_JUPYTER_PORT", 8888),
    ("tensorboard", "TORCHYARD_TENSORBOARD_PORT", 6006),
    ("prometheus", "TORCHYARD_PROMETHEUS_PORT", 9090),
    ("grafana", "TORCHYARD_GRAFANA_PORT", 3000),
)
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]{0,80}")
MIG = re.compile(r"\d+:\d+|MIG-.+")


class Handover(StrEnum):
    """How an engine hands GPUs to containers."""

    CDI = "cdi"
    NVIDIA = "nvidia"
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One hardware entry as a stack needs it; gpus is 0 for a CPU entry, shm empty where env.yaml leaves it to us."""

    project: str
    hardware: str
    image: str
    torch: str
    gpus: int
    mig: str
    shm: str
    where: str
    fabric: str = "none"  # of the entry's site: none, ib or roce
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # what env.yaml puts into the image


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What a machine and its engine give. names: GPUs of a CDI specification; memlock: bytes, -1 for all."""

    place: str  # tells this clone from others: a few hexadecimal digits
    uid: int
    gid: int
    cpus: int
    memory: int
    may_raise: bool
    memlock: int
    handover: Handover = Handover.NONE
    names: frozenset[str] = frozenset()
    detail: str = ""  # why no GPU is handed over, or why that may fail


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the user asked for beside the entry; nothing is what the entry and the machine give."""

    devices: tuple[str, ...] = ()
    processes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything of a stack that depends on the machine; `variables` is what .env says."""

    entry: Entry
    devices: tuple[str, ...]
    processes: int
    variables: Mapping[str, str]
    findings: tuple[Finding, ...] = field(default=())


def entry(cell: Cell, plan: Plan, matrix: Matrix) -> Entry:
    """What the stack of this cell needs of env.yaml."""
    hardware = next(each for each in matrix.hardware if each.name == cell.hardware)
    image = plan.image(cell.image)
    site = matrix.site(hardware.site)
    return Entry(
        project=plan.project,
        hardware=cell.hardware,
        image=cell.image,
        torch=image.torch,
        gpus=cell.count if cell.gpus else 0,
        mig=hardware.mig,
        shm=hardware.shm,
        where=cell.where,
        fabric=site.fabric if site else "none",
        env=MappingProxyType(dict(image.packages.env)),
    )


def settings(entry: Entry, host: Host, wish: Wish, image: str, former: Mapping[str, str], token: str) -> Settings:
    """What .env says of this entry on this machine; image is the reference to run, former what .env said before."""
    devices, handover = _devices(entry, host, wish)
    processes = wish.processes or (len(devices) or min(CPU_PROCESSES, max(host.cpus, 1)))
    _check_processes(entry, devices, processes)
    half = len(devices) // 2
    variables = {
        "COMPOSE_PROJECT_NAME": f"{entry.project}-{host.place}",
        "TORCHYARD_HARDWARE": entry.hardware,
        "TORCHYARD_IMAGE": image,
        "TORCHYARD_DEVICES": overlay(handover, len(devices)),
        "TORCHYARD_LIMITS": "raised" if host.may_raise else "kept",
        "TORCHYARD_PROCESSES": str(processes),
        "TORCHYARD_NODE_PROCESSES": str(max(half, 1)),
        "TORCHYARD_SHM": str(_shm(entry, host)),
        "TORCHYARD_HOT": str(max(host.memory // HOT_SHARE // MIB, 64) * MIB),
        "TORCHYARD_UID": str(host.uid),
        "TORCHYARD_GID": str(host.gid),
        "TORCHYARD_TOKEN": former.get("TORCHYARD_TOKEN") or token,
        **{name: former.get(name) or str(port) for _, name, port in PORTS},
        **_device_variables(handover, devices),
    }
    return Settings(
        entry=entry,
        devices=devices,
        processes=processes,
        variables=MappingProxyType(variables),
        findings=tuple(_findings(entry, host, handover, devices)),
    )


def overlay(handover: Handover, count: int) -> str:
    """The name of the overlay: compose/devices-NAME.yaml."""
    return f"cdi-{count}" if handover is Handover.CDI else str(handover)


def _devices(entry: Entry, host: Host, wish: Wish) -> tuple[tuple[str, ...], Handover]:
    """The GPUs of the job, as the engine names them, and how they are handed over."""
    for name in wish.devices:
        if not DEVICE.fullmatch(name):
            raise InputError(
                f"{name!r} is no name of a GPU", where="--devices", hint="an index (0), a slice (0:1) or a UUID"
            )
    if not entry.gpus:
        if wish.devices:
            raise InputError(f"{entry.hardware} has no GPU", where="--devices", hint="leave --devices out")
        return (), Handover.NONE
    if host.handover is Handover.NONE:
        if wish.devices:
            raise Surroundings(f"no GPU can be handed over: {host.detail}", where="--devices", hint="docs/compose.md")
        return (), Handover.NONE
    chosen = wish.devices or _default_devices(entry, host)
    _check_devices(entry, host, chosen)
    return chosen, host.handover


def _default_devices(entry: Entry, host: Host) -> tuple[str, ...]:
    """The first GPUs, as many as the entry has; of a sliced entry one slice."""
    if entry.mig:
        slices = sorted(name for name in host.names if MIG.fullmatch(name))
        if not slices:
            raise Surroundings(
                f"{entry.hardware} has MIG slices ({entry.mig}), and the engine names none",
                where=entry.where,
                hint="name one: ./yard up --devices 0:0 (CDI) or MIG-... (NVIDIA runtime); nvidia-smi -L lists them",
            )
        return (slices[0],)
    cards = sorted(name for name in host.names if name.startswith("GPU-"))
    if cards and not any(name.isdigit() for name in host.names):
        return tuple(cards[: entry.gpus])
    return tuple(str(index) for index in range(entry.gpus))


def _check_devices(entry: Entry, host: Host, chosen: tuple[str, ...]) -> None:
    if len(set(chosen)) != len(chosen):
        raise InputError(f"a GPU is named twice: {', '.join(chosen)}", where="--devices", hint="name each once")
    if len(chosen) > 1 and any(MIG.fullmatch(name) for name in chosen):
        raise InputError(
            f"{len(chosen)} MIG slices, and CUDA shows a process only one",
            where="--devices",
            hint="take one slice, or whole GPUs; several jobs with one slice each run side by side",
        )
    if len(chosen) > MOST_GPUS:
        raise InputError(
            f"{len(chosen)} GPUs; a stack has at most {MOST_GPUS}",
            where=entry.where,
            hint="choose: ./yard up --devices 0,1,2,3",
        )
    if len(chosen) > entry.gpus:
        raise InputError(
            f"{len(chosen)} GPUs, and {entry.hardware} has {entry.gpus}", where=entry.where, hint="raise its count"
        )
    missing = [name for name in chosen if host.names and name not in host.names]
    if missing:
        here = ", ".join(sorted(host.names - {"all"}, key=_order)) or "only `all`"
        raise Surroundings(
            f"{entry.hardware} has {entry.gpus} GPU(s), and this machine's CDI specification has no"
            f" {', '.join(missing)}; it has {here}",
            where=entry.where,
            hint="choose from these: ./yard up --devices 0; or make the specification anew:"
            " nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )


def _check_processes(entry: Entry, devices: tuple[str, ...], processes: int) -> None:
    """Two processes on one GPU would wait for each other in NCCL for ever."""
    if not devices or processes <= len(devices):
        return
    sliced = any(MIG.fullmatch(name) for name in devices)
    raise InputError(
        f"{processes} processes, and {entry.hardware} gets "
        + ("one MIG slice: CUDA shows a process only one" if sliced else f"{len(devices)} GPU(s)"),
        where="--processes",
        hint="one process a slice: start a job of its own for each of them, with --devices"
        if sliced
        else f"one process a GPU: --processes {len(devices)}, or more --devices",
    )


def _order(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (1 << 30, name)


def _device_variables(handover: Handover, devices: tuple[str, ...]) -> dict[str, str]:
    half = len(devices) // 2
    match handover:
        case Handover.CDI:
            return {f"TORCHYARD_GPU_{index}": name for index, name in enumerate(devices)}
        case Handover.NVIDIA:
            nodes = {f"TORCHYARD_GPUS_NODE{n}": ",".join(devices[n * half : (n + 1) * half]) for n in (0, 1) if half}
            return {
                "TORCHYARD_GPUS": ",".join(devices),
                **nodes,
                **({"TORCHYARD_NODE_DEVICES": "nvidia"} if half else {}),
            }
        case Handover.NONE:
            return {}


def _shm(entry: Entry, host: Host) -> int:
    if entry.shm:
        number, unit = entry.shm[:-1], entry.shm[-1]
        return int(float(number) * SHM_UNIT[unit.lower()])
    return limits.shared_memory(host.memory, max(entry.gpus, 1))


def _findings(entry: Entry, host: Host, handover: Handover, devices: Sequence[str]) -> list[Finding]:
    """What this machine does not give; the stack starts all the same."""
    found = []
    if entry.gpus and handover is Handover.NONE:
        why = f"{host.detail}; the job runs on the CPU"
        found.append(Finding.skipped("stack.devices", what=f"the GPUs of {entry.hardware}", because=why))
    elif entry.gpus:
        given = ", ".join(devices)
        found.append(Finding(rule="stack.devices", state=State.PASS, what="GPUs", expected=given, seen=given))
        if host.detail:
            found.append(_stale(host))
    if not host.may_raise:
        found.append(_memlock(entry, host))
    if entry.fabric != "none" and entry.env.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        found.append(
            Finding(
                rule="stack.fabric",
                state=State.FAIL,
                what="the network of NCCL",
                expected=f"{entry.fabric}, which the site of {entry.hardware} has",
                seen=f"sockets: NCCL_IB_DISABLE={entry.env['NCCL_IB_DISABLE']} in env of env.yaml",
                fix="take it out: most of the bandwidth is lost with it. NCCL first meets over TCP, so where that fails"
                " it is NCCL_SOCKET_IFNAME that has to name the right interface",
            )
        )
    if entry.shm and _shm(entry, host) > host.memory:
        found.append(
            Finding(
                rule="stack.shm",
                state=State.FAIL,
                what="shared memory",
                expected=f"at most the host's {host.memory // MIB} MiB",
                seen=f"{_shm(entry, host) // MIB} MiB",
                fix=f"lower shm at {entry.where}",
            )
        )
    return found


def _stale(host: Host) -> Finding:
    return Finding(
        rule="stack.cdi",
        state=State.FAIL,
        what="the CDI specification",
        expected="one of the driver that runs",
        seen=f"another: {host.detail}",
    )


def _memlock(entry: Entry, host: Host) -> Finding:
    if host.memlock < 0:
        return Finding.same("stack.memlock", what="locked memory", expected="unlimited", seen="unlimited", fix="")
    seen = f"at most {host.memlock // 1024} KiB"
    if not entry.gpus:
        because = f"{seen}, and this host cannot raise it; without GPUs nothing needs it"
        return Finding.skipped("stack.memlock", what="locked memory", because=because)
    return Finding(
        rule="stack.memlock",
        state=State.FAIL,
        what="locked memory",
        expected="unlimited",
        seen=seen,
        fix="NCCL cannot register memory for InfiniBand: give the engine the right to raise limits (CAP_SYS_RESOURCE, "
        "LimitMEMLOCK=infinity of its service)",
    )


def free_ports(variables: Mapping[str, str], services: Sequence[str], free: Callable[[int], bool]) -> dict[str, str]:
    """For the services that publish a port: the one of .env, or the next that is free."""
    taken: set[int] = set()
    found = {}
    for service, name, default in PORTS:
        if service not in services:
            continue
        port = int(variables[name]) if variables.get(name, "").isdigit() else default
        while port in taken or not free(port):
            port += 1
            if port > 65535:
                raise Surroundings(f"no free port for {service}", where="127.0.0.1", hint="end what holds them")
        taken.add(port)
        found[name] = str(port)
    return found
