"""What a site's programs can read of an image's layers; the data are in data/consumers.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, cast

import yaml
from packaging.version import InvalidVersion, Version

from .errors import Incompatible

RUNS = {"slurm": ("enroot", "apptainer"), "kubernetes": ("containerd",), "compose": ("docker",)}


def check(kinds: Iterable[str], consumer: str, version: str, *, where: str) -> None:
    """Raise Incompatible where this program, of this version (empty: any), cannot read layers of these media types."""
    zstd = sorted({kind for kind in kinds if kind.endswith("zstd")})
    row = _data().get(consumer)
    if not zstd or row is None:
        return
    least = str(row["zstd"])
    if least != "never" and (not version or _at_least(version, least)):
        return
    needs = "no version that was seen does" if least == "never" else f"{least} or newer does"
    raise Incompatible(
        f"{consumer}{f' {version}' if version else ''} does not read layers of the kind {zstd[0]}; {needs}",
        where=where,
        hint=str(row.get("instead") or f"upgrade {consumer}, or push gzip") + f" ({row['source']})",
    )


def check_site(kinds: Iterable[str], runs: str, *, where: str) -> None:
    """The same for what runs images at a site."""
    found = tuple(kinds)
    for consumer in RUNS.get(runs, ()):
        check(found, consumer, "", where=where)


def _at_least(version: str, least: str) -> bool:
    try:
        return Version(version.split("+")[0].split("-")[0]) >= Version(least)
    except InvalidVersion:
        return True


@cache
def _data() -> dict[str, Any]:
    text = resources.files("torchyard.data").joinpath("consumers.yaml").read_text(encoding="utf-8")
    return cast(dict[str, Any], yaml.safe_load(text))
