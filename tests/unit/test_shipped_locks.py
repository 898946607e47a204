"""What every committed lock has."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

LOCKS = sorted((Path(__file__).parents[2] / "images").glob("*/lock.yaml"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.parent.name)
def test_what_torch_compile_imports_is_locked(path: Path) -> None:
    # torch before 2.13 names setuptools for Python 3.12 and newer only, and imports it on every Python.
    names = {wheel["name"] for wheel in yaml.safe_load(path.read_text())["wheels"]}
    assert {"torch", "setuptools"} <= names
