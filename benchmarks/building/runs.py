"""The measurements: each takes interleaved pairs and answers what is kept of them."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import registry_process as registries

from . import baseline, inputs, places, sides
from .inputs import Inputs
from .places import Running
from .sides import Pair, Sized

YARD = "torchyard"
IMPORT = ("python3", "-c", "import torch")
SMALL, LARGE = 20.0, 40.0  # GB of the file system for torchyard, and for the two-stage file, which does not fit in 20


def say(line: str) -> None:
    """Tell what was measured, on the stream that is not the result."""
    print(line, file=sys.stderr, flush=True)


def turns(pairs: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Who is measured when: pair by pair, and who begins takes turns."""
    for number in range(pairs):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


def cold(given: Inputs, address: str, gpu: str, name: str, pairs: int, *, small: float, large: float) -> dict[str, Any]:
    """A build from an empty engine and an empty store, against one from an empty engine.

    small, large: GB of the file system that each side has for itself; 0 for a folder of the disk.
    """
    seen: dict[str, list[dict[str, Any]]] = {YARD: [], name: []}
    sizes = {YARD: small, name: large}
    for number, side in turns(pairs, list(seen)):
        with places.place(sizes[side]) as top, places.engine(top, given.programs) as running:
            build = _cold_side(given, address, gpu, side, top, running)
            places.read_all(given.wheels(gpu), given.more, given.archive)
            os.sync()
            with places.watched(top) as used:
                made = build()
                began = time.perf_counter()
                os.sync()
                settled = time.perf_counter() - began
            found = sides.layers(running, made.digest)
            row = {
                "seconds": made.seconds,
                "seconds_until_on_disk": made.seconds + settled,
                "compressed": sum(layer.size for layer in found),
                "peak": used[1] - used[0] if sizes[side] else None,
            }
        seen[side].append(row)
        say(f"cold {gpu} {number + 1} {side}: {json.dumps(row)}")
    return {
        "sides": {side: _columns(rows) for side, rows in seen.items()},
        "file_system_gb": {side: size or None for side, size in sizes.items()},
    }


def _cold_side(
    given: Inputs, address: str, gpu: str, side: str, top: Path, running: Running
) -> Callable[[], sides.Made]:
    if side == YARD:
        return sides.yard(given, top, running, address, gpu).build
    return sides.hand(given, top, running, address, gpu, side).build


def again(pair: Pair, pairs: int) -> dict[str, Any]:
    """The same build again, with nothing changed: for torchyard with all its checks, as a user types it."""
    pair.yard.build(level="cpu")
    pair.hand.build()
    seen: dict[str, list[float]] = {YARD: [], "naive": []}
    for _, side in turns(pairs, list(seen)):
        made = pair.yard.build(level="cpu") if side == YARD else pair.hand.build()
        if made.digest != pair.built[side].digest:
            raise SystemExit(f"{side} built another image: {made.digest}, before {pair.built[side].digest}")
        seen[side].append(made.seconds)
        say(f"again {side}: {made.seconds:.2f} s")
    return {"sides": {side: {"seconds": taken} for side, taken in seen.items()}}


def requirement(pair: Pair, pairs: int) -> dict[str, Any]:
    """One more pure-Python requirement, then one that moves fsspec, which torch itself requires."""
    wheels = pair.hand.place / "wheels"
    shutil.copytree(pair.given.wheels("cpu"), wheels, copy_function=os.link)
    for path in pair.given.more.glob("*.whl"):
        if path.name.split("-")[0] in ("tqdm", "fsspec"):
            os.link(path, wheels / path.name)
    locked = pair.given.lock("cpu").wheels
    told: dict[str, Any] = {}
    for kind, lines in (("added", inputs.ADDED), ("moved", inputs.MOVED)):
        rows: dict[str, list[dict[str, Any]]] = {YARD: [], "naive": []}
        for number, side in turns(pairs, list(rows)):
            before = sides.layers(pair.running, pair.built[side].digest)
            if side == YARD:
                pair.yard.require(lines[number])
                made = pair.yard.build()
                pair.yard.restore()
            else:
                text = baseline.requirements(locked, [lines[number]])
                made = dataclasses.replace(pair.hand, requirements=text, wheels=wheels).build()
            row = {"seconds": made.seconds, **_kept(before, sides.layers(pair.running, made.digest))}
            if side == YARD:
                row |= _framework(pair, before, made.digest)
            rows[side].append(row)
            say(f"requirement {lines[number]} {side}: {json.dumps(row)}")
        told[kind] = {"sides": {side: _columns(each) for side, each in rows.items()}}
    return told


