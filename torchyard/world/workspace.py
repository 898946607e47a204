"""The project on disk: where its files are, read whole and written whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path, PurePosixPath

from ..errors import InputError, Surroundings
from . import disks, unfinished
from .store import Store

LOCAL = ".torchyard"


class Workspace:
    """A repository with an env.yaml, and the local folder beside it that git ignores."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.local = root / LOCAL
        self.store = Store(self.local / "store")

    @property
    def mirrors(self) -> list[Path]:
        """The files that may name mirrors, the nearest first."""
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        named = os.environ.get("TORCHYARD_MIRRORS")
        places = [Path(named)] if named else []
        places += [self.local / "mirrors.yaml", config / "torchyard" / "mirrors.yaml"]
        return [place for place in places if place.is_file()]

    @contextlib.contextmanager
    def alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Take turns with other commands that write in this project; the kernel ends the turn of one that is killed."""
        try:
            self.local.mkdir(parents=True, exist_ok=True)
            turn = (self.local / "turn").open("w")
        except OSError as error:
            raise Surroundings(
                f"{self.local} cannot be written: {error.strerror}",
                where=str(self.local),
                hint="it has to be a folder that this user may write, on a disk that is not full",
            ) from error
        with turn:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another torchyard command is at work in this project; waiting for it")
                fcntl.flock(turn, fcntl.LOCK_EX)
            except OSError:  # a file system without locks, as some networks have
                pass
            yield

    def read(self, path: PurePosixPath | str) -> str | None:
        """The text of a file of the project, or None where there is none."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path} cannot be read: {error}", where=str(path), hint="a UTF-8 text file is expected there"
            ) from error

    def write_tree(self, files: Mapping[PurePosixPath, str]) -> list[PurePosixPath]:
        """Write each file whose text changed, each in one step; answers what was written."""
        written = [path for path, text in files.items() if self.read(path) != text]
        for path in written:
            write_whole(self.root / path, files[path].encode())
        return written

    def remove(self, path: PurePosixPath) -> None:
        """Remove a generated file, and its folder when that is empty then."""
        (self.root / path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (self.root / path).parent.rmdir()

    def generated(self) -> dict[PurePosixPath, str | None]:
        """Every file under images/ that only torchyard writes, by path from the root."""
        found: dict[PurePosixPath, str | None] = {}
        for name in ("*/Dockerfile", "*/requirements.txt", "*/lock.yaml", "docker-bake.json", "index.yaml"):
            for path in sorted((self.root / "images").glob(name)):
                key = PurePosixPath(path.relative_to(self.root).as_posix())
                found[key] = self.read(key)
        return found

    def template(self, name: str) -> str | None:
        """The text of a template: the project's own where it has one, else the packaged one."""
        own = self.read(PurePosixPath("templates") / name)
        return own if own is not None else packaged_template(name)


def find(start: Path | None = None) -> Workspace:
    """The workspace that holds the current folder: the nearest one upwards with an env.yaml."""
    try:
        here = (start or Path.cwd()).resolve()
    except OSError as error:
        raise InputError(
            f"the current folder cannot be read: {error.strerror}", hint="go to a folder that is still there"
        ) from error
    for folder in (here, *here.parents):
        if os.path.lexists(folder / "env.yaml"):
            return Workspace(folder)
    raise InputError(
        f"there is no env.yaml in {here} or above it",
        hint="go to the repository that has one, or make one: torchyard init",
    )


def packaged_templates() -> Path:
    """The folder of the templates that torchyard brings: inside the package, or the repository's own."""
    packaged = Path(str(resources.files("torchyard"))) / "templates"
    return packaged if packaged.is_dir() else Path(str(resources.files("torchyard"))).parent / "templates"


def packaged_template(name: str) -> str | None:
    """The text of a template that torchyard brings."""
    path = packaged_templates() / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def step_names() -> list[str]:
    """The file names of the build steps that torchyard brings."""
    return sorted(path.name for path in (packaged_templates() / "steps").iterdir() if path.is_file())


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file in one step: it has its old bytes or its new ones, also after a kill or with a full disk."""
    try:
        with unfinished.file(path.parent, unfinished.beside(path)) as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.replace(stream.name, path)
    except OSError as error:
        raise Surroundings(
            f"{path} cannot be written: {error.strerror}{disks.told(path, error)}",
            where=str(path),
            hint=disks.frees(error),
        ) from error
