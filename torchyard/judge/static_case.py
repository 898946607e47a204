"""What an image is judged by, and a finding with what it is about, so that causes are told from consequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..catalog import Catalog
from ..finding import Finding, State
from ..lock import LockedImage
from ..receipt import Sized
from .static_facts import ImageFacts

_SHELL = re.compile(r"^RUN (?:\|\d+ (?:\w+=\S* )+)?/bin/sh (?:-c|/run/yard/steps/sealed) ")
_ID = "torchyard.id="
_OURS = re.compile(r"sh /run/yard/steps/([\w-]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The lock, the GPUs that select the image as (name, compute capability), and the catalogue's rules of coverage.

    budget and image_budget: bytes that one layer, and all of them, may have unpacked; former: the layers of the build
    before, lowest first.
    """

    lock: LockedImage
    gpus: tuple[tuple[str, str], ...]
    catalog: Catalog
    budget: int
    image_budget: int
    former: tuple[Sized, ...] = ()

    @property
    def rebuild(self) -> str:
        """The command that makes the image anew."""
        return f"./yard build --id {self.lock.id} --no-cache"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A finding; about: names (of packages, distributions, libraries, paths) that it speaks of; layers: where it lies.

    Another finding whose names or layers are among these may be its consequence.
    """

    finding: Finding
    about: frozenset[str] = field(default_factory=frozenset)
    layers: frozenset[int] = field(default_factory=frozenset)

    @property
    def failed(self) -> bool:
        return self.finding.state is State.FAIL


def passed(rule: str, what: str, *, expected: str = "", seen: str = "") -> Judged:
    """A check that holds."""
    return Judged(finding=Finding(rule=rule, state=State.PASS, what=what, expected=expected, seen=seen))


def failed(
    rule: str,
    what: str,
    *,
    expected: str,
    seen: str,
    fix: str,
    about: Iterable[str] = (),
    layers: Iterable[int] = (),
) -> Judged:
    """A check that does not hold, and what it speaks of."""
    return Judged(
        finding=Finding(rule=rule, state=State.FAIL, what=what, expected=expected, seen=seen, fix=fix),
        about=frozenset(about),
        layers=frozenset(layer for layer in layers if layer >= 0),
    )


def skipped(rule: str, what: str, because: str) -> Judged:
    """A check that has nothing to look at."""
    return Judged(finding=Finding.skipped(rule, what=what, because=because))


def some(names: Sequence[str], most: int = 6) -> str:
    """Names for people: the first of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def step(words: str) -> str:
    """The step that made a layer, as its recipe has it: without what BuildKit puts round it; our own by their names."""
    plain = _SHELL.sub("RUN ", " ".join(words.split()).removesuffix(" # buildkit"))
    ours = _OURS.findall(plain)
    return f"steps {', '.join(name for name in ours if name != 'seal')}" if ours else plain


def layer_words(facts: ImageFacts, layer: int) -> str:
    """A layer for people: its number and the start of its step."""
    words = step(facts.layers[layer].words) if 0 <= layer < len(facts.layers) else ""
    return f"layer {layer + 1}" + (f" ({words[:60]}{'…' if len(words) > 60 else ''})" if words else "")


def extended(ref: Reference, facts: ImageFacts, layer: int) -> bool:
    """Whether a layer comes of the user's own instructions: in a recipe they are between its labels and its CMD."""
    if not ref.lock.image.packages.extend:
        return False
    labels = [n for n, (words, _) in enumerate(facts.history) if words.startswith("LABEL") and _ID in words]
    if not labels:
        return False
    ends = [at for words, at in facts.history[labels[0] :] if words.startswith("CMD")]
    return facts.history[labels[0]][1] < layer <= (ends[0] if ends else len(facts.layers))
