"""`explain`: what fits together, why not, and the nearest thing that does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torchyard import catalog, explain, resolve
from torchyard.catalog import Catalog
from torchyard.errors import Exit, InputError
from torchyard.explain import Completion
from torchyard.plan import CellState
from torchyard.rules import Request, parse_request
from torchyard.world import catalog_files, workspace


def load(root: Path) -> Catalog:
    """The catalogue with the user's `catalog.d` beside env.yaml."""
    return catalog.load(catalog_files.texts(root))


def root() -> Path:
    """The project's folder, whose `catalog.d` counts; the current one outside a project."""
    try:
        return workspace.find().root
    except InputError:
        return Path.cwd()


def request(folder: Path, gpu: str, asked: Mapping[str, str], entry: str) -> Request:
    """The request that these words make; what they leave open comes from an entry of env.yaml, if one is named."""
    given: dict[str, object] = {name: value for name, value in asked.items() if value}
    if gpu:
        given["gpus"] = [name.strip() for name in gpu.split(",")]
    words = parse_request(given)
    if not entry:
        return words
    from . import project as projects  # brings the whole pipeline, which a plain question does not need

    wanted = resolve.question(projects.read_matrix(folder, load(folder)), entry)
    return replace(wanted, **{name: getattr(words, name) for name in given})


def run(root: Path, request: Request) -> Completion:
    """One request completed, the runners-up and the nearest cell with it."""
    return explain.complete(request, load(root))


def show(root: Path, done: Completion) -> str:
    """A completion as text for a person."""
    return explain.told(done, load(root))


def show_json(done: Completion) -> str:
    """A completion as one line of JSON."""
    return json.dumps(explain.as_data(done), ensure_ascii=False)


def exit_code(done: Completion) -> Exit:
    """1 for a refused cell, else 0: an unproven one warns."""
    return Exit.BAD if done.state is CellState.REFUSED else Exit.GOOD


def run_requests(root: Path, file: str) -> Iterator[str]:
    """One line of JSON for each line of a file of requests (`-` for standard input), in the same order."""
    known = load(root)
    for line in _lines(file):
        yield json.dumps(explain.answer(line, known), ensure_ascii=False)


def _lines(file: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=file, hint="give a file of JSON lines") from None
    lines = data.decode("utf-8-sig", errors="replace").split("\n")
    return lines[:-1] if lines and not lines[-1].strip() else lines
