"""A real docker-registry on loopback for tests, from the distribution's package, and the HTTP calls that fill it."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

NAME, PASSWORD = "reader", "open sesame"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def program(cache: Path) -> str:
    """The registry's program: the installed one, or the one in the distribution's package, unpacked into `cache`."""
    if installed := shutil.which("docker-registry"):
        return installed
    found = cache / "usr" / "bin" / "docker-registry"
    if not found.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", "docker-registry"], cwd=cache, check=True, capture_output=True)
        for deb in cache.glob("docker-registry_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(cache)], check=True)
    return str(found)


@contextlib.contextmanager
def running(binary: str, root: Path, auth: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The host and port of a registry that keeps its data under `root` and ends with this block."""
    root.mkdir(parents=True, exist_ok=True)
    settings = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(root / "data")}, "delete": {"enabled": True}},
        "http": {"addr": "127.0.0.1:0"},
        **({"auth": auth} if auth else {}),
    }
    (root / "config.yml").write_text(json.dumps(settings))
    log = root / "log"
    with log.open("w") as stream:
        process = subprocess.Popen([binary, "serve", str(root / "config.yml")], stdout=stream, stderr=stream)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while "listening on " not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    return log.read_text().partition("listening on ")[2].split('"')[0].split()[0]


def basic_auth(root: Path) -> dict[str, Any]:
    """The settings of a registry that knows one user."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    hashed = crypt(PASSWORD.encode(), b"$2b$05$abcdefghijklmnopqrstuu").decode()
    root.mkdir(parents=True, exist_ok=True)
    (root / "htpasswd").write_text(f"{NAME}:{hashed}\n")
    return {"htpasswd": {"realm": "here", "path": str(root / "htpasswd")}}


class TokenServer:
    """Gives tokens that a registry with `settings` believes; to anybody who wants to read, or to one user only."""

    def __init__(self, root: Path, *, open_to_all: bool) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.key, self.certificate = root / "token.key", root / "token.crt"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tokens"]
        files = ["-keyout", str(self.key), "-out", str(self.certificate)]
        subprocess.run([*make, *files], check=True, capture_output=True)
        self.open_to_all = open_to_all
        self.given = 0
        self.lifetime = 60
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def settings(self) -> dict[str, Any]:
        realm = f"http://127.0.0.1:{self.server.server_port}/token"
        bundle = str(self.certificate)
        return {"token": {"realm": realm, "service": "test", "issuer": "tests", "rootcertbundle": bundle}}

    def token(self, actions: Sequence[str], repository: str) -> str:
        """A signed token for one repository."""
        now = int(time.time())
        der = base64.b64encode(
            subprocess.run(
                ["openssl", "x509", "-in", str(self.certificate), "-outform", "der"], check=True, capture_output=True
            ).stdout
        ).decode()
        access = [{"type": "repository", "name": repository, "actions": list(actions)}]
        claims = {"iss": "tests", "aud": "test", "sub": "", "nbf": now - 60, "iat": now, "exp": now + self.lifetime}
        head = {"typ": "JWT", "alg": "RS256", "x5c": [der]}
        text = ".".join(_unpadded(json.dumps(part).encode()) for part in (head, {**claims, "access": access}))
        signing = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signed = subprocess.run(signing, input=text.encode(), check=True, capture_output=True).stdout
        return f"{text}.{_unpadded(signed)}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                who = "Basic " + base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
                if not tokens.open_to_all and self.headers.get("Authorization") != who:
                    self.send_error(401)
                    return
                scope = parse_qs(urlsplit(self.path).query)["scope"][0].split(":")
                tokens.given += 1
                body = json.dumps({"token": tokens.token(scope[2].split(","), scope[1])}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image to push: its manifest, and every other blob by digest."""

    manifest: bytes
    blobs: Mapping[str, bytes]
    kind: str = OCI_MANIFEST

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def layers(self) -> list[str]:
        """The digests of the layers, lowest first."""
        return [layer["digest"] for layer in json.loads(self.manifest)["layers"]]


def image(layers: Sequence[bytes], config: Mapping[str, Any], *, machine: str = "amd64") -> Image:
    """An image of plain tars, each compressed."""
    packed = [gzip.compress(tar, mtime=0) for tar in layers]
    document = _json(
        {
            "architecture": machine,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [digest_of(tar) for tar in layers]},
        }
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _descriptor(OCI_CONFIG, document),
        "layers": [_descriptor(OCI_LAYER, blob) for blob in packed],
    }
    return Image(manifest=_json(manifest), blobs={digest_of(blob): blob for blob in (document, *packed)})


def index(images: Mapping[str, Image]) -> Image:
    """An index of images by their machine."""
    entries = [
        {**_descriptor(OCI_MANIFEST, each.manifest), "platform": {"os": "linux", "architecture": machine}}
        for machine, each in images.items()
    ]
    return Image(
        manifest=_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}), blobs={}, kind=OCI_INDEX
    )


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A tar with these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def push(host: str, repository: str, tag: str, made: Image, headers: Mapping[str, str] | None = None) -> None:
    """Put an image into a registry under a tag; what is there already is left alone."""
    session = requests.Session()
    session.headers.update(headers or {})
    base = f"http://{host}/v2/{repository}"
    for digest, blob in made.blobs.items():
        if session.head(f"{base}/blobs/{digest}").status_code != 200:
            place = session.post(f"{base}/blobs/uploads/")
            place.raise_for_status()
            location = place.headers["Location"]
            joint = "&" if "?" in location else "?"
            session.put(f"{location}{joint}digest={digest}", data=blob).raise_for_status()
    answer = session.put(f"{base}/manifests/{tag}", data=made.manifest, headers={"Content-Type": made.kind})
    answer.raise_for_status()
    assert answer.headers["Docker-Content-Digest"] == made.digest


def delete_blob(host: str, repository: str, digest: str) -> None:
    """Remove a blob from a repository."""
    requests.delete(f"http://{host}/v2/{repository}/blobs/{digest}").raise_for_status()


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
