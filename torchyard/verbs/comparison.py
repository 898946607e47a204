"""Two images side by side: their documents, and every layer in which they differ, file by file with its cause."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ..differ import causes, documents, layers, packages, times
from ..differ.causes import Contents
from ..differ.values import Cause, Compared, Difference, Entry, Kind, Late, Layer, Looked, Pair
from ..world import diffoscope, engine, image_engine, image_open
from ..world.engine import Engine
from ..world.image_open import Opened

Say = Callable[[str], None]
LOOKED = 10  # files that diffoscope is given
LOOKED_MOST = 16 << 20  # bytes of one of them


def compare(first: str, second: str, *, epoch: int | None, say: Say, look: bool = False) -> Compared:
    """What differs between two images: folders, archives, or images of the engine; look: diffoscope looks as well."""
    found: list[Engine] = []

    def opened(name: str) -> contextlib.AbstractContextManager[Opened]:
        if Path(image_open.split(name)[0]).exists():
            return image_open.file(name)
        if not found:
            found.append(engine.ensure(say))
        return image_engine.image(found[0], name, say)

    with opened(first) as a, opened(second) as b:
        return of(a, b, epoch=epoch, say=say, look=look)


def of(a: Opened, b: Opened, *, epoch: int | None, say: Say, look: bool = False) -> Compared:
    """What differs between two opened images."""
    if look:
        diffoscope.require()
    limit = times.epoch_of(a.outline, b.outline) if epoch is None else epoch
    differences: list[Difference] = []
    late: list[Late] = [*times.in_documents(a.outline, limit), *times.in_documents(b.outline, limit)]
    together = layers.pairs(a.outline, b.outline)
    wanted = [pair for pair in together if not _same(a, b, pair)]
    a.need(tuple(pair.first for pair in wanted if pair.first is not None))
    b.need(tuple(pair.second for pair in wanted if pair.second is not None))
    for pair in wanted:
        for each in _layer(a, b, pair, limit, say):
            if isinstance(each, Late):
                late.append(each)
            else:
                differences.append(each)
    for pair in together:
        if pair not in wanted:
            differences += _damaged(a, b, pair)
    differences += documents.differences(a.outline, b.outline)
    notes = documents.notes(a.outline, b.outline, len(together) - len(wanted))
    return Compared(
        first=a.outline,
        second=b.outline,
        differences=tuple(documents.whole(a.outline, b.outline, differences)),
        late=tuple(late),
        epoch=limit,
        notes=notes,
        looked=tuple(_looked(a, b, together, differences)) if look else (),
    )


def _looked(a: Opened, b: Opened, together: list[Pair], differences: list[Difference]) -> Iterator[Looked]:
    """What diffoscope says of the first files whose content differs."""
    chosen = [each for each in differences if each.kind is Kind.CONTENT][:LOOKED]
    for pair in together:
        paths = {each.path for each in chosen if pair.second is not None and pair.first == each.layer - 1}
        if paths and pair.first is not None and pair.second is not None:
            here = image_open.contents(a, pair.first, paths, LOOKED_MOST)
            there = image_open.contents(b, pair.second, paths, LOOKED_MOST)
            for path in sorted(here.keys() & there.keys()):
                yield Looked(layer=pair.first + 1, path=path, text=diffoscope.look(path, here[path], there[path]))


def _same(a: Opened, b: Opened, pair: Pair) -> bool:
    """Whether two layers are the same by their names."""
    if pair.first is None or pair.second is None:
        return False
    one, other = a.outline.steps[pair.first], b.outline.steps[pair.second]
    if one.diff_id != other.diff_id:
        return False
    return one.blob == other.blob or not (one.blob and other.blob)


def _damaged(a: Opened, b: Opened, pair: Pair) -> list[Difference]:
    """Layers with the same name are read once where nobody checked that they are what they are called."""
    found = []
    for opened, number in ((a, pair.first), (b, pair.second)):
        if opened.trusted or number is None:
            continue
        step = opened.outline.steps[number]
        if (seen := image_open.digest(opened, number)) not in (step.blob, step.diff_id):
            found.append(
                Difference(
                    layer=number + 1,
                    step=step.words,
                    path="",
                    kind=Kind.LAYER,
                    was=f"{step.blob or step.diff_id} as {opened.outline.name} calls it",
                    now=f"{seen} as it is",
                )
            )
    return found


def _layer(a: Opened, b: Opened, pair: Pair, epoch: int | None, say: Say) -> Iterator[Difference | Late]:
    """How two layers that stand for each other differ, or what one that stands alone changes."""
    if pair.first is None or pair.second is None:
        yield from _alone(b if pair.first is None else a, pair, epoch, say)
        return
    number = pair.first + 1
    step = a.outline.steps[pair.first]
    say(f"comparing layer {number} of {len(a.outline.steps)}: {step.words[:80] or step.diff_id}")
    here, there = image_open.layer(a, pair.first), image_open.layer(b, pair.second)
    yield from times.in_layer(a.outline, number, here, epoch)
    yield from times.in_layer(b.outline, pair.second + 1, there, epoch)
    if here.unpacked == there.unpacked:
        yield from layers.same_bytes(a.outline, b.outline, pair, here.unpacked)
        return
    found = layers.entries(number, step.words, here.entries, there.entries)
    if not found:
        found = [layers.between(number, step.words, here.unpacked, there.unpacked)]
    yield from _caused(a, b, pair, found, (here, there), epoch)


def _caused(
    a: Opened, b: Opened, pair: Pair, found: list[Difference], both: tuple[Layer, Layer], epoch: int | None
) -> list[Difference]:
    assert pair.first is not None and pair.second is not None
    paths = causes.wanted(found)
    if any(packages.wanted(path) for path in paths):
        paths |= {entry.path for layer in both for entry in layer.entries if packages.wanted(entry.path)}
    contents = Contents(
        first=image_open.contents(a, pair.first, paths, causes.LOOKED_MOST),
        second=image_open.contents(b, pair.second, paths, causes.LOOKED_MOST),
    )
    return causes.of_layer(found, contents, epoch)


def _alone(opened: Opened, pair: Pair, epoch: int | None, say: Say) -> Iterator[Difference | Late]:
    """What a layer that only one image has changes, against the layers below it."""
    number = pair.second if pair.first is None else pair.first
    assert number is not None
    step = opened.outline.steps[number]
    say(f"comparing layer {number + 1}, which only {opened.outline.name} has, with what is below it")
    layer = image_open.layer(opened, number)
    yield from times.in_layer(opened.outline, number + 1, layer, epoch)
    paths = {entry.path for entry in layer.entries}
    below, places = _below(opened, number, paths)
    before = tuple(below[entry.path] for entry in layer.entries if entry.path in below)
    is_second = pair.first is None
    both = (before, layer.entries) if is_second else (layer.entries, before)
    found = layers.entries(number + 1, step.words, *both, ordered=False)
    found = [each for each in found if each.kind is not Kind.HEADER]
    wanted = causes.wanted(found) | {path for path in paths if packages.wanted(path)}
    lower = _contents_below(opened, places, wanted)
    upper = image_open.contents(opened, number, wanted, causes.LOOKED_MOST)
    contents = Contents(first=lower, second=upper) if is_second else Contents(first=upper, second=lower)
    told = causes.of_layer(found, contents, epoch)
    owner = "second" if is_second else "first"
    yield Difference(
        layer=number + 1,
        step=step.words,
        path="",
        kind=Kind.LAYER,
        was="none" if is_second else step.diff_id,
        now=step.diff_id if is_second else "none",
        cause=Cause.STEP,
        detail=f"only the {owner} image has this layer; its files are compared with those below it",
    )
    for each in told:
        by_step = each.kind is Kind.WHITEOUT and each.cause is Cause.UNKNOWN
        yield replace(each, cause=Cause.STEP) if by_step else each


def _below(opened: Opened, number: int, paths: set[str]) -> tuple[dict[str, Entry], dict[str, int]]:
    """What is visible of these paths below a layer, and in which layer."""
    found: dict[str, Entry] = {}
    places: dict[str, int] = {}
    left = set(paths)
    for lower in range(number - 1, -1, -1):
        if not left:
            break
        lying = image_open.entries(opened, lower, left)
        for entry in lying:
            if entry.path in left:
                found[entry.path], places[entry.path] = entry, lower
        left -= found.keys() | layers.hidden(lying, left)
    return found, places


def _contents_below(opened: Opened, places: dict[str, int], wanted: set[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for lower in sorted({places[path] for path in wanted if path in places}):
        here = {path for path in wanted if places.get(path) == lower}
        found |= image_open.contents(opened, lower, here, causes.LOOKED_MOST)
    return found
