"""The documents that go beside an image in a registry: its findings, and how it was made (in-toto, SLSA)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import proven, sbom
from .lock import LockedImage
from .plan import BaseKind
from .receipt import Receipt

IN_TOTO = "application/vnd.in-toto+json"
FINDINGS = "application/vnd.torchyard.findings.v1+json"
PROVEN = "torchyard.proven"  # the annotation of findings: the level up to which nothing failed
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:torchyard:build:1"  # docs/publish.md says what its parameters are


def findings(receipt: Receipt, digest: str, override: str) -> bytes:
    """What was found of the image of this digest, and how far was looked."""
    return _json(
        {
            "schema": 1,
            "image": receipt.image,
            "digest": digest,
            "level": str(receipt.level),
            "proven": proven.level(receipt),
            "override": "" if receipt.good else override,
            "allowed": [list(each) for each in receipt.allowed],
            "findings": [dataclasses.asdict(each) for each in receipt.findings],
        }
    )


def statement(lock: LockedImage, receipt: Receipt, *, digest: str, version: str) -> bytes:
    """An in-toto statement that says of what, by what and with which settings the image of this digest was made."""
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"image": lock.id, "lock": {"sha256": receipt.lock}, "fingerprint": lock.fingerprint},
        "internalParameters": {
            "SOURCE_DATE_EPOCH": lock.epoch,
            "base_format": lock.tools.base_format,
            "layer_format": lock.tools.layer_format,
            "network": "none",
        },
        "resolvedDependencies": _dependencies(lock),
    }
    builder = {"id": "urn:torchyard:builder:1", "version": {"torchyard": version, "buildkit": receipt.buildkit}}
    return _json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": lock.id, "digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": PREDICATE,
            "predicate": {"buildDefinition": definition, "runDetails": {"builder": builder}},
        }
    )


def _dependencies(lock: LockedImage) -> list[dict[str, Any]]:
    """Every file that went into the build, by what it is and its sha256; sorted."""
    os = lock.image.base.os
    found = [
        _dependency(sbom.package_url(os, pin.name, pin.version, pin.architecture), pin.sha256)
        for pin in lock.os
        if pin.group != "dev"
    ]
    wheels = (*lock.wheels, *lock.build_wheels, lock.tools.uv)
    found += [_dependency(sbom.distribution_url(wheel.name, wheel.version), wheel.sha256) for wheel in wheels]
    if lock.source is not None:
        found.append(_dependency("urn:torchyard:source:torch", lock.source.sha256))
    if lock.base.kind is BaseKind.IMAGE:
        found.append(_dependency("urn:torchyard:base", lock.base.digest.removeprefix("sha256:")))
    return sorted(found, key=lambda each: str(each["uri"]))


def _dependency(uri: str, sha256: str) -> dict[str, Any]:
    return {"uri": uri, "digest": {"sha256": sha256}}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"
