"""Simple pages (PEP 503, PEP 691) and listings of directories, read into plain values; no I/O here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from .. import json_text

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFile:
    """One wheel that an index or a directory offers; what the page does not say is empty or None."""

    name: str
    version: Version
    build: BuildTag
    tags: frozenset[Tag]
    file: str
    url: str
    sha256: str = ""
    size: int | None = None
    requires_python: str = ""
    yanked: str | None = None  # the reason, which may be empty
    uploaded: datetime | None = None
    metadata: str = ""  # address of its METADATA, where the index serves that


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """What one place offers of one project: its wheels, and the versions that it has as source."""

    wheels: tuple[WheelFile, ...] = ()
    sources: tuple[Version, ...] = ()

    def __add__(self, other: Page) -> Page:
        return Page(wheels=self.wheels + other.wheels, sources=self.sources + other.sources)


def parse(body: bytes, content_type: str, address: str, project: str) -> Page:
    """The files of this project on a page, whether it is JSON or HTML (ValueError where it is neither)."""
    if "json" in content_type:
        found = json_text.loads(body)
        entries = [_from_json(each, address) for each in found["files"]]
    else:
        links = _Links()
        links.feed(body.decode("utf-8", "replace"))
        base = urljoin(address, links.base) if links.base else address
        entries = [_from_link(each, base) for each in links.found]
    return page(entries, project)


def page(entries: Iterable[dict[str, Any]], project: str) -> Page:
    """The files of this project among entries of name, address and what is known of them."""
    wheels: list[WheelFile] = []
    sources: list[Version] = []
    for entry in entries:
        file = entry["file"]
        try:
            if file.endswith(".whl"):
                name, version, build, tags = parse_wheel_filename(file)
                if name == project:
                    wheels.append(WheelFile(name=name, version=version, build=build, tags=tags, **entry))
            elif file.endswith((".tar.gz", ".zip")):
                name, version = parse_sdist_filename(file)
                if name == project:
                    sources.append(version)
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue  # other kinds of files, and names from before the rules
    return Page(wheels=tuple(wheels), sources=tuple(sources))


def inherit_credentials(url: str, index: str) -> str:
    """The address of a file with the index's user name and password, where both are of one host, as pip does."""
    own, of_index = urlsplit(url), urlsplit(index)
    if "@" in own.netloc or "@" not in of_index.netloc:
        return url
    login, _, host = of_index.netloc.rpartition("@")
    if (own.scheme, own.netloc) != (of_index.scheme, host):
        return url
    return urlunsplit((own.scheme, f"{login}@{host}", own.path, own.query, own.fragment))


def normalised(name: str) -> str:
    """The one spelling of a project's name."""
    return canonicalize_name(name)


def _from_json(entry: dict[str, Any], address: str) -> dict[str, Any]:
    url = urljoin(address, entry["url"])
    yanked = entry.get("yanked", False)
    stamp = entry.get("upload-time")
    metadata = entry.get("core-metadata", entry.get("dist-info-metadata", False))
    return {
        "file": entry["filename"],
        "url": inherit_credentials(url, address),
        "sha256": entry.get("hashes", {}).get("sha256", ""),
        "size": entry.get("size"),
        "requires_python": entry.get("requires-python") or "",
        "yanked": (yanked if isinstance(yanked, str) else "") if yanked or yanked == "" else None,
        "uploaded": datetime.fromisoformat(stamp) if stamp else None,
        "metadata": inherit_credentials(url + ".metadata", address) if metadata else "",
    }


def _from_link(attributes: dict[str, str], base: str) -> dict[str, Any]:
    url, fragment = urldefrag(urljoin(base, attributes["href"]))
    found = re.search(r"sha256=([0-9a-f]{64})", fragment)
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    return {
        "file": unquote(urlsplit(url).path.rpartition("/")[2]),
        "url": inherit_credentials(url, base),
        "sha256": found[1] if found else "",
        "requires_python": html.unescape(attributes.get("data-requires-python", "")),
        "yanked": attributes.get("data-yanked"),
        "metadata": inherit_credentials(url + ".metadata", base) if metadata not in (None, "false") else "",
    }


class _Links(HTMLParser):
    """The anchors of a page, and its base."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        if tag == "base" and not self.base:
            self.base = attributes.get("href", "")
        elif tag == "a" and attributes.get("href"):
            self.found.append(attributes)
