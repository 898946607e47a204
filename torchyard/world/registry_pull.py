"""An image of a digest out of a registry into the store, every blob checked; what the store has is not asked for."""

from __future__ import annotations

from collections.abc import Callable

from .. import json_text, proven
from ..errors import CheckFailed, Incompatible
from ..provenance import FINDINGS, PROVEN
from . import registry_referrers, registry_taking
from .registry_read import document, fetch, kind, manifest, small, sound, stored
from .registry_ref import MANIFESTS
from .registry_session import Registry
from .registry_taking import Result
from .store import Store


def take(registry: Registry, digest: str, store: Store, say: Callable[[str], None]) -> Result:
    """The image with this manifest digest, all of it in the store."""
    data = stored(digest, store, lambda: manifest(registry, digest))
    found = document(data, digest, registry.ref)
    described = [found.get("config"), *(found.get("layers") or ())]
    if kind(found) not in MANIFESTS or len(described) < 2 or not all(sound(each) for each in described):
        raise Incompatible(
            f"{registry.ref.text} is no image of one machine: it is of the kind {kind(found)!r}",
            where=f"{registry.ref.host}/{registry.ref.repository}",
            hint="name the manifest's digest, not that of an index or of a document that belongs to an image",
        )
    result = registry_taking.read(data)
    config = {"digest": result.config.digest, "size": result.config.size}
    stored(result.config.digest, store, lambda: small(registry, config))
    fetch(registry, [{"digest": each.digest, "size": each.size} for each in result.layers], store, say)
    return result


def check_level(registry: Registry, digest: str, wanted: str) -> str:
    """The highest level to which findings in the registry prove the image; raises CheckFailed below `wanted`."""
    best = max(_levels(registry, digest), key=proven.LEVELS.index, default="none")
    if not proven.at_least(best, wanted):
        raise CheckFailed(
            f"the image is proven to the level {best!r}, {wanted!r} is required",
            where=f"{registry.ref.host}/{registry.ref.repository}@{digest}",
            hint="verify it on a machine that can, and push the findings: ./yard verify, ./yard push",
        )
    return best


def _levels(registry: Registry, digest: str) -> list[str]:
    """The levels that the findings of just this image prove; read, not only announced."""
    found = []
    for referrer in registry_referrers.find(registry, digest):
        if referrer.kind == FINDINGS and referrer.annotations.get(PROVEN) in proven.LEVELS:
            told = json_text.loads(registry_referrers.read(registry, referrer))
            if told.get("digest") == digest and told.get("proven") in proven.LEVELS:
                found.append(str(told["proven"]))
    return found
