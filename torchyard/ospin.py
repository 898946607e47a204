"""One package of the distribution, pinned; no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OsPin:
    """One .deb as the lock has it: name, version, hash and size in bytes, and the archive that carried it."""

    name: str
    version: str
    architecture: str  # "amd64", "arm64", "all"
    size: int
    sha256: str
    archive: str  # "release", "updates", "security"
    path: str  # in the archive's pool
    group: str  # the layer it belongs to: "base", "os", "user", "dev"
