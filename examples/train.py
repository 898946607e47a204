"""Train a small model on this machine, or with others: the script to start one of your own from.

    python examples/train.py                                    one process
    torchrun --nproc-per-node=2 examples/train.py               one for each GPU, or on CPUs
    torchrun --nproc-per-node=2 --max-restarts=3 examples/train.py --model transformer --epochs 8

The same command goes on where the last one was stopped. docs/training.md has the rest.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from training import checkpoints, data, faults, host, models, parallel, watch
from training.options import Options, deciding, folder, learning_rate, micro_batches, total_steps
from training.parallel import Ranks


def train(options: Options, ranks: Ranks) -> dict[str, float]:
    """Train from the beginning or from the newest checkpoint; what comes out at the end."""
    choose_algorithms(options)
    source = data.load(options)
    total = total_steps(options, len(source.train))
    require_enough(options, source, total)
    run = Path(folder(options))
    saved = run / "checkpoints"

    model = parallel.wrap(models.build(options, source.shape), options, ranks)
    plain: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    optimizer = torch.optim.AdamW(plain.parameters(), weight_decay=options.weight_decay, fused=True)
    kind = precision(options, ranks.device)
    scaler = torch.amp.GradScaler(ranks.device.type, enabled=kind == torch.float16)
    settings = {**deciding(options), "digest": source.digest}
    parts = checkpoints.Parts(settings=settings, model=plain, optimizer=optimizer, scaler=scaler)
    pieces = micro_batches(options, ranks.count)
    size = (options.batch // ranks.count // pieces, source.shape.channels, source.shape.side, source.shape.side)
    blank = torch.zeros(size, dtype=torch.uint8, device=ranks.device)
    with torch.autocast(ranks.device.type, kind, enabled=kind != torch.float32):
        parallel.settle(model, blank)
    start = resume(options, ranks, saved, parts, total)

    loading = load_how(options, ranks, source)
    pin = ranks.device.type == "cuda"
    order = data.Order(options, samples=len(source.train), rank=ranks.rank, ranks=ranks.count, start=start, end=total)
    batches = data.Prefetcher(data.loader(source.train, order, loading, pin=pin), ranks.device)
    ranks.say(
        f"{options.model} ({sum(weight.numel() for weight in plain.parameters()):,} weights) on {options.data} "
        f"({len(source.train)} samples, {len(source.held_out)} held out), {ranks.count} x {ranks.device.type}, "
        f"{str(kind).removeprefix('torch.')}; batch {options.batch} in {pieces} micro-batches a process; "
        f"{loading.workers} loader processes each ({loading.why}); steps {start} to {total}; {run}"
    )
    see = watch.Watch(options, ranks, run, total=total, start=start, scaled=scaler.is_enabled())
    profile = watch.Profile(options, ranks, run)
    model.train()
    for step in range(start, total):
        profile.at(step)
        torch.manual_seed(hash((options.seed, step, ranks.rank)))  # so that randomness, too, goes on exactly
        loss = torch.zeros((), device=ranks.device)
        for piece in range(pieces):
            ranks.at(step, "input")
            with see.waiting():
                images, labels = next(batches)
            with ExitStack() as around:
                if piece < pieces - 1 and isinstance(model, DistributedDataParallel):
                    around.enter_context(model.no_sync())  # gradients are exchanged once a step
                ranks.at(step, "forward")
                with torch.autocast(ranks.device.type, kind, enabled=kind != torch.float32):
                    scores = model(images)
                    mine = functional.cross_entropy(scores, labels, reduction="sum") / options.batch
                ranks.at(step, "backward")
                scaler.scale(mine * ranks.count).backward()  # DDP takes the mean over ranks, and a sum is meant
            loss += mine.detach()
        ranks.at(step, "update")
        norm = update(options, parts, learning_rate(options, step, total))
        ranks.at(step, "log")
        see.note(step, loss, norm)
        if (step + 1) % options.save_every == 0 or step + 1 == total:
            ranks.at(step, "checkpoint")
            see.tell(wait=True)  # nothing is saved that has not been found to be finite
            ranks.agree(plain)
            if ranks.rank == 0:  # all have the same
                checkpoints.save(saved, step + 1, parts.state(step + 1), keep=options.keep)
        if options.evaluate_every and (step + 1) % options.evaluate_every == 0 and step + 1 < total:
            report(step + 1, evaluate(options, ranks, plain, source, kind), see, ranks)
    profile.at(total)
    ranks.at(total, "evaluation")
    found = evaluate(options, ranks, plain, source, kind)
    report(total, found, see, ranks)
    see.close()
    if ranks.rank == 0:
        watch.finish(run, {**found, "steps": total, "ranks": ranks.count, "resumed_at": start})
    ranks.at(total, "end")
    return found


def choose_algorithms(options: Options) -> None:
    """The fastest algorithms, or those that give the same bits each time."""
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not options.deterministic
    torch.backends.cudnn.allow_tf32 = options.precision != "fp32"  # who asks for fp32 gets its 23 bits


def require_enough(options: Options, source: data.Source, total: int) -> None:
    """Stop where there is not one batch."""
    if total == 0 or len(source.train) < options.batch:
        raise faults.Fault(
            f"{len(source.train)} samples are less than one batch of {options.batch}",
            hint="a smaller --batch, or more samples",
            code=faults.INPUT,
            alone=False,
        )


def precision(options: Options, device: torch.device) -> torch.dtype:
    """The type in which convolutions and products are computed."""
    if options.precision == "auto":
        if device.type == "cpu":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[options.precision]


def load_how(options: Options, ranks: Ranks, source: data.Source) -> host.Loading:
    """Loader processes for this rank."""
    a_sample = source.shape.channels * source.shape.side**2
    return host.loading(
        asked=options.workers,
        prefetch=options.prefetch,
        cpus=host.cpus(),
        ranks=ranks.locals,
        in_memory=source.train.in_memory,
        bytes_a_batch=a_sample * min(options.micro_batch, options.batch),
        shared_memory=host.shared_memory(),
    )


def update(options: Options, parts: checkpoints.Parts, rate: float) -> Tensor:
    """One optimiser step; the norm of the gradients before clipping, left on the device."""
    parts.scaler.unscale_(parts.optimizer)
    norm = nn.utils.clip_grad_norm_(parts.model.parameters(), options.clip or float("inf"))
    for group in parts.optimizer.param_groups:
        group["lr"] = rate
    parts.scaler.step(parts.optimizer)
    parts.scaler.update()
    parts.optimizer.zero_grad(set_to_none=True)
    return norm


def resume(options: Options, ranks: Ranks, saved: Path, parts: checkpoints.Parts, total: int) -> int:
    """The step to start at: after a restart, or where the same command was stopped, the newest good checkpoint's."""
    anew = options.fresh and not ranks.restarts
    content = checkpoints.newest_good(saved, ranks.say) if ranks.rank == 0 and not anew else None
    content = ranks.from_first(content)
    state = None if content is None else checkpoints.read(content)
    if state is not None:
        checkpoints.require_same(state, parts.settings, saved)
        if state["step"] >= total and not ranks.restarts:
            ranks.say(f"{saved} has a finished run of the same options: training it again")
            state = None
    if state is None:
        if ranks.rank == 0:
            checkpoints.put_aside(saved)
        return 0
    parts.load(state)
    ranks.say(f"going on at step {state['step']} from {saved}")
    return int(state["step"])


