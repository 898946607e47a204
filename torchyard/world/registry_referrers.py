"""What belongs to an image in a registry (findings, SBOM, provenance): attached to its digest, and found by it.

Registries that know the referrers of OCI 1.1 list them themselves. Others get an index under the tag that OCI names
for them (`sha256-<digest>`), which every reader of referrers falls back to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import json_text, oci
from ..errors import Surroundings
from . import registry_taking, registry_upload
from .registry_read import document, plain_hex, small
from .registry_ref import INDEXES, MANIFESTS
from .registry_session import Registry
from .registry_taking import Blob
from .store import Store

EMPTY = "application/vnd.oci.empty.v1+json"
INDEX = INDEXES[0]
ROUNDS = 12  # of adding to an index that somebody else changes too
SETTLE = 1.0  # seconds after which it is looked again whether another push, which had read it before, wrote over it


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """One document that belongs to an image; `name` is a file name for it, annotations are found without reading it."""

    kind: str  # its media type, and the artifact's
    name: str
    data: bytes
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Referrer:
    """One document that a registry has for an image."""

    kind: str
    digest: str  # of its manifest
    size: int
    annotations: Mapping[str, str]


def attach(registry: Registry, subject: bytes, artifacts: Sequence[Artifact], store: Store) -> list[str]:
    """Put documents beside the image with this manifest; answers the digests of their manifests."""
    made = [(artifact, manifest(artifact, subject)) for artifact in artifacts]
    for artifact in artifacts:
        registry_taking.keep(artifact.data, store)
    registry_taking.keep(b"{}", store)
    registry_upload.blobs(registry, _blobs(artifacts), store)
    unlisted = []
    for artifact, data in made:
        answer = registry_upload.manifest(registry, oci.digest_of(data), data, oci.MANIFEST)
        if "OCI-Subject" not in answer.headers:
            unlisted.append(_entry(artifact, data))
    if unlisted:
        _list(registry, oci.digest_of(subject), unlisted)
    return [oci.digest_of(data) for _, data in made]


def find(registry: Registry, digest: str) -> list[Referrer]:
    """What the registry has for the image of this digest."""
    answer = registry.get(f"referrers/{digest}", (INDEX,))
    if answer.status_code in (401, 403):
        raise registry.refused(answer)
    listed = _entries(answer.content) if answer.status_code == 200 else None
    if listed is None:
        listed = _tagged(registry, digest)
    return [
        Referrer(
            kind=str(each.get("artifactType") or ""),
            digest=each["digest"],
            size=each["size"],
            annotations=each.get("annotations") or {},
        )
        for each in listed
    ]


def read(registry: Registry, referrer: Referrer) -> bytes:
    """The document itself, checked by its digests."""
    from .registry_read import manifest as ask

    found = document(ask(registry, referrer.digest), referrer.digest, registry.ref)
    return small(registry, found["layers"][0])


def manifest(artifact: Artifact, subject: bytes) -> bytes:
    """The manifest that ties a document to an image; the same for the same two."""
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST,
            "artifactType": artifact.kind,
            "config": {"mediaType": EMPTY, "digest": oci.digest_of(b"{}"), "size": 2},
            "layers": [
                {
                    "mediaType": artifact.kind,
                    "digest": oci.digest_of(artifact.data),
                    "size": len(artifact.data),
                    "annotations": {"org.opencontainers.image.title": artifact.name},
                }
            ],
            "subject": {"mediaType": oci.MANIFEST, "digest": oci.digest_of(subject), "size": len(subject)},
            "annotations": dict(artifact.annotations),
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()


def fallback_tag(digest: str) -> str:
    """The tag under which a registry without the API has the index of an image's referrers."""
    return digest.replace(":", "-", 1)


def _blobs(artifacts: Sequence[Artifact]) -> list[Blob]:
    empty = Blob(digest=oci.digest_of(b"{}"), size=2, kind=EMPTY)
    made = [Blob(digest=oci.digest_of(a.data), size=len(a.data), kind=a.kind) for a in artifacts]
    return [empty, *{blob.digest: blob for blob in made}.values()]


def _entry(artifact: Artifact, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"mediaType": oci.MANIFEST, "digest": oci.digest_of(data), "size": len(data)}
    return {**entry, "artifactType": artifact.kind, "annotations": dict(artifact.annotations)}


def _list(registry: Registry, digest: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Have these entries in the index under the fallback tag, also where another push writes it at the same time."""
    tag, written = fallback_tag(digest), False
    for _ in range(ROUNDS):
        listed = {each["digest"]: each for each in _tagged(registry, digest)}
        if all(each["digest"] in listed for each in entries):
            if not written:
                return
            written = False
            time.sleep(SETTLE)
            continue
        written = True
        whole = listed | {each["digest"]: dict(each) for each in entries}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [whole[key] for key in sorted(whole)]}
        registry_upload.manifest(registry, tag, json.dumps(index, separators=(",", ":")).encode(), INDEX)
    raise Surroundings(
        f"others keep changing the index {tag} of {registry.ref.repository}",
        where=registry.ref.host,
        hint="run the command again when they are done",
    )


def _tagged(registry: Registry, digest: str) -> list[dict[str, Any]]:
    answer = registry.get(f"manifests/{fallback_tag(digest)}", (INDEX, *MANIFESTS))
    if answer.status_code in (401, 403):
        raise registry.refused(answer)
    return (_entries(answer.content) or []) if answer.status_code == 200 else []


def _entries(data: bytes) -> list[dict[str, Any]] | None:
    """The entries of an index; None where this is none."""
    try:
        found = json_text.loads(data)["manifests"]
        return [each for each in found if plain_hex(str(each["digest"])) and isinstance(each["size"], int)]
    except (KeyError, TypeError, ValueError):
        return None
