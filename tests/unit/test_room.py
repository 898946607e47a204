"""How much disk is asked for before anything is written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from canned_locks import canned

from torchyard import catalog, matrix, oci, resolve
from torchyard.lock import LockedBase, LockedImage
from torchyard.plan import BaseKind
from torchyard.verbs import build, fetch
from torchyard.verbs.project import Project
from torchyard.world import registry_taking
from torchyard.world.workspace import Workspace

ENV = 'schema: 1\nproject: a\nhardware: {cpu: {torch: "2.13.0"}}\nsoftware: {base: {from: BASE, os: debian-12REF}}\n'
LAYERS = {"1" * 64: 3_000_000_000, "2" * 64: 400_000_000}


def project(root: Path, kind: str, ref: str = "") -> tuple[Project, LockedImage]:
    """A project with one CPU image, and a lock of it."""
    known = catalog.load()
    made = matrix.parse(ENV.replace("BASE", kind).replace("REF", ref))
    plan = resolve.plan(made, known)
    return Project(work=Workspace(root), matrix=made, catalog=known, plan=plan), canned(plan.images[0])


def manifest() -> bytes:
    """The manifest of a registry image with two large layers."""
    layers = [{"mediaType": oci.LAYER_GZIP, "digest": f"sha256:{k}", "size": v} for k, v in LAYERS.items()]
    config = {"mediaType": oci.CONFIG, "digest": "sha256:" + "3" * 64, "size": 2}
    return json.dumps({"schemaVersion": 2, "mediaType": oci.MANIFEST, "config": config, "layers": layers}).encode()


def test_the_layers_of_a_registry_base_count(tmp_path: Path) -> None:
    here, lock = project(tmp_path, "image", ", ref: 'registry.invalid/base:1'")
    digest = registry_taking.keep(manifest(), here.work.store)
    lock = dataclasses.replace(lock, base=LockedBase(kind=BaseKind.IMAGE, digest=digest))
    other, plain = project(tmp_path, "archive")
    to_fetch, to_build = build.needed(here, lock)
    fetch_plain, build_plain = build.needed(other, plain)
    own = sum(LAYERS.values())
    assert to_fetch - fetch_plain == own == fetch.missing_base(here, lock)
    assert to_build - build_plain == int(3.2 * own)


def test_a_layer_that_the_store_has_is_not_fetched(tmp_path: Path) -> None:
    here, lock = project(tmp_path, "image", ", ref: 'registry.invalid/base:1'")
    digest = registry_taking.keep(manifest(), here.work.store)
    lock = dataclasses.replace(lock, base=LockedBase(kind=BaseKind.IMAGE, digest=digest))
    path = here.work.store.path("1" * 64)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(LAYERS["1" * 64])  # a hole: it takes no room
    assert fetch.missing_base(here, lock) == LAYERS["2" * 64]
