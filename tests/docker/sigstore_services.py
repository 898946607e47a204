"""Services on loopback that cosign signs with: who vouches for people, Fulcio's and Rekor's APIs, time stamps.

They check what they are given as the real ones do: the token, that who asks has the key, that the signature holds.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import json
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import certificates
from certificates import Authority, Extension, Key

AUDIENCE = "sigstore"
HOLDS = datetime.timedelta(minutes=10)
STAMPS = """\
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
signer_cert = {folder}/stamps.pem
signer_key = {folder}/stamps.key
certs = {folder}/stamps-root.pem
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha384, sha512
ess_cert_id_alg = sha256
"""


@dataclass(kw_only=True)
class Services:
    """Everything in one server; who: whose browser comes to log in; entries: what the log has taken."""

    folder: Path
    root: Authority
    certificate_log: Key
    log: Key
    people: Key
    address: str = ""
    who: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    stamped: int = 0
    nonces: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which cosign knows whom to trust."""
        return {
            "SIGSTORE_ROOT_FILE": str(self.folder / "root.pem"),
            "SIGSTORE_REKOR_PUBLIC_KEY": str(self.log.public),
            "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE": str(self.certificate_log.public),
            "SIGSTORE_TSA_CERTIFICATE_FILE": str(self.folder / "stamps-chain.pem"),
        }

    def token(self, who: str, *, issuer: str = "", ends: float = 600, **more: object) -> str:
        """An identity token for somebody; ends: seconds from now; issuer: another one than this."""
        now = int(time.time())
        claims = {"iss": issuer or self.address, "aud": AUDIENCE, "sub": f"id of {who}", "email": who}
        claims |= {"email_verified": True, "iat": now, "exp": now + int(ends), **more}
        text = ".".join(_part(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "1"}, claims))
        return f"{text}.{_part(self.people.sign(text.encode()))}"

    def certify(self, token: str, request: Mapping[str, Any]) -> str:
        """A certificate for the key of who has this token, with its chain; raises where something does not hold."""
        text, _, signature = token.rpartition(".")
        claims = json.loads(_whole(text.partition(".")[2]))
        if not certificates.holds(self.people.public, _whole(signature), text.encode(), self.folder):
            raise PermissionError("the token is not of the issuer")
        if claims["aud"] != AUDIENCE or claims["exp"] < time.time():
            raise PermissionError("the token is for something else, or has ended")
        public = self.folder / f"{secrets.token_hex(8)}.pub"
        public.write_bytes(base64.b64decode(request["publicKey"]["content"]))
        proof = base64.b64decode(request["signedEmailAddress"])
        if not certificates.holds(public, proof, claims["email"].encode(), self.folder):
            raise PermissionError("who asks does not have the key")
        key = certificates.openssl("pkey", "-pubin", "-in", str(public), "-outform", "DER")
        self.issued.append(claims["email"])
        return certificates.pem(self._certificate(claims, key)) + certificates.pem(self.root.certificate)

    def _certificate(self, claims: Mapping[str, Any], key: bytes) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        issuer = claims["iss"].encode()
        mail = certificates.der(certificates.SEQUENCE, certificates.der(0x81, claims["email"].encode()))
        extensions = [
            *certificates.usage(certificates.CODE_SIGNING),
            Extension(oid="2.5.29.17", value=mail, critical=True),
            Extension(oid="1.3.6.1.4.1.57264.1.1", value=issuer),
            Extension(oid="1.3.6.1.4.1.57264.1.8", value=certificates.der(certificates.UTF8, issuer)),
        ]
        serial, nobody = secrets.randbits(64), certificates.named("")
        body = certificates.unsigned(self.root.name, nobody, key, extensions, now, HOLDS, serial)
        extensions.append(certificates.in_log(body, self.root.key, self.certificate_log, now))
        whole = certificates.unsigned(self.root.name, nobody, key, extensions, now, HOLDS, serial)
        return certificates.signed(whole, self.root.key)

    def enter(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What the log answers for an entry; raises where its signature does not hold."""
        spec = entry["spec"]
        given = secrets.token_hex(8)
        paths = {name: self.folder / f"{given}.{name}" for name in ("pem", "key", "sum", "sig")}
        paths["pem"].write_bytes(base64.b64decode(spec["signature"]["publicKey"]["content"]))
        paths["key"].write_bytes(certificates.openssl("x509", "-in", str(paths["pem"]), "-noout", "-pubkey"))
        paths["sum"].write_bytes(bytes.fromhex(spec["data"]["hash"]["value"]))
        paths["sig"].write_bytes(base64.b64decode(spec["signature"]["content"]))
        words = ["-pubin", "-inkey", str(paths["key"]), "-in", str(paths["sum"]), "-sigfile", str(paths["sig"])]
        subprocess.run(["openssl", "pkeyutl", "-verify", *words], check=True, capture_output=True)
        body = base64.b64encode(_canonical(entry)).decode()
        told = {"body": body, "integratedTime": int(time.time()), "logID": self.log.id.hex()}
        told["logIndex"] = len(self.entries)
        promise = base64.b64encode(self.log.sign(_canonical(told))).decode()
        self.entries.append(dict(entry))
        name = hashlib.sha256(b"\0" + base64.b64decode(body)).hexdigest()
        return {name: {**told, "verification": {"signedEntryTimestamp": promise}}}

    def stamp(self, asked: bytes) -> bytes:
        """A time stamp (RFC 3161)."""
        query, answer = (self.folder / f"{secrets.token_hex(8)}.{name}" for name in ("tsq", "tsr"))
        query.write_bytes(asked)
        words = ["-config", str(self.folder / "stamps.conf"), "-queryfile", str(query), "-out", str(answer)]
        certificates.openssl("ts", "-reply", *words)
        self.stamped += 1
        return answer.read_bytes()

    def keys(self) -> dict[str, Any]:
        """The public key of who vouches for people, as browsers' clients want it."""
        words = ["rsa", "-pubin", "-in", str(self.people.public), "-noout", "-modulus"]
        modulus = certificates.openssl(*words).decode().strip().partition("=")[2]
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": _part(bytes.fromhex(modulus)), "e": "AQAB"}
        return {"keys": [key]}


class Handler(BaseHTTPRequestHandler):
    """The HTTP APIs of them all."""

    services: Services

    def do_GET(self) -> None:
        here, query = self.services.address, parse_qs(urlsplit(self.path).query)
        match urlsplit(self.path).path:
            case "/.well-known/openid-configuration":
                places = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
                told: dict[str, Any] = {name: f"{here}{path}" for name, path in places.items()}
                told |= {"issuer": here, "code_challenge_methods_supported": ["S256"]}
                told |= {"id_token_signing_alg_values_supported": ["RS256"], "response_types_supported": ["code"]}
                self._json(200, {**told, "subject_types_supported": ["public"]})
            case "/keys":
                self._json(200, self.services.keys())
            case "/auth":  # the browser of somebody who is logged in
                code = secrets.token_hex(8)
                self.services.nonces[code] = query["nonce"][0]
                back = urlencode({"code": code, "state": query["state"][0]})
                self._answer(302, b"", Location=f"{query['redirect_uri'][0]}?{back}")
            case "/ci-token":  # as a CI system gives it to its jobs
                ok = self.headers["Authorization"] == "bearer of the job" and query["audience"] == [AUDIENCE]
                self._json(200 if ok else 403, {"value": self.services.token("job@ci.test")} if ok else {})
            case _:
                self._answer(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            match urlsplit(self.path).path:
                case "/api/v1/signingCert":
                    chain = self.services.certify(self.headers["Authorization"].split()[1], json.loads(body))
                    self._answer(201, chain.encode(), Content_Type="application/pem-certificate-chain")
                case "/api/v1/log/entries":
                    told = self.services.enter(json.loads(body))
                    self._json(201, told, Location=f"/api/v1/log/entries/{next(iter(told))}")
                case "/stamp":
                    self._answer(201, self.services.stamp(body), Content_Type="application/timestamp-reply")
                case "/token":
                    nonce = self.services.nonces.pop(parse_qs(body.decode())["code"][0])
                    token = self.services.token(self.services.who, nonce=nonce)
                    self._json(200, {"access_token": "x", "token_type": "Bearer", "id_token": token})
                case _:
                    self._answer(404, b"")
        except PermissionError as error:
            self._answer(401, str(error).encode())

    def _json(self, code: int, told: object, **headers: str) -> None:
        self._answer(code, json.dumps(told).encode(), Content_Type="application/json", **headers)

    def _answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Services]:
    """The services, while the block runs."""
    root, stamps = certificates.authority(folder, "root"), certificates.authority(folder, "stamps-root")
    keys = {name: certificates.new_key(folder, name) for name in ("certificate-log", "log")}
    people = certificates.new_key(folder, "people", rsa=True)
    _prepare_stamps(folder, stamps)
    (folder / "root.pem").write_text(certificates.pem(root.certificate))
    services = Services(
        folder=folder, root=root, certificate_log=keys["certificate-log"], log=keys["log"], people=people
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"services": services}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    services.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _prepare_stamps(folder: Path, root: Authority) -> None:
    key = certificates.new_key(folder, "stamps")
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    use = certificates.usage(certificates.TIME_STAMPING, critical=True)
    name = certificates.named("stamps")
    body = certificates.unsigned(root.name, name, key.der, use, now, datetime.timedelta(days=9))
    leaf, top = certificates.pem(certificates.signed(body, root.key)), certificates.pem(root.certificate)
    (folder / "stamps.pem").write_text(leaf)
    (folder / "stamps-root.pem").write_text(top)
    (folder / "stamps-chain.pem").write_text(leaf + top)
    (folder / "stamps.conf").write_text(STAMPS.format(folder=folder))
    (folder / "serial").write_text("01\n")


def address_in(text: str) -> str | None:
    """The address that somebody is told to open in a browser."""
    found = re.search(r"http://127\.0\.0\.1:\d+/auth\?\S+", text)
    return found.group() if found else None


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _whole(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
