"""What the host lets a container have: its memory, whether limits may be raised, the GPUs that CDI files name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import yaml

CAP_SYS_RESOURCE = 24
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_KIND = "nvidia.com/gpu"


def memory() -> int:
    """The host's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def may_raise_limits() -> bool:
    """Whether processes of this host's engine may raise their limits: not in every VM, and not rootless."""
    for process in ("1", "self"):  # a /proc with hidepid shows the first one to root alone
        with contextlib.suppress(OSError):
            for line in Path("/proc", process, "status").read_text().splitlines():
                if line.startswith("CapBnd:"):
                    return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def cdi_devices(folders: list[str] | tuple[str, ...]) -> set[str]:
    """The names of the NVIDIA GPUs in the CDI specifications of these folders."""
    found: set[str] = set()
    for folder in folders:
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if path.suffix in (".yaml", ".json") and (spec := _spec(path)).get("kind") == CDI_KIND:
                listed = spec.get("devices")
                found |= {str(d["name"]) for d in listed if "name" in d} if isinstance(listed, list) else set()
    return found


def _spec(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
