"""An image with zstd layers: one digest whatever was built before, and the same way into a registry and out of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import clones
import podman_program
import pytest
import requests
import yaml
from registry_process import OCI_MANIFEST, tar_of
from small_cases import NUMBERS, Cases, own_registry
from small_project import Small

from torchyard import oci

pytestmark = pytest.mark.docker

STEP = "ADD step.tar /\n"  # a layer of a build step, beside the ready ones of the base and the framework


@dataclass(frozen=True, kw_only=True)
class Two:
    """A checkout with the same content twice: the receipts of its gzip and of its zstd image."""

    at: Small
    gzip: dict[str, Any]
    zstd: dict[str, Any]


def receipt(at: Small, gpu: str) -> dict[str, Any]:
    image = yaml.safe_load((at.root / "images" / "index.yaml").read_text())[gpu]
    found: dict[str, Any] = json.loads((at.local / "receipts" / f"{image}.json").read_text())
    return found


def build(at: Small, gpu: str) -> dict[str, Any]:
    at.yard("build", "--gpu", gpu, "--level", "identity", "--no-cache").good()
    return receipt(at, gpu)


@pytest.fixture(scope="module")
def two(cases: Cases) -> Iterator[Two]:
    at = own_registry(cases.small.copy(f"compression-{next(NUMBERS)}"))
    env = yaml.safe_load((at.root / "env.yaml").read_text())
    env["project"] = "packed"  # tags of its own: those of the small project are other tests' images
    env["hardware"]["packed"] = {**env["hardware"]["cpu"], "compression": "zstd"}
    (at.root / "env.yaml").write_text(yaml.safe_dump(env, sort_keys=False))
    recipe = at.root / "templates" / "Dockerfile.j2"
    recipe.write_text(recipe.read_text().replace("LABEL", STEP + "LABEL"))
    at.yard("lock").good()
    for lock in (at.root / "images").glob("*/lock.yaml"):
        lock.with_name("step.tar").write_bytes(tar_of({"made": b"x" * 100_000}))
    made = Two(at=at, gzip=build(at, "cpu"), zstd=build(at, "packed"))
    yield made
    for told in (made.gzip, made.zstd):
        at.yard("docker", "image", "rm", "--force", told["tag"])
    clones.end_tree(at.root)


def test_it_has_a_name_of_its_own_and_both_are_there(two: Two) -> None:
    assert two.zstd["image"] == two.gzip["image"].replace("-amd64", "-zstd-amd64") != two.gzip["image"]
    shown = two.at.yard("docker", "image", "inspect", "--format", "{{.Id}}", two.gzip["tag"], two.zstd["tag"]).good()
    assert shown.out.split() == [two.gzip["digest"], two.zstd["digest"]]
    assert two.zstd["digest"] != two.gzip["digest"]


def test_neither_digest_depends_on_what_was_built_before(two: Two) -> None:
    """BuildKit has layers of both in its cache by now; the empty builder has none."""
    for gpu, told in (("cpu", two.gzip), ("packed", two.zstd)):
        assert build(two.at, gpu)["digest"] == told["digest"]
        two.at.yard("build", "--gpu", gpu, "--level", "identity").good()
        assert receipt(two.at, gpu)["digest"] == told["digest"]
    again = json.loads(two.at.yard("reproduce", "--gpu", "packed", "--json").good().out)
    assert two.zstd["digest"] in json.dumps(again)


def test_every_layer_is_zstd_in_the_registry_and_after_pulling(two: Two, tmp_path: Path) -> None:
    at, digest = two.at, two.zstd["digest"]
    at.yard("push", "--gpu", "packed", "--registry", "one").good()
    place = yaml.safe_load(Path(at.env["TORCHYARD_MIRRORS"]).read_text())["mirrors"]["registry"]["one"]
    host, _, path = place.partition("/")
    url = f"http://{host}/v2/{path}/packed/manifests/{digest}"
    manifest = requests.get(url, headers={"Accept": OCI_MANIFEST}).json()
    assert [layer["mediaType"] for layer in manifest["layers"]] == [oci.LAYER_ZSTD] * len(two.zstd["layers"])
    at.yard("docker", "image", "rm", "--force", two.zstd["tag"]).good()
    shutil.rmtree(at.store)
    at.yard("pull", "--gpu", "packed", "--to", "docker").good()
    shown = at.yard("docker", "image", "inspect", "--format", "{{.Id}}", two.zstd["tag"]).good()
    assert shown.out.strip() == digest
    at.yard("pull", "--gpu", "packed", "--to", "oci", "--output", str(tmp_path / "out")).good()
    assert json.loads((tmp_path / "out" / "index.json").read_text())["manifests"][0]["digest"] == digest
    ran = at.yard("docker", "run", "--rm", "--network=none", two.zstd["tag"], "/usr/bin/python").good()
    assert json.loads(ran.out)["prefix"] == "/opt/venv"


def test_podman_takes_it(two: Two, tmp_path_factory: pytest.TempPathFactory) -> None:
    programs = podman_program.made(tmp_path_factory.mktemp("podman") / "podman")
    two.at.yard("push", "--gpu", "packed", "--registry", "one").good()
    at = replace(two.at, env={**two.at.env, "PATH": f"{programs}:{os.environ['PATH']}"})
    at.yard("pull", "--gpu", "packed", "--to", "podman").good()
    argv = [str(programs / "podman"), "image", "inspect", f"localhost/{two.zstd['tag']}"]
    (seen,) = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    assert (seen["Digest"], seen["RootFS"]["Layers"]) == (two.zstd["digest"], two.zstd["layers"])
    assert seen["RepoTags"] == [f"localhost/{two.zstd['tag']}"]
    clones.end_tree(programs.parent)
