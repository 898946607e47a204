"""What the reference training promises, each a function that raises where it does not hold. Needs torch, no pytest."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from rig import Ended, Rig

SHORT = ("--steps", "12", "--log-every", "4", "--samples", "512")
EXACT = ("--model", "transformer", "--dropout", "0.1", "--lr", "1e-3", "--steps", "24", "--save-every", "10",
         "--log-every", "1", "--samples", "512", "--batch", "24", "--deterministic")  # fmt: skip


def claims_of(names: dict[str, Any]) -> list[Callable[[Rig], None]]:
    """The functions of a module that take a rig and give nothing."""
    return [each for each in names.values() if getattr(each, "__annotations__", {}) == {"rig": "Rig", "return": "None"}]


def learns(ended: Ended) -> None:
    """The test that a training which works passes, and no other."""
    ended.good()
    assert ended.result["accuracy"] >= 0.95, ended.result
    assert ended.result["held_out"] == 1536, ended.result


def fails(ended: Ended) -> None:
    """The same test fails."""
    try:
        learns(ended)
    except AssertionError:
        return
    raise AssertionError(f"passed: {ended.result}")


def two_processes_learn_the_shipped_data(rig: Rig) -> None:
    ended = rig.torchrun("--epochs", "3")
    learns(ended)
    assert ended.result["ranks"] == 2
    assert "memory grows" not in ended.text
    for words in ("images/s", "input ", "compute ", "memory "):
        assert words in ended.text


def without_a_learning_rate_nothing_is_learned(rig: Rig) -> None:
    ended = rig.train("--epochs", "1", "--lr", "0", ranks=2)  # more epochs of nothing change nothing
    fails(ended)
    assert ended.code == 0 and ended.result["accuracy"] < 0.6


def without_the_all_reduce_the_run_fails(rig: Rig) -> None:
    ended = rig.train("--epochs", "3", ranks=2, sabotage="no-all-reduce")
    fails(ended)
    ended.fault(1, "different weights", "not reduced")


def one_effective_batch_gives_one_result(rig: Rig) -> None:
    """Alone, accumulated, on two ranks, and on three that get 22, 21 and 21 samples."""
    flags = ("--model", "transformer", "--precision", "fp32", "--lr", "1e-3", *SHORT, "--steps", "6")
    alone = rig.train(*flags).good()
    for ranks, micro_batch in ((1, 16), (2, 8), (3, 10)):
        ended = rig.train(*flags, "--micro-batch", str(micro_batch), ranks=ranks).good()
        for step, there in alone.steps.items():
            for name in ("loss", "norm"):
                near(ended.steps[step][name], there[name], f"{ranks} ranks, micro-batch {micro_batch}, {name} {step}")
        near(ended.result["held_out_loss"], alone.result["held_out_loss"], f"{ranks} ranks, held-out loss")
    cut = rig.train(*flags, ranks=2, sabotage="no-all-reduce")
    gap = max(abs(cut.steps[step]["loss"] - there["loss"]) for step, there in alone.steps.items())
    assert gap > 1e-3, f"without the all-reduce the losses would differ: {gap}"


def near(here: float, there: float, what: str) -> None:
    """Two numbers are one but for rounding."""
    assert abs(here - there) <= 1e-5 * max(1.0, abs(there)), f"{what}: {here} and {there}"


def synchronised_batchnorm_agrees_across_ranks_and_with_one_process(rig: Rig) -> None:
    flags = ("--model", "resnet", *SHORT, "--steps", "1")
    synced = rig.train(*flags, "--sync-batchnorm", ranks=2, sabotage="statistics").good()
    alone = rig.train(*flags, sabotage="statistics").good()
    apart = rig.train(*flags, ranks=2, sabotage="statistics").good()
    ours, theirs = (torch.load(synced.out / f"bn-{rank}.pt") for rank in (0, 1))
    whole = torch.load(alone.out / "bn-0.pt")
    assert len(ours) > 5
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), f"{name} differs between ranks"
        assert torch.allclose(value, whole[name], rtol=1e-3, atol=1e-4), f"{name} is not that of one process"
    for step, there in alone.steps.items():
        for name in ("loss", "norm"):
            near(synced.steps[step][name], there[name], f"{name} {step}")
    ours, theirs = (torch.load(apart.out / f"bn-{rank}.pt") for rank in (0, 1))
    assert not any(torch.equal(ours[name], theirs[name]) for name in ours), "the option makes no difference"


_unbroken: list[Ended] = []


def unbroken(rig: Rig) -> Ended:
    """The run that the broken ones are compared with."""
    if not _unbroken:
        _unbroken.append(rig.train(*EXACT, ranks=3).good())
    return _unbroken[0]


def a_killed_run_goes_on_bit_for_bit(rig: Rig) -> None:
    first = rig.train(*EXACT, ranks=3, kill_at=15)
    assert first.code == -9
    again = rig.train(*EXACT, ranks=3, out=first.out).good()
    assert "going on at step 10" in again.text, again.text
    assert again.losses == unbroken(rig).losses, (again.losses, unbroken(rig).losses)
    assert again.result["accuracy"] == unbroken(rig).result["accuracy"]


def torchrun_restarts_a_killed_rank_and_the_run_goes_on_bit_for_bit(rig: Rig) -> None:
    whole = rig.train(*EXACT, ranks=2).good()
    ended = rig.torchrun(*EXACT, options=["--max-restarts=1"], sabotage="die:1:16").good()
    assert "going on at step 10" in ended.text, ended.text[-3000:]
    assert ended.losses == whole.losses


def a_killed_rank_is_the_last_that_is_told(rig: Rig) -> None:
    ended = rig.torchrun(*SHORT, sabotage="die:1:5")
    assert ended.code == 1
    last = ended.text[-900:]
    assert "rank      : 1" in last and "SIGKILL" in last, last
    assert "rank 0" not in ended.text and "Connection closed" not in ended.text, ended.text[-3000:]


def a_bug_keeps_its_traceback_and_is_the_only_one(rig: Rig) -> None:
    ended = rig.torchrun(*SHORT, sabotage="bug:1:5")
    assert ended.code == 1
    assert "a bug of the user" in ended.text[-1500:], ended.text[-1500:]
    assert "Connection closed" not in ended.text


def a_killed_torchrun_leaves_no_rank_behind(rig: Rig) -> None:
    out = rig.folder()
    agent = rig.start_torchrun("--steps", "100000", "--samples", "512", "--log-every", "100", out=out)
    while not (out / "metrics.jsonl").exists():
        assert agent.poll() is None
        time.sleep(0.1)
    assert len(running(out)) == 3
    agent.kill()
    agent.wait()
    end = time.monotonic() + 60
    while running(out):
        assert time.monotonic() < end, running(out)
        time.sleep(0.2)


def running(out: Path) -> list[int]:
    """The processes whose command line has this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(out).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def a_rank_that_hangs_is_named_with_its_step_and_stack(rig: Rig) -> None:
    ended = rig.train(*SHORT, "--timeout", "8", ranks=3, sabotage="sleep:1:5")
    ended.fault(1, "rank 1 made no progress for 8 s: last seen at step 5, forward", "time.sleep(600)")


