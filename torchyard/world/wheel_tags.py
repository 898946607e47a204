"""The wheel tags that fit a target, best first; no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.tags import Tag, compatible_tags, cpython_tags

# The oldest glibc that has a tag, and the names that some had before PEP 600.
OLDEST = {"x86_64": 5, "aarch64": 17}
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def ranked(python: str, arch: str, glibc: str) -> dict[Tag, int]:
    """Every tag that fits this Python, processor and glibc, with its rank; 0 is the best."""
    major, minor = (int(part) for part in python.split(".")[:2])
    platforms = list(_platforms(arch, glibc))
    abi = f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *compatible_tags((major, minor), interpreter=abi, platforms=platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def _platforms(arch: str, glibc: str) -> Iterator[str]:
    newest = int(glibc.split(".")[1])
    for minor in range(newest, OLDEST.get(arch, 17) - 1, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in LEGACY:
            yield f"{LEGACY[minor]}_{arch}"
    yield f"linux_{arch}"
