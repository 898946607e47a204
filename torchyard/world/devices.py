"""What the host lets a container have: its memory, whether limits may be raised, the GPUs that CDI files name."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

CAP_SYS_RESOURCE = 24
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_KIND = "nvidia.com/gpu"
DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")  # the file is named by the driver


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Specification:
    """A CDI specification of NVIDIA GPUs: its file, the names of its devices, the drivers whose libraries it names."""

    path: Path
    names: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    readable: bool = True  # by us; of one that is not, nothing else is known


def cdi_devices(folders: list[str] | tuple[str, ...]) -> set[str]:
    """The names of the NVIDIA GPUs in the CDI specifications of these folders."""
    return {name for spec in cdi_specifications(folders) for name in spec.names}


def cdi_specifications(folders: list[str] | tuple[str, ...]) -> list[Specification]:
    """The CDI specifications of NVIDIA GPUs in these folders, and files there that cannot be read."""
    found = []
    for folder in folders:
        for path in sorted(Path(folder).glob("*")) if Path(folder).is_dir() else ():
            if path.suffix in (".yaml", ".json") and (spec := _specification(path)) is not None:
                found.append(spec)
    return found


def _specification(path: Path) -> Specification | None:
    try:
        text = path.read_text(encoding="utf-8")
        loaded = yaml.safe_load(text)
    except PermissionError:
        return Specification(path=path, readable=False)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if not isinstance(loaded, dict) or loaded.get("kind") != CDI_KIND:
        return None
    listed = loaded.get("devices")
    names = {str(each["name"]) for each in listed if "name" in each} if isinstance(listed, list) else set()
    return Specification(path=path, names=frozenset(names), drivers=frozenset(DRIVER_LIBRARY.findall(text)))
