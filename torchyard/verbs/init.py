"""A first env.yaml, tasks.py and schema in a repository, from what the host has; nothing there is overwritten."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchyard import catalog, first_env
from torchyard.matrix import describe
from torchyard.world import env_file, host_gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """What was written, what was there already, and the GPUs that were seen."""

    written: tuple[str, ...]
    kept: tuple[str, ...]
    gpus: tuple[str, ...]
    driver: str


def init(root: Path) -> Started:
    """Write what is not there yet, and say what is."""
    host = host_gpu.look()
    seen = first_env.Seen(
        arch="aarch64" if host.arch in ("aarch64", "arm64") else "x86_64",
        driver=host.driver,
        gpus=tuple((gpu.name, gpu.memory_mib) for gpu in host.gpus),
    )
    files = {
        "env.yaml": first_env.text(seen, catalog.load(), root.resolve().name),
        "tasks.py": first_env.TASKS,
        "schema/env.schema.json": describe.schema_text(),
    }
    made = {name: env_file.create(root / name, text) for name, text in files.items()}
    return Started(
        written=tuple(name for name, new in made.items() if new),
        kept=tuple(name for name, new in made.items() if not new),
        gpus=tuple(gpu.name for gpu in host.gpus),
        driver=host.driver,
    )
