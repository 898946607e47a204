"""Images in registries: the digest that a reference means today, and the layers of a digest in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .. import json_text, oci
from ..errors import CheckFailed, Incompatible
from . import registry_layers, registry_ref
from .registry_read import document as json_of
from .registry_read import fetch, kind, manifest, plain_hex, small, sound, stored
from .registry_ref import INDEXES, MANIFESTS, Reference
from .registry_session import Registry
from .store import Store

GZIP = (oci.LAYER_GZIP, "application/vnd.docker.image.rootfs.diff.tar.gzip")
CONFIGS = (oci.CONFIG, "application/vnd.docker.container.image.v1+json")
# The distribution's programs come first, so that a Python of the base's own in /usr/local is not taken for it.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
KEPT = ("Env", "Labels")  # of a configuration: nothing of ours starts what the base starts
BEFORE_OURS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")


def resolve(ref: str, arch: str) -> str:
    """The digest of the manifest for linux on this machine that a reference means now."""
    asked = registry_ref.parse(ref)
    registry = Registry(asked)
    data = manifest(registry, asked.asked)
    document = json_of(data, asked.asked, asked)
    if kind(document) in INDEXES:
        return registry_ref.choose(document, arch, asked)
    _check_manifest(document, asked)
    config = document["config"]
    _check_machine(json_of(small(registry, config), config["digest"], asked), arch, asked)
    return oci.digest_of(data)


def pull(ref: str, digest: str, arch: str, store: Store, say: Callable[[str], None]) -> oci.Start:
    """The image of this digest as what ours starts from, its blobs in the store, each checked; asks only for the rest.

    Of its configuration the environment and the labels are kept.
    """
    asked = registry_ref.parse(ref)
    registry = Registry(asked)
    fresh = not store.has(plain_hex(digest))
    document = _document(registry, digest, store)
    described = document["config"]
    config = json_of(stored(described["digest"], store, lambda: small(registry, described)), described["digest"], asked)
    _check_machine(config, arch, asked)
    diff_ids = config.get("rootfs", {}).get("diff_ids", [])
    if len(diff_ids) != len(document["layers"]):
        raise CheckFailed(
            f"{ref} has {len(document['layers'])} layers and the hashes of {len(diff_ids)}",
            where=f"{asked.host}  {digest}",
            hint="the image is broken in the registry: take another tag or digest",
        )
    fetch(registry, document["layers"], store, say)
    layers = tuple(
        registry_layers.checked(layer["digest"], layer["size"], diff_id, store, where=f"{ref}  {digest}")
        for layer, diff_id in zip(document["layers"], diff_ids)
    )
    section, dropped = taken_over(config.get("config") or {})
    if fresh and dropped:
        say(f"{ref}: its environment and labels are kept, not its {', '.join(dropped)}")
    return oci.Start(layers=layers, words=f"{ref} at {digest}", config=section)


def sizes(ref: str, digest: str, store: Store) -> dict[str, int]:
    """The layers of the image of this digest: their sha256 and their sizes in bytes; asks for its manifest only."""
    document = _document(Registry(registry_ref.parse(ref)), digest, store)
    return {plain_hex(layer["digest"]): layer["size"] for layer in document["layers"]}


def packages(start: oci.Start, ref: str, os: str, store: Store) -> str:
    """What a pulled image has installed, as the text of dpkg's status; raises Incompatible where it is not of `os`."""
    status, releases = "var/lib/dpkg/status", ("usr/lib/os-release", "etc/os-release")
    files = registry_layers.read(start.layers, (status, *releases), store)
    seen = named_os(next((files[path].decode() for path in releases if files.get(path)), ""))
    if not files.get(status):
        raise Incompatible(
            f"{ref} has no packages of dpkg ({status}); it is {seen or 'no distribution that says its name'}",
            where="env.yaml  base.ref",
            hint=f"use an image of {os} that has dpkg, or base: {{from: archive, os: {os}}}",
        )
    if seen != os:
        raise Incompatible(
            f"{ref} is {seen or 'a system that does not say its name'}, env.yaml says {os}",
            where="env.yaml  base.os",
            hint=f"write os: {seen}" if seen else "use another image",
        )
    return files[status].decode(errors="replace")


