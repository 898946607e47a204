"""Manifests, configurations and layers out of a registry into the store, each checked by its digest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from .. import json_text, oci
from ..errors import CheckFailed, Surroundings
from . import registry_ref
from .download import Changed, NotThere, download
from .registry_ref import INDEXES, MANIFESTS, Reference
from .registry_session import Registry
from .store import Store

AT_ONCE = 3  # downloads
LARGEST = 8 << 20  # bytes of a manifest or a configuration


def fetch(registry: Registry, layers: Sequence[Mapping[str, Any]], store: Store, say: Callable[[str], None]) -> None:
    """Have the blobs of these layers in the store, each of them once."""
    missing = {x["digest"]: x["size"] for x in layers if not store.has(plain_hex(x["digest"]), x["size"])}
    if not missing:
        return
    say(f"{registry.ref.text}: {len(missing)} layers, {sum(missing.values()) / 1e6:.1f} MB, from {registry.ref.host}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            list(pool.map(lambda item: _blob(registry, item[0], item[1], store), missing.items()))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _blob(registry: Registry, digest: str, size: int, store: Store) -> None:
    try:
        download(
            [registry.url(f"blobs/{digest}")],
            sha256=plain_hex(digest),
            size=size,
            store=store,
            session=registry.session,
        )
    except Changed as error:
        raise _other(registry.ref, digest, f"{error.seen_size} bytes, sha256 {error.seen_sha256 or 'not looked at'}")
    except NotThere as error:
        raise _not_served(registry.ref, "layer", digest, error.what) from error


def stored(digest: str, store: Store, ask: Callable[[], bytes]) -> bytes:
    """A small document from the store, which asks for it once."""
    if not store.has(plain_hex(digest)):
        data = ask()
        with store.incoming() as stream:
            stream.write(data)
            stream.flush()
            store.keep(Path(stream.name))
    return store.path(plain_hex(digest)).read_bytes()


def manifest(registry: Registry, asked: str) -> bytes:
    """A manifest or an index by tag or digest."""
    answer = registry.get(f"manifests/{asked}", (*MANIFESTS, *INDEXES))
    if answer.status_code == 404 and not asked.startswith("sha256:"):
        raise _no_tag(registry, asked)
    return _verified(_whole(registry, answer, "manifest", asked), asked, registry.ref)


def small(registry: Registry, described: Mapping[str, Any]) -> bytes:
    """The configuration of an image."""
    digest = described["digest"]
    return _verified(_whole(registry, registry.get(f"blobs/{digest}"), "configuration", digest), digest, registry.ref)


def _whole(registry: Registry, answer: requests.Response, part: str, asked: str) -> bytes:
    if answer.status_code in (401, 403):
        raise registry.refused(answer)
    if answer.status_code != 200:
        raise _not_served(registry.ref, part, asked, f"the server answers {answer.status_code} {answer.reason}")
    return answer.content


def _verified(data: bytes, asked: str, ref: Reference) -> bytes:
    if len(data) > LARGEST:
        raise _other(ref, asked, f"{len(data)} bytes, which is no manifest and no configuration")
    if asked.startswith("sha256:") and oci.digest_of(data) != asked:
        raise _other(ref, asked, oci.digest_of(data))
    return data


def document(data: bytes, asked: str, ref: Reference) -> dict[str, Any]:
    """What a manifest or a configuration says; raises CheckFailed where it is no JSON object."""
    try:
        document = json_text.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _other(ref, asked, "something that is not a JSON object")
    return document


def kind(document: Mapping[str, Any]) -> str:
    """The media type of a manifest or an index, which an OCI one may leave out."""
    fallback = INDEXES[0] if "manifests" in document else MANIFESTS[0] if "config" in document else "schema 1"
    return str(document.get("mediaType") or fallback)


def sound(descriptor: Any) -> bool:
    """Whether this names a blob by kind, digest and size; a digest becomes a file name, so it has to be one."""
    return (
        isinstance(descriptor, dict)
        and isinstance(descriptor.get("mediaType"), str)
        and isinstance(descriptor.get("size"), int)
        and registry_ref.is_digest(descriptor.get("digest"))
    )


def _no_tag(registry: Registry, tag: str) -> Surroundings:
    """The error for a tag that is not there, with the nearest that are."""
    ref = registry.ref
    answer = registry.get("tags/list?n=1000")
    try:
        tags = (
            [str(each) for each in json_text.loads(answer.content)["tags"] or ()] if answer.status_code == 200 else []
        )
    except (ValueError, KeyError, TypeError):
        tags = []
    near = nearest(tag, tags)
    what = f"has no tag {tag!r} of {ref.repository}" if tags else f"has no {ref.repository}:{tag}"
    return Surroundings(
        f"the registry {ref.host} {what}",
        where=f"env.yaml  base.ref: {ref.text}",
        hint=f"the nearest that it has: {', '.join(near)}"
        if near
        else "check the name; the registry lists no tags of it",
    )


def nearest(tag: str, tags: Iterable[str]) -> list[str]:
    """Up to five tags that look most like this one."""
    return difflib.get_close_matches(tag, sorted(set(tags)), n=5, cutoff=0.3)


def _not_served(ref: Reference, part: str, digest: str, why: str) -> Surroundings:
    return Surroundings(
        f"the registry {ref.host} does not serve the {part} {digest} of {ref.text}: {why}",
        where=f"{ref.host}/{ref.repository}",
        hint="push it there again; where it is a base, ./yard lock --upgrade os takes what its reference means now",
    )


def _other(ref: Reference, asked: str, seen: str) -> CheckFailed:
    return CheckFailed(
        f"the registry {ref.host} answers for {ref.text} with another content: expected {asked}, seen {seen}",
        where=f"{ref.host}/{ref.repository}",
        hint="a proxy or the registry is at fault: run the command again, then tell who runs it",
    )


def plain_hex(digest: str) -> str:
    """A digest without its algorithm: the name of its file in the store."""
    return digest.removeprefix("sha256:")