def a_rank_that_does_not_answer_is_named(rig: Rig) -> None:
    ended = rig.train(*SHORT, "--timeout", "8", ranks=2, sabotage="stop:1:5")
    ended.fault(1, "rank 1 made no progress for 8 s: last seen at step", "does not answer")


def a_loss_that_is_no_number_is_named_with_step_and_rank(rig: Rig) -> None:
    ended = rig.train(*SHORT, "--save-every", "6", ranks=2, sabotage="nan:1:9")
    ended.fault(1, "rank 1, step 9", "not a number but nan")
    assert [path.name[:13] for path in checkpoints(ended)] == ["step-00000006"]


def checkpoints(ended: Ended) -> list[Path]:
    """The checkpoints of a run."""
    return sorted((ended.out / "checkpoints").iterdir())


def out_of_memory_says_which_micro_batch_would_do(rig: Rig) -> None:
    flags = ("--batch", "8192", "--micro-batch", "8192", "--samples", "8190", "--steps", "1", "--batch", "8190")
    rig.train(*flags, sabotage="little-memory").fault(3, "out of memory", "--micro-batch 4096", "rank 0")


def a_full_disk_leaves_the_older_checkpoints(rig: Rig) -> None:
    small = Path(os.environ["SMALL"])
    out = small / "run"
    flags = (*SHORT, "--save-every", "3", "--keep", "9")
    ended = rig.train(*flags, out=out).fault(3, "no space left", "step", "--keep")
    left = checkpoints(ended)
    assert left and not [path for path in left if path.suffix != ".pt"], left
    for path in left[:-1]:
        path.unlink()  # room
    step = int(left[-1].name[5:13])
    again = rig.train(*(*SHORT, "--save-every", "3", "--keep", "1"), out=out).good()
    assert f"going on at step {step}" in again.text, again.text


def a_checkpoint_of_another_model_is_refused(rig: Rig) -> None:
    first = rig.train(*SHORT).good()
    before = checkpoints(first)
    ended = rig.train(*SHORT, "--model", "transformer", "--lr", "1", ranks=2, out=first.out)
    ended.fault(2, "model is 'resnet' there and 'transformer' here", "lr is 0.004 there and 1.0 here", "--fresh")
    assert checkpoints(first) == before
    fresh = rig.train(*SHORT, "--model", "transformer", "--fresh", out=first.out).good()
    assert len(fresh.losses) == 12
    assert [path.name for path in sorted((first.out / "checkpoints.before").iterdir())] == [
        path.name for path in before
    ]


