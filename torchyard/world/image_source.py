"""The layers of an image out of an engine, each seen once: nothing of the image is started, nothing is unpacked.

What was seen of a layer is kept under its digest. A layer that torchyard made is read from the store. Only the others
come from the engine: pushed to a registry on loopback that has the known ones, or else with the whole image by `save`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker.errors
import requests

from .. import json_text
from ..errors import CheckFailed, Surroundings
from . import containers, image_layer, image_receiver, image_tar
from . import engine as engines
from .engine import Engine
from .image_layer import Seen
from .workspace import Workspace, write_whole

REPOSITORY = "torchyard-reading"
_DOCUMENT_MOST = 16 << 20
_NO_ENGINE = (docker.errors.DockerException, requests.exceptions.RequestException)
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """An image: its configuration document, and its layers, lowest first."""

    config: dict[str, Any]
    diff_ids: tuple[str, ...]
    layers: tuple[Seen, ...]


class _Kept:
    """What is kept of layers and configurations, by digest without its algorithm."""

    def __init__(self, work: Workspace) -> None:
        self.folder = work.local / "seen"
        self._lock = threading.Lock()

    def get(self, digest: str) -> Seen | None:
        path = self._path(digest)
        return Seen.from_json(path.read_bytes()) if path.is_file() else None

    def has(self, digest: str) -> bool:
        """Whether this layer is kept, by this torchyard's format."""
        return self._path(digest).is_file()

    def put(self, digest: str, seen: Seen) -> None:
        write_whole(self._path(digest), seen.to_json())

    def alias(self, digest: str, other: str) -> None:
        """Find what is kept under one digest under another one as well."""
        if digest != other and self.has(digest) and not self.has(other):
            with contextlib.suppress(FileExistsError):
                os.link(self._path(digest), self._path(other))

    def document(self, name: str) -> dict[str, Any] | None:
        path = self.folder / f"image-{name}.json"
        return dict(json_text.loads(path.read_bytes())) if path.is_file() else None

    def keep_document(self, name: str, data: bytes) -> None:
        write_whole(self.folder / f"image-{name}.json", data)

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest.removeprefix('sha256:')}.{image_layer.FORMAT}.json"


def read(engine: Engine, image: str, work: Workspace, say: Say) -> Read:
    """The image's configuration and layers; raises CheckFailed where the engine has no such image."""
    known = containers.describe(engine, image)
    if known is None:
        raise CheckFailed(f"the engine has no image {image}", hint="build it, or pull it: ./yard build, ./yard docker")
    diff_ids = tuple(known["RootFS"]["Layers"] or ())
    kept = _Kept(work)
    _from_store(diff_ids, kept, work, say)
    name = str(known["Id"]).removeprefix("sha256:")
    config = kept.document(name)
    if config is None or not all(kept.has(each) for each in diff_ids):
        config = _from_engine(engine, image, diff_ids, kept, say)
        kept.keep_document(name, json.dumps(config).encode())
    layers = tuple(kept.get(each) for each in diff_ids)
    if any(layer is None for layer in layers):
        raise Surroundings(f"the engine did not give all layers of {image}", hint="./yard engine --status")
    return Read(config=config, diff_ids=diff_ids, layers=tuple(layer for layer in layers if layer is not None))


def _from_store(diff_ids: Iterable[str], kept: _Kept, work: Workspace, say: Say) -> None:
    """See the layers that lie in the store, two at a time."""
    wanted = {each for each in diff_ids if not kept.has(each)}
    files: dict[str, tuple[str, Path]] = {}
    for note in (work.local / "layers").glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json_text.loads(note.read_text())
            blob = work.store.path(told["digest"].removeprefix("sha256:"))
            if told["diff_id"] in wanted and blob.is_file():
                files[told["diff_id"]] = (told["digest"], blob)
    if not files:
        return
    from concurrent.futures import ProcessPoolExecutor  # long to import, and seldom needed
    from multiprocessing import get_context

    say(f"reading {len(files)} of the image's layers from the store")
    ordered = sorted(files.items(), key=lambda item: -item[1][1].stat().st_size)
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 4, len(files)), mp_context=get_context("spawn")) as pool:
        try:
            for (diff_id, (digest, _)), data in zip(ordered, pool.map(_see_file, [str(p) for _, (_, p) in ordered])):
                write_whole(kept._path(diff_id), data)
                kept.alias(diff_id, digest)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _see_file(path: str) -> bytes:
    """What a stored layer holds, as it is kept."""
    with open(path, "rb") as stream:
        buffered = io.BufferedReader(stream, 1 << 20)
        start = buffered.peek(512)[:512]
        tar = image_layer.opened(buffered, start)
        if tar is None:
            raise CheckFailed(f"{path} is no layer", hint="./yard clean")
        return image_layer.scan(tar, path, start).to_json()


