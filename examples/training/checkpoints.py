"""Checkpoints that are whole or not there: written beside, renamed, named by their content, the oldest removed."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import faults

NAME = re.compile(r"step-(\d{8})\.([0-9a-f]{16})\.pt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A file, the step before which it was written, and what its content hashes to."""

    path: Path
    step: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """All that changes from step to step, and what its numbers depend on."""

    settings: dict[str, Any]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint has in it."""
        return {
            "step": step,
            "settings": self.settings,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])


def found(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder, oldest first."""
    matched = [(path, NAME.fullmatch(path.name)) for path in sorted(folder.glob("step-*.pt"))]
    return [Checkpoint(path=path, step=int(seen[1]), digest=seen[2]) for path, seen in matched if seen]


def save(folder: Path, step: int, state: dict[str, Any], *, keep: int) -> Checkpoint:
    """Write a checkpoint, then remove all but the newest few. Whatever fails, the older ones are still whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"writing-{os.getpid()}.partial"
    try:
        with partial.open("wb") as stream:
            writer = Hashing(stream)
            torch.save(state, writer)  # type: ignore[arg-type]
            writer.check()
            stream.flush()
            os.fsync(stream.fileno())
        path = folder / f"step-{step:08d}.{writer.hash.hexdigest()[:16]}.pt"
        partial.replace(path)
        _sync(folder)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise faults.disk_full(f"the checkpoint of step {step} in {folder}") from None
        raise
    every = found(folder)
    for old in every[:-keep]:
        old.path.unlink()
    return every[-1]


def newest_good(folder: Path, say: Callable[[str], None]) -> bytes | None:
    """The content of the newest checkpoint that is whole, or None. Damaged ones are named."""
    for partial in folder.glob("writing-*.partial"):
        partial.unlink(missing_ok=True)  # of a process that was killed while it wrote
    for each in reversed(found(folder)):
        content = each.path.read_bytes()
        if sha256(content).hexdigest()[:16] == each.digest:
            return content
        say(f"damaged, not used: {each.path}")
    return None


def read(content: bytes) -> dict[str, Any]:
    """What a checkpoint has in it."""
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def put_aside(folder: Path) -> None:
    """Make room for a run from the beginning; what was there goes to a folder beside it."""
    if not found(folder):
        return
    aside = folder.with_name(folder.name + ".before")
    if aside.exists():
        for old in found(aside):
            old.path.unlink()
    aside.mkdir(exist_ok=True)
    for each in found(folder):
        each.path.replace(aside / each.path.name)


def require_same(state: dict[str, Any], settings: dict[str, Any], folder: Path) -> None:
    """Refuse a checkpoint of another model, other data or another choice of what decides the numbers."""
    theirs = state["settings"]
    other = [name for name in settings if theirs.get(name) != settings[name]]
    if other:
        sides = "; ".join(f"{name} is {theirs.get(name)!r} there and {settings[name]!r} here" for name in other)
        raise faults.Fault(
            f"the checkpoint of step {state['step']} in {folder} belongs to another run: {sides}",
            hint="give the options it was made with, another --out, or --fresh to put it aside",
            code=faults.INPUT,
            alone=False,
        )


class Hashing:
    """A file to write to that hashes what it is given, and keeps an error until it is asked.

    torch writes through C++, where an error in the middle of a file ends the whole process.
    """

    def __init__(self, stream: io.BufferedWriter) -> None:
        self.stream = stream
        self.hash = sha256()
        self.error: OSError | None = None

    def write(self, block: bytes) -> int:
        if self.error is None:
            try:
                self.stream.write(block)
                self.hash.update(block)
            except OSError as error:
                self.error = error
        return len(block)

    def flush(self) -> None:
        """Nothing: the file is flushed once, at its end."""

    def check(self) -> None:
        """Raise the error that a write had."""
        if self.error is not None:
            raise self.error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
