"""References to registry images, read as Docker reads them, and the platforms that an index offers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker.auth
import docker.errors

from .. import oci
from ..errors import Incompatible, InputError

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (oci.MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
DEFAULT_REGISTRY = str(docker.auth.INDEX_NAME)
_DEFAULT_VARIANTS = {"x86_64": ("", "v1"), "aarch64": ("", "v8")}

_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d+)?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An image in a registry; `text` is what the user wrote, `host` may have a port, a tag or a digest is there."""

    text: str
    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def asked(self) -> str:
        """What the registry is asked for; a digest wins over a tag."""
        return self.digest or self.tag

    @property
    def api_host(self) -> str:
        """The host that answers for this registry."""
        return f"index.{DEFAULT_REGISTRY}" if self.host == DEFAULT_REGISTRY else self.host

    @property
    def loopback(self) -> bool:
        """Whether the registry is on this machine."""
        name = re.sub(r":\d+$", "", self.host).strip("[]")
        try:
            return name == "localhost" or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def parse(text: str) -> Reference:
    """The image that a reference names; raises InputError where it names none, or leaves the version open."""
    rest, at, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # that colon is of the host's port
        name, tag = rest, ""
    try:
        host, repository = docker.auth.resolve_repository_name(name)
    except docker.errors.InvalidRepository as error:
        raise _bad(text, str(error)) from error
    if host == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.fullmatch(host):
        raise _bad(text, f"{host!r} is not a host")
    if not _REPOSITORY.fullmatch(repository):
        raise _bad(text, f"{repository!r} is not a repository (lower-case letters, digits, '.', '_', '-' and '/')")
    if tag and not _TAG.fullmatch(tag):
        raise _bad(text, f"{tag!r} is not a tag")
    if at and not is_digest(digest):
        raise _bad(text, f"{digest!r} is not a digest (sha256: and 64 hexadecimal digits)")
    if not tag and not digest:
        raise _bad(text, "it has neither a tag nor a digest")
    return Reference(text=text, host=host, repository=repository, tag=tag, digest=digest)


def choose(index: Mapping[str, Any], arch: str, ref: Reference) -> str:
    """The digest of the manifest for linux on this machine; raises Incompatible, with those that there are."""
    wanted = oci.architecture(arch)
    offered = set()
    for entry in index.get("manifests") or ():
        platform = entry.get("platform") or {}
        system, machine, variant = (str(platform.get(key) or "") for key in ("os", "architecture", "variant"))
        fits = (system, machine) == ("linux", wanted) and variant in _DEFAULT_VARIANTS[arch]
        if fits and is_digest(entry.get("digest")):
            return str(entry["digest"])
        if system not in ("", "unknown"):  # attestations say so of themselves
            offered.add("/".join(filter(None, (system, machine, variant))))
    raise not_for(ref, arch, ", ".join(sorted(offered)) or "none")


def not_for(ref: Reference, arch: str, has: str) -> Incompatible:
    """The error for an image that is not made for this machine."""
    return Incompatible(
        f"{ref.text} has no image for linux/{oci.architecture(arch)}; it has {has}",
        where="env.yaml  base.ref",
        hint="use another image, or a base from the archive: base: {from: archive, os: ...}",
    )


def is_digest(text: object) -> bool:
    """Whether this is the digest of a blob."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _bad(text: str, why: str) -> InputError:
    return InputError(
        f"{text!r} is not a reference to a registry image: {why}",
        where="env.yaml  base.ref",
        hint="write host/name:tag, name:tag or name@sha256:...",
    )
