"""Where the time of one build of torchyard goes, beside what the disk and one pass of compression take."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from torchyard import render

from . import places, sides, trace
from .inputs import Inputs
from .places import Running
from .runs import say
from .sides import Sized, Yard
from .trace import Span

BLOCK = os.urandom(1 << 22)
WRITTEN = 2 * 10**9  # the file system of a measurement may have no room for more


def where(given: Inputs, address: str, gpu: str, gigabytes: float) -> dict[str, Any]:
    """One cold build in three parts: `fetch`, bake with BuildKit's own times, then what `build` does beside."""
    with places.place(gigabytes) as top, places.engine(top, given.programs) as running:
        yard = sides.yard(given, top, running, address, gpu)
        places.read_all(given.wheels(gpu), given.more, given.archive)
        os.sync()
        spans, fetched = _fetch(yard)
        baked, built = _bake(yard, running, fetched)
        made = yard.build()
        total = built + made.seconds
        spans += [*baked, Span(kind="check and receipt", what="build again", start=built, end=total)]
        for span in spans:
            say(f"{span.start:7.2f} {span.end:7.2f} {span.kind}: {span.what}")
        layers = sides.layers(running, made.digest)
        told = {
            "seconds": total,
            "parts": {"fetch": fetched, "bake": built - fetched, "check": made.seconds},
            "shares": trace.shares(spans, total),
            "spans": [[span.kind, span.what, span.start, span.end] for span in spans],
            "floors": _floors(running, layers, yard.ready(), top),
        }
    say(json.dumps({key: value for key, value in told.items() if key != "spans"}))
    return told


def _fetch(yard: Yard) -> tuple[list[Span], float]:
    """The spans of `fetch`, by when it said what it was doing."""
    child = yard.clone.start(yard.clone.argv("fetch", "--gpu", yard.gpu))
    began = time.perf_counter()
    assert child.stderr is not None
    heard = [(time.perf_counter() - began, line.strip()) for line in child.stderr]
    if child.wait():
        raise SystemExit("\n".join(line for _, line in heard))
    total = time.perf_counter() - began
    made = next((at for at, line in heard if line.startswith("layer of ")), total)
    return [
        Span(kind="fetch", what="wheels and packages into the store", start=0.0, end=made),
        Span(kind="layers from wheels", what="layers and contexts", start=made, end=total),
    ], total


def _bake(yard: Yard, running: Running, offset: float) -> tuple[list[Span], float]:
    """The spans of `docker buildx bake`, and when it ended."""
    argv = [*running.engine.buildx, "bake", "--file", "images/docker-bake.json", "--progress", "rawjson"]
    target = render.target_name(yard.clone.image(yard.gpu))
    begun = time.time()
    done = subprocess.run(
        [*argv, target],
        cwd=yard.clone.root,
        env={**sides.clean_environment(), **running.engine.env, "BUILDX_BAKE_ENTITLEMENTS_FS": "0"},
        capture_output=True,
        text=True,
    )
    seconds = time.time() - begun
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return trace.of_build(done.stderr, offset, begun), offset + seconds


def _floors(running: Running, layers: list[Sized], ready: set[str], top: Path) -> dict[str, Any]:
    """What cannot be saved: writing what is unpacked to this disk, and compressing once what no wheel had compressed.

    Layers that are made of wheels carry the wheels' own compression, so the second is about the other layers.
    """
    packed = [layer for layer in layers if layer.digest not in ready]
    compress, length = sides.compressed_once(running, packed)
    whole = length + sum(sum(map(len, sides.unpacked(running, each))) for each in layers if each.digest in ready)
    return {
        "disk_bytes": whole,
        "disk_seconds": _write(top / "floor", whole),
        "compress_bytes": length,
        "compress_seconds": compress,
        "compress_all_seconds": compress * whole / max(1, length),  # by the rate that was measured
    }


def _write(path: Path, length: int) -> float:
    """Seconds to have so many bytes on the disk, by the rate of `WRITTEN` bytes where it is more."""
    count = min(length, WRITTEN) // len(BLOCK)
    began = time.perf_counter()
    with path.open("wb") as stream:
        for _ in range(count):
            stream.write(BLOCK)
        stream.flush()
        os.fsync(stream.fileno())
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds * length / (count * len(BLOCK))