def reproducible(pair: Pair, pairs: int) -> dict[str, Any]:
    """The CPU image with an empty build cache, against the same without what makes its bytes the same each time."""
    place = pair.hand.place / "careless"
    place.mkdir()
    other = sides.yard(pair.given, place, pair.running, pair.address, pair.yard.gpu)
    other.careless()
    rows: dict[str, list[dict[str, Any]]] = {YARD: [], "careless": []}
    digests: dict[str, set[str]] = {side: set() for side in rows}
    for side in (pair.yard, other):
        side.build()
    for number, name in turns(pairs, list(rows)):
        pair.running.docker("builder", "prune", "--all", "--force")
        made = (pair.yard if name == YARD else other).build()
        digests[name].add(made.digest)
        rows[name].append({"seconds": made.seconds})
        say(f"reproducible {number + 1} {name}: {made.seconds:.1f} s {made.digest}")
    if len(digests[YARD]) != 1 or len(digests["careless"]) != pairs:
        raise SystemExit(f"what was to be measured is not what was built: {digests}")
    return {"sides": {side: _columns(each) for side, each in rows.items()}}


def another(pair: Pair, pairs: int) -> dict[str, Any]:
    """Another image with the same torch, one more package of the distribution and one more requirement."""
    rows: dict[str, list[dict[str, Any]]] = {YARD: [], "naive": []}
    wheels = pair.hand.place / "wheels-another"
    shutil.copytree(pair.given.wheels("cpu"), wheels, copy_function=os.link)
    for path in pair.given.more.glob("more_itertools-*.whl"):
        os.link(path, wheels / path.name)
    for number, side in turns(pairs, list(rows)):
        package, line = inputs.OTHERS[number]
        content, store = pair.running.content(), pair.yard.files()
        before = sides.layers(pair.running, pair.built[side].digest)
        if side == YARD:
            made = pair.yard.build(gpu=inputs.another(number))
        else:
            made = dataclasses.replace(
                pair.hand,
                requirements=baseline.requirements(pair.given.lock("cpu").wheels, [line]),
                wheels=wheels,
                apt=f"{pair.hand.apt} {package}",
                tag=f"bench:{inputs.another(number)}",
            ).build()
        row = {
            "seconds": made.seconds,
            "fetched": _grown(store, pair.yard.files()) if side == YARD else None,
            "written": _grown(content, pair.running.content()),
            **_kept(before, sides.layers(pair.running, made.digest)),
        }
        rows[side].append(row)
        say(f"another {number} {side}: {json.dumps(row)}")
    return {"sides": {side: _columns(each) for side, each in rows.items()}}


def size(pair: Pair, pairs: int) -> dict[str, Any]:
    """Compressed and unpacked bytes, side by side; for naive also with nothing but torch and numpy asked for."""
    locked = pair.given.lock("cpu").wheels
    few = baseline.requirements([w for w in locked if w.name in ("torch", "numpy")])
    bare = dataclasses.replace(pair.hand, requirements=few, tag="bench:bare").build()
    digests = {**{side: made.digest for side, made in pair.built.items()}, "naive, torch and numpy alone": bare.digest}
    told = {}
    for side, digest in digests.items():
        found = sides.layers(pair.running, digest)
        told[side] = {
            "compressed": sum(layer.size for layer in found),
            "unpacked": sum(sum(map(len, sides.unpacked(pair.running, layer))) for layer in found),
            "layers": [layer.size for layer in found],
        }
        say(f"size {side}: {json.dumps(told[side])}")
    return {"sides": told}


