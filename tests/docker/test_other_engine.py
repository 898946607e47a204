"""The same layers by another engine: the next release of Debian's, whose BuildKit compresses in another way."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import clones
import other_release
import pytest
from clones import Clone

from torchyard.world import engine_root, engine_sources

pytestmark = [pytest.mark.docker, pytest.mark.long]

RELEASE = "testing"


@pytest.fixture
def elsewhere(yard: Clone, place: Path) -> Iterator[Clone]:
    """A clone with the fetched files alone, and an engine of another version than the first one's."""
    host = engine_sources.read_host()
    clone = replace(yard, root=place / "by another engine", engine=place / "engine-other")
    clones.copy_checkout(yard.root, clone.root)
    clones.seed(clone, yard.store)
    clone.engine.mkdir()
    try:
        root = other_release.unpacked(clone.engine / "programs", RELEASE, engine_sources.packages_of(host))
        (root / engine_root.MARKER).write_text(engine_sources.stamp(host))
        os.rename(root, clone.engine / "root")
        yield clone
    finally:
        clone.yard("engine", "--down", "--purge")
        clones.end_tree(clone.root)


def test_an_engine_of_another_version_gives_equal_layer_ids(elsewhere: Clone, yard: Clone, cpu: dict[str, Any]) -> None:
    receipts = elsewhere.root / ".torchyard" / "receipts"
    receipts.mkdir(parents=True)
    (receipts / f"{cpu['image']}.json").write_text(json.dumps(cpu))
    done = elsewhere.yard("reproduce", "--gpu", "cpu", "--json").good()
    told = json.loads(done.out)
    first, second = told["first"], told["second"]
    print(f"BuildKit {first['buildkit']} and {second['buildkit']}: {first['digest']} and {second['digest']}")
    assert "bootstrapping" in done.err and first["buildkit"] != second["buildkit"]
    assert (
        told["equal"]
        and told["by"] == "uncompressed layer ids"
        and first["layers"] == second["layers"] == cpu["layers"]
    )
