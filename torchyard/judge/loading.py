"""Why a library does not load, where the loader's own words do not say it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NVJITLINK = re.compile(r"undefined symbol: __nvJitLink\w*?_(\d+)_(\d+)\b")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


def told(error: str, found: Sequence[str] = ()) -> str:
    """The error; for a symbol of nvJitLink, whose names carry the CUDA that brought them, with the older library.

    found: the files of that library in the folders of LD_LIBRARY_PATH, in their order.
    """
    symbol = _NVJITLINK.search(error)
    if symbol is None:
        return error
    wanted = ".".join(symbol.groups())
    if not found:
        return f"{error}: an nvJitLink older than CUDA {wanted} was found before the one that torch's wheels bring"
    version = _VERSION.search(found[0])
    older = f"{version[1]}, " if version else ""
    folder = found[0].rpartition("/")[0]
    return f"{error}: the nvJitLink of {folder} ({older}older than CUDA {wanted}) came before the one of torch's wheels"
