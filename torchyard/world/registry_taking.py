"""BuildKit's result out of the engine, as it is: manifest, configuration and layers in the store, byte for byte.

An engine with the containerd image store keeps what BuildKit made, and pushes it as it is. So it pushes to a registry
on loopback that says of every layer in the store that it is there: what comes is what torchyard did not make itself,
a few hundred megabytes in a second, where `docker save` writes the whole image. An engine with its older store keeps
no compressed layers; there BuildKit exports its OCI result again, from its cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker.errors
import requests

from .. import json_text, oci, render
from ..errors import CheckFailed, Surroundings
from . import containers, image_receiver, process, unfinished
from . import engine as engines
from .engine import Engine
from .registry_read import plain_hex
from .store import CHUNK, Store
from .workspace import Workspace

REPOSITORY = "torchyard-taking"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """A configuration or a layer: its digest, its size in bytes, and its media type."""

    digest: str
    size: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """An image whose blobs all are in the store; the manifest as it was made, layers lowest first."""

    manifest: bytes
    config: Blob
    layers: tuple[Blob, ...]

    @property
    def digest(self) -> str:
        """The manifest digest."""
        return oci.digest_of(self.manifest)

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Every blob that the manifest names, each once."""
        return tuple({blob.digest: blob for blob in (*self.layers, self.config)}.values())


def stored(digest: str, store: Store) -> Result | None:
    """The image of this manifest digest where all of it is in the store; None where something is missing."""
    path = store.path(plain_hex(digest))
    if not digest or not path.is_file():
        return None
    found = read(path.read_bytes())
    return found if all(store.has(plain_hex(blob.digest), blob.size) for blob in found.blobs) else None


def read(manifest: bytes) -> Result:
    """What a manifest names."""
    document = json_text.loads(manifest)
    config, *layers = (
        Blob(digest=each["digest"], size=each["size"], kind=each["mediaType"])
        for each in (document["config"], *document["layers"])
    )
    return Result(manifest=manifest, config=config, layers=tuple(layers))


def take(engine: Callable[[], Engine], image_id: str, tag: str, digest: str, work: Workspace, say: Say) -> Result:
    """The image of this digest (of this tag, where the engine keeps no digests), its blobs in the store.

    What the store has is not asked for again: where it has everything, no engine is needed.
    """
    if (found := stored(digest, work.store)) is not None:
        return found
    say(f"taking {tag} out of the engine")
    reached = engine()
    if reached.containerd_store:
        manifest = _pushed(reached, digest or tag, work.store)
    else:
        manifest = _exported(reached, image_id, work)
    seen = oci.digest_of(manifest)
    if digest and seen != digest:
        raise CheckFailed(
            f"the engine gives {seen} for {tag}, the receipt says {digest}",
            where=tag,
            hint=f"build it again: ./yard build --id {image_id}",
        )
    keep(manifest, work.store)
    found = stored(seen, work.store)
    if found is None:
        raise Surroundings(f"the engine did not give all layers of {tag}", hint="./yard engine --status")
    return found


def layer_ids(result: Result, store: Store) -> tuple[str, ...]:
    """The uncompressed layer ids of a stored image, as its configuration says, lowest first."""
    config = json_text.loads(store.path(plain_hex(result.config.digest)).read_bytes())
    return tuple(config["rootfs"]["diff_ids"])


def keep(data: bytes, store: Store) -> str:
    """Have a small document in the store; answers its digest."""
    digest = oci.digest_of(data)
    if not store.has(plain_hex(digest), len(data)):
        with store.incoming() as stream:
            stream.write(data)
            stream.flush()
            store.keep(Path(stream.name))
    return digest


def _pushed(engine: Engine, image: str, store: Store) -> bytes:
    """The manifest of an image that the engine pushed to us, with every blob that the store did not have."""
    if containers.describe(engine, image) is None:
        raise CheckFailed(f"the engine has no image {image}", hint="build it: ./yard build")

    def look(stream: IO[bytes], digest: str) -> None:
        keep_stream(stream, digest, store)

    client = engines.client(engine)
    client.api.timeout = containers.CREATE_TIMEOUT
    said: list[str] = []
    try:
        with image_receiver.receiving(lambda digest: store.has(plain_hex(digest)), look) as (address, pushed):
            name = f"{address}/{REPOSITORY}"
            try:
                client.api.tag(image, name, "one", force=True)
                for line in client.api.push(name, "one", stream=True, decode=True):
                    said += [str(line["error"])] if "error" in line else []
            finally:
                with contextlib.suppress(docker.errors.DockerException):
                    client.api.remove_image(f"{name}:one", noprune=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine did not give {image}: {error}", hint="./yard engine --status") from error
    finally:
        client.close()
    if pushed.errors:
        raise pushed.errors[0]
    for document in pushed.documents.values():
        keep(document, store)
    manifests = [data for data in pushed.manifests if "layers" in json_text.loads(data)]
    if not manifests:
        why = said[0] if said else "it sent no manifest"
        raise Surroundings(f"the engine did not give {image}: {why}", hint="./yard engine --status")
    return manifests[-1]


def keep_stream(stream: IO[bytes], digest: str, store: Store, *, where: str = "the engine") -> None:
    """Have the bytes of a stream in the store; raises CheckFailed where they are not of this digest."""
    with store.incoming() as file:
        seen = hashlib.sha256()
        while block := stream.read(CHUNK):
            file.write(block)
            seen.update(block)
        file.flush()
        if f"sha256:{seen.hexdigest()}" != digest:
            raise CheckFailed(
                f"{where} gives sha256:{seen.hexdigest()} for {digest}", where=where, hint="get it anew from its source"
            )
        store.keep(Path(file.name))


def _exported(engine: Engine, image_id: str, work: Workspace) -> bytes:
    """The manifest of what BuildKit exports as an OCI archive, its blobs in the store."""
    target = render.target_name(image_id)
    with unfinished.directory(work.local, "exported-") as folder:
        file = folder / "image.tar"
        output = f"{target}.output={render.archive_output(work.read(render.BAKE), image_id, str(file))}"
        process.run(
            [*engine.buildx, "bake", "--file", "images/docker-bake.json", "--progress=plain", "--set", output, target],
            cwd=work.root,
            env={**engine.env, "BUILDX_BAKE_ENTITLEMENTS_FS": "0"},
            hint=f"build it first: ./yard build --id {image_id}",
        )
        return unpack(file, work.store)


def unpack(file: Path, store: Store) -> bytes:
    """The manifest of the one image in an OCI archive, its blobs in the store, each checked."""
    try:
        with tarfile.open(file) as tar:
            index: dict[str, Any] = {}
            for member in tar:
                parts = member.name.removeprefix("./").split("/")
                source = tar.extractfile(member) if member.isreg() else None
                if source is None:
                    continue
                if parts[:2] == ["blobs", "sha256"] and not store.has(parts[-1], member.size):
                    keep_stream(source, f"sha256:{parts[-1]}", store)
                elif parts == ["index.json"]:
                    index = json_text.loads(source.read())
        described: Sequence[dict[str, Any]] = index["manifests"]
        return store.path(plain_hex(described[0]["digest"])).read_bytes()
    except (KeyError, IndexError, ValueError, tarfile.TarError) as error:
        raise CheckFailed(f"{file.name} is no OCI archive: {error}", where=str(file), hint="make it anew") from error
