"""The generated files of the stacks on disk, told from a user's own that stand beside them."""

from __future__ import annotations

from pathlib import PurePosixPath

from .workspace import Workspace

MARK = "Made by `torchyard render`"
PATTERNS = ("compose.yaml", "compose/*.yaml", ".devcontainer/*/devcontainer.json")


def generated(work: Workspace) -> dict[PurePosixPath, str | None]:
    """Every file of stacks that only torchyard writes, by path from the root; a user's own files are not among them."""
    found: dict[PurePosixPath, str | None] = {}
    for pattern in PATTERNS:
        for path in sorted(work.root.glob(pattern)):
            key = PurePosixPath(path.relative_to(work.root).as_posix())
            text = work.read(key)
            if text is not None and MARK in text:
                found[key] = text
    return found


def is_own(work: Workspace, path: PurePosixPath) -> bool:
    """Whether a file is there that torchyard did not write."""
    text = work.read(path)
    return text is not None and MARK not in text and path.suffix != ".json"
