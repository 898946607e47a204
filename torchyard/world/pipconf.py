"""What the user's own pip configuration says about where packages come from and how to reach them."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import requests
import requests.adapters
import urllib3
import uv

from torchyard.errors import InputError, Surroundings
from torchyard.world import process

# Later kinds win over earlier ones; within a kind pip names its files in the order of loading.
KINDS = ("global", "user", "site", "env")
# The sections that pip reads for `pip install` and `pip download`; a later one wins.
SECTIONS = ("global", "download", "install")
# Everything that is taken over. A constraint file, --pre, --target, --user, require-virtualenv and so on say how the
# user installs on this machine, not where packages come from.
ALIASES = {"default-timeout": "timeout", "i": "index-url", "pypi-url": "index-url", "f": "find-links"}
TAKEN = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy", "trusted-host")
DEFAULT_TIMEOUT = 15.0  # pip's own defaults
DEFAULT_RETRIES = 5
POOL = 32  # connections kept to one host; a resolver asks for many pages at once


@dataclass(frozen=True, kw_only=True, slots=True)
class PipSettings:
    """Where pip looks for packages and how it reaches them; index_url is empty where pip is told to ask no index."""

    index_url: str
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()  # addresses, or absolute paths
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    retries: int = DEFAULT_RETRIES


def read() -> PipSettings:
    """The settings of the user's pip: every level of its files, then the PIP_* environment."""
    values: dict[str, str] = {}
    files: tuple[Path, ...] = ()
    if os.environ.get("PIP_CONFIG_FILE") != os.devnull:  # with that, pip reads no file at all
        python, debug = _asked_pip()
        files = files_named(debug) if python else _documented_files(os.environ, Path.home())
    for file in files:
        if os.path.exists(file):
            values |= _from_file(file)
    values |= from_environment(os.environ)
    default = "" if values.get("index-url") or not _asks(values) else _default_index(_asked_pip()[0])
    return settings(values, default_index=default, home=Path.home(), cwd=Path.cwd())


def settings(values: Mapping[str, str], *, default_index: str, home: Path, cwd: Path) -> PipSettings:
    """The settings that these options of pip mean."""
    ask = _asks(values)
    return PipSettings(
        index_url=(values.get("index-url") or default_index) if ask else "",
        extra_index_urls=tuple(dict.fromkeys(values.get("extra-index-url", "").split())) if ask else (),
        find_links=tuple(
            dict.fromkeys(_place(each, home=home, cwd=cwd) for each in values.get("find-links", "").split())
        ),
        cert=_path(values.get("cert", ""), home=home, cwd=cwd),
        client_cert=_path(values.get("client-cert", ""), home=home, cwd=cwd),
        proxy=values.get("proxy", ""),
        trusted_hosts=tuple(dict.fromkeys(values.get("trusted-host", "").split())),
        timeout=_number(values, "timeout", DEFAULT_TIMEOUT),
        retries=int(_number(values, "retries", DEFAULT_RETRIES)),
    )


def _asks(values: Mapping[str, str]) -> bool:
    """Whether pip asks an index at all."""
    return values.get("no-index", "").lower() not in ("1", "true", "yes", "on", "y", "t")


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The options that PIP_* variables set, under pip's own names for them."""
    given = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith("PIP_") and value
    }
    return _taken(given)


def from_text(text: str, where: str) -> dict[str, str]:
    """The options that one file of pip's configuration sets."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, source=where)
    except configparser.Error as error:
        raise InputError(
            f"pip's configuration file cannot be read: {error.message}",
            where=where,
            hint="mend the file; `python3 -m pip config debug` lists the files that pip reads",
        ) from error
    values: dict[str, str] = {}
    for section in SECTIONS:
        if parser.has_section(section):
            values |= _taken({_key(name): value for name, value in parser.items(section) if value})
    return values


def session(given: PipSettings) -> requests.Session:
    """A session that reaches the network as the user's pip does; passwords of ~/.netrc are used."""
    made = _Session(given.cert or _environment_bundle(os.environ) or _system_bundle())
    adapter = requests.adapters.HTTPAdapter(pool_maxsize=POOL)
    made.mount("https://", adapter)
    made.mount("http://", adapter)
    if given.trusted_hosts:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the user said so to pip already
    for host in given.trusted_hosts:
        made.mount(f"https://{host}/", _Trusting(pool_maxsize=POOL))
        if ":" not in host:
            made.mount(f"https://{host}:", _Trusting(pool_maxsize=POOL))
    if given.client_cert:
        made.cert = given.client_cert
    if given.proxy:
        made.proxies = {"http": given.proxy, "https": given.proxy}
    return made


def _environment_bundle(environment: Mapping[str, str]) -> str:
    return environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE") or ""


