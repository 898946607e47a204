"""An image opened for reading: an OCI layout, an archive of one or of `docker save`, or an image of the engine."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from .. import json_text
from ..differ.values import Entry, Layer, Outline, Step
from ..errors import InputError
from . import image_entries, image_layer
from .image_tar import Tar

DOCUMENT_MOST = 16 << 20
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_REF = "org.opencontainers.image.ref.name"
Document = Callable[[str], bytes | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """An image: what its documents say, and its layers as they are stored, lowest first."""

    outline: Outline
    need: Callable[[tuple[int, ...]], None]  # have these layers ready in one go, where getting them is costly
    blob: Callable[[int], AbstractContextManager[IO[bytes]]]
    trusted: bool = False  # its blobs were checked against their names by the engine


def split(name: str) -> tuple[str, str]:
    """A path, and the tag or digest behind it that chooses one of several images: `folder@sha256:…`."""
    path, _, chosen = name.partition("@")
    return (name, "") if Path(name).exists() else (path, chosen)


@contextlib.contextmanager
def file(name: str) -> Iterator[Opened]:
    """The image in a folder or an archive on disk."""
    text, chosen = split(name)
    path = Path(text)
    if path.is_dir():
        yield _opened(name, chosen, _folder(path), lambda member: _plain_file(path, member))
        return
    with _archive(path) as tar:
        members = {entry.name.removeprefix("./"): entry for entry in tar.getmembers()}
        if not members.keys() & {"index.json", "manifest.json"}:
            raise InputError(
                f"{path} is no image: it has neither index.json nor manifest.json",
                where=str(path),
                hint="name an archive that `docker save` or `docker buildx build --output type=oci` made",
            )
        yield _opened(name, chosen, _documents(tar, members), lambda member: _member(tar, members, member))


def _folder(path: Path) -> Document:
    if not (path / "index.json").is_file() and not (path / "manifest.json").is_file():
        raise InputError(
            f"{path} is no OCI layout: it has no index.json",
            where=str(path),
            hint="name a folder that `docker buildx build --output type=oci,tar=false` made, or an archive",
        )

    def read(member: str) -> bytes | None:
        file = path / member
        if ".." in PurePosixPath(member).parts or PurePosixPath(member).is_absolute():
            return None
        return file.read_bytes() if file.is_file() and file.stat().st_size <= DOCUMENT_MOST else None

    return read


def _plain_file(folder: Path, member: str) -> IO[bytes]:
    """A file of a folder, opened; what documents name may be anything."""
    path = folder / member
    inside = PurePosixPath(member)
    if inside.is_absolute() or ".." in inside.parts or not path.is_file():
        raise InputError(
            f"{folder} has no file {member}, which it names",
            where=str(folder),
            hint="the image is not whole: get it anew",
        )
    return path.open("rb")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive opened; one that is compressed is unpacked beside the temporary files first."""
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(path.open("rb"))
            inner = image_layer.opened(stream, stream.peek(512)[:512])
            if inner is None:
                raise InputError(f"{path} is no archive", where=str(path), hint="name an OCI layout or a `docker save`")
            if inner is not stream:
                plain = cast(IO[bytes], stack.enter_context(tempfile.TemporaryFile()))
                shutil.copyfileobj(inner, plain, 1 << 20)
                plain.seek(0)
                inner = plain
            tar = stack.enter_context(tarfile.open(fileobj=inner, mode="r:"))
            tar.getmembers()
        except (*image_entries.BROKEN, tarfile.TarError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES, errno.EPERM):
                raise
            raise InputError(f"{path} cannot be read: {error}", where=str(path), hint="get it anew") from error
        yield tar


def _documents(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> Document:
    def read(member: str) -> bytes | None:
        found = members.get(member)
        stream = tar.extractfile(found) if found is not None and found.size <= DOCUMENT_MOST else None
        return None if stream is None else stream.read()

    return read


@contextlib.contextmanager
def _member(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], member: str) -> Iterator[IO[bytes]]:
    try:
        found = tar.extractfile(members[member])  # an older `docker save` links to layers that it has already
    except KeyError:
        found = None
    if found is None:
        raise InputError(f"the archive has no {member}, which it names", hint="it is not whole: get it anew")
    with found as stream:
        yield stream


class Data(io.RawIOBase):
    """The data of a tar's entry at hand as a stream."""

    def __init__(self, tar: Tar) -> None:
        self._tar = tar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._tar.data(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _opened(
    name: str,
    chosen: str,
    document: Document,
    stored: Callable[[str], AbstractContextManager[IO[bytes]]],
) -> Opened:
    outline, members = outlined(name, chosen, document)
    return Opened(outline=outline, need=lambda numbers: None, blob=lambda number: stored(members[number]))


def outlined(name: str, chosen: str, document: Document) -> tuple[Outline, tuple[str, ...]]:
    """What the documents of an image say, and the members that hold its layers."""
    try:
        return _outlined(name, chosen, document)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{name} has documents that are not those of an image: {error!r}", hint="it is damaged: get it anew"
        ) from error


