"""Times after the epoch: in a layer, in its compressor's header, in the configuration and history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from .values import Entry, Late, Layer, Outline

SHOWN = 5


def epoch_of(*images: Outline) -> int | None:
    """The earliest time that one of these images gives as its own; None where none gives any."""
    found = [seconds(str(image.config.get("created") or "")) for image in images]
    return min((int(each) for each in found if each is not None), default=None)


def seconds(text: str) -> float | None:
    """A time as the documents of images write it, in seconds; None where it is none."""
    try:
        found = datetime.fromisoformat(text[:19])
    except ValueError:
        return None
    rest = text[19:].partition("+")[0].rstrip("Z").strip(".")
    zone = text[19:].lstrip(".0123456789")
    try:
        offset = datetime.fromisoformat(f"2000-01-01T00:00:00{zone or '+00:00'}").utcoffset()
        part = float(f"0.{rest}") if rest.isdigit() else 0.0
    except ValueError:
        offset, part = None, 0.0
    return found.replace(tzinfo=UTC).timestamp() + part - (offset.total_seconds() if offset else 0)


def in_documents(outline: Outline, epoch: int | None) -> Iterator[Late]:
    """Times after the epoch in the configuration and its history."""
    if epoch is None:
        return
    told = [("created", str(outline.config.get("created") or ""))]
    for number, step in enumerate(outline.config.get("history") or []):
        told.append((f"history[{number}].created", str(step.get("created") or "")))
    late = [f"{field} {text}" for field, text in told if (found := seconds(text)) is not None and found > epoch]
    if late:
        yield Late(where=f"{outline.name}: configuration", count=len(late), first=tuple(late[:SHOWN]))


def in_layer(outline: Outline, number: int, layer: Layer, epoch: int | None) -> Iterator[Late]:
    """Times after the epoch in the headers of a layer, and in that of its compressor."""
    if epoch is None:
        return
    late = [entry.path for entry in layer.entries if _latest(entry) > epoch * 10**9]
    if late:
        yield Late(where=f"{outline.name}: layer {number}", count=len(late), first=tuple(late[:SHOWN]))
    if layer.written > epoch:
        yield Late(
            where=f"{outline.name}: layer {number}, the header of its compressor",
            count=1,
            first=(datetime.fromtimestamp(layer.written, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),),
        )


def _latest(entry: Entry) -> int:
    found = entry.mtime
    for name, value in entry.more:
        if name in ("atime", "ctime", "LIBARCHIVE.creationtime"):
            try:
                found = max(found, int(Decimal(value) * 10**9))
            except (InvalidOperation, ValueError, OverflowError):
                continue
    return found
