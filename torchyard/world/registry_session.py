"""Talking to one registry: its address, certificates, credentials as Docker keeps them, and patience."""

from __future__ import annotations

import os
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker.auth
import docker.errors
import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from .. import json_text
from ..errors import InputError, Surroundings
from . import engine_home, pipconf
from .download import BUSY, LONGEST_PAUSE, TIMEOUT, innermost, retry_after, without_credentials
from .registry_ref import Reference

ATTEMPTS = 5
PAUSE = 0.5  # seconds before the second attempt, twice as long before each further one
INSECURE = "TORCHYARD_INSECURE_REGISTRIES"  # hosts, separated by commas or spaces, that are asked without TLS
NEEDS_NONE = "a build from a finished lock and store needs no registry"
CERTIFICATES = Path("/etc/docker/certs.d")  # where Docker looks for a registry's own


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """What the user's Docker knows for a registry: a name with a password, or a token that stands for both."""

    name: str = ""
    password: str = ""
    identity: str = ""


class Busy(Surroundings):
    """The registry answered each time, but only that it cannot (429, 5xx)."""


class Registry:
    """One repository of a registry; nothing is asked before the first use."""

    def __init__(self, ref: Reference, *, hint: str = NEEDS_NONE) -> None:
        self.ref = ref
        self.hint = hint  # where it does not answer
        self._base = ""
        self._finding = threading.Lock()
        self._session: requests.Session | None = None

    @property
    def session(self) -> requests.Session:
        """A session that shows this registry, and no other host, who the user is."""
        if self._session is None:
            made = pipconf.session(pipconf.PipSettings(index_url=""))
            made.trust_env = not self.ref.loopback  # no proxy leads to this machine
            folder = CERTIFICATES / self.ref.host
            if (folder / "ca.crt").is_file() or (folder / "client.cert").is_file():
                made.mount(f"https://{self.ref.api_host}/", _Own(folder))
            made.auth = _Auth(self)
            self._session = made
        return self._session

    def url(self, path: str) -> str:
        """The address of something in this repository (`manifests/…`, `blobs/…`)."""
        return f"{self._root()}/v2/{self.ref.repository}/{path}"

    def get(self, path: str, accept: tuple[str, ...] = ()) -> requests.Response:
        """The answer to a request that the registry did not put off; raises Surroundings where there is none."""
        headers = {"Accept": ", ".join(accept)} if accept else {}
        url = self.url(path)
        return self.patiently(lambda: self.session.get(url, headers=headers, timeout=TIMEOUT))

    def patiently(self, ask: Callable[[], requests.Response]) -> requests.Response:
        """What `ask` answers, asked again while the server is busy or the connection breaks.

        Raises Busy where the last answer put us off, and Surroundings where there was none.
        """
        for attempt in range(1, ATTEMPTS + 1):
            wait = None
            error_kind: type[Surroundings] = Surroundings
            try:
                response = ask()
                if response.status_code not in BUSY:
                    return response
                why, wait, error_kind = said(response), retry_after(response), Busy
            except requests.exceptions.SSLError as error:
                raise self.untrusted(error) from error
            except requests.exceptions.RequestException as error:
                why = innermost(error)
            if attempt < ATTEMPTS:
                rest(attempt, wait)
        raise error_kind(
            f"the registry {self.ref.host} does not answer for {self.ref.text}: {why}",
            where=self.ref.host,
            hint=f"check the network and HTTPS_PROXY; {self.hint}",
        )

    def untrusted(self, error: Exception) -> Surroundings:
        """The error for a certificate that nothing vouches for."""
        return Surroundings(
            f"the certificate of the registry {self.ref.host} is not trusted: {innermost(error)}",
            where=self.ref.host,
            hint=f"put its CA into {CERTIFICATES}/{self.ref.host}/ca.crt or name a bundle in REQUESTS_CA_BUNDLE; for a"
            f" registry without TLS set {INSECURE}={self.ref.host}",
        )

    def refused(self, response: requests.Response) -> Surroundings:
        """The error for an answer that says 401 or 403."""
        return Surroundings(
            f"the registry {self.ref.host} refuses {self.ref.text}: {said(response)}; it is private, or not there",
            where=without_credentials(str(response.url)),
            hint=f"log in: ./yard docker login {self.ref.host}  (or any Docker client), or check the name",
        )

    def _root(self) -> str:
        """Scheme and host; without TLS only on this machine or where the user said so, if TLS does not answer."""
        with self._finding:  # downloads begin at once
            if not self._base:
                plain = (self.ref.loopback or self.ref.host in _marked(os.environ)) and not self._speaks_tls()
                self._base = f"{'http' if plain else 'https'}://{self.ref.api_host}"
            return self._base

    def _speaks_tls(self) -> bool:
        try:
            self.session.get(f"https://{self.ref.api_host}/v2/", timeout=TIMEOUT, auth=_as_it_is)
        except (requests.exceptions.SSLError, requests.exceptions.ConnectionError):
            return False
        return True


class _Own(HTTPAdapter):
    """An adapter with a registry's own certificates, as Docker keeps them in a folder."""

    def __init__(self, folder: Path) -> None:
        self.ca = str(folder / "ca.crt") if (folder / "ca.crt").is_file() else None
        client = (str(folder / "client.cert"), str(folder / "client.key"))
        self.client = client if Path(client[0]).is_file() else None
        super().__init__()

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, self.ca or verify, self.client or cert)  # type: ignore[no-untyped-call]  # so is requests

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        return super().build_connection_pool_key_attributes(request, self.ca or verify, self.client or cert)


