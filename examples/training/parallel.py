"""The processes that train together: how they meet, how gradients are shared, and who is named when one stops."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.nn.parallel import DistributedDataParallel as DDP

from . import faults, host
from .ending import GRACE, end, leave, tell
from .options import Options, parse
from .syncbn import convert

PHASES = ("start", "input", "forward", "backward", "update", "log", "checkpoint", "evaluation", "end")
SETTLE = 0.2  # seconds for threads of gloo to give back the last tensors: while Python ends, that aborts the process


@dataclass(kw_only=True, slots=True)
class Ranks:
    """This process among the others."""

    rank: int
    count: int
    local: int  # the number of this process on its machine
    locals: int  # processes on this machine
    restarts: int
    device: torch.device
    step: int = -1
    phase: str = "start"
    moved: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Ranks:
        """This process as torchrun describes it; alone where nobody does."""
        count = int(env.get("WORLD_SIZE", 1))
        return cls(
            rank=int(env.get("RANK", 0)),
            count=count,
            local=int(env.get("LOCAL_RANK", 0)),
            locals=int(env.get("LOCAL_WORLD_SIZE", count)),
            restarts=int(env.get("TORCHELASTIC_RESTART_COUNT", 0)),
            device=torch.device("cpu"),
        )

    def at(self, step: int, phase: str) -> None:
        """Note where this rank is: this is what is told when it goes no further."""
        self.step, self.phase, self.moved = step, phase, time.monotonic()

    @property
    def where(self) -> str:
        """Rank and step, for messages."""
        return f"rank {self.rank}" + (f", step {self.step}" if self.step >= 0 else "")

    def say(self, text: str) -> None:
        """Print a line once, for all ranks."""
        if self.rank == 0:
            print(text, flush=True)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def gather(self, values: Tensor) -> Tensor:
        """What every rank has, in one tensor with the ranks in front."""
        if self.count == 1:
            return values.clone()[None]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(parts, values)
        return torch.stack(parts)

    def from_first(self, content: bytes | None) -> bytes | None:
        """What the first rank has, on every rank."""
        if self.count == 1:
            return content
        size = torch.tensor(-1 if content is None else len(content), device=self.device)
        dist.broadcast(size, 0)
        if int(size) < 0:
            return None
        if content is None:
            block = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        else:
            block = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        dist.broadcast(block, 0)
        return block.cpu().numpy().tobytes()

    def agree(self, model: nn.Module) -> None:
        """Stop where ranks have come to other weights: then their gradients were not shared."""
        with torch.no_grad():
            sums = [part.view(torch.int32).sum(dtype=torch.int64) for part in model.parameters()]
            every = self.gather(torch.stack(sums).sum())
        if not bool((every == every[0]).all()):
            raise faults.Fault(
                f"the ranks have different weights (checksums {every.tolist()}): their gradients are not reduced",
                hint="compute the loss by calling the DistributedDataParallel model, and backward outside no_sync()",
                code=faults.BAD,
                alone=False,
            )


def run(train: Callable[[Options, Ranks], object]) -> None:
    """Parse, meet the other processes, train; end with one message of the rank that has the fault, and its code."""
    errors = get_error_handler()  # torchrun's: what is recorded stands in its summary
    errors.initialize()
    ranks = Ranks.of(os.environ)
    options = Options()
    try:
        options = parse()
        with join(options, ranks):
            train(options, ranks)
    except Exception as error:
        fault = error if isinstance(error, faults.Fault | faults.Elsewhere) else faults.of(error, options.micro_batch)
        if fault is None:
            errors.record_exception(error)
            sys.excepthook(type(error), error, error.__traceback__)
            leave(faults.BAD)
        end(fault, errors, ranks)


@contextmanager
def join(options: Options, ranks: Ranks) -> Iterator[None]:
    """Meet the other processes that torchrun (or whoever sets RANK and WORLD_SIZE) has started, if there are any."""
    ranks.device = choose_device(options, ranks)
    torch.set_num_threads(host.threads(host.cpus(), ranks.locals, os.environ))
    if ranks.count == 1:
        yield
        return
    store = _meet(options, ranks)
    on_gpu = ranks.device.type == "cuda"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=dist.PrefixStore("train", store),
        rank=ranks.rank,
        world_size=ranks.count,
        timeout=timedelta(seconds=options.timeout * 1.5 + 10),  # the watchdog knows more, and is to come first
        device_id=ranks.device if on_gpu else None,
    )
    watchdog = Watchdog(ranks, options, _meet(options, ranks))
    watchdog.start()
    yield
    watchdog.finished.set()
    dist.destroy_process_group()  # only after a good end: after a bad one it would wait for ranks that are gone
    time.sleep(SETTLE)


def choose_device(options: Options, ranks: Ranks) -> torch.device:
    """The device of this process: GPUs go to the processes of a machine in their order."""
    gpus = torch.cuda.device_count()
    if options.device == "cpu" or (options.device == "auto" and gpus == 0):
        return torch.device("cpu")
    if ranks.locals > gpus:
        raise faults.Fault(
            f"{ranks.locals} processes on this machine and {gpus} GPUs: each process needs one of its own",
            hint=f"--nproc-per-node={gpus}, or make more GPUs visible" if gpus else "--device cpu, or start with GPUs",
            code=faults.INPUT,
            alone=ranks.local == 0,
        )
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def wrap(model: nn.Module, options: Options, ranks: Ranks) -> nn.Module:
    """The model as it is trained: on its device, in its layout, compiled, with gradients averaged over the ranks."""
    model = model.to(ranks.device)
    # Not on CPUs: there, torch 2.13 computes BatchNorm less exactly in this layout, and crashes for narrow networks.
    if options.channels_last == "on" or (options.channels_last == "auto" and ranks.device.type == "cuda"):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if options.sync_batchnorm and ranks.count > 1:
        model = convert(model, ranks.device)
    if options.compile:
        model.compile()
    if ranks.count == 1:
        return model
    devices = [ranks.local] if ranks.device.type == "cuda" else None
    return DDP(model, device_ids=devices, gradient_as_bucket_view=True)


def settle(model: nn.Module, images: Tensor) -> None:
    """Compute gradients once and forget them, so that every step that counts finds everything as later ones do.

    After its first backward DDP puts the gradients into other buckets, and with more than two ranks the buckets decide
    in which order numbers are added. A run that goes on would start with the first buckets and differ in the last bits
    from one that was never stopped. It is also where torch.compile compiles.
    """
    kept = [buffer.clone() for buffer in model.buffers()]
    model.train()
    for _ in range(2):  # the second forward is where the buckets change
        (model(images).sum() * 0).backward()
    for buffer, value in zip(model.buffers(), kept, strict=True):
        buffer.copy_(value)
    for weight in model.parameters():
        weight.grad = None


def _meet(options: Options, ranks: Ranks) -> dist.Store:
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    end = time.monotonic() + options.timeout
    try:
        socket.getaddrinfo(address, int(port or 0))
    except (OSError, ValueError) as error:
        raise faults.Fault(
            f"MASTER_ADDR {address!r}, MASTER_PORT {port!r}: {error}",
            hint="name the machine of rank 0 as this machine can resolve it (getent hosts NAME), or give its address",
            code=faults.SURROUNDINGS,
        ) from None
    try:
        if ranks.rank > 0:
            _reach(address, int(port), end)
        store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=options.timeout)))
        # torchrun keeps its store when it restarts the ranks, and with it what those said that are gone.
        store = dist.PrefixStore(f"attempt-{ranks.restarts}-of-{ranks.count}", store)
        store.set(f"here/{ranks.rank}", "yes")
        store.wait([f"here/{rank}" for rank in range(ranks.count)], timedelta(seconds=options.timeout))
    except (RuntimeError, ValueError, OSError) as error:
        raise faults.Fault(
            f"not all of {ranks.count} processes came to {address}:{port} within {options.timeout:g} s: "
            f"{str(error).splitlines()[0]}",
            hint="see whether every node was started, and reaches that address and port (firewall, interface)",
            code=faults.SURROUNDINGS,
            alone=ranks.rank == 0 or ranks.local == 0,
        ) from None
    return store


def _reach(address: str, port: int, end: float) -> None:
    """Wait until somebody listens there. torch would wait, too, but with a page of C++ frames where nobody comes."""
    while True:
        try:
            return socket.create_connection((address, port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


class Watchdog(threading.Thread):
    """Tells all ranks where each is, and ends the job when one goes no further, with its name and its stack."""

    def __init__(self, ranks: Ranks, options: Options, store: dist.Store) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.ranks = ranks
        self.timeout = options.timeout
        self.store = dist.PrefixStore("watchdog", store)  # a connection of its own: one that waits would block it
        self.main = threading.main_thread().ident
        self.finished = threading.Event()
        self._tell(stack=[])

    def run(self) -> None:
        while not self.finished.wait(min(1.0, self.timeout / 8)):
            still = time.monotonic() - self.ranks.moved
            try:
                self._tell(stack=self._stack() if still > self.timeout / 2 else [])
                if still > self.timeout:
                    self._end()
            except RuntimeError:  # the store went away: the job has ended, or whoever started it was killed
                if not self.finished.wait(GRACE):
                    tell(f"train: {self.ranks.where}: the store of the job is gone, and with it whoever started it")
                    leave(faults.BAD)
                return

    def _tell(self, stack: list[str]) -> None:
        ranks = self.ranks
        self.store.set(str(ranks.rank), json.dumps([ranks.step, PHASES.index(ranks.phase), stack]))

    def _stack(self) -> list[str]:
        frame = sys._current_frames().get(self.main or 0)
        return traceback.format_stack(frame)[-3:] if frame else []

    def _end(self) -> None:
        """End this process. The first rank that is not to blame says which one is."""
        told = [json.loads(self.store.get(str(rank))) for rank in range(self.ranks.count)]
        last = min(tuple(seen[:2]) for seen in told)
        blamed = [rank for rank, seen in enumerate(told) if tuple(seen[:2]) == last]
        fine = [rank for rank in range(self.ranks.count) if rank not in blamed]
        if self.ranks.rank == (fine or blamed)[0]:
            names = ("rank " if len(blamed) == 1 else "ranks ") + ", ".join(map(str, blamed))
            stack = "".join(told[blamed[0]][2]) or "  (its process does not answer at all)\n"
            place = f"last seen at step {last[0]}, {PHASES[last[1]]}"
            fault = faults.Fault(
                f"{names} made no progress for {self.timeout:g} s: {place}\n{stack.rstrip()}",
                hint="look at that process and its machine; --timeout SECONDS where a step may take this long",
                code=faults.BAD,
            )
            tell(fault.text(self.ranks.where))
        else:
            time.sleep(GRACE)
        os._exit(faults.BAD)  # the main thread waits in a collective, which nothing interrupts
