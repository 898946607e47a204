"""What compressing an image costs from build to pull: gzip and zstd at several levels. Prints JSON; asserts nothing.

python benchmarks/compression.py [--gpu cpu] [--only NAME] [--engine]

The image must be built here (./yard build); its layers come out of the engine, each as the tar that it is. `sizes` are
megabytes of all layers together, `packs` and `unpacks` CPU seconds of one core (of threads, so that other work on the
machine counts little), `whole` the seconds of packing once, pushing once, pulling once and unpacking once on one core
with a line of so many megabits a second, transfers computed from the size alone. `ready` is the gzip that torchyard
makes: the base by libdeflate and the framework copied from its wheels, neither of which is packed anew for an image,
and BuildKit's gzip for the steps, whose packing is counted with zlib's level 6, much like it. With --engine BuildKit
itself exports the largest step layer at some levels; these are wall seconds, for an engine without other work.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import deflate
import zstandard
from isal import isal_zlib

from torchyard import layering, render
from torchyard.verbs import project as projects
from torchyard.verbs import tiers
from torchyard.world import engine, image_entries, process, registry_taking
from torchyard.world.engine import Engine
from torchyard.world.registry_read import plain_hex

CHUNK = 1 << 20
PIECE = 16 << 20  # what libdeflate gets at once, as for a base
LINES = (100, 1000, 10_000)  # megabits a second
EXPORTS = ("gzip:1", "gzip:3", "gzip:6", "gzip:9", "zstd:3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A layer: its tar in a file, the blob that it came as, and whether it is made once for many images."""

    tar: Path
    blob: Path
    ready: bool


@dataclass(slots=True)
class Row:
    """Megabytes, and CPU seconds."""

    size: float = 0
    packs: float = 0
    unpacks: float = 0

    def told(self) -> dict[str, float | dict[str, float]]:
        """With the whole way at each bandwidth."""
        whole = {f"{line} Mbit/s": round(self.packs + self.unpacks + 2 * self.size * 8 / line, 1) for line in LINES}
        return {"size": round(self.size, 1), "packs": round(self.packs, 1), "unpacks": round(self.unpacks, 1)} | {
            "whole": whole
        }


Packer = Callable[[Iterator[bytes]], Iterator[bytes]]


def by_zlib(level: int) -> Packer:
    """One gzip member, as Go's, at zlib's level."""

    def pack(blocks: Iterator[bytes]) -> Iterator[bytes]:
        made = zlib.compressobj(level, zlib.DEFLATED, 31)
        for block in blocks:
            yield made.compress(block)
        yield made.flush()

    return pack


def by_libdeflate(level: int) -> Packer:
    """A gzip member for every 16 MiB."""

    def pack(blocks: Iterator[bytes]) -> Iterator[bytes]:
        held: list[bytes] = []
        for block in blocks:
            held.append(block)
            if len(held) * CHUNK >= PIECE:
                yield deflate.gzip_compress(b"".join(held), level)
                held = []
        if held:
            yield deflate.gzip_compress(b"".join(held), level)

    return pack


def by_zstd(level: int) -> Packer:
    """One frame, one thread."""

    def pack(blocks: Iterator[bytes]) -> Iterator[bytes]:
        made = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
        for block in blocks:
            yield made.compress(block)
        yield made.flush()

    return pack


WAYS: dict[str, Packer] = {
    **{f"gzip {level} (zlib)": by_zlib(level) for level in (1, 3, 6, 9)},
    **{f"gzip {level} (libdeflate)": by_libdeflate(level) for level in (1, 6, 9)},
    **{f"zstd {level}": by_zstd(level) for level in (1, 3, 6, 9, 15)},
}


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="cpu")
    parser.add_argument("--only", action="append", choices=list(WAYS), help="these alone (repeatable)")
    parser.add_argument("--engine", action="store_true", help="BuildKit's export as well")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        taken = layers(asked.gpu, Path(folder))
        told = {name: measured(taken, WAYS[name]).told() for name in asked.only or WAYS}
        document = {"tar": round(sum(each.tar.stat().st_size for each in taken) / 1e6, 1), "cpus": os.cpu_count()}
        document |= {"load": round(os.getloadavg()[0], 1), "ready": as_it_is(taken).told(), "ways": told}
        if asked.engine:
            steps = [each.tar for each in taken if not each.ready]
            document["exports"] = exports(max(steps, key=lambda tar: tar.stat().st_size), Path(folder))
    print(json.dumps(document, indent=1))


