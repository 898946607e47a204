"""What the reference training promises on a GPU only."""

from __future__ import annotations

from claims import claims_of
from rig import Rig


def a_step_makes_no_gpu_wait(rig: Rig) -> None:
    """torch itself raises where the host would wait; a line every five steps is in it, a checkpoint is not."""
    flags = ("--samples", "1024", "--steps", "24", "--log-every", "5", "--save-every", "1000")
    for precision in ("bf16", "fp16"):
        rig.train(*flags, "--precision", precision, sabotage="sync-debug").good()


def out_of_gpu_memory_says_which_micro_batch_would_do(rig: Rig) -> None:
    flags = ("--data", "synthetic", "--batch", "512", "--micro-batch", "512", "--samples", "512", "--steps", "1")
    rig.train(*flags, sabotage="little-gpu-memory").fault(3, "out of memory", "--micro-batch 256")


EVERY = claims_of(globals())
