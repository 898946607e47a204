"""The private engine's directory: where it is, what lies where in it, and who is at work on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard import json_text
from torchyard.errors import InputError
from torchyard.world.engine_net import COUNT, Net

TOOL_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SOCKET_LIMIT = 107  # bytes that a unix socket's path may have


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The directory of one private engine, and what lies where in it."""

    path: Path

    @property
    def root(self) -> Path:
        """The unpacked programs."""
        return self.path / "root"

    @property
    def data(self) -> Path:
        """Images, containers, volumes and build cache."""
        return self.path / "data"

    @property
    def socket(self) -> Path:
        """Where the engine listens."""
        return self.path / "run" / "docker.sock"

    @property
    def docker_host(self) -> str:
        """The address for DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def cdi(self) -> Path:
        """CDI specifications of just this engine, beside those of the host."""
        return self.path / "cdi"

    @property
    def log(self) -> Path:
        """What dockerd and its set-up printed."""
        return self.path / "log"

    @property
    def client(self) -> Path:
        """The client's own directory: links to its programs, and its configuration."""
        return self.path / "client"

    @property
    def mark(self) -> str:
        """The argument by which this engine's processes are known."""
        return f"torchyard-engine={self.path}"


def home_of(environment: Mapping[str, str]) -> Home:
    """Where the private engine lives: TORCHYARD_ENGINE_HOME, or torchyard/engine in the user's cache directory."""
    chosen = environment.get("TORCHYARD_ENGINE_HOME", "")
    cache = environment.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path(environment.get("HOME") or "~").expanduser() / ".cache"
    path = Path(os.path.realpath(chosen or base / "torchyard" / "engine"))
    home = Home(path=path)
    where = "TORCHYARD_ENGINE_HOME" if chosen else "the cache directory"
    hint = "set TORCHYARD_ENGINE_HOME to another directory, on a local disk"
    if not re.fullmatch(r"[A-Za-z0-9/._+@%~=-]+", str(path)):
        raise InputError(
            f"the engine's directory {str(path)!r} has a character that mounts cannot take; "
            "letters, digits and / . _ + @ % ~ = - work",
            where=where,
            hint=hint,
        )
    if len(str(home.socket)) > SOCKET_LIMIT:
        raise InputError(
            f"the engine's socket {home.socket} has a path of {len(str(home.socket))} bytes; "
            f"{SOCKET_LIMIT} is the most that the system takes",
            where=where,
            hint=hint,
        )
    return home


@contextlib.contextmanager
def locked(home: Home, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the engine's directory alone; the descriptor may be given to children, who then hold it too."""
    waited = False
    while True:
        home.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(home.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not waited:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _same_file(descriptor, home.path / "lock"):  # else a purge removed it while we waited
                yield descriptor
                return
        except BlockingIOError:
            say(f"another torchyard is at work on the engine in {home.path}; waiting for it")
            waited = True
        finally:
            os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def owner(home: Home) -> str:
    """The one name of this engine on this kernel: the same path below another root directory is another engine."""
    top = os.stat("/")
    return f"{top.st_dev:x}:{top.st_ino:x} {home.path}"


def saved_net(home: Home) -> Net | None:
    """The address range that this engine has used before."""
    file = home.path / "network.json"
    if not file.is_file():
        return None
    try:
        index = json_text.loads(file.read_text())["index"]
    except (ValueError, KeyError, TypeError):
        return None
    return Net(index=index) if isinstance(index, int) and 0 <= index < COUNT else None