def layers(gpu: str, folder: Path) -> list[Taken]:
    """The layers of the image as it was built, unpacked."""
    project = projects.load()
    (image,) = projects.select(project, gpu=gpu)
    lock = projects.fresh_lock(project.work, image)
    receipt = tiers.read_receipt(project.work, image.id)
    if receipt is None:
        raise SystemExit(f"{image.id} is not built here: ./yard build --gpu {gpu}")
    tag = render.tag(project.plan.project, image.id)
    found = registry_taking.take(lambda: engine.ensure(say), image.id, tag, receipt.digest, project.work, say)
    ready = 1 + len(layering.framework(lock.wheels))
    taken = []
    for number, layer in enumerate(found.layers):
        blob, tar = project.work.store.path(plain_hex(layer.digest)), folder / f"{number}.tar"
        with blob.open("rb") as file, image_entries.unpacked(file, layer.digest) as (stream, _), tar.open("wb") as out:
            while block := stream.read(CHUNK):
                out.write(block)
        taken.append(Taken(tar=tar, blob=blob, ready=number < ready))
    return taken


def measured(taken: list[Taken], pack: Packer) -> Row:
    """All layers packed and unpacked this way."""
    row = Row()
    for each in taken:
        packed = each.tar.with_suffix(".packed")
        began = time.thread_time()
        with each.tar.open("rb") as source, packed.open("wb") as out:
            for block in pack(iter(lambda: source.read(CHUNK), b"")):
                out.write(block)
        row.packs += time.thread_time() - began
        row.size += packed.stat().st_size / 1e6
        row.unpacks += unpacking(packed)
        packed.unlink()
    say(f"{row.told()}")
    return row


def as_it_is(taken: list[Taken]) -> Row:
    """What torchyard's gzip image has: only its steps are packed for it."""
    row = Row(size=sum(each.blob.stat().st_size for each in taken) / 1e6)
    row.unpacks = sum(unpacking(each.blob) for each in taken)
    row.packs = measured([each for each in taken if not each.ready], WAYS["gzip 6 (zlib)"]).packs
    return row


def unpacking(packed: Path) -> float:
    """CPU seconds of unpacking a file; gzip by ISA-L, member after member."""
    began = time.thread_time()
    with packed.open("rb") as file:
        if file.peek(4)[:4] == b"\x28\xb5\x2f\xfd":
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            while reader.read(CHUNK):
                pass
        else:
            inflate = isal_zlib.decompressobj(31)
            while block := inflate.unused_data or file.read(CHUNK):
                if inflate.eof:
                    inflate = isal_zlib.decompressobj(31)
                inflate.decompress(block)
    return time.thread_time() - began


def exports(tar: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Wall seconds and megabytes of BuildKit's export of one layer; every one is a layer that it does not know yet."""
    found = engine.ensure(say)
    return {name: export(found, tar, folder, *name.split(":")) for name in EXPORTS}


def export(found: Engine, tar: Path, folder: Path, kind: str, level: str) -> dict[str, float]:
    """One build of this tar over a small layer that is another one each time."""
    context = folder / f"{kind}{level}"
    context.mkdir()
    os.link(tar, context / "layer.tar")
    (context / "once").write_text(str(time.time_ns()))
    (context / "Dockerfile").write_text("FROM scratch\nCOPY once /\nADD layer.tar /\n")
    target = folder / "out.tar"
    out = f"type=oci,dest={target},compression={kind},compression-level={level}"
    lines: list[str] = []
    argv = [
        *found.buildx,
        "build",
        "--no-cache",
        "--progress=plain",
        "--provenance=false",
        "--output",
        out,
        str(context),
    ]
    process.run(argv, env=found.env, on_line=lines.append)
    spent = re.findall(r"exporting layers (\d+\.\d+)s done", "\n".join(lines))
    told = {"seconds": float(spent[-1]), "size": round(target.stat().st_size / 1e6, 1)}
    say(f"{kind} {level}: {told}")
    return told


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
