"""Everything that can be chosen, with its default and what follows from it. Imports nothing but Python."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, NoReturn

from . import faults


def option(default: Any, words: str, *choices: str) -> Any:
    """A field that becomes a flag of the same name."""
    return field(default=default, metadata={"help": words, "choices": choices or None})


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """One run."""

    data: str = option("fragments", "what to learn (docs/training.md)", "fragments", "digits", "synthetic")
    samples: int = option(0, "training samples, and a quarter as many held out; 0: as many as the data has")
    model: str = option("resnet", "what learns it", "resnet", "transformer")
    width: int = option(0, "channels or features of the model; 0: small, to fit the images")
    dropout: float = option(0.0, "dropout of the transformer")

    epochs: int = option(4, "times that every sample is seen")
    steps: int = option(0, "optimiser steps instead of epochs")
    batch: int = option(64, "samples of one optimiser step over all processes: the effective batch")
    micro_batch: int = option(64, "samples that one process computes at once; the rest of its share accumulates")
    lr: float = option(4e-3, "learning rate at the end of the warm-up")
    warmup: float = option(0.1, "part of the steps in which the learning rate rises; after it follows a cosine")
    weight_decay: float = option(0.02, "of AdamW")
    clip: float = option(1.0, "largest norm of the gradients; 0: no clipping")
    seed: int = option(0, "of the weights, the order of the samples and dropout")

    device: str = option("auto", "auto: a GPU for each process where there are any", "auto", "cpu", "cuda")
    precision: str = option(
        "auto", "auto: bf16 on GPUs that have it, fp16 on older ones, fp32 on CPUs", "auto", "fp32", "bf16", "fp16"
    )
    compile: bool = option(False, "torch.compile the model")
    channels_last: str = option("auto", "the layout that tensor cores want; auto: on GPUs", "auto", "on", "off")
    sync_batchnorm: bool = option(False, "BatchNorm statistics over all processes")
    deterministic: bool = option(False, "only algorithms that give the same bits each time")

    workers: int = option(-1, "loader processes for each training process; -1: from the CPUs, the ranks and the data")
    prefetch: int = option(4, "batches that each loader process has ready")

    out: str = option("", "folder of the run; empty: one under runs/ named by what is learned and how")
    fresh: bool = option(False, "start anew although the run could go on from a checkpoint")
    save_every: int = option(50, "steps between checkpoints")
    keep: int = option(3, "checkpoints that are kept")
    log_every: int = option(10, "steps between lines")
    evaluate_every: int = option(0, "steps between evaluations; 0: at the end only")
    profile: str = option("", "steps to trace with torch.profiler, for example 20:25")
    timeout: float = option(600.0, "seconds without progress after which a rank counts as hanging")


# What decides the numbers: a checkpoint belongs to one choice of these. The rest may change when a run goes on.
DECIDING = (
    "data", "samples", "model", "width", "dropout", "epochs", "steps", "batch", "lr", "warmup", "weight_decay", "clip",
    "seed", "sync_batchnorm",
)  # fmt: skip


def parse(argv: Sequence[str] | None = None) -> Options:
    """The options of a command line."""
    parser = _Parser(prog="train.py", description="Train a small model on one device or many.")
    for each in fields(Options):
        flag = "--" + each.name.replace("_", "-")
        words = each.metadata["help"].replace("%", "%%") + " (default: %(default)s)"
        if isinstance(each.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=each.default, help=words)
        else:
            kind = type(each.default)
            parser.add_argument(
                flag, type=kind, choices=each.metadata["choices"], default=each.default, help=words, metavar=_sign(each)
            )
    return checked(Options(**vars(parser.parse_args(argv))))


def checked(options: Options) -> Options:
    """These options, where they make sense."""
    at_least = {"batch": 1, "micro_batch": 1, "save_every": 1, "log_every": 1, "keep": 1, "epochs": 1, "steps": 0,
                "samples": 0, "lr": 0, "clip": 0, "prefetch": 1, "workers": -1, "evaluate_every": 0}  # fmt: skip
    for name, least in at_least.items():
        if not getattr(options, name) >= least:
            raise _wrong(options, name, f"it has to be {least} or more")
    if not 0 <= options.warmup < 1:
        raise _wrong(options, "warmup", "it is a part of the steps, from 0 to less than 1")
    if not options.timeout > 0:
        raise _wrong(options, "timeout", "it has to be more than 0 seconds")
    if options.profile:
        window(options)
    return options


def deciding(options: Options) -> dict[str, Any]:
    """The options that decide the numbers."""
    return {name: getattr(options, name) for name in DECIDING}


def folder(options: Options) -> str:
    """The folder of the run: the same for the same choice, so that the same command goes on where it was stopped."""
    named = sha256(repr(deciding(options)).encode()).hexdigest()[:8]
    return options.out or f"runs/{options.data}-{options.model}-{named}"


def total_steps(options: Options, samples: int) -> int:
    """Optimiser steps of the whole run."""
    return options.steps or options.epochs * (samples // options.batch)


def learning_rate(options: Options, step: int, total: int) -> float:
    """The learning rate of a step: a straight warm-up, then a cosine to zero. Nothing of it could be lost."""
    rising = round(options.warmup * total)
    if step < rising:
        return options.lr * (step + 1) / rising
    return options.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, total - rising)))


def micro_batches(options: Options, ranks: int) -> int:
    """Micro-batches of a step in each process. All have the same number: a collective in one waits for all others."""
    if options.batch < ranks:
        raise faults.Fault(
            f"a batch of {options.batch} has less than one sample for each of {ranks} processes",
            hint=f"--batch {ranks} or more",
            code=faults.INPUT,
            alone=False,
        )
    return min(math.ceil(math.ceil(options.batch / ranks) / options.micro_batch), options.batch // ranks)


def window(options: Options) -> tuple[int, int] | None:
    """First step to profile, and the one after the last."""
    if not options.profile:
        return None
    first, colon, end = options.profile.partition(":")
    if not (colon and first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise _wrong(options, "profile", "it is two steps, for example 20:25")
    return int(first), int(end)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is said once, not by every rank."""

    def error(self, message: str) -> NoReturn:
        raise faults.Fault(message, hint="train.py --help lists all", code=faults.INPUT, alone=False)


def _sign(each: Any) -> str | None:
    return None if each.metadata["choices"] else each.name.rpartition("_")[2].upper()


def _wrong(options: Options, name: str, words: str) -> faults.Fault:
    flag = "--" + name.replace("_", "-")
    return faults.Fault(
        f"{flag} {getattr(options, name)}: {words}", hint="train.py --help lists all", code=faults.INPUT, alone=False
    )
