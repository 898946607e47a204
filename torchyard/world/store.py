"""The store: content-addressed files named by their sha256, filled before a build."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from . import unfinished

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
        """A temporary file inside the store, for `keep`; removed if it is not kept, also on an interrupt."""
        with unfinished.file(self.root / "incoming", "tmp") as stream:
            yield stream

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

            try:
                shutil.copyfile(self.path(sha256), target)
            except OSError as error:
                if error.filename2 is not None:  # a copy that fails half-way names what it read first
                    error.filename, error.filename2 = error.filename2, None
                raise
