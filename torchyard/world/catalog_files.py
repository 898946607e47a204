"""The user's catalogue files beside env.yaml, as texts."""

from __future__ import annotations

from pathlib import Path

from torchyard.errors import InputError


def texts(root: Path) -> tuple[tuple[str, str], ...]:
    """(name, text) of each `catalog.d/*.yaml` under this folder, in the order of their names."""
    found: list[tuple[str, str]] = []
    for path in sorted((root / "catalog.d").glob("*.yaml")):
        name = f"catalog.d/{path.name}"
        try:
            found.append((name, path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", where=name, hint="a readable file in UTF-8") from None
    return tuple(found)


def write(root: Path, name: str, text: str) -> Path:
    """Write `catalog.d/NAME.yaml` under this folder; the file is there whole or not at all."""
    folder = root / "catalog.d"
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}.yaml"
    unfinished = folder / f".{name}.yaml.new"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(target)
    return target
