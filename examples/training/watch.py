"""What a person sees of a run: losses, speed, where the time goes, memory, traces. It reads the device, never waits."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import faults, host
from .options import Options, learning_rate, window
from .parallel import Ranks

LEAK = {"cuda": 2**20, "cpu": 32 * 2**20}  # growth that is none: a CPU's is that of the whole process
GPU_EVENTS = tuple[torch.cuda.Event, torch.cuda.Event]


@dataclass(kw_only=True, slots=True)
class Sent:
    """Losses and norms of some steps of all ranks, on their way to the host."""

    first: int
    values: Tensor  # ranks, steps, (loss, norm)
    arrived: torch.cuda.Event | None
    seconds: float  # wall clock of these steps
    input: float  # of it, waiting for input
    gaps: list[GPU_EVENTS]

    def read(self) -> Tensor:
        """The values; waits only if they have not arrived."""
        if self.arrived is not None:
            self.arrived.synchronize()
            self.input = sum(before.elapsed_time(after) for before, after in self.gaps) / 1000
        return self.values


class Watch:
    """Keeps what every step shows on the device, and tells it every few steps."""

    def __init__(
        self, options: Options, ranks: Ranks, folder: Path, *, total: int, start: int, scaled: bool = False
    ) -> None:
        self.options, self.ranks, self.folder, self.total = options, ranks, folder, total
        self.scaled = scaled  # GradScaler passes over steps whose gradients are too large for fp16: that is no fault
        self.on_gpu = ranks.device.type == "cuda"
        self.values = torch.zeros((options.log_every, 2), device=ranks.device)
        self.first = self.step = start
        self.pending: Sent | None = None
        self.memory: list[tuple[int, int]] = []
        self.leaking = False
        self.input, self.gaps = 0.0, list[GPU_EVENTS]()
        self.since = time.perf_counter()
        self.journal = Journal(folder, start) if ranks.rank == 0 else None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The time in here is waiting for input: on a GPU by its own clock, because the host runs ahead of it."""
        if self.on_gpu:
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            yield
            after.record()
            self.gaps.append((before, after))
        else:
            start = time.perf_counter()
            yield
            self.input += time.perf_counter() - start

    def note(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Keep a step's loss and norm, where they are."""
        row = self.values[step - self.first]
        row[0].copy_(loss)
        row[1].copy_(norm)
        self.step = step + 1
        if self.step - self.first == len(self.values):
            self.tell(wait=not self.on_gpu or self.step == self.total)

    def tell(self, *, wait: bool) -> None:
        """Send what there is; tell what was sent the time before, or all of it."""
        earlier, self.pending = self.pending, self._send() if self.step > self.first else None
        for sent in (earlier, self.pending if wait else None):
            if sent is not None:
                self._tell(sent)
        if wait:
            self.pending = None

    def _send(self) -> Sent:
        every = self.ranks.gather(self.values[: self.step - self.first])
        arrived = None
        if self.on_gpu:
            every = every.to("cpu", non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        now = time.perf_counter()
        sent = Sent(
            first=self.first, values=every, arrived=arrived, seconds=now - self.since, input=self.input, gaps=self.gaps
        )
        self.first, self.since, self.input, self.gaps = self.step, now, 0.0, []
        return sent

    def _tell(self, sent: Sent) -> None:
        values = sent.read().double()
        self._require_finite(sent.first, values)
        steps = values.shape[1]
        losses, norms = values[:, :, 0].sum(0).tolist(), values[0, :, 1].tolist()
        used, most = self._memory(sent.first + steps)
        if self.journal is None:
            return
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), sent.first):
            rate = learning_rate(self.options, step, self.total)
            self.journal.write({"step": step, "loss": loss, "norm": norm, "lr": rate})
        speed = steps * self.options.batch / sent.seconds
        waited = min(1.0, sent.input / sent.seconds)
        last = sent.first + steps
        self.journal.write({"step": last - 1, "images/s": speed, "input": waited, "memory": used})
        print(
            f"step {last}/{self.total}  loss {sum(losses) / steps:.4f}  "
            f"lr {learning_rate(self.options, last - 1, self.total):.2e}  {speed:.0f} images/s  "
            f"input {waited:.0%} compute {1 - waited:.0%}  memory {_size(used)}, most {_size(most)}",
            flush=True,
        )

    def _require_finite(self, first: int, values: Tensor) -> None:
        """Stop at the first loss that is no number, in the name of the rank that had it."""
        bad = (~values[:, :, 0].isfinite()).nonzero().tolist()
        hint = "lower --lr, keep --clip, or look at the samples of that step; checkpoints were made before it"
        if bad:
            step, rank = min((step, rank) for rank, step in bad)
            if rank != self.ranks.rank:
                raise faults.Elsewhere
            value = values[rank, step, 0].item()
            self.ranks.at(first + step, "forward")
            raise faults.Fault(f"the loss is not a number but {value}", hint=hint, code=faults.BAD)
        norms = values[0, :, 1].tolist()
        if not self.scaled and not all(map(math.isfinite, norms)):
            step = next(step for step, norm in enumerate(norms) if not math.isfinite(norm))
            self.ranks.at(first + step, "backward")
            raise faults.Fault(
                "the gradients are not finite, with finite losses at all ranks", hint=hint, code=faults.BAD, alone=False
            )

    def _memory(self, step: int) -> tuple[int, int]:
        """Bytes that live now, and the most that ever did; a growth that does not end is told once."""
        if self.on_gpu:
            used, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        else:
            used = host.resident()
            most = max(used, *(size for _, size in self.memory), 0)
        self.memory.append((step, used))
        rate = host.grown(self.memory, LEAK[self.ranks.device.type])
        if rate is not None and not self.leaking:
            self.leaking = True
            print(
                f"train: {self.ranks.where}: memory grows by {_size(rate)} a step and does not settle: something keeps "
                "tensors (losses in a list? use .detach())",
                flush=True,
            )
        return used, most

    def scalar(self, step: int, **values: float) -> None:
        """Write numbers of the whole run, such as the accuracy."""
        if self.journal is not None:
            self.journal.write({"step": step, **values})

    def close(self) -> None:
        """Nothing more comes."""
        if self.journal is not None:
            self.journal.close()


