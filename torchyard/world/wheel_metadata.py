"""What a wheel says of itself, read from the few members of its archive that are needed."""

from __future__ import annotations

import ast
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, Any

import requests
from packaging.utils import canonicalize_name

from torchyard.errors import CheckFailed

BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFacts:
    """What torch/version.py inside a torch wheel says; cuda is None for a CPU build."""

    version: str
    cuda: str | None
    git_commit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """Name, version, requirements and tags of a wheel, and of torch the build that it is."""

    name: str
    version: str
    requires_dist: tuple[str, ...]
    tags: tuple[str, ...]
    torch: TorchFacts | None


def read(path: Path) -> WheelFacts:
    """The facts of a wheel on disk, whatever the file is called (the store names files by hash)."""
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            headers = HeaderParser().parsestr(_member(archive, "METADATA").decode())
            wheel = HeaderParser().parsestr(_member(archive, "WHEEL").decode())
            name = canonicalize_name(headers["Name"])
            torch = torch_facts(archive.read("torch/version.py").decode()) if name == "torch" else None
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, TypeError) as error:
        raise CheckFailed(
            f"this file is not a whole wheel: {error}", where=str(path), hint="remove it and fetch it again"
        ) from error
    return WheelFacts(
        name=name,
        version=headers["Version"],
        requires_dist=tuple(headers.get_all("Requires-Dist", [])),
        tags=tuple(wheel.get_all("Tag", [])),
        torch=torch,
    )


def torch_facts(source: str) -> TorchFacts:
    """The build that the text of torch/version.py names; the text is read, never run."""
    values: dict[str, object] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                values[name] = value
    cuda = values.get("cuda")
    return TorchFacts(
        version=str(values.get("__version__", "")),
        cuda=None if cuda is None else str(cuda),
        git_commit=str(values.get("git_version", "")),
    )


def metadata_of(stream: IO[bytes]) -> bytes:
    """The METADATA member of a wheel (KeyError or BadZipFile where there is none)."""
    with zipfile.ZipFile(stream) as archive:
        return _member(archive, "METADATA")


def remote_metadata(url: str, *, session: requests.Session, timeout: tuple[float, float]) -> bytes:
    """The METADATA of a wheel on a server: the end of the file is asked for, all of it only from one without ranges."""
    with session.get(
        url, headers={"Range": f"bytes=-{BLOCK}", "Accept-Encoding": "identity"}, stream=True, timeout=timeout
    ) as response:
        response.raise_for_status()
        if response.status_code != 206:
            with tempfile.TemporaryFile() as whole:
                shutil.copyfileobj(response.raw, whole, BLOCK)
                return metadata_of(whole)
        size = int(response.headers["Content-Range"].rpartition("/")[2])
        tail = response.content

    def part(start: int, end: int) -> bytes:
        asked = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        answer = session.get(url, headers=asked, timeout=timeout)
        answer.raise_for_status()
        return answer.content

    return metadata_of(io.BufferedReader(_Ranges(part, size, tail), BLOCK))


class _Ranges(io.RawIOBase):
    """A file of which only the parts that are read are fetched; its end is there already."""

    def __init__(self, part: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        self._part = part
        self._size = size
        self._tail = tail
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        start, end = self._at, min(self._at + len(buffer), self._size)
        if start >= end:
            return 0
        known = self._size - len(self._tail)
        block = self._tail[start - known : end - known] if start >= known else self._part(start, end)
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)


def _member(archive: zipfile.ZipFile, member: str) -> bytes:
    """One file of the wheel's own .dist-info folder, which lies at the top."""
    for name in archive.namelist():
        folder, _, rest = name.partition("/")
        if rest == member and folder.endswith(".dist-info"):
            return archive.read(name)
    raise KeyError(f"no {member} in its .dist-info folder")
