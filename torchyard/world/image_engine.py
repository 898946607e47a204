"""An image of the engine opened for reading: its documents at once, and those of its layers that are asked for.

With `push` the engine asks first which layers the other side has, so it sends just the ones that are wanted. Where it
cannot reach us (it is on another machine, or has no real digests), `save` sends the whole image.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import docker.errors
import requests

from .. import json_text
from ..differ.values import Outline
from ..errors import InputError, Surroundings
from . import containers, image_open, image_receiver, image_source, image_tar
from . import engine as engines
from .engine import Engine
from .image_open import Opened

_NO_ENGINE = (docker.errors.DockerException, requests.exceptions.RequestException)
Say = Callable[[str], None]


@contextlib.contextmanager
def image(engine: Engine, name: str, say: Say) -> Iterator[Opened]:
    """An image that the engine has; the layers that are read lie in a folder for temporary files meanwhile."""
    known = containers.describe(engine, name)
    if known is None:
        raise InputError(
            f"{name} is neither a folder nor a file, and the engine has no such image",
            hint="name an OCI layout, an archive of `docker save`, or an image that `./yard docker images` lists",
        )
    client = engines.client(engine)
    client.api.timeout = containers.CREATE_TIMEOUT
    with tempfile.TemporaryDirectory(prefix="torchyard-layers-") as folder:
        try:
            yield _opened(_Source(client=client, name=name, folder=Path(folder), say=say), engine.containerd_store)
        except _NO_ENGINE as error:
            raise Surroundings(f"the engine did not give {name}: {error}", hint="./yard engine --status") from error
        finally:
            client.close()


@dataclass(kw_only=True, slots=True)
class _Source:
    client: Any
    name: str
    folder: Path
    say: Say
    files: dict[str, Path] = field(default_factory=dict)  # of layers that lie here, by blob or member

    def keep(self, key: str, stream: IO[bytes]) -> None:
        path = self.folder / key.replace("/", "_").replace(":", "_")
        with path.open("wb") as target:
            shutil.copyfileobj(stream, target, 1 << 20)
        self.files[key] = path


def _opened(source: _Source, pushes: bool) -> Opened:
    outline = _pushed_outline(source) if pushes else None
    if outline is not None:
        return _as_opened(source, outline, tuple(step.blob for step in outline.steps), _push)
    documents = _saved_documents(source)
    outline, members = image_open.outlined(source.name, "", documents.get)
    return _as_opened(source, outline, members, _save)


def _as_opened(
    source: _Source, outline: Outline, keys: tuple[str, ...], get: Callable[[_Source, set[str]], None]
) -> Opened:
    def need(numbers: tuple[int, ...]) -> None:
        wanted = {keys[number] for number in numbers} - source.files.keys()
        if wanted:
            if not source.files:
                source.say(f"reading layers of {source.name} from the engine")
            get(source, wanted)

    @contextlib.contextmanager
    def blob(number: int) -> Iterator[IO[bytes]]:
        need((number,))
        if keys[number] not in source.files:
            raise Surroundings(f"the engine did not give a layer of {source.name}", hint="./yard engine --status")
        with source.files[keys[number]].open("rb") as stream:
            yield stream

    return Opened(outline=outline, need=need, blob=blob, trusted=True)


def _pushed_outline(source: _Source) -> Outline | None:
    """What the documents of the image say; None where the engine does not push to us."""
    manifests = _documents(source, lambda digest: True)[0]
    manifest, digest = _image_of(manifests)
    if manifest is None:
        return None
    told = manifest["config"]["digest"]
    configs = _documents(source, lambda digest: digest != told)[1]
    if told not in configs:
        return None
    blobs = [layer["digest"] for layer in manifest["layers"]]
    return image_open.outline(source.name, digest, manifest, json_text.loads(configs[told]), blobs)


def _image_of(manifests: list[bytes]) -> tuple[dict[str, Any] | None, str]:
    """The first manifest of layers that are no attestation."""
    for data in manifests:
        found: dict[str, Any] = json_text.loads(data)
        if any("in-toto" in str(layer.get("mediaType")) for layer in found.get("layers") or []):
            continue
        if "layers" in found and "config" in found:
            return found, image_open.digest_of(data)
    return None, ""


def _documents(source: _Source, known: Callable[[str], bool]) -> tuple[list[bytes], dict[str, bytes]]:
    return _pushed(source, known, lambda stream, digest: None)


def _push(source: _Source, wanted: set[str]) -> None:
    _pushed(source, lambda digest: digest not in wanted, lambda stream, digest: source.keep(digest, stream))
    if missing := wanted - source.files.keys():
        raise Surroundings(
            f"the engine did not push {len(missing)} layers of {source.name}", hint="./yard engine --status"
        )


def _pushed(
    source: _Source, known: Callable[[str], bool], look: image_receiver.Look
) -> tuple[list[bytes], dict[str, bytes]]:
    """Have the engine push the image to us; answers the manifests and the documents that came."""
    with image_receiver.receiving(known, look) as (address, pushed):
        name = f"{address}/{image_source.REPOSITORY}"
        if not source.client.api.tag(source.name, name, "compared", force=True):
            return [], {}
        try:
            for line in source.client.api.push(name, "compared", stream=True, decode=True):
                if "error" in line:
                    break
        finally:
            with contextlib.suppress(*_NO_ENGINE):
                source.client.api.remove_image(f"{name}:compared", noprune=True)
    return pushed.manifests, pushed.documents


def _saved_documents(source: _Source) -> dict[str, bytes]:
    documents: dict[str, bytes] = {}
    for entry, tar in _members(source):
        if entry.is_file and entry.size <= image_open.DOCUMENT_MOST:
            start = tar.data(512)
            if start[:1] in (b"{", b"["):
                documents[entry.path.strip("/")] = start + tar.data()
    return documents


def _save(source: _Source, wanted: set[str]) -> None:
    for entry, tar in _members(source):
        key = entry.path.strip("/")
        if entry.is_file and key in wanted:
            source.keep(key, io.BufferedReader(image_open.Data(tar), 1 << 20))


def _members(source: _Source) -> Iterator[tuple[image_tar.Entry, image_tar.Tar]]:
    source.say(f"reading {source.name} from the engine with save")
    with contextlib.closing(source.client.api.get_image(source.name)) as chunks:
        tar = image_tar.Tar(io.BufferedReader(image_source._Chunks(iter(chunks)), 1 << 20))
        for entry in tar:
            yield entry, tar
