"""What the benchmarks say of repeated measurements."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any


def told(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """The median, the interval in which 95 of 100 medians of values drawn again from these lie, and all of them."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(2000))
    rounded = [round(each, digits) for each in (statistics.median(values), medians[49], medians[1949])]
    return {"median": rounded[0], "interval": rounded[1:], "all": [round(each, digits) for each in values]}
