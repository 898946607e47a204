"""An image of the store handed to what runs it: an OCI layout, Docker, Podman, a SIF file or a squashfs file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docker.errors
import requests

from .. import framing, oci
from ..errors import CheckFailed, Surroundings
from . import containers, disks, process, unfinished
from . import engine as engines
from .engine import Engine
from .registry_read import plain_hex
from .registry_taking import Result, layer_ids
from .store import CHUNK, Store
from .workspace import write_whole

TAKING = "torchyard-taking"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
Say = Callable[[str], None]


def layout(result: Result, name: str, store: Store, target: Path) -> None:
    """An OCI layout folder with this one image; its blobs are links into the store where links work."""
    if target.exists() and not (target / "oci-layout").is_file():
        raise Surroundings(f"{target} is there and is no OCI layout", where=str(target), hint="name another: --output")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.stat(target.parent).st_dev != os.stat(store.root).st_dev:  # else its blobs are links
        disks.require(target.parent, sum(blob.size for blob in result.blobs), target.name)
    with unfinished.directory(target.parent, unfinished.beside(target)) as folder:
        for blob in result.blobs:
            store.link(plain_hex(blob.digest), folder / "blobs" / "sha256" / plain_hex(blob.digest))
        write_whole(folder / "blobs" / "sha256" / plain_hex(result.digest), result.manifest)
        write_whole(folder / "oci-layout", LAYOUT)
        write_whole(folder / "index.json", index(result, name))
        unfinished.put(folder, target)


def index(result: Result, name: str) -> bytes:
    """The index of a layout with this one image, called `project:tag`."""
    annotations = {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    entry = {"mediaType": oci.MANIFEST, "digest": result.digest, "size": len(result.manifest)}
    document = {"schemaVersion": 2, "manifests": [{**entry, "annotations": annotations}]}
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def archive(
    result: Result, name: str, store: Store, *, mtime: int = 0, more: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[bytes]:
    """The bytes of an OCI archive, which also is a Docker archive, and of files beside; the same for the same image."""
    docker_manifest = [
        {
            "Config": f"blobs/sha256/{plain_hex(result.config.digest)}",
            "RepoTags": [name],
            "Layers": [f"blobs/sha256/{plain_hex(layer.digest)}" for layer in result.layers],
        }
    ]
    small = {
        **more,
        f"blobs/sha256/{plain_hex(result.digest)}": result.manifest,
        "index.json": index(result, name),
        "manifest.json": json.dumps(docker_manifest, separators=(",", ":")).encode(),
        "oci-layout": LAYOUT,
    }
    files = {f"blobs/sha256/{plain_hex(blob.digest)}": store.path(plain_hex(blob.digest)) for blob in result.blobs}
    for path in sorted({*small, *files}):
        size = len(small[path]) if path in small else files[path].stat().st_size
        yield framing.tar_header(path, size=size, mode=0o644, mtime=mtime)
        if path in small:
            yield small[path]
        else:
            with files[path].open("rb") as stream:
                while block := stream.read(CHUNK):
                    yield block
        yield framing.padding(size)
    yield framing.END_OF_ARCHIVE


def to_docker(engine: Engine, result: Result, name: str, store: Store) -> None:
    """Have the image in the engine under this name, checked; what the engine has already is only named."""
    known = containers.describe(engine, result.digest) if engine.containerd_store else None
    client = engines.client(engine)
    client.api.timeout = containers.CREATE_TIMEOUT
    try:
        if known is not None:
            client.api.tag(result.digest, name, force=True)
        else:
            _require(engine, result, name)
            for line in client.api.load_image(archive(result, name, store)):
                if "error" in line:
                    raise Surroundings(
                        f"the engine does not load {name}: {line['error']}",
                        hint=disks.short(*containers.data_roots(engine), said=line["error"])
                        or "./yard engine --status",
                    )
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise Surroundings(f"the engine does not load {name}: {error}", hint="./yard engine --status") from error
    finally:
        client.close()
    _check(containers.describe(engine, name), engine, result, name, store)


def _require(engine: Engine, result: Result, name: str) -> None:
    """Raise Surroundings where the engine's disk cannot hold the image, as it comes and unpacked."""
    for root in containers.data_roots(engine):
        disks.require(root, 2 * sum(blob.size for blob in result.blobs), f"{name} in the engine")


def _check(seen: dict[str, Any] | None, engine: Engine, result: Result, name: str, store: Store) -> None:
    expected = layer_ids(result, store)
    found = tuple(seen["RootFS"]["Layers"]) if seen else ()
    if found != expected or (engine.containerd_store and seen is not None and seen["Id"] != result.digest):
        raise CheckFailed(
            f"the engine has {seen['Id'] if seen else 'nothing'} for {name} after loading {result.digest}",
            where=name,
            hint="./yard engine --status",
        )


def podman_version() -> str:
    """The version of the Podman that is here."""
    podman = _program("podman", "podman")
    return process.run([podman, "--version"], hint="it is broken, or use --to oci").out.split()[-1]


def to_podman(result: Result, name: str, store: Store) -> None:
    """Have the image in Podman under this name."""
    podman = _program("podman", "podman")
    with _scratch(store) as folder:
        layout(result, name, store, folder / TAKING)
        # Podman 4 calls the image by the folder, as it is named here: a whole path may be no name at all.
        told = process.run([podman, "pull", "--quiet", f"oci:{TAKING}"], cwd=folder, hint="podman info says more")
        image = told.out.split()[-1]
        process.run([podman, "tag", image, f"localhost/{name}"])
        process.run([podman, "untag", image, f"localhost/{TAKING}:latest"], check=False)


def to_sif(result: Result, name: str, store: Store, target: Path) -> None:
    """A SIF file, made by Apptainer or Singularity from an OCI layout; neither root nor Docker is needed."""
    program, _ = _sif_program()
    with _scratch(store) as folder, _beside(target) as made:
        layout(result, name, store, folder / "oci")
        words = [program, "build", "--force", str(made), f"oci:{folder / 'oci'}"]
        cache = {"APPTAINER_CACHEDIR": str(folder / "cache"), "APPTAINER_TMPDIR": str(folder)}
        process.run(words, env=cache, hint="its own message is above; it needs room for the unpacked image")
        os.replace(made, target)


def sif_maker() -> tuple[str, str]:
    """What makes SIF files here, apptainer or singularity, and its version."""
    program, name = _sif_program()
    return name, process.run([program, "--version"], hint="it is broken, or use --to oci").out.split()[-1]


def _sif_program() -> tuple[str, str]:
    found = shutil.which("apptainer")
    return (found, "apptainer") if found else (_program("singularity", "apptainer"), "singularity")


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Surroundings(
            f"there is no {name} on this machine", hint=f"install the package {package}, or use --to oci"
        )
    return found


@contextlib.contextmanager
def _scratch(store: Store) -> Iterator[Path]:
    """A folder on the disk of the store, where links into it work."""
    with unfinished.directory(store.root.parent, "deliver-") as folder:
        yield folder


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A name beside the target that nobody else has; what is left there goes."""
    with unfinished.directory(target.parent, unfinished.beside(target)) as folder:
        yield folder / target.name
