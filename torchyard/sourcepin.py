"""The source of a compiled torch, pinned; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SourceKind(StrEnum):
    """What the source is taken from."""

    GIT = "git"  # a commit with its submodules, as one tar that is the same wherever it is made
    ARCHIVE = "archive"  # the release's own archive, named by its hash


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePin:
    """One tar with all of the source, as the lock has it: where it is from, hash and size in bytes."""

    kind: SourceKind
    ref: str
    commit: str  # of 40 hexadecimal digits; empty for an archive whose commit nobody named
    sha256: str
    size: int