class _Auth(AuthBase):
    """Answers the registry's question who asks: with nothing, a token, or name and password."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.header = ""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._ours(str(request.url)):
            if self.header:
                request.headers["Authorization"] = self.header
            request.register_hook("response", self._answer)  # type: ignore[no-untyped-call]  # so is requests
        return request

    def _answer(self, response: requests.Response, **how: Any) -> requests.Response:
        if response.status_code != 401 or not self._ours(str(response.url)):
            return response
        header = self._authorization(response)
        if not header:
            return response
        self.header = header
        _ = response.content  # read to its end, so that the connection can be used again
        response.close()
        again = response.request.copy()
        body: Any = again.body
        if hasattr(body, "seek"):  # a file that was sent already
            body.seek(0)
        again.headers["Authorization"] = header
        answered: requests.Response = response.connection.send(again, **how)
        answered.history.append(response)
        answered.request = again
        return answered

    def _ours(self, url: str) -> bool:
        return urlsplit(url).netloc.rpartition("@")[2] == self.registry.ref.api_host

    def _authorization(self, response: requests.Response) -> str:
        """The header that the challenge asks for; empty where we have nothing to answer with."""
        asked = response.headers.get("WWW-Authenticate", "")
        login = find_login(self.registry.ref.host)
        if (bearer := challenge(asked, "Bearer")) is not None:
            return f"Bearer {self._token(bearer, login, secure=str(response.url).startswith('https:'))}"
        if challenge(asked, "Basic") is not None and login and login.name:
            return "Basic " + b64encode(f"{login.name}:{login.password}".encode()).decode()
        return ""

    def _token(self, asked: Mapping[str, str], login: Login | None, *, secure: bool) -> str:
        """A token from the place that the challenge names."""
        registry = self.registry
        realm = asked.get("realm", "")
        if not realm.startswith("https://" if secure else ("https://", "http://")):
            raise Surroundings(
                f"the registry {registry.ref.host} sends for a token to {realm!r}, which has no TLS",
                where=registry.ref.host,
                hint="the registry's own configuration is wrong: tell who runs it",
            )
        fields = {"scope": asked.get("scope") or f"repository:{registry.ref.repository}:pull"}
        if "service" in asked:
            fields["service"] = asked["service"]
        session = registry.session
        if login and login.identity:
            fields |= {"grant_type": "refresh_token", "refresh_token": login.identity, "client_id": "torchyard"}
            answer = registry.patiently(lambda: session.post(realm, data=fields, timeout=TIMEOUT, auth=_as_it_is))
        else:
            auth = HTTPBasicAuth(login.name, login.password) if login and login.name else _as_it_is
            answer = registry.patiently(lambda: session.get(realm, params=fields, timeout=TIMEOUT, auth=auth))
        try:
            known = json_text.loads(answer.content) if answer.status_code == 200 else {}
            token = str(known.get("token") or known.get("access_token") or "")
        except (ValueError, AttributeError):
            token = ""
        if not token:
            raise registry.refused(answer)
        return token


def rest(attempt: int, wait: float | None) -> None:
    """The pause after a failed attempt: what the registry asked for, else longer each time."""
    time.sleep(min(LONGEST_PAUSE, wait if wait is not None else PAUSE * 2 ** (attempt - 1)))


def find_login(host: str) -> Login | None:
    """What the user's Docker configuration, or else that of our own client, has for a registry."""
    own = engine_home.home_of(os.environ).client / "config" / "config.json"
    for path in (None, str(own) if own.is_file() else ""):
        if path == "":
            continue
        try:
            found = docker.auth.load_config(config_path=path).resolve_authconfig(host)
        except (docker.errors.DockerException, ValueError, OSError) as error:
            raise InputError(
                f"Docker's configuration gives no credentials for {host}: {error}",
                where=path or "config.json of Docker (DOCKER_CONFIG, ~/.docker)",
                hint="mend the file or its credential helper, or log in anew: docker login",
            ) from error
        if found:
            small = {key.lower(): value for key, value in found.items()}
            login = Login(
                name=small.get("username") or "",
                password=small.get("password") or "",
                identity=small.get("identitytoken") or "",
            )
            if login.name or login.identity:
                return login
    return None


def challenge(header: str, scheme: str) -> dict[str, str] | None:
    """The fields of one scheme in a WWW-Authenticate header, or None where it is not asked for."""
    found = re.search(rf'\b{scheme}\b((?:[\s,]+\w+="[^"]*")*)', header, re.IGNORECASE)
    return dict(re.findall(r'(\w+)="([^"]*)"', found[1])) if found else None


def _marked(environment: Mapping[str, str]) -> set[str]:
    return set(re.split(r"[\s,]+", environment.get(INSECURE, "")))


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Instead of credentials, also of those that a netrc file would add."""
    return request


def said(response: requests.Response) -> str:
    """The status, and the first error that the registry spells out."""
    text = f"{response.status_code} {response.reason}"
    try:
        first = json_text.loads(response.content)["errors"][0]
    except (ValueError, KeyError, IndexError, TypeError):
        return text
    return f"{text} ({first.get('message') or first.get('code')})" if isinstance(first, dict) else text