def _outlined(name: str, chosen: str, document: Document) -> tuple[Outline, tuple[str, ...]]:
    index = document("index.json")
    if index is None:
        return _saved(name, chosen, document)
    digest, manifest = _manifest(name, chosen, json_text.loads(index), document)
    config = _needed(name, manifest["config"]["digest"], document)
    blobs = [layer["digest"] for layer in manifest["layers"]]
    members = tuple(member(digest) for digest in blobs)
    return outline(name, digest, manifest, config, blobs), members


def outline(name: str, digest: str, manifest: dict[str, Any], config: dict[str, Any], blobs: list[str]) -> Outline:
    """An image's outline, with the build step of each layer."""
    diff_ids = list((config.get("rootfs") or {}).get("diff_ids") or [])
    if len(diff_ids) != len(blobs):
        raise InputError(
            f"{name} names {len(blobs)} layers and {len(diff_ids)} uncompressed ids", hint="the image is damaged"
        )
    words = [str(step.get("created_by", "")) for step in config.get("history") or [] if not step.get("empty_layer")]
    words += [""] * (len(blobs) - len(words))
    steps = tuple(Step(diff_id=d, blob=b, words=w) for d, b, w in zip(diff_ids, blobs, words))
    return Outline(name=name, digest=digest, manifest=manifest, config=config, steps=steps)


def digest_of(data: bytes) -> str:
    """The digest of a document."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def member(digest: str) -> str:
    """Where an OCI layout has a blob."""
    return "blobs/" + digest.replace(":", "/", 1)


def _manifest(name: str, chosen: str, index: dict[str, Any], document: Document) -> tuple[str, dict[str, Any]]:
    """The digest and the manifest of the one image of an index; indexes in it are followed."""
    listed = [each for each in index.get("manifests") or [] if _is_image(each)]
    if chosen:
        listed = [each for each in listed if chosen in (each["digest"], (each.get("annotations") or {}).get(_REF))]
    if len({each["digest"] for each in listed}) != 1:
        told = ", ".join(sorted({each["digest"] for each in listed})) or "none"
        raise InputError(
            f"{name} has {len(listed)} images{f' called {chosen}' if chosen else ''}: {told}",
            hint="name one of them: PATH@DIGEST",
        )
    digest = listed[0]["digest"]
    found = _needed(name, digest, document)
    if "manifests" in found:
        return _manifest(name, "", found, document)
    return digest, found


def _is_image(told: dict[str, Any]) -> bool:
    platform = told.get("platform") or {}
    return platform.get("os") != "unknown" and "vnd.docker.reference.type" not in (told.get("annotations") or {})


def _needed(name: str, digest: str, document: Document) -> dict[str, Any]:
    data = document(member(digest))
    if data is None:
        raise InputError(f"{name} has no {digest}, which it names", hint="the image is not whole: get it anew")
    if digest_of(data) != digest:
        raise InputError(f"{name} has {digest} with other bytes", hint="the image is damaged: get it anew")
    found: dict[str, Any] = json_text.loads(data)
    return found


def _saved(name: str, chosen: str, document: Document) -> tuple[Outline, tuple[str, ...]]:
    """The older form of `docker save`: a manifest.json that names files."""
    told = json_text.loads(document("manifest.json") or b"[]")
    if chosen:
        told = [each for each in told if chosen in (each.get("RepoTags") or [])]
    if len(told) != 1:
        tags = ", ".join(tag for each in told for tag in each.get("RepoTags") or []) or "none"
        raise InputError(f"{name} has {len(told)} images: {tags}", hint="name one of them: PATH@TAG")
    config = json_text.loads(document(told[0]["Config"]) or b"{}")
    paths = tuple(told[0]["Layers"])
    return outline(name, "", {}, config, [""] * len(paths)), paths


def layer(opened: Opened, number: int) -> Layer:
    """What a layer holds."""
    with opened.blob(number) as stream:
        return image_entries.read(stream, opened.outline.steps[number].diff_id)


def entries(opened: Opened, number: int, hashed: Collection[str]) -> tuple[Entry, ...]:
    """The entries of a layer, with the digests of these files alone."""
    with opened.blob(number) as stream:
        return image_entries.listed(stream, opened.outline.steps[number].diff_id, hashed=hashed)


def contents(opened: Opened, number: int, wanted: set[str], most: int) -> dict[str, bytes]:
    """The files of a layer that are asked for."""
    with opened.blob(number) as stream:
        return image_entries.contents(stream, opened.outline.steps[number].diff_id, wanted, most)


def digest(opened: Opened, number: int) -> str:
    """The digest of a layer as it is stored, or of what it unpacks to where its image names only that."""
    step = opened.outline.steps[number]
    with opened.blob(number) as stream:
        if not step.blob:
            return image_entries.read(stream, step.diff_id, hashed=()).unpacked
        found = hashlib.sha256()
        while block := stream.read(1 << 20):
            found.update(block)
        return f"sha256:{found.hexdigest()}"
