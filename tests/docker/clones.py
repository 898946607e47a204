"""Clones of this checkout, each with its own engine and surroundings, in which tests run what a user would type."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "torchyard-clones-"
DROPPED = ("DOCKER_", "LC_", "TORCHYARD_", "XDG_")  # of this process's environment: a clone has its own
HEXADECIMAL = re.compile(r'"sha256": "([0-9a-f]{64})"')
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that ended, and what it printed."""

    code: int
    out: str
    err: str

    def good(self) -> Ended:
        """This, where the command ended well."""
        assert self.code == 0, f"exit code {self.code}\n{self.out[-2000:]}\n{self.err[-4000:]}"
        return self


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A checkout of its own: commands run in it, by its own code, against the private engine in `engine`."""

    root: Path
    engine: Path
    home: Path
    umask: int = 0o022
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What its commands see."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
        return {
            **kept,
            "HOME": str(self.home),
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHYARD_ENGINE": "private",
            "TORCHYARD_ENGINE_HOME": str(self.engine),
            **self.env,
        }

    @property
    def store(self) -> Path:
        """Its store."""
        return self.root / ".torchyard" / "store"

    def argv(self, *arguments: str) -> list[str]:
        """The command line of a torchyard command."""
        return [sys.executable, "-P", "-m", "torchyard", *arguments]

    def start(self, argv: Sequence[str], *, cwd: Path | None = None) -> subprocess.Popen[str]:
        """A command of this clone, started in a process group of its own."""
        return subprocess.Popen(
            argv,
            cwd=cwd or self.root,
            env=self.environment,
            umask=self.umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, argv: Sequence[str], *, cwd: Path | None = None) -> Ended:
        """Run a command of this clone to its end."""
        child = self.start(argv, cwd=cwd)
        try:
            out, err = child.communicate()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise
        return Ended(code=child.returncode, out=out, err=err)

    def yard(self, *arguments: str, before: Sequence[str] = ()) -> Ended:
        """Run a torchyard command, for example behind `unshare --net`."""
        return self.call([*before, *self.argv(*arguments)])

    def docker(self, *arguments: str) -> Ended:
        """Run the engine's docker client."""
        return self.yard("docker", *arguments)

    def git(self, *arguments: str) -> str:
        """What git says in this clone."""
        return self.call([*GIT, *arguments]).good().out

    def receipt(self, image: str) -> dict[str, Any]:
        """The receipt of an image."""
        found: dict[str, Any] = json.loads((self.root / ".torchyard" / "receipts" / f"{image}.json").read_text())
        return found

    def log(self, image: str, stage: str = "runtime", verb: str = "build") -> str:
        """What BuildKit printed when it built an image last."""
        return (self.root / ".torchyard" / "logs" / f"{verb}-{image}-{stage}.log").read_text()

    def image(self, gpu: str) -> str:
        """The id of the image that a hardware entry selects."""
        for line in (self.root / "images" / "index.yaml").read_text().splitlines():
            if line.startswith(f'"{gpu}": '):
                return str(json.loads(line.split(": ", 1)[1]))
        raise AssertionError(f"no image for {gpu}")

    def tag(self, gpu: str) -> str:
        """The local tag of the image of a hardware entry."""
        return f"torchyard:{self.image(gpu)}"

    def locked_files(self) -> set[str]:
        """The sha256 of every file that the locks of cpu and a100 pin: what is fetched, nothing that is made."""
        texts = [(self.root / "images" / self.image(gpu) / "lock.yaml").read_text() for gpu in ("cpu", "a100")]
        return {found for text in texts for found in HEXADECIMAL.findall(text)}

    def spoiled(self) -> list[str]:
        """Files of the store that are not what their name says."""
        files = [path for path in self.store.rglob("*") if path.is_file() and "incoming" not in path.parts]
        return [str(path) for path in files if digest_of(path) != path.name]


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    digest = sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def copy_checkout(source: Path, target: Path, *, umask: int = 0o022) -> None:
    """A clone of a checkout as it is now: what git tracks and what it does not ignore, all of it committed."""
    listed = _git(source, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    before = os.umask(umask)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _git(source, "clone", "--quiet", ".", str(target))
        for name in {*listed.split("\0"), *_git(target, "ls-files", "-z").split("\0")} - {""}:
            _copy(source / name, target / name)
        _git(target, "add", "--all")
        _git(target, "commit", "--quiet", "--allow-empty", "--message", "as it is")
    finally:
        os.umask(before)


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def _copy(there: Path, here: Path) -> None:
    """Make a file like another, with the rights that the umask leaves, or remove it where there is no other."""
    here.unlink(missing_ok=True)
    if there.is_file():
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(there, here)
        if there.stat().st_mode & 0o100:
            here.chmod(here.stat().st_mode | (here.stat().st_mode & 0o444) >> 2)


def seed(clone: Clone, store: Path) -> None:
    """Give a clone's empty store the fetched files that another has, so that nothing comes over the network twice."""
    for name in clone.locked_files():
        there, here = store / name[:2] / name, clone.store / name[:2] / name
        if there.is_file() and not here.exists():
            here.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(there, here)
            except OSError:
                shutil.copyfile(there, here)


def new_home(path: Path) -> Path:
    """A home of its own, with what the user's tells pip and git about where packages come from."""
    path.mkdir(parents=True)
    user = Path.home()
    for name in (".config/pip", ".pip", ".netrc", ".config/torchyard"):
        if (user / name).exists():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).symlink_to(user / name)
    return path


@contextlib.contextmanager
def a_place() -> Iterator[Path]:
    """A folder for clones and engines; what an earlier run left there when it was killed goes first."""
    top = Path(os.environ.get("TMPDIR") or "/var/tmp")  # not /tmp, which may be in memory
    for old in top.glob(f"{PREFIX}*"):
        owner = old.name.removeprefix(PREFIX).split("-")[0]
        if not (owner.isdigit() and Path(f"/proc/{owner}").exists()):
            remove(old)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=top))
    made.chmod(0o755)
    try:
        yield made
    finally:
        remove(made)


def remove(place: Path) -> None:
    """End and remove the engines of a place, then everything in it."""
    from torchyard.world import engine_home, engine_private

    for engine in place.glob("engine-*"):
        engine_private.down(engine_home.home_of({"TORCHYARD_ENGINE_HOME": str(engine)}), lambda _: None, purge=True)
    end_tree(place)


def end_tree(folder: Path) -> None:
    """Remove a folder and all that is in it; a process that was killed may still be writing there."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    shutil.rmtree(folder)


def programs(source: Path, engine: Path) -> None:
    """Give an engine that was never started the programs of another, its state stays empty."""
    engine.mkdir(parents=True)
    subprocess.run(["cp", "--archive", "--link", str(source / "root"), str(engine / "root")], check=True)


def fetch(clone: Clone, say: Callable[[str], None]) -> None:
    """Fetch what cpu and a100 lock; where the archive has moved since, lock its packages anew and say so."""
    for gpu in ("cpu", "a100"):
        done = clone.yard("fetch", "--gpu", gpu)
        if done.code in (1, 3) and "lock --upgrade os" in done.err:
            say(
                f"the archive has moved since the lock of {gpu} was made: locking its packages anew in the tests' clone"
            )
            clone.yard("lock", "--upgrade", "os", "--gpu", gpu).good()
            clone.git("commit", "--quiet", "--all", "--message", "as the archive is now")
            done = clone.yard("fetch", "--gpu", gpu)
        done.good()
