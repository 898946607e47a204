"""The store: content-addressed files named by their sha256, filled before a build."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

CHUNK = 1 << 20


def sha256_of(path: Path) -> str:
    """The sha256 of a file, as hexadecimal text."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


class Store:
    """A directory of files under `<root>/<first two digits>/<sha256>`; what is in it is whole and checked."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        """Where the file of this hash is or would be."""
        return self.root / sha256[:2] / sha256

    def has(self, sha256: str, size: int | None = None) -> bool:
        """Whether the file is there, with this size in bytes where one is given."""
        path = self.path(sha256)
        return path.is_file() and (size is None or path.stat().st_size == size)

    @contextlib.contextmanager
    def incoming(self) -> Iterator[IO[bytes]]:
        """A temporary file inside the store, for `keep`; removed if it is not kept, also on an interrupt.

        Its lock says that someone is at work on it: what a killed process left has none, and goes with the next one.
        """
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with _locked_file(folder) as stream:
            try:
                yield stream
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stream.name)

    def keep(self, file: Path) -> str:
        """Move a finished file of this file system into the store under its hash, which is returned."""
        sha256 = sha256_of(file)
        target = self.path(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.chmod(0o644)
        os.replace(file, target)
        return sha256

    def link(self, sha256: str, target: Path) -> None:
        """Make `target` a hard link to the stored file (a copy where links do not work)."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        try:
            os.link(self.path(sha256), target)
        except OSError:
            import shutil

            shutil.copyfile(self.path(sha256), target)


def _sweep(folder: Path) -> None:
    """Remove the files that no living process holds."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _locked_file(folder: Path) -> IO[bytes]:
    """A new file that this process holds."""
    while True:
        stream = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 - the caller closes it
        with contextlib.suppress(OSError):  # a file system without locks: then nothing is swept either
            fcntl.flock(stream, fcntl.LOCK_EX)
        if os.fstat(stream.fileno()).st_nlink:  # else another process swept it before it was locked
            return stream
        stream.close()