def a_damaged_checkpoint_is_passed_over(rig: Rig) -> None:
    first = rig.train(*SHORT, "--save-every", "4", kill_at=10)
    every = [path for path in checkpoints(first) if path.suffix == ".pt"]
    partial = first.out / "checkpoints" / "writing-1.partial"
    partial.write_bytes(b"cut off")
    content = bytearray(every[-1].read_bytes())
    content[len(content) // 2] ^= 1
    every[-1].write_bytes(content)
    again = rig.train(*SHORT, "--save-every", "4", out=first.out).good()
    assert f"damaged, not used: {every[-1]}" in again.text
    assert f"going on at step {int(every[-2].name[5:13])}" in again.text
    assert not partial.exists()


def checkpoints_rotate_and_a_finished_run_is_trained_again(rig: Rig) -> None:
    flags = (*SHORT, "--save-every", "2", "--keep", "2")
    first = rig.train(*flags).good()
    assert [path.name[:13] for path in checkpoints(first)] == ["step-00000010", "step-00000012"]
    again = rig.train(*flags, out=first.out).good()
    assert "training it again" in again.text
    assert again.result["resumed_at"] == 0 and again.losses == first.losses


def an_address_that_does_not_resolve_is_named(rig: Rig) -> None:
    ended = rig.train(*SHORT, ranks=2, start=[1], env={"MASTER_ADDR": "no-such-node.invalid"})
    ended.fault(3, "no-such-node.invalid", "getent hosts")


def a_node_that_never_comes_is_waited_for_only_so_long(rig: Rig) -> None:
    rig.train(*SHORT, "--timeout", "2", ranks=2, start=[0]).fault(3, "not all of 2 processes came", "within 2 s")
    other_node = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    rig.train(*SHORT, "--timeout", "2", ranks=2, start=[1], env=other_node).fault(
        3, "not all of 2 processes came", "firewall"
    )


def more_processes_than_gpus_are_refused(rig: Rig) -> None:
    rig.train(*SHORT, ranks=2, sabotage="one-gpu").fault(
        2, "2 processes on this machine and 1 GPUs", "nproc-per-node=1"
    )
    rig.train(*SHORT, "--device", "cuda").fault(2, "1 processes on this machine and 0 GPUs", "--device cpu")


def wrong_options_are_told_once(rig: Rig) -> None:
    rig.train("--warmup", "2", ranks=2).fault(2, "--warmup 2.0")
    rig.train("--modell", "resnet", ranks=2).fault(2, "--modell")
    rig.train("--batch", "9000", ranks=2).fault(2, "8190 samples are less than one batch of 9000")
    if "sklearn" not in sys.modules and not has_sklearn():
        rig.train("--data", "digits", ranks=2).fault(2, "scikit-learn", "packages.pip")


def has_sklearn() -> bool:
    """Scikit-learn is installed."""
    import importlib.util

    return importlib.util.find_spec("sklearn") is not None


def an_evaluation_counts_each_sample_once_however_many_ranks(rig: Rig) -> None:
    flags = ("--model", "transformer", "--lr", "0", *SHORT, "--samples", "404", "--micro-batch", "7", "--steps", "1")
    seen = [rig.train(*flags, ranks=ranks).good().result for ranks in (1, 3)]
    assert seen[0]["held_out"] == seen[1]["held_out"] == 101
    assert seen[0]["accuracy"] == seen[1]["accuracy"]
    near(seen[0]["held_out_loss"], seen[1]["held_out_loss"], "held-out loss")


def a_step_reads_nothing_back_from_the_device(rig: Rig) -> None:
    flags = ("--samples", "1024", "--log-every", "1000", "--save-every", "1000", "--clip", "0.5")
    for precision in ("fp32", "fp16"):
        few, many = (
            json.loads((ended.out / "reads.json").read_text())
            for ended in (
                rig.train(*flags, "--precision", precision, "--steps", steps, sabotage="host-reads").good()
                for steps in ("3", "8")
            )
        )
        assert few, "the count has to see the reads at the end of the run"
        assert few == many, f"{precision}: {few} in 3 steps and {many} in 8"


def memory_that_grows_is_told(rig: Rig) -> None:
    flags = ("--samples", "1024", "--batch", "16", "--log-every", "1", "--steps", "60")
    ended = rig.train(*flags, sabotage="leak").good()
    assert "memory grows by" in ended.text, ended.text[-2000:]


def half_precision_learns_too(rig: Rig) -> None:
    for precision in ("bf16", "fp16"):
        ended = rig.train(*SHORT, "--steps", "8", "--precision", precision, ranks=2).good()
        assert sum(ended.losses[-3:]) < sum(ended.losses[:3]), ended.losses
        assert precision.replace("fp", "float").replace("bf", "bfloat") in ended.text


def a_window_of_steps_is_traced(rig: Rig) -> None:
    ended = rig.train(*SHORT, "--profile", "3:5", ranks=2).good()
    for rank in (0, 1):
        events = json.loads((ended.out / f"trace-rank{rank}.json").read_text())["traceEvents"]
        assert sum(event.get("name") == "aten::convolution" for event in events) >= 2


def synthetic_images_of_imagenets_shape_come_from_loader_processes(rig: Rig) -> None:
    flags = ("--data", "synthetic", "--width", "8", "--batch", "8", "--steps", "3", "--workers", "1")
    ended = rig.train(*flags, "--samples", "64", "--model", "resnet", ranks=2).good()
    assert "1 loader processes" in ended.text and len(ended.losses) == 3


EVERY = claims_of(globals())
