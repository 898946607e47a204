"""The files of the stacks: env.yaml's entries and templates in, compose files and what they mount out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from . import render, stack, versions
from .errors import InputError
from .launch import limits
from .matrix import Matrix
from .plan import Cell, CellState, Plan

Template = Callable[[str], str | None]
GPU_SERVICES = ("train", "shell", "jupyter")
NODES = ("node0", "node1")
COPIED = (
    "healthy.py",
    "launch.py",
    "need.py",
    "rank/sitecustomize.py",
    "monitor/counters.csv",
    "monitor/prometheus.yml",
    "monitor/datasource.yaml",
    "monitor/dashboards.yaml",
    "monitor/gpus.json",
)
EXPANDABLE = "expandable_segments:True"  # of the CUDA allocator: less fragmentation; torch knows it from 2.1 on


@dataclass(frozen=True, kw_only=True, slots=True)
class StackView:
    """What the template of a stack receives: finished values."""

    hardware: str
    slug: str
    title: str
    image: str
    shm: str
    processes: int
    node_processes: int
    allocator: str


def cells(plan: Plan) -> list[Cell]:
    """The default cell of every entry that is not refused, in the order of env.yaml."""
    return [cell for cell in plan.cells if cell.default and cell.state is not CellState.REFUSED]


def files(plan: Plan, matrix: Matrix, templates: Template) -> dict[PurePosixPath, str]:
    """Every generated file of the stacks, by path from the repository's top; none where no entry is served."""
    chosen = cells(plan)
    if not chosen:
        return {}
    folder = PurePosixPath("compose")
    made = {PurePosixPath("compose.yaml"): _text("compose.yaml.j2", templates, top=_first(chosen))}
    for cell in chosen:
        view = _view(cell, plan, matrix)
        if cell.hardware.startswith(("devices-", "limits-")):
            raise InputError(
                f"an entry cannot be called {cell.hardware}: its stack would be one of the overlays",
                where=cell.where,
                hint="call it something else",
            )
        made[folder / f"{cell.hardware}.yaml"] = _text("stack.yaml.j2", templates, stack=view)
        path = PurePosixPath(".devcontainer") / cell.hardware / "devcontainer.json"
        made[path] = devcontainer(stack.entry(cell, plan, matrix))
    for count in range(1, min(max(cell.count for cell in chosen), stack.MOST_GPUS) + 1):
        made[folder / f"devices-cdi-{count}.yaml"] = _text("devices-cdi.yaml.j2", templates, **_cdi(count))
    for name in ("devices-nvidia.yaml", "devices-none.yaml"):
        made[folder / name] = _text(f"{name}.j2", templates, services=GPU_SERVICES, nodes=NODES)
    for name, raise_ in (("raised", True), ("kept", False)):
        listed = [_limit(each) for each in limits.ulimits(may_raise=raise_)]
        services = (*GPU_SERVICES, *NODES)
        made[folder / f"limits-{name}.yaml"] = _text("limits.yaml.j2", templates, limits=listed, services=services)
    for name in COPIED:
        text = templates(f"compose/{name}") or ""
        made[folder / name] = f"# Made by `torchyard render`; do not edit.\n{text}" if name.endswith(".py") else text
    return made


def _first(chosen: list[Cell]) -> Cell:
    """The entry that plain `docker compose up` takes before anything was built: one that needs no GPU."""
    return next((cell for cell in chosen if not cell.gpus), chosen[0])


def _view(cell: Cell, plan: Plan, matrix: Matrix) -> StackView:
    entry = stack.entry(cell, plan, matrix)
    gpus = entry.gpus
    return StackView(
        hardware=entry.hardware,
        slug=re.sub(r"[^a-z0-9]+", "-", entry.hardware.lower()).strip("-"),
        title=f"{cell.count} x {', '.join(cell.gpus)}" if cell.gpus else "CPU",
        image=entry.image,
        shm=entry.shm or "1g",
        processes=gpus or stack.CPU_PROCESSES,
        node_processes=max(gpus // 2, 1),
        allocator=EXPANDABLE if gpus and not versions.below(entry.torch, "2.1") else "",
    )


def _cdi(count: int) -> dict[str, Any]:
    """The slots of an overlay for this many GPUs: all for one container, one half for each node of a rehearsal."""
    slots = list(range(count))
    half = count // 2
    nodes = [(name, slots[i * half : (i + 1) * half]) for i, name in enumerate(NODES)]
    return {"count": count, "services": GPU_SERVICES, "slots": slots, "nodes": nodes}


def _limit(text: str) -> tuple[str, str, str]:
    """(name, soft, hard) of a --ulimit value."""
    name, _, values = text.partition("=")
    soft, _, hard = values.partition(":")
    return name, soft, hard


def devcontainer(entry: stack.Entry) -> str:
    """devcontainer.json: the entry's image, by tag as editors want it, with a GPU where the machine has one."""
    overlay = f"${{containerWorkspaceFolder}}/.torchyard/overlay/{entry.image}"
    document: dict[str, Any] = {
        "name": f"{entry.project} {entry.hardware}",
        "image": render.tag(entry.project, entry.image),
        "hostRequirements": {"gpu": "optional"} if entry.gpus else {},
        "runArgs": ["--init", f"--shm-size={entry.shm or '1g'}"],
        "remoteUser": "user",
        "updateRemoteUserUID": True,
        "postCreateCommand": ["overlay", overlay],
        "remoteEnv": {"PATH": f"{overlay}/bin:${{containerEnv:PATH}}", "VIRTUAL_ENV": overlay},
        "customizations": {
            "vscode": {
                "extensions": ["ms-python.python", "ms-toolsai.jupyter"],
                "settings": {"python.defaultInterpreterPath": f"{overlay}/bin/python"},
            }
        },
    }
    if not document["hostRequirements"]:
        del document["hostRequirements"]
    head = (
        "// Made by `torchyard render` from env.yaml; do not edit. The image has to be built first: ./yard build --gpu"
    )
    return f"{head} {entry.hardware}\n{json.dumps(document, indent=2)}\n"


def _text(name: str, templates: Template, **values: Any) -> str:
    return render.filled(f"compose/{name}", templates, **values)
