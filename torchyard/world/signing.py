"""Signatures on images in registries, made and checked by cosign with a pair of keys, where cosign is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..errors import CheckFailed, InputError, Surroundings
from . import process
from .registry_session import Registry

INSTALL = "install cosign 2 or newer (Debian 13 has it), or leave the key out: nothing is signed then"


def available(key: str, option: str) -> str:
    """The program that signs; raises where it or the key is missing, before anything is sent."""
    if "://" not in key and not Path(key).is_file():
        raise InputError(f"there is no key {key}", where=option, hint="make a pair: cosign generate-key-pair")
    found = shutil.which("cosign")
    if found is None:
        raise Surroundings("there is no cosign on this machine, which makes and checks signatures", hint=INSTALL)
    return found


def sign(registry: Registry, digest: str, key: str) -> None:
    """Sign the image of this digest with a private key; the signature lies beside it, and nothing goes elsewhere."""
    program = available(key, "--sign")
    words = [program, "sign", "--yes", "--tlog-upload=false", "--key", key, *_plain(registry)]
    process.run([*words, _named(registry, digest)], hint="COSIGN_PASSWORD holds the key's password")


def verify(registry: Registry, digest: str, key: str) -> None:
    """Raise CheckFailed where no signature of this public key is on the image of this digest."""
    program = available(key, "--verify")
    words = [program, "verify", "--insecure-ignore-tlog=true", "--key", key, *_plain(registry)]
    process.run(
        [*words, _named(registry, digest)],
        error=CheckFailed,
        hint="the image was not signed with this key: do not run it, ask who pushed it",
    )


def _named(registry: Registry, digest: str) -> str:
    return f"{registry.ref.host}/{registry.ref.repository}@{digest}"


def _plain(registry: Registry) -> list[str]:
    """Options for a registry without TLS."""
    if registry.url("").startswith("http://"):
        return ["--allow-http-registry=true", "--allow-insecure-registry=true"]
    return []
