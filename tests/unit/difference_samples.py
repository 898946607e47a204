"""Small real images for comparisons: layers as tar archives, in an OCI layout on disk or a `docker save`."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH = 1_700_000_000
STATUS = (
    "Package: libfoo\nStatus: install ok installed\nVersion: 1.0-1\n\n"
    "Package: bar\nStatus: install ok installed\nVersion: 2.0\n"
)


@dataclass(frozen=True, kw_only=True)
class Item:
    """One entry of a layer; link makes it a symbolic link, hard a hard link, folder a folder."""

    path: str
    data: bytes = b""
    mode: int = 0o644
    mtime: float = EPOCH
    uid: int = 0
    gid: int = 0
    link: str = ""
    hard: str = ""
    folder: bool = False
    xattrs: Mapping[str, str] = field(default_factory=dict)


def layer(items: Sequence[Item], *, form: int = tarfile.PAX_FORMAT) -> bytes:
    """A layer's tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for item in items:
            info = tarfile.TarInfo(item.path)
            info.mode, info.uid, info.gid = item.mode, item.uid, item.gid
            info.mtime = item.mtime  # type: ignore[assignment]  # a fraction goes into the extended header
            if item.folder:
                info.type = tarfile.DIRTYPE
            elif item.link:
                info.type, info.linkname = tarfile.SYMTYPE, item.link
            elif item.hard:
                info.type, info.linkname = tarfile.LNKTYPE, item.hard
            else:
                info.size = len(item.data)
            info.pax_headers = {f"SCHILY.xattr.{name}": value for name, value in item.xattrs.items()}
            tar.addfile(info, io.BytesIO(item.data) if info.type == tarfile.REGTYPE else None)
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config(
    layers: Sequence[bytes], *, created: str = "2023-11-14T22:13:20Z", words: Sequence[str] = ()
) -> dict[str, Any]:
    """An image's configuration with a step for each layer."""
    steps = [*words, *(f"RUN step {number}" for number in range(len(words), len(layers)))]
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {"Env": ["PATH=/bin"]},
        "history": [{"created": created, "created_by": step} for step in steps],
        "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]},
    }


def layout(folder: Path, layers: Sequence[bytes], told: dict[str, Any] | None = None, *, level: int = 6) -> str:
    """An OCI layout of these layers; level: of gzip. Answers its path."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, kind: str) -> dict[str, Any]:
        (blobs / digest(data).removeprefix("sha256:")).write_bytes(data)
        return {"mediaType": kind, "digest": digest(data), "size": len(data)}

    packed = [
        put(gzip.compress(each, level, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for each in layers
    ]
    described = put(json.dumps(told or config(layers)).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {"schemaVersion": 2, "config": described, "layers": packed}
    listed = put(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [listed]}))
    return str(folder)


def saved(path: Path, layers: Sequence[bytes]) -> str:
    """An archive as an older `docker save` writes it. Answers its path."""
    told = json.dumps(config(layers)).encode()
    name = digest(told).removeprefix("sha256:")
    files = {f"{name}.json": told}
    places = []
    for each in layers:
        places.append(f"{digest(each).removeprefix('sha256:')}/layer.tar")
        files[places[-1]] = each
    files["manifest.json"] = json.dumps([{"Config": f"{name}.json", "RepoTags": ["a:b"], "Layers": places}]).encode()
    path.write_bytes(layer([Item(path=each, data=data) for each, data in files.items()]))
    return str(path)
