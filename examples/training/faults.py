"""What stops a training, told in one message: what happened, at which rank and step, and what to do."""

from __future__ import annotations

import errno

BAD, INPUT, SURROUNDINGS = 1, 2, 3  # the exit codes: the run is bad, what it was given is, what is around it is

LOST = ("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "socket timeout")
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class Fault(Exception):
    """A reason to stop that a person can act on."""

    def __init__(self, what: str, *, hint: str, code: int, alone: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.code = code
        self.alone = alone  # False: every rank finds it, so the first one speaks for all

    def text(self, where: str) -> str:
        """The message, with the rank and the step."""
        return f"train: {where}: {self.what}\n  hint: {self.hint}"


class Elsewhere(Exception):
    """Another rank has the fault and says so: this one ends without a word about it."""


def of(error: BaseException, micro_batch: int) -> Fault | Elsewhere | None:
    """The fault that an error of torch or of the system stands for, or None: then it is a bug, with its traceback."""
    text = str(error).lower()
    if any(words in text for words in OUT_OF_MEMORY):
        return Fault(
            f"out of memory with micro-batches of {micro_batch} samples: {_first_line(error)}",
            hint=f"--micro-batch {max(1, micro_batch // 2)} keeps the effective batch and needs about half of it",
            code=SURROUNDINGS,
        )
    if "bus error" in text or ("no space left on device" in text and "shm" in text):
        return Fault(
            "a worker of the loader found /dev/shm full",
            hint="give the container more shared memory (docker run --shm-size, compose shm_size), or --workers 0",
            code=SURROUNDINGS,
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(error.filename or "the output folder")
    if any(words in text for words in LOST):
        return Elsewhere(_first_line(error))
    return None


def disk_full(path: object) -> Fault:
    """There is no room for what the training writes."""
    return Fault(
        f"no space left for {path}; nothing that was there before was touched",
        hint="free some space or lower --keep, then start the same command again: it goes on from the last checkpoint",
        code=SURROUNDINGS,
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
