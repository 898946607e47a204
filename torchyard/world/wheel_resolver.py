"""uv as a resolver: what it is asked, and what it answers."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import uv
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchyard.wheelpin import WheelPin
from torchyard.world import process
from torchyard.world.wheel_view import View

MANYLINUX = (17, 28, *range(31, 41))  # of glibc 2.N: what uv 0.13 knows by name


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What the wheels must run on, and which build of torch they belong to."""

    torch: Version
    python: str
    arch: str
    glibc: str
    index: str
    exclude_newer: date | None

    @property
    def words(self) -> str:
        """The target as an error names it."""
        return f"Python {self.python} on {self.arch} with glibc {self.glibc}"


def compiled(text: str) -> dict[str, tuple[Version, list[str]]]:
    """Of each line `name==version  # via a, b`: its version and, the other way round, the names that it requires."""
    versions: dict[str, Version] = {}
    requires: dict[str, list[str]] = {}
    for line in text.splitlines():
        found = re.match(r"([A-Za-z0-9._-]+)==(\S+)(?:.*#\s*via (.*))?", line)
        if not found:
            continue
        name = str(canonicalize_name(found[1]))
        versions[name] = Version(found[2])
        for parent in (each.strip() for each in (found[3] or "").split(",")):
            if parent and not parent.startswith("-"):
                requires.setdefault(canonicalize_name(parent.partition("[")[0]), []).append(name)
    return {name: (version, requires.get(name, [])) for name, version in versions.items()}


def run(
    asked: Sequence[str],
    constraints: Sequence[str],
    target: Target,
    view: View,
    prefer: Sequence[WheelPin],
    overrides: Sequence[str] = (),
) -> process.Completed:
    """What uv's resolver answers for these requirements, with every package taken from `view`."""
    with tempfile.TemporaryDirectory(prefix="torchyard-") as folder:
        files = {
            "requirements.in": "".join(f"{line}\n" for line in asked),
            "constraints.txt": "".join(f"{line}\n" for line in constraints),
            "overrides.txt": "".join(f"{line}\n" for line in overrides),
            "kept.txt": "".join(f"{pin.name}=={pin.version}\n" for pin in prefer),
        }
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        return process.run(
            [
                uv.find_uv_bin(), "pip", "compile", "requirements.in",
                "--constraint", "constraints.txt", "--output-file", "kept.txt",
                "--override", "overrides.txt",
                "--default-index", view.url, "--only-binary", ":all:",
                "--python", sys.executable, "--python-version", target.python,
                "--python-platform", platform(target.arch, target.glibc),
                "--no-config", "--no-cache", "--no-header", "--annotation-style", "line",
                "--no-progress", "--color", "never", "--no-python-downloads",
            ],
            cwd=folder,
            env=_environment(),
            check=False,
        )  # fmt: skip


def platform(arch: str, glibc: str) -> str:
    """The name by which uv knows this processor and glibc, or the next older one that it knows."""
    minor = int(glibc.split(".")[1])
    return f"{arch}-manylinux_2_{max((each for each in MANYLINUX if each <= minor), default=MANYLINUX[0])}"


def _environment() -> dict[str, str | None]:
    """What is laid over the environment: the resolver talks to this process only, and nothing inherited steers it."""
    steering = re.compile(r"(UV|PIP)_|(https?|all|no)_proxy$", flags=re.IGNORECASE)
    return {
        **{name: None for name in os.environ if steering.match(name)},
        "UV_HTTP_RETRIES": "0",
        "UV_CONCURRENT_DOWNLOADS": "16",
    }
