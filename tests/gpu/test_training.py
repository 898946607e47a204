"""The reference training on NCCL: the claims of tests/training with a GPU for each process, and those of GPUs alone.

Which Python has a torch that sees the GPUs is TORCHYARD_PYTHON, else the one that runs the tests, else `python3`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "training" / "run.py"
COUNT = "import torch; assert torch.cuda.is_available(); print(torch.cuda.device_count())"
NEEDS = {  # GPUs, which is processes
    "two_processes_learn_the_shipped_data": 2,
    "without_a_learning_rate_nothing_is_learned": 2,
    "without_the_all_reduce_the_run_fails": 2,
    "one_effective_batch_gives_one_result": 3,
    "synchronised_batchnorm_agrees_across_ranks_and_with_one_process": 2,
    "a_killed_run_goes_on_bit_for_bit": 3,
    "torchrun_restarts_a_killed_rank_and_the_run_goes_on_bit_for_bit": 2,
    "a_killed_rank_is_the_last_that_is_told": 2,
    "a_killed_torchrun_leaves_no_rank_behind": 2,
    "a_bug_keeps_its_traceback_and_is_the_only_one": 2,
    "a_rank_that_hangs_is_named_with_its_step_and_stack": 3,
    "a_rank_that_does_not_answer_is_named": 2,
    "a_loss_that_is_no_number_is_named_with_step_and_rank": 2,
    "a_checkpoint_of_another_model_is_refused": 2,
    "an_evaluation_counts_each_sample_once_however_many_ranks": 3,
    "half_precision_learns_too": 2,
    "a_compiled_model_learns_the_same": 2,
    "a_window_of_steps_is_traced": 2,
    "synthetic_images_of_imagenets_shape_come_from_loader_processes": 2,
    "a_step_makes_no_gpu_wait": 1,
    "out_of_gpu_memory_says_which_micro_batch_would_do": 1,
}


@pytest.fixture(scope="module")
def gpus() -> tuple[str, int]:
    """A Python whose torch sees GPUs, and how many."""
    tried = [os.environ.get("TORCHYARD_PYTHON", ""), sys.executable, shutil.which("python3") or ""]
    for program in dict.fromkeys(filter(None, tried)):
        done = subprocess.run([program, "-c", COUNT], capture_output=True, text=True)
        if done.returncode == 0:
            return program, int(done.stdout)
    pytest.skip(f"no torch of {', '.join(filter(None, tried))} sees a CUDA device; TORCHYARD_PYTHON names another one")


@pytest.mark.parametrize("claim", NEEDS)
def test_the_reference_training_holds_on_gpus(gpus: tuple[str, int], claim: str) -> None:
    program, count = gpus
    if count < NEEDS[claim]:
        pytest.skip(f"needs {NEEDS[claim]} GPUs, one for each process; {count} here")
    done = subprocess.run([program, str(RUN), claim], capture_output=True, text=True, cwd=ROOT)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"claim"')]
    assert [line["claim"] for line in lines] == [claim], done.stderr[-3000:]
    assert lines[0]["good"], lines[0]["told"]
