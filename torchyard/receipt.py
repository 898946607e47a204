"""The receipt: what was built here, and how far it was proven."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from . import json_text
from .finding import Finding, State
from .plain import from_plain

SCHEMA = 2


class Level(StrEnum):
    """How far an image was looked at, from least to most: each is a tier of checks of its own."""

    NONE = "none"
    IDENTITY = "identity"  # torch loads, and is the locked one
    STATIC = "static"  # files and configuration
    CPU = "cpu"  # containers without a GPU
    GPU = "gpu"  # containers with GPUs


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """The findings of one level, a hash of the code and reference that they come of, and where the image ran."""

    level: Level
    checks: str
    on: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def looked(self) -> bool:
        """Whether it came to an answer, beyond saying why it could not: without a GPU none is said of one."""
        seen = any(finding.state is not State.SKIPPED for finding in self.findings)
        return seen and (self.level is not Level.GPU or bool(self.on))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sized:
    """One layer: its id, the step that made it, in words, and its bytes unpacked."""

    diff_id: str
    step: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """What an image computed on one kind of CPU or GPU: a hash of each result's bits, and a few of its figures."""

    device: str
    threads: int
    torch: str
    hashes: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, tuple[float, ...]], ...]

    @classmethod
    def of(cls, seen: Mapping[str, Any]) -> Computed:
        """The value of what the probe `fingerprint` saw."""
        return cls(
            **seen["key"],
            hashes=tuple(sorted(seen["hashes"].items())),
            values=tuple((name, tuple(each)) for name, each in sorted(seen["values"].items())),
        )

    def seen(self) -> dict[str, Any]:
        """The same as the probe saw it."""
        return {
            "key": {"device": self.device, "threads": self.threads, "torch": self.torch},
            "hashes": dict(self.hashes),
            "values": {name: list(each) for name, each in self.values},
        }

    @property
    def key(self) -> tuple[str, int, str]:
        """Where equal bits are expected."""
        return self.device, self.threads, self.torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """digest: manifest digest (empty where the engine keeps none); layers: uncompressed layer ids, lowest first."""

    image: str
    tag: str
    digest: str
    layers: tuple[str, ...]
    lock: str  # sha256 of lock.yaml
    fingerprint: str
    buildkit: str
    tiers: tuple[Tier, ...] = ()  # from least to most
    allowed: tuple[tuple[str, str], ...] = ()  # (rule, reason) that env.yaml overrules
    size: int  # compressed bytes of all layers; 0 where the engine does not tell
    layer_sizes: tuple[int, ...] = ()  # unpacked bytes of each layer, lowest first, where it was verified
    layer_steps: tuple[str, ...] = ()  # the step that made each, in words
    former: tuple[Sized, ...] = ()  # the layers of the build before, where it was another image
    computed: tuple[Computed, ...] = ()  # on each kind of CPU and GPU where it was verified

    @property
    def level(self) -> Level:
        """How far was looked, at most."""
        return next((tier.level for tier in reversed(self.tiers) if tier.looked), Level.NONE)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of every level, from least to most."""
        return tuple(finding for tier in self.tiers for finding in tier.findings)

    @property
    def good(self) -> bool:
        """Whether something passed and nothing failed; a skip is neither."""
        states = {f.state for f in self.findings}
        return State.PASS in states and State.FAIL not in states

    @property
    def sized(self) -> tuple[Sized, ...]:
        """The layers with their sizes; none where they are not known."""
        known = zip(self.layers, self.layer_steps, self.layer_sizes)
        return tuple(Sized(diff_id=diff_id, step=step, size=size) for diff_id, step, size in known)

    def tier(self, level: Level) -> Tier | None:
        """What is known at this level."""
        return next((tier for tier in self.tiers if tier.level is level), None)

    def with_tier(self, tier: Tier) -> Receipt:
        """This with the newest of a level; what could not look does not take the place of what did."""
        before = self.tier(tier.level)
        if before is not None and before.looked and not tier.looked:
            return self
        others = [each for each in self.tiers if each.level is not tier.level]
        return replace(self, tiers=tuple(sorted([*others, tier], key=lambda each: list(Level).index(each.level))))

    def with_computed(self, seen: Computed) -> Receipt:
        """This with what was computed on a kind of CPU or GPU for the first time; what is known there stays."""
        if seen.key in {each.key for each in self.computed}:
            return self
        return replace(self, computed=(*self.computed, seen))

    def reference(self, seen: Computed) -> Computed | None:
        """What to compare with: what was computed on the same kind of CPU or GPU, else on the first one; or nothing."""
        same = [each for each in self.computed if each.key == seen.key]
        return next(iter([*same, *self.computed]), None)


def following(before: Receipt | None, new: Receipt) -> Receipt:
    """A receipt without findings, with those of the one before where that is of the same image and lock.

    Where it is of another image, its layers are kept to be compared with.
    """
    if before is None:
        return new
    if (before.digest, before.layers) != (new.digest, new.layers):
        return replace(new, former=before.sized or before.former)
    same = replace(new, former=before.former, computed=before.computed)
    same = replace(same, layer_sizes=before.layer_sizes, layer_steps=before.layer_steps)
    return replace(same, tiers=before.tiers) if before.lock == new.lock else same


def to_text(receipt: Receipt) -> str:
    """The JSON of a receipt: one list of findings, each with its level."""
    data = dataclasses.asdict(receipt)
    tiers = data.pop("tiers")
    findings = [{"level": tier["level"], **finding} for tier in tiers for finding in tier.pop("findings")]
    whole = {"schema": SCHEMA, **data, "level": receipt.level, "tiers": tiers, "findings": findings}
    return json.dumps(whole, indent=2) + "\n"


def from_text(text: str) -> Receipt:
    """The receipt that `to_text` wrote (ValueError when it is none)."""
    try:
        data = dict(json_text.loads(text))
        if data.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        level, findings = data.pop("level"), [dict(each) for each in data.pop("findings")]
        tiers = {each["level"]: {**each, "findings": []} for each in data["tiers"]}
        for finding in findings:
            tiers[finding.pop("level")]["findings"].append(finding)
        found = from_plain(Receipt, {**data, "tiers": list(tiers.values())})
        if found.level != level:
            raise ValueError(f"the level is not {level!r} by its findings")
        return found
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a receipt: {error}") from error


def table(findings: Sequence[Finding]) -> list[tuple[str, str, str, str, str]]:
    """Findings as rows (state, rule, expected, seen, fix or reason) for people."""
    return [(f.state.value, f.rule, f.expected, f.seen, f.fix or f.because) for f in findings]