def start(pair: Pair, pairs: int) -> dict[str, Any]:
    """From `docker run` to `import torch` done in a new container; then with nothing of the disk in memory."""
    told: dict[str, Any] = {}
    for kind in ("warm", "from disk"):
        seen: dict[str, list[float]] = {YARD: [], "naive": []}
        for made in pair.built.values():
            _import(pair.running, made.digest)
        for _, side in turns(pairs, list(seen)):
            if kind != "warm":
                _drop_caches()
            seen[side].append(_import(pair.running, pair.built[side].digest))
            say(f"start {kind} {side}: {seen[side][-1]:.2f} s")
        told[kind] = {"sides": {side: {"seconds": taken} for side, taken in seen.items()}}
    return told


def pull(pair: Pair, pairs: int) -> dict[str, Any]:
    """An engine with an empty state takes a first and a second image from a registry, and starts each."""
    wheels = pair.hand.place / "wheels-pull"
    shutil.copytree(pair.given.wheels("cpu"), wheels, copy_function=os.link)
    for path in pair.given.more.glob("tqdm-*.whl"):
        os.link(path, wheels / path.name)
    text = baseline.requirements(pair.given.lock("cpu").wheels, [inputs.ADDED[-1]])
    pair.yard.require(inputs.ADDED[-1])
    second = {
        YARD: pair.yard.build().digest,
        "naive": dataclasses.replace(pair.hand, requirements=text, wheels=wheels, tag="bench:second").build().digest,
    }
    pair.yard.restore()
    place = pair.hand.place
    rows: dict[str, list[dict[str, Any]]] = {YARD: [], "naive": []}
    program = registries.program(pair.given.folder / "registry-program")
    with registries.running(program, place / "registry") as host:
        names = {}
        for side in rows:
            for nth, digest in (("first", pair.built[side].digest), ("second", second[side])):
                names[side, nth] = f"{host}/{side}:{nth}"
                pair.running.docker("tag", digest, names[side, nth])
                pair.running.docker("push", "--quiet", names[side, nth])
        for number, side in turns(pairs, list(rows)):
            row: dict[str, Any] = {}
            with places.engine(place, pair.given.programs, "engine-second") as other:
                for nth in ("first", "second"):
                    before = other.content()
                    began = time.perf_counter()
                    other.docker("pull", "--quiet", names[side, nth])
                    row[f"{nth}_seconds"] = time.perf_counter() - began
                    row[f"{nth}_bytes"] = _grown(before, other.content())
                    row[f"{nth}_start"] = _import(other, names[side, nth])
            rows[side].append(row)
            say(f"pull {number + 1} {side}: {json.dumps(row)}")
    return {"sides": {side: _columns(each) for side, each in rows.items()}}


def _import(running: Running, image: str) -> float:
    began = time.perf_counter()
    running.docker("run", "--rm", "--network", "none", image, *IMPORT)
    return time.perf_counter() - began


def _drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def _kept(before: Sequence[Sized], after: Sequence[Sized]) -> dict[str, int]:
    """Bytes of the layers that an image has in common with another, and of those that are new."""
    known = {layer.digest for layer in before}
    return {
        "kept": sum(layer.size for layer in after if layer.digest in known),
        "new": sum(layer.size for layer in after if layer.digest not in known),
    }


def _framework(pair: Pair, before: Sequence[Sized], digest: str) -> dict[str, int]:
    """Bytes of the layers of torch and CUDA in an image, and of those of them that the image before has too."""
    found = sides.layers(pair.running, digest)
    made = pair.yard.ready() - {pair.given.base(pair.yard.gpu).layer.digest}
    known = {layer.digest for layer in before}
    return {
        "framework": sum(layer.size for layer in found if layer.digest in made),
        "framework_kept": sum(layer.size for layer in found if layer.digest in made & known),
    }


def _grown(before: dict[str, int], after: dict[str, int]) -> int:
    return sum(count for name, count in after.items() if name not in before)


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The rows by key, without those that hold nothing."""
    told: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for key, value in row.items():
            if value is not None:
                told[key].append(value)
    return dict(told)
