"""Runs examples/train.py after a fault was prepared, named in SABOTAGE as fault, fault:rank or fault:rank:step."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from training import data, parallel  # noqa: E402  # the path has to be there first

__all__ = ["data"]  # for run.py, which reads the data before it forks
RANK = int(os.environ.get("RANK", 0))
FIRST_ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def at_loss(step: int, act: Callable[[Any], Any]) -> None:
    """Let something happen to the loss of this rank when it is computed for the time after `step` times."""
    seen = 0
    real = functional.cross_entropy

    def loss(*args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        value = real(*args, **kwargs)
        seen += 1
        return act(value) if seen == step + 1 else value

    functional.cross_entropy = loss


def die(loss: Any) -> Any:
    """Killed, as by the kernel when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def nan(loss: Any) -> Any:
    """A loss that is no number."""
    return loss * float("nan")


def sleep(loss: Any) -> Any:
    """A rank that goes no further."""
    time.sleep(600)


def stop(loss: Any) -> Any:
    """A process that does not even answer."""
    os.kill(os.getpid(), signal.SIGSTOP)


def a_bug(loss: Any) -> Any:
    """An error that nobody foresaw."""
    raise KeyError("a bug of the user")


def no_all_reduce() -> None:
    """Gradients stay with their rank."""
    ddp = torch.nn.parallel.DistributedDataParallel
    forward = ddp.forward

    def alone(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        with self.no_sync():
            return forward(self, *inputs, **kwargs)

    ddp.forward = alone


def one_gpu() -> None:
    """A machine with one GPU."""
    torch.cuda.device_count = lambda: 1


def little_memory() -> None:
    """No more memory than there is now, and 400 MiB."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 400 * 2**20,) * 2)


def little_gpu_memory() -> None:
    """A hundredth of the GPU's memory."""
    torch.cuda.set_per_process_memory_fraction(0.01)


def sync_debug() -> None:
    """An error of torch wherever a step makes the host wait for the GPU, once the first steps are over."""
    real = parallel.Ranks.at

    def at(self: Any, step: int, phase: str) -> None:
        inside = step >= 3 and phase in ("input", "forward", "backward", "update", "log")
        torch.cuda.set_sync_debug_mode("error" if inside else "default")
        real(self, step, phase)

    parallel.Ranks.at = at


def leak() -> None:
    """Four MiB are kept at every step."""
    kept = []
    real = functional.cross_entropy

    def loss(*args: Any, **kwargs: Any) -> Any:
        kept.append(torch.ones(2**20))
        return real(*args, **kwargs)

    functional.cross_entropy = loss


def statistics() -> None:
    """Every rank writes its BatchNorm statistics before anything is made equal."""
    real = parallel.Ranks.agree

    def agree(self: Any, model: Any) -> None:
        out = Path(sys.argv[sys.argv.index("--out") + 1])
        out.mkdir(exist_ok=True)
        torch.save(
            {name: each.clone() for name, each in model.named_buffers() if "running" in name}, out / f"bn-{RANK}.pt"
        )
        real(self, model)

    parallel.Ranks.agree = agree


def host_reads() -> None:
    """Count what makes a GPU's host wait: reads of values, copies to the host, synchronisations; write them at the end.

    On a CPU no read waits, but the calls are the same. Those in the phase `input` are not counted: they are of indices,
    which are on the host whatever the device.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    count: dict[str, int] = {}

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(func)
            if "_local_scalar_dense" in name or "nonzero" in name or name.startswith("aten.equal"):
                note(name)
            return func(*args, **(kwargs or {}))

    here: list[Any] = []

    def note(name: str) -> None:
        phase = here[0].phase if here else "start"
        if phase not in ("start", "input", "evaluation", "end"):
            count[f"{phase}: {name}"] = count.get(f"{phase}: {name}", 0) + 1

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            note(name)
            return real(*args, **kwargs)

        setattr(owner, name, call)

    for name in ("cpu", "numpy", "tolist", "item", "__bool__", "__float__", "__int__"):
        counted(torch.Tensor, name)
    counted(torch.cuda, "synchronize")
    real_at = parallel.Ranks.at

    def at(self: Any, step: int, phase: str) -> None:
        here[:] = [self]
        real_at(self, step, phase)
        if phase == "end":
            import json

            out = Path(sys.argv[sys.argv.index("--out") + 1])
            (out / "reads.json").write_text(json.dumps(count))

    parallel.Ranks.at = at
    Count().__enter__()


AT_LOSS = {"die": die, "nan": nan, "sleep": sleep, "stop": stop, "bug": a_bug}
AT_ONCE = {
    "no-all-reduce": no_all_reduce,
    "one-gpu": one_gpu,
    "little-memory": little_memory,
    "leak": leak,
    "little-gpu-memory": little_gpu_memory,
    "sync-debug": sync_debug,
    "statistics": statistics,
    "host-reads": host_reads,
}


def prepare(told: str) -> None:
    """Prepare the faults that are named."""
    for each in filter(None, told.split(",")):
        name, *numbers = each.split(":")
        if name in AT_ONCE:
            AT_ONCE[name]()
        elif int(numbers[0]) == RANK and FIRST_ATTEMPT:
            at_loss(int(numbers[1]), AT_LOSS[name])


if __name__ == "__main__":
    prepare(os.environ.get("SABOTAGE", ""))
    runpy.run_path(str(EXAMPLES / "train.py"), run_name="__main__")
