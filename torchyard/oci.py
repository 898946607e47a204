"""Descriptors and documents of the OCI image layout, as plain values and deterministic JSON."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from . import json_text

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
ZSTD_LEVEL = 3
ZSTD_FORMAT = "1"  # raise it where zstd layers come out otherwise for the same tar; both are part of their fingerprints

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture(arch: str) -> str:
    """The name that OCI, Debian and Docker give to a machine (`amd64` for `x86_64`)."""
    return _ARCHITECTURES[arch]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A compressed layer: digest and size (bytes) of the blob, diff id and length (bytes) of the tar in it."""

    digest: str
    size: int
    diff_id: str
    unpacked: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """The three small documents of a layout with one image; the layers' blobs come beside them."""

    config: bytes
    manifest: bytes
    index: bytes

    @property
    def digest(self) -> str:
        """The manifest digest."""
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    """The digest of a blob, with its algorithm."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What an image starts from: its layers, lowest first, the words for their history, and its config section.

    config is the `config` object of an image's configuration (Env, Labels, ...), as JSON text.
    """

    layers: tuple[Layer, ...]
    words: str
    config: str = '{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}'


def documents(
    start: Start,
    layers: Sequence[tuple[Layer, str]],
    *,
    arch: str,
    epoch: int,
    tag: str = "latest",
    kind: str = LAYER_GZIP,
) -> Documents:
    """The config, manifest and index of an image of `start` with layers on top, each with the words for its history.

    epoch in seconds: the one time that appears. kind: the media type of all layers.
    """
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    stacked = [*((layer, start.words) for layer in start.layers), *layers]
    config = _json(
        {
            "architecture": architecture(arch),
            "os": "linux",
            "created": created,
            "config": json_text.loads(start.config),
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer, _ in stacked]},
            "history": [{"created": created, "created_by": words} for _, words in stacked],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, digest_of(config), len(config)),
            "layers": [_descriptor(kind, layer.digest, layer.size) for layer, _ in stacked],
        }
    )
    entry = _descriptor(MANIFEST, digest_of(manifest), len(manifest))
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    return Documents(config=config, manifest=manifest, index=_json({"schemaVersion": 2, "manifests": [entry]}))


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
