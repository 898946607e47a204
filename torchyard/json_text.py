"""JSON that others wrote: whatever is wrong with it is a ValueError."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str | bytes | bytearray) -> Any:
    """The value of a JSON text; raises json.JSONDecodeError, also where it is nested deeper than Python reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None
