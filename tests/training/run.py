"""Checks what the reference training promises: python tests/training/run.py [NAME ...]. One line of JSON each.

It needs torch and nothing else, so that it also runs in an image. SMALL names a folder with room for two or three
megabytes, for the claim about a full disk.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import claims  # noqa: E402  # warnings of torch's import would be in front of the results
import gpu_claims  # noqa: E402
import slow_claims  # noqa: E402
from rig import Rig  # noqa: E402
from sabotage import data  # noqa: E402


def main(names: list[str]) -> int:
    """Check the named claims, or all that need no GPU and do not take long."""
    bad = 0
    rig = Rig()
    warm()
    try:
        for claim in [*claims.EVERY, *gpu_claims.EVERY, *slow_claims.EVERY] if names else claims.EVERY:
            if names and claim.__name__ not in names:
                continue
            start = time.monotonic()
            told = ""
            try:
                claim(rig)
            except Exception:  # any failure is a result
                told = traceback.format_exc()
                bad += 1
            seconds = round(time.monotonic() - start, 1)
            print(json.dumps({"claim": claim.__name__, "good": not told, "seconds": seconds, "told": told}), flush=True)
    finally:
        rig.close()
    return 1 if bad else 0


def warm() -> None:
    """Read the data, and import what torch imports late, once for all processes that are forked from this one."""
    import torch._dynamo
    import torch.distributed.nn.functional

    data.fragments(Path(torch.__file__ or "").parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