@torch.no_grad()
def evaluate(
    options: Options, ranks: Ranks, model: nn.Module, source: data.Source, kind: torch.dtype
) -> dict[str, float]:
    """Accuracy and loss on the held-out samples, each counted once, however many ranks there are."""
    if ranks.count > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)  # BatchNorm statistics: one model is judged, not one for each rank
    model.eval()
    own = data.share(len(source.held_out), ranks.rank, ranks.count, options.micro_batch)
    sums = torch.zeros(3, dtype=torch.float64, device=ranks.device)
    for indices in own:
        images, labels = (part.to(ranks.device) for part in source.held_out.__getitems__(indices))
        with torch.autocast(ranks.device.type, kind, enabled=kind != torch.float32):
            scores = model(images)
            loss = functional.cross_entropy(scores, labels, reduction="sum")
        sums += torch.stack([(scores.argmax(1) == labels).sum(), loss, labels.new_tensor(len(indices))]).double()
    model.train()
    right, loss, seen = ranks.sum(sums).tolist()
    return {"accuracy": right / seen, "held_out_loss": loss / seen, "held_out": seen}


def report(step: int, found: dict[str, float], see: watch.Watch, ranks: Ranks) -> None:
    """Tell how good the model is."""
    see.scalar(step - 1, accuracy=found["accuracy"], held_out_loss=found["held_out_loss"])
    ranks.say(f"held-out accuracy {found['accuracy']:.4f} of {found['held_out']:.0f} samples after step {step}")


if __name__ == "__main__":
    parallel.run(train)