def _system_bundle() -> str:
    """The certificates that the system trusts (SSL_CERT_FILE wins), as pip takes them; empty for those of requests."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return paths.cafile
    if paths.capath and any(Path(paths.capath).iterdir()):
        return paths.capath
    return ""


class _Session(requests.Session):
    """A session whose certificate bundle and proxy win over the environment's, as those of pip's configuration do."""

    def __init__(self, cert: str) -> None:
        super().__init__()
        self.bundle = cert

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        if verify is None and self.bundle:  # requests would let the environment win over a session's own
            verify = self.bundle
        merged = super().merge_environment_settings(url, proxies, stream, verify, cert)
        if self.proxies:
            past = requests.utils.should_bypass_proxies(str(url), no_proxy=None)
            merged["proxies"] = {} if past else dict(self.proxies)
        return merged


class _Trusting(requests.adapters.HTTPAdapter):
    """An adapter for the hosts that the user told pip to trust without a certificate."""

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, False, cert)  # type: ignore[no-untyped-call]  # requests has no types here

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        return super().build_connection_pool_key_attributes(request, False, cert)


# What would hide pip's answer or write a log on the way.
_QUIETLY: dict[str, str | None] = {"PIP_QUIET": "0", "PIP_VERBOSE": None, "PIP_LOG": None, "PIP_NO_COLOR": "1"}


def _asked_pip() -> tuple[str, str]:
    """The Python whose pip answers, and what its `config debug` prints; both empty where none has pip.

    A process asks once, for the places of files do not change in it.
    """
    return _asked_pip_in(tuple(sorted(os.environ.items())))


@lru_cache(maxsize=1)
def _asked_pip_in(_environment: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    for python in dict.fromkeys((sys.executable, shutil.which("python3") or "")):
        if python:
            asked = process.run([python, "-m", "pip", "config", "debug"], check=False, env=_QUIETLY)
            if asked.code == 0:
                return python, asked.out
    return "", ""


def files_named(debug: str) -> tuple[Path, ...]:
    """The files that `pip config debug` printed, there or not, from the weakest to the strongest.

    The order in which pip prints them is not the order in which they win, so the kinds are sorted here.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    kind = ""
    for line in debug.splitlines():
        if head := re.fullmatch(r"(\w+):", line):
            kind = head[1]
        elif (entry := re.fullmatch(r"  (.+), exists: (?:True|False)", line)) and kind in found:
            found[kind].append(Path(entry[1]))
    return tuple(path for kind in KINDS for path in found[kind] if path != Path(os.devnull))


def _documented_files(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The files that pip's documentation names, for a machine whose Python has no pip."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return ()
    shared = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    paths = [Path(each) / "pip/pip.conf" for each in shared.split(":") if each] + [Path("/etc/pip.conf")]
    if not (named and Path(named).exists()):
        paths += [home / ".pip/pip.conf", own / "pip/pip.conf"]
    paths += [Path(sys.prefix) / "pip.conf", *([Path(named)] if named else [])]
    return tuple(path for path in paths if path.is_file())


def _from_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"pip's configuration file cannot be read: {error}", where=str(path), hint="mend the file or its mode"
        ) from error
    return from_text(text, str(path))


@lru_cache(maxsize=1)
def _default_index(python: str) -> str:
    """The index that pip asks when nothing is configured; uv's, where there is no pip."""
    if python:
        code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
        asked = process.run([python, "-c", code], check=False, env=_QUIETLY)
        if asked.code == 0 and asked.out.strip():
            return asked.out.strip()
    told = process.run(
        [uv.find_uv_bin(), "pip", "compile", "--no-config", "--no-header", "--emit-index-url", "--offline", "-"],
        input="",
        check=False,
        env={name: None for name in os.environ if name.startswith("UV_")},
    )
    found = re.search(r"^--index-url (\S+)$", told.out, flags=re.MULTILINE)
    if not found:
        raise Surroundings(
            "neither pip nor uv says which package index is the default one",
            hint="set it: `python3 -m pip config --user set global.index-url URL`, or the variable PIP_INDEX_URL",
        )
    return found[1]


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _taken(given: Mapping[str, str]) -> dict[str, str]:
    renamed = {ALIASES.get(name, name): value for name, value in given.items()}
    return {name: value for name, value in renamed.items() if name in (*TAKEN, "timeout", "retries")}


def _place(text: str, *, home: Path, cwd: Path) -> str:
    return text if re.match(r"[a-z][a-z0-9+.-]+:", text) else _path(text, home=home, cwd=cwd)


def _path(text: str, *, home: Path, cwd: Path) -> str:
    if not text:
        return ""
    expanded = home / text[2:] if text.startswith("~/") else Path(text)
    return os.path.normpath(cwd / expanded)


def _number(values: Mapping[str, str], key: str, default: float) -> float:
    text = values.get(key, "")
    if not text:
        return float(default)
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"pip's option {key} is {text!r}, which is not a number",
            where=f"pip's configuration: {key}",
            hint="`python3 -m pip config debug` lists where it is set",
        ) from None