class Journal:
    """Numbers of a run: metrics.jsonl, and TensorBoard's files where tensorboard is installed."""

    def __init__(self, folder: Path, start: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        if path.exists():  # what came after the checkpoint is made again
            kept = [line for line in path.read_text().splitlines(keepends=True) if _before(line, start)]
            part = path.with_suffix(".partial")
            part.write_text("".join(kept))
            part.replace(path)
        self.stream = path.open("a", buffering=1)
        self.board: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=start, flush_secs=10)

    def write(self, values: dict[str, float]) -> None:
        """Add one line."""
        self.stream.write(json.dumps(values) + "\n")
        if self.board is not None:
            for name in values.keys() - {"step"}:
                self.board.add_scalar(name, values[name], values["step"])

    def close(self) -> None:
        """Write what is still in memory."""
        self.stream.close()
        if self.board is not None:
            self.board.close()


class Profile:
    """A trace of a few steps for chrome://tracing or Perfetto, one file a rank."""

    def __init__(self, options: Options, ranks: Ranks, folder: Path) -> None:
        self.window = window(options)
        self.path = folder / f"trace-rank{ranks.rank}.json"
        self.profile: torch.profiler.profile | None = None

    def at(self, step: int) -> None:
        """Start before the first step of the window, stop after its last."""
        if self.window is None:
            return
        if step == self.window[0]:
            self.profile = torch.profiler.profile(profile_memory=True)
            self.profile.start()
        elif step == self.window[1] and self.profile is not None:
            self.profile.stop()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.profile.export_chrome_trace(str(self.path))
            self.profile = None


def _before(line: str, step: int) -> bool:
    try:
        return bool(json.loads(line)["step"] < step)
    except (ValueError, KeyError):
        return False  # a line that a kill cut off


def _size(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def finish(folder: Path, result: dict[str, Any]) -> None:
    """Write what came out of the run, whole or not at all."""
    partial = folder / f"result-{os.getpid()}.partial"
    partial.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    partial.replace(folder / "result.json")
