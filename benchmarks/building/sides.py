"""The two sides of a measurement: torchyard in a checkout of its own, and a hand-written Dockerfile."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clones
from clones import Clone

from . import baseline, inputs, places
from .inputs import Inputs
from .places import Running

WITHOUT = ("PIP_", "TORCHYARD_", "XDG_")  # variables that would bring other sources than those of the measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A build that ended: wall seconds, its image by manifest digest, and what it printed."""

    seconds: float
    digest: str
    printed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sized:
    """A layer: digest of the blob, diff id, and compressed bytes."""

    digest: str
    diff_id: str
    size: int


def layers(running: Running, digest: str) -> list[Sized]:
    """The layers of an image in an engine, lowest first."""
    manifest = json.loads(running.blob(digest).read_bytes())
    config = json.loads(running.blob(manifest["config"]["digest"]).read_bytes())
    return [
        Sized(digest=each["digest"], diff_id=diff_id, size=each["size"])
        for each, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"])
    ]


def unpacked(running: Running, layer: Sized) -> Iterator[bytes]:
    """The bytes of the tar in a layer, in pieces."""
    with gzip.open(running.blob(layer.digest)) as stream:
        while block := stream.read(1 << 22):
            yield block


def compressed_once(running: Running, chosen: Sequence[Sized]) -> tuple[float, int]:
    """Seconds of one core for one pass of gzip's level 6 over what is in these layers, and how many bytes that is."""
    spent, length = 0.0, 0
    for layer in chosen:
        packer = zlib.compressobj(6)
        for block in unpacked(running, layer):
            length += len(block)
            began = time.perf_counter()
            packer.compress(block)
            spent += time.perf_counter() - began
    return spent, length


