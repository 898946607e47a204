"""A bundle on disk: one tar, sorted and free of clock, host and user; and what is in one, checked, into the store."""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .. import bundle, framing, json_text
from ..errors import CheckFailed, InputError, Surroundings
from ..oci import MANIFEST
from . import disks, registry_taking, unfinished
from .store import CHUNK, Store, sha256_of

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What came out of an archive: what a bundle says of itself, or a finished image's manifest and receipt."""

    made: bundle.Made | None = None
    files: int = 0
    manifest: bytes = b""
    receipt: str = ""


def write(target: Path, top: str, files: Mapping[str, Path | bytes], *, mtime: int, progress: Progress) -> None:
    """A tar of these files below one folder, in one step: what is there is whole, or the former one."""
    pieces = _tar(top, files, mtime)
    write_pieces(target, pieces, sum(_size(content) for content in files.values()), progress=progress)


def write_pieces(target: Path, pieces: Iterator[bytes], size: int, *, progress: Progress) -> None:
    """A file of these pieces, in one step; raises Surroundings before it is begun where the disk is too full."""
    target.parent.mkdir(parents=True, exist_ok=True)
    disks.require(target.parent, size, target.name)
    try:
        with unfinished.file(target.parent, unfinished.beside(target)) as stream:
            for piece in pieces:
                stream.write(piece)
                progress(len(piece))
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.replace(stream.name, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # told with what is free on every disk
        raise Surroundings(
            f"{target} cannot be written: {error.strerror}", where=str(target), hint="check disk and rights"
        ) from error


def measured(files: Mapping[str, Path | bytes]) -> dict[str, tuple[int, str]]:
    """Size and sha256 of each file."""
    return {
        path: (len(content), hashlib.sha256(content).hexdigest())
        if isinstance(content, bytes)
        else (content.stat().st_size, sha256_of(content))
        for path, content in files.items()
    }


def load(file: Path, store: Store, *, progress: Progress) -> Loaded:
    """What is in an archive, its stored files and blobs in the store, each checked against its name."""
    try:
        with tarfile.open(file) as tar:
            return _load(tar, file, store, progress)
    except FileNotFoundError as error:
        raise InputError(f"there is no {file}", where=str(file), hint="name a file that ./yard bundle made") from error
    except (tarfile.TarError, EOFError, KeyError, ValueError) as error:
        raise CheckFailed(
            f"{file.name} cannot be read: {error}", where=str(file), hint="it was cut or changed: copy it anew"
        ) from error


def _load(tar: tarfile.TarFile, file: Path, store: Store, progress: Progress) -> Loaded:
    found, texts = 0, {}
    store.root.mkdir(parents=True, exist_ok=True)
    new = {m.name: m.size for m in tar.getmembers() if (name := _stored(m)) and not store.has(name, m.size)}
    disks.require(store.root, sum(new.values()), f"what is new in {file.name}")
    for member in tar:
        parts = PurePosixPath(member.name).parts
        source = tar.extractfile(member) if member.isreg() else None
        if source is None:
            continue
        progress(member.size)
        sha256 = _stored(member)
        if sha256 and not store.has(sha256, member.size):
            registry_taking.keep_stream(source, f"sha256:{sha256}", store, where=str(file))
            found += 1
        elif len(parts) <= 2 and parts[-1] in (bundle.DOCUMENT, bundle.PIECE, "index.json"):
            texts[parts[-1]] = source.read().decode()
    if bundle.DOCUMENT in texts:
        return Loaded(made=bundle.read(texts[bundle.DOCUMENT], str(file)), files=found)
    if bundle.PIECE in texts and "index.json" in texts:
        (entry,) = json_text.loads(texts["index.json"])["manifests"]
        if entry["mediaType"] == MANIFEST:
            manifest = store.path(entry["digest"].removeprefix("sha256:")).read_bytes()
            return Loaded(manifest=manifest, receipt=texts[bundle.PIECE], files=found)
    raise InputError(
        f"{file.name} is no bundle: it has neither {bundle.DOCUMENT} nor {bundle.PIECE}",
        where=str(file),
        hint="make one: ./yard bundle --gpu NAME, or with --finished for the image itself",
    )


def _stored(member: tarfile.TarInfo) -> str:
    """The hash of a file that goes into the store; empty for every other one."""
    parts = PurePosixPath(member.name).parts
    inside = parts[1:3] == (".torchyard", "store") or parts[:2] == ("blobs", "sha256")
    return parts[-1] if inside and member.isreg() else ""


def _tar(top: str, files: Mapping[str, Path | bytes], mtime: int) -> Iterator[bytes]:
    for path in sorted(files):
        content = files[path]
        mode = 0o755 if path.endswith(".sh") and "/" not in path else 0o644
        yield framing.tar_header(f"{top}/{path}", size=_size(content), mode=mode, mtime=mtime)
        if isinstance(content, bytes):
            yield content
        else:
            with content.open("rb") as stream:
                while block := stream.read(CHUNK):
                    yield block
        yield framing.padding(_size(content))
    yield framing.END_OF_ARCHIVE


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size