def taken_over(config: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The config section for an image of ours as JSON text, and the names of what it leaves out."""
    env = [each for each in config.get("Env") or () if not each.startswith("PATH=")]
    section = {"Env": [f"PATH={PATH}", *env]}
    if config.get("Labels"):
        section["Labels"] = config["Labels"]
    dropped = sorted(name for name, value in config.items() if value and name not in KEPT)
    return json.dumps(section, sort_keys=True, separators=(",", ":")), tuple(dropped)


def remarks(start: oci.Start, ref: str, cuda: str | None) -> list[str]:
    """What a user should know of an image before building on it: CUDA that is there twice, variables in the way."""
    section = json_text.loads(start.config)
    env = dict(each.partition("=")[::2] for each in section["Env"])
    labels = section.get("Labels", {})
    own = env.get("CUDA_VERSION") or env.get("NV_CUDA_LIB_VERSION") or labels.get("com.nvidia.cuda.version")
    told = []
    if own:
        twice = f"torch brings CUDA {cuda} itself, so CUDA is there twice" if cuda else "torch's CPU build uses none"
        told.append(f"{ref} has CUDA {own}: {twice}; a base without it is smaller")
    if in_the_way := [name for name in BEFORE_OURS if env.get(name)]:
        told.append(f"{ref} sets {', '.join(in_the_way)}: what is there is found before what the lock pins")
    return told


def named_os(text: str) -> str:
    """The id of the distribution (`debian-12`) in the text of an os-release file; empty where there is none."""
    fields = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    name, version = (fields.get(key, "").strip().strip("\"'") for key in ("ID", "VERSION_ID"))
    return f"{name}-{version}".rstrip("-") if name else ""


def _document(registry: Registry, digest: str, store: Store) -> Mapping[str, Any]:
    """The manifest of an image that can be a base, from the store, which asks for it once."""
    found = json_of(stored(digest, store, lambda: manifest(registry, digest)), digest, registry.ref)
    _check_manifest(found, registry.ref)
    return found


def _check_manifest(document: Mapping[str, Any], ref: Reference) -> None:
    """Raise Incompatible for what is not an image of gzip-compressed layers that the registry itself holds."""
    found = kind(document)
    if found not in MANIFESTS:
        raise _unfit(ref, f"its manifest is of the kind {found!r}")
    config, layers = document.get("config") or {}, document.get("layers")
    if not isinstance(layers, list) or not layers or not all(sound(each) for each in (config, *layers)):
        raise _unfit(ref, "its manifest does not name a configuration and layers")
    if config["mediaType"] not in CONFIGS:
        raise _unfit(ref, f"its configuration is of the kind {config['mediaType']!r}, which is no image's")
    for number, layer in enumerate(layers, start=1):
        if layer["mediaType"] not in GZIP:
            raise _unfit(ref, f"its layer {number} ({layer['digest']}) is of the kind {layer['mediaType']!r}")


def _check_machine(config: Mapping[str, Any], arch: str, ref: Reference) -> None:
    has = f"{config.get('os')}/{config.get('architecture')}"
    if has != f"linux/{oci.architecture(arch)}":
        raise registry_ref.not_for(ref, arch, has)


def _unfit(ref: Reference, why: str) -> Incompatible:
    return Incompatible(
        f"{ref.text} cannot be a base: {why}; gzip-compressed layers of a Docker or OCI image are taken, as they are",
        where="env.yaml  base.ref",
        hint="push it with: docker buildx build --output type=image,push=true,compression=gzip,force-compression=true",
    )
