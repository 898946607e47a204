"""torchyard itself for a machine without a network: its files, and the wheels that it needs, by their locked hashes."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import metadata, resources
from pathlib import Path

from packaging.requirements import Requirement

from ..errors import Surroundings
from . import process, unfinished, workspace
from .store import sha256_of
from .workspace import Workspace

NOT_OURS = ("__pycache__",)


def python_version() -> str:
    """The Python whose wheels are taken: the one that runs this."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def machine() -> str:
    """The machine whose wheels are taken."""
    return platform.machine()


def files() -> dict[str, Path]:
    """torchyard's own files, by where they lie in a bundle."""
    package = Path(str(resources.files("torchyard")))
    found = _below(package, "torchyard")
    templates = workspace.packaged_templates()
    if not templates.is_relative_to(package):
        found |= _below(templates, "templates")
    return found


def wheels(work: Workspace, say: Callable[[str], None]) -> dict[str, Path]:
    """The wheels that torchyard needs, by name, with a requirements file of their hashes; fetched once, then kept."""
    locked = Path(str(resources.files("torchyard"))).parent / "requirements" / "tool.txt"
    text = locked.read_text(encoding="utf-8") if locked.is_file() else _installed()
    key = sha256(f"{python_version()} {machine()}\n{text}".encode()).hexdigest()[:16]
    folder = work.local / "tool-wheels" / key
    if not folder.is_dir():
        say("fetching the wheels that torchyard itself needs")
        _fetch(text, folder, hashed=locked.is_file())
    return {path.name: path for path in sorted(folder.iterdir())}


def _below(folder: Path, name: str) -> dict[str, Path]:
    found = {}
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_file() and not any(part in NOT_OURS for part in inner.parts) and path.suffix != ".pyc":
            found[f"{name}/{inner.as_posix()}"] = path
    return found


def _installed() -> str:
    """The distributions that torchyard needs here, as exact requirements: where it was installed as a wheel."""
    wanted, found = ["torchyard"], {}
    while wanted:
        name = wanted.pop()
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if (needed.marker is None or needed.marker.evaluate({"extra": ""})) and needed.name not in found:
                found[needed.name] = metadata.version(needed.name)
                wanted.append(needed.name)
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items()))


def _fetch(text: str, folder: Path, *, hashed: bool) -> None:
    with unfinished.directory(folder.parent, unfinished.beside(folder)) as made:
        asked = made / "asked.txt"
        asked.write_text(text, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
        pip += ["--no-deps", "--only-binary", ":all:", *(["--require-hashes"] if hashed else [])]
        process.run(
            [*pip, "--dest", str(made), "--requirement", str(asked)],
            hint="see that pip reaches its index; a bundle is made where there is a network",
        )
        asked.unlink()
        names = sorted(path.name for path in made.glob("*.whl"))
        if not names:
            raise Surroundings("pip fetched no wheel for torchyard", hint="run the command again")
        lines = [_pinned(made / name) for name in names]
        (made / "requirements.txt").write_text("".join(lines), encoding="utf-8")
        os.rename(made, folder)


def _pinned(wheel: Path) -> str:
    """A wheel as a line of requirements: what it is, by its file name, and its hash."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{sha256_of(wheel)}\n"
