"""What the tests of reported failures share: an env.yaml resolved, its recipes, and questions to `explain`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from canned_locks import canned

from torchyard import catalog, explain, matrix, render, resolve, rules
from torchyard.errors import Exit, YardError
from torchyard.explain import Completion
from torchyard.plan import Cell, CellState, Plan
from torchyard.world import workspace

ROOT = Path(__file__).resolve().parents[2]
CATALOG = catalog.load()
HEAD = "schema: 1\nproject: a\n"


def planned(text: str, **files: str) -> Plan:
    """The plan of an env.yaml; `__` in a file's name stands for its dot."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    return resolve.plan(matrix.parse(HEAD + text, files=named, known=resolve.names(CATALOG)), CATALOG)


def entry(hardware: str, torch: str = "2.14.1", **software: str) -> Cell:
    """The cell of one hardware entry, written as in a mapping of YAML."""
    more = "".join(f", {key}: {value}" for key, value in software.items())
    (cell,) = planned(f'software: {{torch: "{torch}"{more}}}\nhardware: {{a: {{{hardware}}}}}\n').cells
    return cell


def refused(cell: Cell) -> YardError:
    """The error of a cell that has to be refused: the user's own, with the place and the way on."""
    assert cell.state is CellState.REFUSED
    error = resolve.refusal(cell)
    assert error.code is Exit.INPUT and "hardware.a" in error.where and error.hint
    return error


def told(text: str, **files: str) -> YardError:
    """The one mistake that is told of an env.yaml."""
    with pytest.raises(YardError) as caught:
        planned(text, **files)
    (error,) = caught.value.problems()
    assert error.code is Exit.INPUT and error.where and error.hint
    return error


def recipes(plan: Plan) -> list[str]:
    """The Dockerfile of each image."""
    found = []
    for image in plan.images:
        files = render.image_files(canned(image), workspace.packaged_template)
        found.append(files[PurePosixPath(f"images/{image.id}/Dockerfile")])
    return found


def ask(**request: Any) -> Completion:
    """What `explain` says of a request."""
    return explain.complete(rules.parse_request(request), CATALOG)
