"""What the suites of real builds share: one clone with its engine, and the images that it built."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clones
import pytest
import registry_process as registries
import small_cases
import small_project
from clones import Clone
from small_cases import Cases

from torchyard.world import engine_sources


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """The folder of everything that these suites make."""
    if os.geteuid() != 0 or not engine_sources.read_host().supported:
        pytest.skip("clones get private engines, which need root on Debian 12 or Ubuntu 24.04, or newer")
    with clones.a_place() as made:
        yield made


@pytest.fixture(scope="session")
def yard(place: Path, say: Callable[[str], None]) -> Clone:
    """A clone with everything fetched for cpu and a100, and an engine whose state was empty before."""
    clone = Clone(
        root=place / "ein Hof für Öfen" / "clone",
        engine=place / "engine-one",
        home=clones.new_home(place / "home-one"),
        umask=0o022,
        env={"TZ": "UTC", "LANG": "C.UTF-8"},
    )
    clones.copy_checkout(clones.ROOT, clone.root)
    clones.seed(clone, clones.ROOT / ".torchyard" / "store")
    clones.fetch(clone, say)
    return clone


@pytest.fixture(scope="session")
def cpu(yard: Clone) -> dict[str, Any]:
    """The receipt of the CPU image, built with every step executed; verifying it is left to the tests of that."""
    yard.yard("build", "--gpu", "cpu", "--no-cache", "--level", "identity").good()
    return yard.receipt(yard.image("cpu"))


@pytest.fixture(scope="session")
def a100(yard: Clone) -> dict[str, Any]:
    """The receipt of the image that a100 selects, built with every step executed."""
    yard.yard("build", "--gpu", "a100", "--no-cache", "--level", "identity").good()
    return yard.receipt(yard.image("a100"))


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cases]:
    """The commands of a project whose image takes seconds, on the engine that this process is configured with."""
    folder = tmp_path_factory.mktemp("small")
    with small_project.project(folder, registries.program(folder / "program")) as small:
        made = Cases(small)
        yield made
        for name in small_cases.ON_ENGINE:
            if name in made:
                built = made[name].ends
                built.yard("docker", "image", "rm", "--force", f"small:{built.image()}")
    clones.end_tree(folder)
