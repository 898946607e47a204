"""Whether a second build is the first one again, by what of them can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .values import Cause, Difference, Kind, Outline


class Measure(StrEnum):
    """What two builds are compared by."""

    DIGEST = "manifest digest"
    LAYERS = "uncompressed layer ids"


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """One build: its manifest digest (empty where the engine keeps none), its uncompressed layer ids, its BuildKit."""

    digest: str
    layers: tuple[str, ...]
    buildkit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether two builds are equal, by which measure; notes say what that measure cannot see."""

    equal: bool
    measure: Measure
    notes: tuple[str, ...] = ()


def verdict(first: Made, second: Made) -> Verdict:
    """Compare two builds by their digests where both were made by one BuildKit, else by their layers unpacked."""
    if first.digest and first.digest == second.digest:
        return Verdict(equal=True, measure=Measure.DIGEST)
    if not (first.digest and second.digest):
        lacking = "first" if not first.digest else "second"
        note = (
            f"the engine of the {lacking} build keeps no manifest digests, so compressed layers and manifests were not"
            " compared; for that turn on the containerd image store (daemon.json: features, containerd-snapshotter)"
        )
        return Verdict(equal=first.layers == second.layers, measure=Measure.LAYERS, notes=(note,))
    if first.buildkit != second.buildkit:
        note = (
            f"built by BuildKit {first.buildkit}, built again by {second.buildkit}: versions compress otherwise, so"
            " digests were not compared; for that build with the same version"
        )
        return Verdict(equal=first.layers == second.layers, measure=Measure.LAYERS, notes=(note,))
    return Verdict(equal=False, measure=Measure.DIGEST)


def by_ids(layers: Sequence[str], second: Outline) -> list[Difference]:
    """The layers that differ, where of the first image only the ids of its layers are left."""
    found = []
    for number in range(max(len(layers), len(second.steps))):
        was = layers[number] if number < len(layers) else "none"
        now = second.steps[number].diff_id if number < len(second.steps) else "none"
        if was != now:
            found.append(
                Difference(
                    layer=number + 1,
                    step=second.steps[number].words if number < len(second.steps) else "",
                    path="",
                    kind=Kind.LAYER,
                    was=was,
                    now=now,
                    cause=Cause.UNKNOWN,
                    detail="of the first image only the ids of its layers are left",
                )
            )
    return found
