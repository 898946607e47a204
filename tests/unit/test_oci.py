"""The documents of a layout: what they say of their layers, and that they depend on nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from torchyard import oci
from torchyard.oci import Layer, Start


def layer(letter: str) -> Layer:
    return Layer(digest=f"sha256:{letter * 64}", size=ord(letter), diff_id=f"sha256:{letter * 63}0", unpacked=10)


BASE = Start(layers=(layer("a"),), words="debian-12 from its package archive")


def made(start: Start = BASE, *, epoch: int = 0, arch: str = "x86_64") -> tuple[Any, Any, Any]:
    documents = oci.documents(start, [(layer("b"), "wheels: torch"), (layer("c"), "é")], arch=arch, epoch=epoch)
    return tuple(json.loads(part) for part in (documents.config, documents.manifest, documents.index))  # type: ignore[return-value]


def test_layers_lie_in_order_in_the_manifest_the_config_and_the_history() -> None:
    config, manifest, _ = made()
    assert [entry["digest"][7] for entry in manifest["layers"]] == ["a", "b", "c"]
    assert [diff_id[7] for diff_id in config["rootfs"]["diff_ids"]] == ["a", "b", "c"]
    assert [entry["created_by"] for entry in config["history"]] == [BASE.words, "wheels: torch", "é"]


def test_each_document_names_the_next_by_its_hash_and_size() -> None:
    documents = oci.documents(BASE, [], arch="x86_64", epoch=0)
    manifest, index = json.loads(documents.manifest), json.loads(documents.index)
    assert manifest["config"]["digest"] == "sha256:" + hashlib.sha256(documents.config).hexdigest()
    assert manifest["config"]["size"] == len(documents.config)
    assert index["manifests"][0]["digest"] == documents.digest == oci.digest_of(documents.manifest)
    assert index["manifests"][0]["size"] == len(documents.manifest)
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "latest"


def test_the_epoch_is_the_one_time_in_it() -> None:
    config, _, _ = made(epoch=1783764997)
    assert {config["created"], *(entry["created"] for entry in config["history"])} == {"2026-07-11T10:16:37Z"}


@pytest.mark.parametrize(("arch", "name"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_the_machine_has_the_name_that_registries_use(arch: str, name: str) -> None:
    assert made(arch=arch)[0]["architecture"] == name


def test_the_config_of_what_an_image_starts_from_is_kept() -> None:
    start = Start(layers=(layer("a"),), words="x", config='{"Env":["A=b c"],"Labels":{"x":"y"}}')
    assert made(start)[0]["config"] == {"Env": ["A=b c"], "Labels": {"x": "y"}}


def test_equal_inputs_give_equal_bytes() -> None:
    first, second = (oci.documents(BASE, [(layer("b"), "x")], arch="x86_64", epoch=1) for _ in range(2))
    assert first == second
    assert b" " not in first.manifest and b"\n" not in first.manifest
