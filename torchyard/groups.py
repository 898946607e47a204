"""Which packages of the distribution an image wants, by layer; the data are in data/image-packages.yaml."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, cast

import yaml

from .plan import BuildKind, Image


def wanted(image: Image) -> dict[str, tuple[str, ...]]:
    """The names that each group asks for, in the order in which the layers lie; a later group adds to the former."""
    linked = _data()["os_blas"].get(image.blas, []) if image.build is BuildKind.SOURCE else []
    groups = {"base": (), "os": (*_data()["os"], *linked), "user": image.packages.apt, "dev": tuple(_data()["dev"])}
    return {name: names for name, names in groups.items() if names or name != "user"}


def dev_wheels() -> tuple[str, ...]:
    """The requirements that the dev target adds, beside the CUDA compiler."""
    return tuple(_data()["dev_wheels"])


def builder(image: Image) -> tuple[str, ...]:
    """The packages of the stage that compiles torch, on top of the group `os`."""
    assert image.source is not None
    gcc = image.source.gcc.partition(".")[0]
    return (*_data()["build"], *_data()["build_blas"].get(image.blas, []), f"g++-{gcc}", f"gcc-{gcc}")


def build_wheels(image: Image) -> tuple[str, ...]:
    """The requirements of the stage that compiles torch, beside torch's own and the CUDA toolkit."""
    return (*_data()["build_wheels"], *_data()["build_wheels_blas"].get(image.blas, []))


def toolkit() -> tuple[str, ...]:
    """The extras of NVIDIA's cuda-toolkit that compiling torch needs beside what torch needs when it runs."""
    return tuple(_data()["toolkit"])


@cache
def _data() -> dict[str, Any]:
    text = resources.files("torchyard.data").joinpath("image-packages.yaml").read_text(encoding="utf-8")
    return cast(dict[str, Any], yaml.safe_load(text))
