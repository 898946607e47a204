"""What is learned: real data that Python packages ship, and synthetic data of ImageNet's shape; and how it is read."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from . import faults, host
from .options import Options, micro_batches

Batch = tuple[Tensor, Tensor]

KINDS = ("py", "h", "so")  # files that every torch wheel has: Python, C++, machine code
SIDE = 32  # a fragment is SIDE * SIDE bytes
PIECE = 2**20  # files are divided between training and evaluation by pieces of this size
A_PIECE = 8  # most fragments of one piece


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Images of bytes, and how many kinds there are."""

    channels: int
    side: int
    classes: int
    codes: bool = False  # a byte is a code, such as a letter, and no brightness


class Samples(Protocol):
    """Samples that are fetched a whole batch at a time."""

    in_memory: bool

    def __len__(self) -> int: ...
    def __getitems__(self, indices: list[int]) -> Batch: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Data in two parts that share nothing."""

    shape: Shape
    train: Samples
    held_out: Samples
    digest: str  # a checkpoint of other data is not continued


def load(options: Options) -> Source:
    """The data of the options."""
    match options.data:
        case "fragments":
            train, held_out = fragments(Path(torch.__file__).parent)
            shape = Shape(channels=1, side=SIDE, classes=len(KINDS), codes=True)
        case "digits":
            train, held_out = digits()
            shape = Shape(channels=1, side=8, classes=10)
        case "synthetic":
            shape = Shape(channels=3, side=224, classes=1000)
            return Source(
                shape=shape,
                train=Noise(options.samples or 1_281_167, shape, options.seed),
                held_out=Noise(512, shape, options.seed + 1),
                digest="synthetic",
            )
        case other:
            raise ValueError(other)
    digest = sha256(train.images.numpy().tobytes() + held_out.images.numpy().tobytes()).hexdigest()[:16]
    if options.samples:
        train, held_out = train.some(options.samples), held_out.some(max(1, options.samples // 4))
    return Source(shape=shape, train=train, held_out=held_out, digest=digest)


class InMemory(Dataset[Batch]):
    """Samples that are all in memory."""

    in_memory = True

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        chosen = torch.tensor(indices)
        return self.images[chosen], self.labels[chosen]

    def some(self, count: int) -> InMemory:
        """So many of them, or all, spread evenly."""
        chosen = torch.arange(min(count, len(self))) * len(self) // min(count, len(self))
        return InMemory(self.images[chosen], self.labels[chosen])


class Noise(Dataset[Batch]):
    """Images without meaning, made when they are asked for: for measuring, not for learning."""

    in_memory = False

    def __init__(self, count: int, shape: Shape, seed: int) -> None:
        self.count = count
        self.shape = shape
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> Batch:
        size = (self.shape.channels, self.shape.side, self.shape.side)
        images = torch.empty((len(indices), *size), dtype=torch.uint8)
        for image, index in zip(images, indices, strict=True):
            image.random_(0, 256, generator=torch.Generator().manual_seed(self.seed * 2**32 + index))
        return images, torch.tensor(indices) % self.shape.classes


@cache
def fragments(package: Path, train: int = 8192, held_out: int = 1536) -> tuple[InMemory, InMemory]:
    """Kilobytes out of a package's own files, as square images; the label is the kind of file.

    Recognising what a fragment of a file is, is a real task (of forensics), and these files are in every image.
    """
    parts: tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]] = ([], [])
    for label, kind in enumerate(KINDS):
        wanted = [train // len(KINDS), held_out // len(KINDS)]
        for path, start in _pieces(package, kind):
            part = 0 if _order(path.relative_to(package), start)[-1] >= 40 else 1  # of 256: a sixth is held out
            if wanted[part]:
                cut = _cut(path, start, Random(f"{path.name}{start}"))[: wanted[part]]
                parts[part].extend((fragment, label) for fragment in cut)
                wanted[part] -= len(cut)
            elif not any(wanted):
                break
        if any(wanted):
            raise faults.Fault(
                f"{package} has too few .{kind} files to learn from", hint="--data synthetic", code=3, alone=False
            )
    return _images(parts[0]), _images(parts[1])


def _pieces(package: Path, kind: str) -> list[tuple[Path, int]]:
    """Pieces of all files of a kind, in an order that has no meaning but is the same everywhere."""
    files = [(path, path.stat().st_size) for path in package.rglob(f"*.{kind}") if path.is_file()]
    pieces = [(path, start) for path, size in files for start in range(0, size - SIDE * SIDE, PIECE)]
    return sorted(pieces, key=lambda piece: _order(piece[0].relative_to(package), piece[1]))


def _order(path: Path, start: int) -> bytes:
    return sha256(f"{path.as_posix()}@{start}".encode()).digest()


def _cut(path: Path, start: int, random: Random) -> list[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        piece = stream.read(PIECE)
    places = range(0, len(piece) - SIDE * SIDE + 1, SIDE * SIDE)
    return [piece[place : place + SIDE * SIDE] for place in random.sample(places, min(A_PIECE, len(places)))]


def _images(samples: list[tuple[bytes, int]]) -> InMemory:
    every = torch.frombuffer(bytearray(b"".join(fragment for fragment, _ in samples)), dtype=torch.uint8)
    return InMemory(every.view(-1, 1, SIDE, SIDE), torch.tensor([label for _, label in samples]))


def digits() -> tuple[InMemory, InMemory]:
    """Handwritten digits of 8 by 8 points, which scikit-learn ships: every fifth is held out."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise faults.Fault(
            "--data digits: the digits come with scikit-learn, which is not installed",
            hint="add it to packages.pip in env.yaml, or take --data fragments",
            code=faults.INPUT,
            alone=False,
        )
    path = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with gzip.open(path, "rt", newline="") as stream:  # read as a file: importing scikit-learn takes seconds
        rows = torch.tensor([[int(float(cell)) for cell in row] for row in csv.reader(stream)])
    images = (rows[:, :64] * 255 // 16).to(torch.uint8).view(-1, 1, 8, 8)
    held_out = torch.arange(len(rows)) % 5 == 4
    return InMemory(images[~held_out], rows[~held_out, 64]), InMemory(images[held_out], rows[held_out, 64])


class Order(Sampler[list[int]]):
    """The samples of every micro-batch of one rank, from a step on.

    Which samples a step has depends on the seed and its number alone. So a run goes on anywhere without reading what
    it has seen, and as many processes as there may be see the same batches.
    """

    def __init__(self, options: Options, *, samples: int, rank: int, ranks: int, start: int, end: int) -> None:
        self.seed, self.batch, self.samples = options.seed, options.batch, samples
        self.parts = micro_batches(options, ranks)
        self.rank, self.ranks, self.start, self.end = rank, ranks, start, end

    def __len__(self) -> int:
        return (self.end - self.start) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        an_epoch = self.samples // self.batch
        epoch, order = -1, torch.empty(0)
        for step in range(self.start, self.end):
            if step // an_epoch != epoch:
                epoch = step // an_epoch
                order = torch.randperm(
                    self.samples, generator=torch.Generator().manual_seed(self.seed * 10_007 + epoch)
                )
            first = step % an_epoch * self.batch
            mine = order[first : first + self.batch][self.rank :: self.ranks]
            for part in mine.tensor_split(self.parts):
                yield part.tolist()


def loader(
    samples: Samples, order: Sampler[list[int]] | Sequence[list[int]], how: host.Loading, *, pin: bool
) -> DataLoader[Batch]:
    """Batches of these samples in this order."""
    return DataLoader(
        samples,  # type: ignore[arg-type]  # fetched by __getitems__ alone, which the stubs do not know
        batch_sampler=order,
        collate_fn=_as_it_is,
        num_workers=how.workers,
        prefetch_factor=how.prefetch if how.workers else None,
        pin_memory=pin,
    )


def _as_it_is(batch: Any) -> Any:
    return batch


def share(samples: int, rank: int, ranks: int, batch: int) -> list[list[int]]:
    """Batches of one rank's part of an evaluation: each sample is in one part, once, and parts may differ in length."""
    mine = list(range(rank, samples, ranks))
    return [mine[first : first + batch] for first in range(0, len(mine), batch)]


class Prefetcher:
    """Batches on the device. On a GPU the next one is copied on a stream of its own while this one is computed."""

    def __init__(self, batches: DataLoader[Batch], device: torch.device) -> None:
        self.batches = iter(batches)
        self.device = device
        self.side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.next = self._copy()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.next
        if batch is None:
            raise StopIteration
        if self.side is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_stream(self.side)
            for part in batch:
                part.record_stream(here)  # the allocator may not give it away while it is used here
            self.next = self._copy()
        else:
            self.next = self._copy()
        return batch

    def _copy(self) -> Batch | None:
        batch = next(self.batches, None)
        if batch is None or self.side is None:
            return batch
        with torch.cuda.stream(self.side):
            images, labels = batch
            return images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
