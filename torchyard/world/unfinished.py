"""Files and folders on their way: named beside their target, and locked while a process works on them.

What a killed process left has no lock any more, and goes with the next one that is made for the same target.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

_RANDOM = r"[a-z0-9_]{8}"  # what tempfile makes names of


@contextlib.contextmanager
def file(folder: Path, prefix: str) -> Iterator[IO[bytes]]:
    """A new file in a folder, whose name begins so; removed at the end of the block if it still has that name."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder, prefix)
    stream = _held(lambda: tempfile.NamedTemporaryFile(dir=folder, prefix=prefix, delete=False))  # noqa: SIM115
    try:
        with stream:
            try:
                yield stream
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stream.name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:  # a write does not say to where
            error.filename = str(folder)
        raise


@contextlib.contextmanager
def directory(folder: Path, prefix: str) -> Iterator[Path]:
    """A new folder in a folder, whose name begins so; removed at the end of the block if it still has that name."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder, prefix)
    stream = _held(lambda: _opened(Path(tempfile.mkdtemp(dir=folder, prefix=prefix))))
    try:
        yield Path(stream.name)
    finally:
        shutil.rmtree(stream.name, ignore_errors=True)
        stream.close()


def beside(target: Path) -> str:
    """How the names of what is on its way to be this file or folder begin."""
    return f".{target.name}.unfinished-"


def put(folder: Path, target: Path) -> None:
    """Give a finished folder its name; what had that name goes as a whole, before anything of it is removed."""
    with directory(target.parent, beside(target)) as old:
        for number in itertools.count():
            with contextlib.suppress(FileNotFoundError):
                os.rename(target, old / str(number))
            try:
                os.rename(folder, target)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # else another process was first: its goes too
                    raise


class _Folder:
    """An open folder, so that it can be locked."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


_Stream = TypeVar("_Stream", IO[bytes], _Folder)


def _opened(path: Path) -> _Folder:
    path.chmod(0o755)
    return _Folder(path)


def _held(make: Callable[[], _Stream]) -> _Stream:
    """What `make` makes, locked by this process."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # swept before it was opened
            stream = make()
            with contextlib.suppress(OSError):  # a file system without locks: then nothing is swept either
                fcntl.flock(stream, fcntl.LOCK_EX)
            if _still_there(stream.name, stream.fileno()):  # else another process swept it before it was locked
                return stream
            stream.close()


def _still_there(name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what no living process holds."""
    wanted = re.compile(re.escape(prefix) + _RANDOM)
    for name in os.listdir(folder):
        if wanted.fullmatch(name):
            _remove(folder / name)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        finally:
            os.close(descriptor)
