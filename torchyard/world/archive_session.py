"""The HTTP session in which package files are fetched: proxy, certificates, credentials as the user's apt has them."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth

from torchyard.world import process

SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def open_session(etc: Path = Path("/etc/apt")) -> requests.Session:
    """A session with the environment's settings first, then those of apt."""
    session = requests.Session()
    settings = apt_settings()
    for name, value in settings.items():
        found = re.fullmatch(r"Acquire::(https?)::Proxy(?:::(.+))?", name, re.IGNORECASE)
        if found and value and value != "DIRECT":
            session.proxies[f"{found[1].lower()}://{found[2]}" if found[2] else found[1].lower()] = value
    certificates = Path(settings.get("Acquire::https::CaInfo", SYSTEM_CERTIFICATES))
    if certificates.is_file():
        session.verify = str(certificates)
    files = [etc / "auth.conf", *sorted((etc / "auth.conf.d").glob("*.conf"))]
    session.auth = AptAuth(entry for file in files for entry in parse_auth(_readable(file)))
    return session


def apt_settings() -> Mapping[str, str]:
    """What the user's apt is configured with, by name; empty where there is no apt."""
    if shutil.which("apt-config") is None:
        return {}
    dump = process.run(["apt-config", "dump"]).out
    return dict(re.findall(r'^(\S+) "(.*)";$', dump, re.MULTILINE))


class AptAuth(AuthBase):
    """Credentials from apt's auth.conf for the addresses that it names, else from the user's netrc."""

    def __init__(self, entries: Iterable[tuple[str, str, str]]) -> None:
        self.entries = tuple(entries)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = str(request.url)
        for machine, login, password in self.entries:
            if matches(machine, url):
                HTTPBasicAuth(login, password)(request)
                return request
        if found := get_netrc_auth(url):
            HTTPBasicAuth(*found)(request)
        return request


def matches(machine: str, url: str) -> bool:
    """Whether the `machine` of an auth.conf entry (host, host:port or address, with or without a path) means this."""
    scheme, _, rest = machine.rpartition("://")
    host, slash, path = rest.partition("/")
    parts = urlsplit(url)
    if parts.scheme != (scheme or "https"):  # without a scheme apt sends credentials over TLS only
        return False
    asked = parts.netloc.rpartition("@")[2]
    return host in (asked, parts.hostname) and (parts.path.startswith(slash + path) if slash else True)


def parse_auth(text: str) -> list[tuple[str, str, str]]:
    """The entries of an auth.conf: machine, login and password."""
    words = [w for line in text.splitlines() if not line.lstrip().startswith("#") for w in line.split()]
    entries: list[tuple[str, str, str]] = []
    machine = login = ""
    for key, value in itertools.pairwise(words):
        match key:
            case "machine":
                machine, login = value, ""
            case "login":
                login = value
            case "password" if machine and login:
                entries.append((machine, login, value))
    return entries


def _readable(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, PermissionError):  # another user's credentials are not ours
        return ""
