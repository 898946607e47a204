"""What comparisons found, for people or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import report
from ..differ.values import Cause, Compared, Difference, Kind, Late
from ..errors import Exit

if TYPE_CHECKING:
    from .reproduce import Reproduced  # reaches the engine, which showing does not

SHOWN = 3  # paths of differences of one layer, kind and cause


def document(found: Compared) -> dict[str, Any]:
    """The JSON of a comparison."""
    return {
        "equal": found.equal,
        "same_content": found.same_content,
        "first": _image(found, 0),
        "second": _image(found, 1),
        "differences": [dataclasses.asdict(each) for each in found.differences],
        "epoch": found.epoch,
        "late": [dataclasses.asdict(each) for each in found.late],
        "notes": list(found.notes),
        "looked": [dataclasses.asdict(each) for each in found.looked],
    }


def _image(found: Compared, number: int) -> dict[str, Any]:
    outline = (found.first, found.second)[number]
    return {"name": outline.name, "digest": outline.digest, "layers": [step.diff_id for step in outline.steps]}


def compared(found: Compared, *, as_json: bool) -> Exit:
    """Print a comparison; answers the exit code."""
    if as_json:
        report.as_json(document(found))
    else:
        report.lines(lines(found))
    return Exit.GOOD if found.equal else Exit.BAD


def reproduced(found: Sequence[Reproduced], *, as_json: bool) -> Exit:
    """Print what second builds came to; answers the exit code."""
    if as_json:
        documents = [_reproduced(each) for each in found]
        report.as_json(documents[0] if len(documents) == 1 else documents)
    else:
        for each in found:
            report.lines(_told(each))
    return Exit.GOOD if all(each.equal for each in found) else Exit.BAD


def _reproduced(found: Reproduced) -> dict[str, Any]:
    return {
        "image": found.image,
        "equal": found.equal,
        "by": str(found.verdict.measure),
        "builder": str(found.state),
        "first": dataclasses.asdict(found.first),
        "second": dataclasses.asdict(found.second),
        "compared": None if found.compared is None else document(found.compared),
        "late": [dataclasses.asdict(each) for each in found.late],
        "notes": list(found.notes),
    }


def _told(found: Reproduced) -> list[str]:
    told = [f"{found.image}: {'equal' if found.equal else 'DIFFERENT'}, by {found.verdict.measure}"]
    told += [f"  builder: {found.state}"]
    for name, made in (("receipt", found.first), ("again", found.second)):
        told.append(f"  {name}: {made.digest or 'no digest kept'} (BuildKit {made.buildkit})")
    if found.equal and found.first.digest != found.second.digest:
        told += [f"  layer {number}: {layer} in both" for number, layer in enumerate(found.first.layers, start=1)]
    if found.compared is not None:
        told += ["", *lines(found.compared)]
    else:
        told += [f"  {line}" for line in _late(found.late)]
    return [*told, *(f"  note: {note}" for note in found.notes)]


def lines(found: Compared) -> list[str]:
    """A comparison for people: by layer, kind and cause, the first paths of each; then what it comes to."""
    told: list[str] = []
    places: dict[int, list[Difference]] = {}
    for each in found.differences:
        places.setdefault(each.layer, []).append(each)
    for layer, inside in sorted(places.items(), key=lambda item: (not item[0], item[0])):
        told.append(f"layer {layer}: {short(inside[0].step, 120)}" if layer else "documents")
        for group in groups(inside):
            told += _group(group)
    return [*told, *summary(found)]


def groups(differences: Iterable[Difference]) -> list[list[Difference]]:
    """The differences of one place by kind and cause; what follows from others comes last."""
    grouped: dict[tuple[Kind, Cause], list[Difference]] = {}
    for each in differences:
        grouped.setdefault((each.kind, each.cause), []).append(each)
    order = sorted(
        grouped, key=lambda key: (key[1] is Cause.CONSEQUENCE, list(Kind).index(key[0]), list(Cause).index(key[1]))
    )
    return [grouped[key] for key in order]


def _group(group: Sequence[Difference]) -> list[str]:
    first = group[0]
    count = f", {len(group)} of them" if len(group) > 1 else ""
    told = [f"  {first.kind}: {first.cause}{count}"]
    for each in group[:SHOWN]:
        path = report.word(each.path) or "the layer"
        told.append(f"    {path}: {short(each.was, 80)} -> {short(each.now, 80)}")
        if each.detail:
            told.append(f"      {short(each.detail, 240)}")
    return [*told, f"    … and {len(group) - SHOWN} more"] if len(group) > SHOWN else told


def short(text: str, most: int) -> str:
    """A text on one line, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _late(found: Iterable[Late]) -> list[str]:
    return [f"later than the epoch: {late.count} in {late.where}: {', '.join(late.first)}" for late in found]


def summary(found: Compared) -> list[str]:
    """What it comes to, in lines."""
    told = []
    if found.equal:
        told.append(f"equal: {found.first.digest or found.first.steps[-1].diff_id}")
    elif found.same_content:
        told.append("same content: the layers unpack to the same bytes, they are compressed or described otherwise")
    else:
        files = len({(each.layer, each.path) for each in found.differences if each.layer and each.path})
        layers = len({each.layer for each in found.differences if each.layer})
        told.append(f"different: {files} paths in {layers} layers, {len(found.differences)} differences")
    told += _late(found.late)
    for each in found.looked:
        told += ["", f"diffoscope on {report.word(each.path)}, layer {each.layer}:", each.text.rstrip()]
    return [*told, *found.notes]
