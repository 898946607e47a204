"""matrix --storage: what a registry and a node hold for all images together, each layer once."""

from __future__ import annotations

from typing import Any

from .. import report, storage
from ..lock import LockedImage
from ..storage import Built, Held
from ..world import registry_taking
from . import project as projects
from . import tiers
from .project import Project


def held(project: Project) -> list[Held]:
    """What each locked image adds to those before it; as it is where it was built here, else estimated."""
    locks = projects.locks(project.work, project.plan)
    return storage.held({lock.id: storage.pieces(lock, _built(project, lock)) for lock in locks})


def _built(project: Project, lock: LockedImage) -> Built | None:
    """The layers of the image as it was built and taken out of the engine, with sizes; None where these are unknown."""
    told = tiers.read_receipt(project.work, lock.id)
    if told is None or told.fingerprint != lock.fingerprint:
        return None
    result = registry_taking.stored(told.digest, project.work.store)
    if result is None or len(told.layer_sizes) != len(result.layers):
        return None
    rows = zip(told.layers, result.layers, told.layer_sizes)
    return Built(layers=tuple((diff_id, blob.size, unpacked) for diff_id, blob, unpacked in rows))


def document(found: list[Held]) -> dict[str, Any]:
    """The JSON of it."""
    rows = [
        {
            "image": each.image,
            "registry": each.packed,
            "registry_new": each.new_packed,
            "node": each.unpacked,
            "node_new": each.new_unpacked,
            "exact": each.exact,
        }
        for each in found
    ]
    return {
        "images": rows,
        "registry": sum(each.new_packed for each in found),
        "node": sum(each.new_unpacked for each in found),
    }


def show(project: Project, *, as_json: bool) -> None:
    """One row an image: alone, and what it adds to those above it; then the whole."""
    found = held(project)
    if as_json:
        return report.as_json(document(found))

    def size(count: int, exact: bool) -> str:
        return ("" if exact else "about ") + report.size(count)

    rows = [
        (
            each.image,
            size(each.packed, each.exact),
            size(each.new_packed, each.exact),
            size(each.unpacked, each.exact),
            size(each.new_unpacked, each.exact),
        )
        for each in found
    ]
    exact = all(each.exact for each in found)
    packed, unpacked = sum(each.new_packed for each in found), sum(each.new_unpacked for each in found)
    alone = sum(each.packed for each in found), sum(each.unpacked for each in found)
    rows.append(
        ("all together", size(alone[0], exact), size(packed, exact), size(alone[1], exact), size(unpacked, exact))
    )
    report.table(("image", "registry, alone", "adds", "node, alone", "adds"), rows)
    return report.lines(["registry: compressed blobs, each once; node: unpacked layers, each once"])
