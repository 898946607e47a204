"""The matrix: hardware by choice, the image that each cell selects, who shares it, and what stands against it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchyard.errors import InputError
from torchyard.plan import Cell, CellState, Image, Plan, Verdict
from torchyard.world import process

HEAD = ("hardware", "choice", "image", "shared with", "state")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One cell as a line of the table."""

    hardware: str
    choice: str
    image: str
    shared_with: tuple[str, ...]
    state: CellState
    note: str  # why it is refused or unproven, or which rule is overruled
    nearest: str


def rows(plan: Plan) -> tuple[Row, ...]:
    """The table of a plan's cells."""
    return tuple(
        Row(
            hardware=cell.hardware,
            choice=", ".join(f"{axis} {value}" for axis, value in cell.choice),
            image=cell.image,
            shared_with=tuple(n for n in plan.sharers(cell.image) if n != cell.hardware) if cell.image else (),
            state=cell.state,
            note="; ".join(_note(verdict) for verdict in against(cell)),
            nearest=cell.nearest,
        )
        for cell in plan.cells
    )


def table(plan: Plan) -> list[tuple[str, ...]]:
    """The lines of the table under `HEAD`; what stands against a cell is beside its state."""
    return [
        (row.hardware, row.choice or "-", row.image or "-", ", ".join(row.shared_with) or "-", _state(row))
        for row in rows(plan)
    ]


def _state(row: Row) -> str:
    parts = [row.state.value, row.note, f"nearest: {row.nearest}" if row.nearest else ""]
    return "; ".join(part for part in parts if part)


def against(cell: Cell) -> tuple[Verdict, ...]:
    """The verdicts worth showing: broken rules and overruled ones."""
    return tuple(verdict for verdict in cell.verdicts if not verdict.ok or verdict.allowed)


def _note(verdict: Verdict) -> str:
    return f"{verdict.rule} overruled: {verdict.allowed}" if verdict.allowed else f"{verdict.rule}: {verdict.what}"


def document(plan: Plan) -> dict[str, Any]:
    """The plan as schema/matrix.schema.json describes it."""
    return {
        "project": plan.project,
        "cells": [_cell(cell, cell.candidate or plan.image(cell.image)) for cell in plan.cells],
        "images": [
            {"id": image.id, "cells": [_name(cell) for cell in plan.cells if cell.image == image.id]}
            for image in plan.images
        ],
    }


def _name(cell: Cell) -> dict[str, Any]:
    return {"hardware": cell.hardware, "choice": dict(cell.choice)}


def _cell(cell: Cell, image: Image) -> dict[str, Any]:
    compiled = image.source.arch_list if image.source is not None else None
    return {
        **_name(cell),
        "default": cell.default,
        "gpu": list(cell.gpus),
        "count": cell.count,
        "site": cell.site or None,
        "image": cell.image or None,
        "compute_capability": list(cell.compute_capability),
        "cuda": image.cuda,
        "cudnn": image.cudnn,
        "torch": image.torch,
        "python": image.python,
        "blas": image.blas,
        "build": image.build.value,
        "os": image.base.os,
        "arch": image.arch,
        "driver_min": cell.driver_min or None,
        "arch_list": list(compiled if compiled is not None else (*image.sass, *(f"{p}+PTX" for p in image.ptx))),
        "state": cell.state.value,
        "rules": [
            {"rule": v.rule, "ok": v.ok, "what": v.what, "source": v.source, "allowed": v.allowed or None}
            for v in against(cell)
        ],
        "nearest": cell.nearest or None,
    }


def ci(plan: Plan, changed: Collection[str], style: str) -> dict[str, Any]:
    """A CI matrix of the images whose lock changed, for `github` (strategy.matrix) or `gitlab` (parallel.matrix)."""
    jobs = [(image.id, plan.sharers(image.id)[0]) for image in plan.images if image.id in changed]
    if style == "github":
        return {"include": [{"image": image, "gpu": hardware} for image, hardware in jobs]}
    return {"parallel": {"matrix": [{"IMAGE": image, "GPU": hardware} for image, hardware in jobs]}}


def changed_since(root: Path, ref: str) -> frozenset[str]:
    """The ids of the images whose lock differs from the one at this commit, branch or tag of git."""
    inside = process.run(["git", "rev-parse", "--is-inside-work-tree"], cwd=root, check=False)
    if inside.out.strip() != "true":
        said = inside.err.strip().removeprefix("fatal: ").splitlines()[:1] or ["it is not inside a work tree"]
        raise InputError(
            f"git cannot tell what changed since {ref} in {root}: {said[0]}",
            where="--since",
            hint="run it in a clone of the project, or leave --since out for all images",
        )
    argv = ["git", "diff", "--name-only", "--diff-filter=ACMRT", "-z", "--end-of-options", ref, "--", "images"]
    done = process.run(argv, cwd=root, hint="name a commit that is in this clone: --since origin/main")
    paths = [PurePosixPath(name) for name in done.out.split("\0") if name]
    return frozenset(path.parts[-2] for path in paths if path.name == "lock.yaml" and len(path.parts) > 1)
