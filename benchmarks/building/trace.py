"""Where the time of a build goes: spans of one kind of work each, and the wall time shared out among them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

# In the order in which the plot stacks them.
KINDS = ("fetch", "layers from wheels", "transfer", "unpack", "install", "compress", "check and receipt", "the rest")

SHORTEST = 0.01  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One piece of work: its kind, what it was, and when, in seconds from the start of the build."""

    kind: str
    what: str
    start: float
    end: float


def shares(spans: Sequence[Span], total: float) -> dict[str, float]:
    """The wall seconds of each kind, which add up to total: a moment in which several are at work is divided."""
    told = dict.fromkeys(KINDS, 0.0)
    marks = sorted({0.0, total, *(min(max(t, 0.0), total) for span in spans for t in (span.start, span.end))})
    for begin, end in pairwise(marks):
        at_work = sorted({span.kind for span in spans if span.start <= begin and span.end >= end})
        for kind in at_work or ["the rest"]:
            told[kind] += (end - begin) / max(1, len(at_work))
    return told


def of_build(progress: str, offset: float, begun: float) -> list[Span]:
    """The spans of a BuildKit build from its progress as JSON; `begun` (seconds since 1970) is at `offset`."""
    seen: dict[str, list[float]] = {}
    names: dict[str, str] = {}
    for told in documents(progress):
        for vertex in told.get("vertexes") or ():
            names[vertex["digest"]] = vertex.get("name", "")
            if not vertex.get("cached"):
                _note(seen, vertex["digest"], vertex)
        for status in told.get("statuses") or ():
            key = f"{status['vertex']} {status['id']}"
            names[key] = f"{status['id']} | {names.get(status['vertex'], '')}"
            _note(seen, key, status)
    spans = []
    for key, times in seen.items():
        kind, start, end = _kind(names[key]), min(times) - begun + offset, max(times) - begun + offset
        if kind and end - start >= SHORTEST:
            spans.append(Span(kind=kind, what=names[key][:100], start=start, end=end))
    return sorted(spans, key=lambda span: (span.start, span.end))


def documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, each from the start of a line on; buildx writes them over one line or many."""
    decoder, at = json.JSONDecoder(), 0
    while (found := re.compile(r"^\{", re.MULTILINE).search(text, at)) is not None:
        try:
            told, at = decoder.raw_decode(text, found.start())
        except json.JSONDecodeError:
            at = found.end()
            continue
        yield told


def _note(seen: dict[str, list[float]], key: str, told: Mapping[str, Any]) -> None:
    """Add the times that a document tells; a step that goes on later is one span from its first to its last."""
    times = [_seconds(told[name]) for name in ("started", "completed") if told.get(name)]
    if times:
        seen.setdefault(key, []).extend(times)


def _kind(name: str) -> str:
    """The kind of work that a name of BuildKit's progress stands for; empty where a finer one says the same."""
    own = name.partition(" | ")[0]
    if own.startswith(("extracting ", "unpacking to")):
        return "unpack"
    if own.startswith("transferring ") or re.match(r"sha256:[0-9a-f]{64}$", own):
        return "transfer"
    if own.startswith("exporting layers"):
        return "compress"
    if re.match(r"\[[^\]]+\] RUN ", own):
        return "install"
    if re.match(r"\[[^\]]+\] (COPY|ADD) ", own):
        return "install"
    return ""


def _seconds(stamp: str) -> float:
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
