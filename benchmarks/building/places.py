"""Where builds are measured: folders and file systems of their own, and engines whose state is empty."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.world import engine as engines
from torchyard.world import engine_home, engine_private
from torchyard.world.engine import Engine
from torchyard.world.engine_home import Home

CONTENT = Path("containerd/daemon/io.containerd.content.v1.content/blobs/sha256")
SAMPLED = 0.2  # seconds between two looks at how full a file system is


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """An engine that was started for a measurement."""

    home: Home
    engine: Engine

    def docker(self, *words: str) -> str:
        """Run its docker client; what it printed."""
        return run([*self.engine.docker, *words], env={**os.environ, **self.engine.env})

    def blob(self, digest: str) -> Path:
        """The file of a blob in its content store."""
        return self.home.data / CONTENT / digest.removeprefix("sha256:")

    def content(self) -> dict[str, int]:
        """Every blob of its content store, with its size in bytes."""
        return {path.name: path.stat().st_size for path in (self.home.data / CONTENT).glob("*")}


def home() -> Path:
    """Where the benchmarks keep what they need again: TORCHYARD_BENCH, or a folder of /var/tmp."""
    return Path(os.environ.get("TORCHYARD_BENCH") or "/var/tmp/torchyard-bench")


def run(argv: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command; its output, or the end of the benchmark with what it printed."""
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


@contextlib.contextmanager
def place(gigabytes: float = 0) -> Iterator[Path]:
    """An empty folder, gone afterwards; with a size, the top of a new ext4 file system of so many GB (10**9 bytes)."""
    top = home() / f"run-{os.getpid()}"
    _sweep()
    top.mkdir(parents=True)
    if (free := shutil.disk_usage(top).free) < gigabytes * 10**9:
        raise SystemExit(f"a file system of {gigabytes:g} GB does not fit: {free / 1e9:.0f} GB are free in {home()}")
    try:
        if not gigabytes:
            yield top
            return
        image, target = top / "disk", top / "m"
        target.mkdir()
        with image.open("wb") as stream:
            stream.truncate(int(gigabytes * 10**9))
        run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)])  # nothing set aside for root: all of it is free
        run(["mount", "-o", "loop", str(image), str(target)])
        yield target
    finally:
        _remove(top)


def _sweep() -> None:
    """Remove what killed benchmarks left."""
    for old in home().glob("run-*"):
        pid = old.name.removeprefix("run-")
        if pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists():
            _remove(old)


def _remove(top: Path) -> None:
    """End the engines of a place, unmount its file system, and remove it."""
    for engine in top.glob("engine*"):
        engine_private.down(_home(engine), lambda _: None, purge=True)
    if os.path.ismount(top / "m"):
        run(["umount", str(top / "m")])
    shutil.rmtree(top, ignore_errors=True)


def _home(folder: Path) -> Home:
    return engine_home.home_of({"TORCHYARD_ENGINE_HOME": str(folder)})


@contextlib.contextmanager
def engine(top: Path, programs: Path, name: str = "engine") -> Iterator[Running]:
    """An engine with its state in a place, empty before; it is gone afterwards.

    It has the programs of another one; in a place with a file system of its own they lie outside of that.
    """
    apart = os.path.ismount(top)
    found = _home((top.parent if apart else top) / name)
    found.path.mkdir(parents=True)
    if apart:
        (top / f"{name}-data").mkdir(mode=0o711)
        found.data.symlink_to(top / f"{name}-data")
    same = os.stat(programs).st_dev == os.stat(found.path).st_dev
    run(["cp", "--archive", *(["--link"] if same else []), str(programs), str(found.root)])
    try:
        engine_private.up(found, lambda _: None)
        yield Running(home=found, engine=engines.private(found, os.environ))
    finally:
        engine_private.down(found, lambda _: None, purge=True)


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """How many bytes of the file system under a folder were in use: at the start, and at the fullest moment since."""
    seen = [_used(folder), 0]
    seen[1] = seen[0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLED):
            seen[1] = max(seen[1], _used(folder))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        seen[1] = max(seen[1], _used(folder))


def _used(folder: Path) -> int:
    told = os.statvfs(folder)
    return (told.f_blocks - told.f_bfree) * told.f_frsize


def read_all(*folders: Path) -> None:
    """Read every file below these folders, so that no measurement pays for the first reading."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as stream:
                    while stream.read(1 << 22):
                        pass