def _from_engine(engine: Engine, image: str, diff_ids: tuple[str, ...], kept: _Kept, say: Say) -> dict[str, Any]:
    say(f"reading the image from the engine: {image}")
    client = engines.client(engine)
    client.api.timeout = containers.CREATE_TIMEOUT
    try:
        if engine.containerd_store and (config := _pushed(client, image, kept)) is not None:
            return config
        return _saved(client, image, kept)
    except _NO_ENGINE as error:
        raise Surroundings(f"the engine did not give {image}: {error}", hint="./yard engine --status") from error
    finally:
        client.close()


def _pushed(client: Any, image: str, kept: _Kept) -> dict[str, Any] | None:
    """The configuration of the image, with every unknown layer seen; None where the engine cannot push to us."""

    def look(stream: IO[bytes], digest: str) -> None:
        start = stream.peek(512)[:512] if isinstance(stream, io.BufferedReader) else b""
        tar = image_layer.opened(stream, start)
        if tar is not None:
            kept.put(digest, image_layer.scan(tar, digest, start))

    with image_receiver.receiving(kept.has, look) as (address, pushed):
        name = f"{address}/{REPOSITORY}"
        try:
            if not client.api.tag(image, name, "one", force=True):
                return None
            for line in client.api.push(name, "one", stream=True, decode=True):
                if "error" in line:
                    break
        finally:
            with contextlib.suppress(*_NO_ENGINE):
                client.api.remove_image(f"{name}:one", noprune=True)
    for error in pushed.errors:
        if isinstance(error, CheckFailed):
            raise error
    for data in pushed.manifests:
        manifest = json_text.loads(data)
        if "layers" in manifest and manifest["config"]["digest"] in pushed.documents:
            config: dict[str, Any] = json_text.loads(pushed.documents[manifest["config"]["digest"]])
            for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
                kept.alias(layer["digest"], diff_id)
            if all(kept.has(each) for each in config["rootfs"]["diff_ids"]):
                return config
    return None


def _saved(client: Any, image: str, kept: _Kept) -> dict[str, Any]:
    """The configuration of the image, with every layer seen that was not known, from the engine's `save`."""
    documents: dict[str, bytes] = {}
    with contextlib.closing(client.api.get_image(image)) as chunks:
        outer = image_tar.Tar(io.BufferedReader(_Chunks(iter(chunks)), 1 << 20))
        for entry in outer:
            if not entry.is_file or kept.has(_digest(entry.path)):
                continue
            start = outer.data(512)
            stream = io.BufferedReader(_Rest(start, outer), 1 << 20)
            tar = image_layer.opened(stream, start)
            if tar is not None:
                kept.put(_digest(entry.path), image_layer.scan(tar, entry.path, start))
            elif entry.size <= _DOCUMENT_MOST:
                documents[entry.path] = start + outer.data()
    manifest = json_text.loads(documents.get("/manifest.json", b"[]"))
    if not manifest:
        raise Surroundings(f"the engine saved {image} without a manifest", hint="upgrade Docker to 25 or newer")
    config: dict[str, Any] = json_text.loads(documents["/" + manifest[0]["Config"]])
    for path, diff_id in zip(manifest[0]["Layers"], config["rootfs"]["diff_ids"]):
        kept.alias(_digest("/" + path), diff_id)
    return config


def _digest(path: str) -> str:
    """The name under which a member of a saved image is kept: its digest, or its folder in the older form."""
    parts = path.strip("/").split("/")
    return parts[-2] if parts[-1] == "layer.tar" and len(parts) > 1 else parts[-1]


class _Chunks(io.RawIOBase):
    """Chunks as a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._held = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            try:
                self._held = memoryview(next(self._chunks))
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


class _Rest(io.RawIOBase):
    """The data of the entry at hand, with the part of it that was read before."""

    def __init__(self, start: bytes, tar: image_tar.Tar) -> None:
        self._start, self._tar = start, tar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._start[: len(buffer)] or self._tar.data(len(buffer))
        self._start = self._start[len(block) :]
        buffer[: len(block)] = block
        return len(block)
