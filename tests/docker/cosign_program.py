"""cosign for tests: the installed one, or Debian's own, unpacked into a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import other_release


def folder(cache: Path) -> Path:
    """A folder for PATH that has `cosign`; skips, with what apt said, where it cannot be had."""
    programs = cache / "bin"
    programs.mkdir(parents=True)
    found = shutil.which("cosign")
    if found is None:
        found = str(other_release.unpacked(cache, other_release.STABLE, ("cosign",)) / "usr" / "bin" / "cosign")
    (programs / "cosign").symlink_to(found)
    return programs