def clean_environment() -> dict[str, str]:
    """The environment of this process without what names sources of packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith(WITHOUT)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Yard:
    """torchyard in a checkout that has the base and nothing else; its sources are a directory and an archive."""

    given: Inputs
    clone: Clone
    gpu: str

    def build(self, *, level: str = "identity", gpu: str = "") -> Made:
        """`./yard build`, as a user types it, but for how far the image is looked at."""
        gpu = gpu or self.gpu
        began = time.perf_counter()
        done = self.yard("build", "--gpu", gpu, "--level", level)
        seconds = time.perf_counter() - began
        return Made(seconds=seconds, digest=self.clone.receipt(self.clone.image(gpu))["digest"], printed=done)

    def careless(self) -> None:
        """Take out of the steps what only makes their bytes the same each time: clamped times, checked bytecode."""
        steps = self.clone.root / "templates" / "steps"
        (steps / "seal").write_text("#!/bin/sh\n")
        (steps / "compile-bytecode").write_text('#!/bin/sh\npython3 -m compileall -q -j 0 "$1/lib" || true\n')

    def yard(self, *words: str) -> str:
        """Run a torchyard command; what it said while it ran."""
        done = self.clone.yard(*words)
        if done.code:
            raise SystemExit(
                f"torchyard {' '.join(words)}\nexit code {done.code}\n{done.out[-2000:]}{done.err[-4000:]}"
            )
        return done.err

    def require(self, requirement: str) -> None:
        """Add a requirement to env.yaml; the next build locks it first."""
        path = self.clone.root / "env.yaml"
        text = path.read_text()
        changed = text.replace("\n  pip: [numpy]", f'\n  pip: [numpy, "{requirement}"]', 1)
        if changed == text:
            raise SystemExit("env.yaml has no line 'pip: [numpy]' under packages")
        path.write_text(changed)

    def restore(self) -> None:
        """Env.yaml and locks as they were."""
        self.clone.git("checkout", "--quiet", ".")

    def ready(self) -> set[str]:
        """The digests of the layers that the image starts from: they came as they are, no step made them."""
        base = self.clone.root / ".torchyard" / "context" / self.clone.image(self.gpu) / "base"
        index = json.loads((base / "index.json").read_text())
        name = index["manifests"][0]["digest"].removeprefix("sha256:")
        manifest = json.loads((base / "blobs" / "sha256" / name).read_text())
        return {layer["digest"] for layer in manifest["layers"]}

    def files(self) -> dict[str, int]:
        """Every file of its store, with its size in bytes."""
        return {path.name: path.stat().st_size for path in self.clone.store.glob("??/*")}


def yard(given: Inputs, place: Path, running: Running, address: str, gpu: str) -> Yard:
    """A new checkout in a place, with the base beside it and an empty store; `address` is where packages are served."""
    root = place / "yard"
    clone = Clone(root=root, engine=running.home.path, home=clones.new_home(place / "home"))
    subprocess.run(
        ["git", "clone", "--quiet", "--no-hardlinks", str(given.clone.root), str(root)], check=True, capture_output=True
    )
    base = given.base(gpu).path
    shutil.copytree(base, root / ".torchyard" / "bases" / base.name)
    mirrors = place / "mirrors.json"  # JSON is YAML
    mirrors.write_text(
        json.dumps({"mirrors": {"debian": {"release": f"{address}/debian", "security": f"{address}/debian-security"}}})
    )
    temporary = place / "tmp"
    temporary.mkdir()
    clone.env.update(
        {name: "" for name in os.environ if name.startswith("PIP_")},
        PIP_CONFIG_FILE=os.devnull,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=f"{given.wheels(gpu)} {given.more}",
        TORCHYARD_MIRRORS=str(mirrors),
        TMPDIR=str(temporary),
        PYTHONDONTWRITEBYTECODE="",  # clones of tests set it; a user's checkout has its bytecode
    )
    return Yard(given=given, clone=clone, gpu=gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hand:
    """A hand-written Dockerfile with its build context in a place."""

    name: str
    place: Path
    running: Running
    base: str
    wheels: Path
    requirements: str
    apt: str
    tag: str = "bench:hand"
    env: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> Made:
        """`docker buildx build`."""
        context = self.place / "hand"
        context.mkdir(exist_ok=True)
        (context / "requirements.txt").write_text(self.requirements)
        told = self.place / "metadata.json"
        argv = [*self.running.engine.buildx, "build", "--progress", "plain", "--provenance", "false"]
        argv += ["--network", "host", "--allow", "network.host", "--file", str(baseline.dockerfile(self.name))]
        argv += ["--build-context", f"rootfs={self.base}", "--build-context", f"wheels={self.wheels}"]
        argv += ["--build-arg", "BASE=rootfs", "--build-arg", f"APT={self.apt}"]
        argv += ["--tag", self.tag, "--metadata-file", str(told), str(context)]
        began = time.perf_counter()
        done = subprocess.run(
            argv, env={**clean_environment(), **self.running.engine.env, **self.env}, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{self.name}: exit code {done.returncode}\n{done.stderr[-4000:]}")
        found: dict[str, Any] = json.loads(told.read_text())
        return Made(seconds=seconds, digest=found["containerimage.digest"], printed=done.stderr)


def hand(given: Inputs, place: Path, running: Running, address: str, gpu: str, name: str) -> Hand:
    """A baseline with what torchyard's image of this entry has."""
    temporary = place / "tmp"
    temporary.mkdir(exist_ok=True)
    return Hand(
        name=name,
        place=place,
        running=running,
        base=inputs.base_with_source(given.base(gpu), place / "rootfs", address),
        wheels=given.wheels(gpu),
        requirements=baseline.requirements(given.lock(gpu).wheels),
        apt=baseline.APT[name],
        env={"TMPDIR": str(temporary)},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Both sides in one engine, each with its image built."""

    given: Inputs
    running: Running
    address: str  # where packages are served
    yard: Yard
    hand: Hand
    built: dict[str, Made]


@contextlib.contextmanager
def pair(given: Inputs, address: str, gpu: str = "cpu") -> Iterator[Pair]:
    """Both sides of the CPU image, built, in one engine of their own."""
    with places.place() as top, places.engine(top, given.programs) as running:
        ours = yard(given, top, running, address, gpu)
        theirs = hand(given, top, running, address, gpu, baseline.NAIVE)
        built = {"torchyard": ours.build(), "naive": theirs.build()}
        for side, made in built.items():  # a later build under the same tag does not take it away
            running.docker("tag", made.digest, f"bench:first-{side}")
        yield Pair(given=given, running=running, address=address, yard=ours, hand=theirs, built=built)
