"""env.yaml and the files that it names, read from a repository: regular files inside it, of bounded size."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from torchyard.errors import InputError, Surroundings
from torchyard.matrix import needed_files, read_bytes_checked
from torchyard.yaml_source import MAX_BYTES

NAME = "env.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvFile:
    """The text of env.yaml and of what it names; None for a file that is not there or cannot be read."""

    text: str
    files: dict[str, str | None]


def read(root: Path) -> EnvFile:
    """env.yaml of this repository with everything that deciding needs beside it."""
    text = _text(root, NAME)
    return EnvFile(text=text, files={name: _optional(root, name) for name in needed_files(text)})


def _optional(root: Path, name: str) -> str | None:
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
        return None
    return _text(root, name)


def _text(root: Path, name: str) -> str:
    """The text of a regular file; anything else in its place is said, not read."""
    path = root / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        hint = "torchyard init writes a first one" if name == NAME else ""
        raise InputError(f"there is no {name} in {root}", where=name, hint=hint) from None
    except OSError as error:
        raise Surroundings(f"{name} cannot be opened: {error.strerror}", where=name, hint=f"ls -l {path}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise InputError(f"{name} is {kind}, not a file", where=name, hint=f"put a text file in its place: {path}")
    with os.fdopen(descriptor, "rb") as stream:
        return read_bytes_checked(stream.read(MAX_BYTES + 1), name)


def create(path: Path, text: str) -> bool:
    """Write a new file; False, and nothing done, if something is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True
