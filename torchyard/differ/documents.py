"""How the documents of two images differ: configuration, history, manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from . import insides
from .values import Cause, Difference, Kind, Outline

_TIMES = re.compile(r"(?:^|[.\]])created$|\.(?:created|build[-_]?date)$", re.IGNORECASE)
_DESCRIPTOR = re.compile(r"^(?:config|layers\[\d+\])\.(?:digest|size)$")
_LAYER = re.compile(r"^layers\[\d+\]$")
_MISSING = object()


def differences(first: Outline, second: Outline) -> list[Difference]:
    """Every field that differs; those that only repeat what differs elsewhere say so."""
    found = [
        _told(Kind.HISTORY if path.startswith("history") else Kind.CONFIG, path, was, now)
        for path, was, now in changed("", first.config, second.config)
        if not path.startswith("rootfs.diff_ids")
    ]
    if first.manifest and second.manifest:
        rest = [
            (path, was, now)
            for path, was, now in changed("", first.manifest, second.manifest)
            if not _DESCRIPTOR.match(path)
        ]
        found += [_told(Kind.MANIFEST, path, was, now) for path, was, now in rest]
    return found


def changed(path: str, was: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    """The paths of all leaves that differ, with both values."""
    if was == now and type(was) is type(now):
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted({*was, *now}):
            yield from changed(f"{path}.{key}" if path else key, was.get(key, _MISSING), now.get(key, _MISSING))
    elif isinstance(was, list) and isinstance(now, list):
        for number in range(max(len(was), len(now))):
            here, there = (each[number] if number < len(each) else _MISSING for each in (was, now))
            yield from changed(f"{path}[{number}]", here, there)
    else:
        yield path, _text(was), _text(now)


def _text(value: Any) -> str:
    if value is _MISSING:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _told(kind: Kind, path: str, was: str, now: str) -> Difference:
    cause, detail = Cause.UNKNOWN, ""
    if _TIMES.search(path) and "none" not in (was, now):
        cause = Cause.CLOCK
    elif kind is Kind.HISTORY:
        cause = Cause.STEP
    elif kind is Kind.MANIFEST and _LAYER.match(path):
        cause, detail = Cause.CONSEQUENCE, "one image has more layers"
    elif "none" not in (was, now):
        cause, detail = insides.cause(was.encode("utf-8", "replace"), now.encode("utf-8", "replace"))
        detail = "" if cause is Cause.UNKNOWN else detail
    return Difference(layer=0, step="", path=path, kind=kind, was=was, now=now, cause=cause, detail=detail)


def whole(first: Outline, second: Outline, found: list[Difference]) -> list[Difference]:
    """The differences; where nothing else tells why two digests differ, that they do."""
    if found or not (first.digest and second.digest) or first.digest == second.digest:
        return found
    return [
        Difference(
            layer=0,
            step="",
            path="digest",
            kind=Kind.MANIFEST,
            was=first.digest,
            now=second.digest,
            detail="the same fields, written otherwise",
        )
    ]


def notes(first: Outline, second: Outline, same: int) -> tuple[str, ...]:
    """What was not compared, and why."""
    found = [f"{same} of {len(first.steps)} layers have the same id in both: they are the same"] if same else []
    for each in (first, second):
        if not each.digest:
            found.append(f"{each.name} keeps no manifest, so manifests and compressed layers were not compared")
    return tuple(found)
