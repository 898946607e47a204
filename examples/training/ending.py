"""How a process ends when something is wrong: with one message, at once, and after the rank that has the fault."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

from . import faults

if TYPE_CHECKING:
    from .parallel import Ranks

GRACE = 5.0  # seconds in which a rank that only lost its partner leaves the last word to it


def end(fault: faults.Fault | faults.Elsewhere, errors: ErrorHandler, ranks: Ranks) -> NoReturn:
    """End this process for a fault. Where another rank has it, that one gets the time to say so first."""
    code = faults.BAD
    if isinstance(fault, faults.Fault):
        code = fault.code
        if fault.alone or ranks.rank == 0:
            errors.record_exception(fault)
            tell(fault.text(ranks.where))
        else:
            time.sleep(GRACE)
    else:
        time.sleep(GRACE)
        if str(fault):
            tell(f"train: {ranks.where}: lost contact with another rank: {fault}")
    leave(code)


def tell(text: str) -> None:
    """Print to standard error, if anybody still reads it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def leave(code: int) -> NoReturn:
    """End now: an orderly end would wait for collectives whose partners are gone."""
    with suppress(OSError):
        sys.stdout.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)
