"""Certificates and signatures made by hand for tests: DER is written here, openssl signs."""

from __future__ import annotations

import base64
import datetime
import hashlib
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ECDSA = "1.2.840.10045.4.3.2"
CODE_SIGNING, TIME_STAMPING = "1.3.6.1.5.5.7.3.3", "1.3.6.1.5.5.7.3.8"
SCTS = "1.3.6.1.4.1.11129.2.4.2"
SEQUENCE, SET, INTEGER, BITS, OCTETS, OID, UTF8, BOOLEAN = 0x30, 0x31, 0x02, 0x03, 0x04, 0x06, 0x0C, 0x01


@dataclass(frozen=True, kw_only=True)
class Key:
    """A private key in a file, and its public half as DER and in a file."""

    private: Path
    public: Path
    der: bytes

    @property
    def id(self) -> bytes:
        return hashlib.sha256(self.der).digest()

    def sign(self, data: bytes) -> bytes:
        """A signature over the sha256 of these bytes."""
        return openssl("dgst", "-sha256", "-sign", str(self.private), given=data)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """What signs certificates: a key, its name as DER, and its certificate."""

    key: Key
    name: bytes
    certificate: bytes


@dataclass(frozen=True, kw_only=True)
class Extension:
    """An extension of a certificate; value: DER."""

    oid: str
    value: bytes
    critical: bool = False

    @property
    def der(self) -> bytes:
        critical = der(BOOLEAN, b"\xff") if self.critical else b""
        return der(SEQUENCE, oid(self.oid), critical, der(OCTETS, self.value))


def openssl(*words: str, given: bytes = b"") -> bytes:
    """What openssl prints."""
    return subprocess.run(["openssl", *words], input=given, check=True, capture_output=True).stdout


def new_key(folder: Path, name: str, *, rsa: bool = False) -> Key:
    """A new key in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    kind = ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if rsa else ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    openssl("genpkey", "-algorithm", *kind, "-out", str(private))
    openssl("pkey", "-in", str(private), "-pubout", "-out", str(public))
    return Key(private=private, public=public, der=openssl("pkey", "-in", str(private), "-pubout", "-outform", "DER"))


def holds(public: Path, signature: bytes, data: bytes, folder: Path) -> bool:
    """Whether this is a signature of the key in this file over these bytes."""
    file = folder / f"{secrets.token_hex(8)}.sig"
    file.write_bytes(signature)
    words = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(file)]
    return subprocess.run(words, input=data, capture_output=True).returncode == 0


def authority(folder: Path, name: str) -> Authority:
    """A root with a key of its own."""
    key, said = new_key(folder, name), named(name)
    extensions = [
        Extension(oid="2.5.29.19", value=der(SEQUENCE, der(BOOLEAN, b"\xff")), critical=True),
        Extension(oid="2.5.29.15", value=der(BITS, b"\x01\x06"), critical=True),
    ]
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    body = unsigned(said, said, key.der, extensions, begins, datetime.timedelta(days=30))
    return Authority(key=key, name=said, certificate=signed(body, key))


def unsigned(
    issuer: bytes,
    subject: bytes,
    public: bytes,
    extensions: Sequence[Extension],
    begins: datetime.datetime,
    holds_for: datetime.timedelta,
    serial: int = 0,
) -> bytes:
    """The part of a certificate that is signed."""
    times = [der(0x17, f"{each:%y%m%d%H%M%SZ}".encode()) for each in (begins, begins + holds_for)]
    return der(
        SEQUENCE,
        der(0xA0, der(INTEGER, b"\x02")),
        der(INTEGER, b"\x01" + (serial or secrets.randbits(64)).to_bytes(8, "big")),
        der(SEQUENCE, oid(ECDSA)),
        issuer,
        der(SEQUENCE, *times),
        subject,
        public,
        der(0xA3, der(SEQUENCE, *(each.der for each in extensions))),
    )


def signed(body: bytes, key: Key) -> bytes:
    """A certificate, as DER."""
    return der(SEQUENCE, body, der(SEQUENCE, oid(ECDSA)), der(BITS, b"\0" + key.sign(body)))


def usage(purpose: str, *, critical: bool = False) -> list[Extension]:
    """What a certificate of somebody who signs may be used for."""
    return [
        Extension(oid="2.5.29.15", value=der(BITS, b"\x07\x80"), critical=True),
        Extension(oid="2.5.29.37", value=der(SEQUENCE, oid(purpose)), critical=critical),
    ]


def in_log(body: bytes, issuer: Key, log: Key, now: datetime.datetime) -> Extension:
    """What a log of certificates promises of one whose part to sign, without this extension, is this (RFC 6962)."""
    when = int(now.timestamp() * 1000).to_bytes(8, "big")
    entry = b"\0\0" + when + b"\0\1" + issuer.id + len(body).to_bytes(3, "big") + body + b"\0\0"
    signature = log.sign(entry)
    one = b"\0" + log.id + when + b"\0\0" + b"\x04\x03" + len(signature).to_bytes(2, "big") + signature
    listed = len(one).to_bytes(2, "big") + one
    return Extension(oid=SCTS, value=der(OCTETS, len(listed).to_bytes(2, "big") + listed))


def named(name: str) -> bytes:
    """A name that has a common name alone; none for the empty text."""
    return der(SEQUENCE, der(SET, der(SEQUENCE, oid("2.5.4.3"), der(UTF8, name.encode())))) if name else der(SEQUENCE)


def der(tag: int, *parts: bytes) -> bytes:
    """One DER value."""
    content = b"".join(parts)
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8 or 1, "big")
    return bytes([tag]) + (size if len(content) < 128 else bytes([0x80 | len(size)]) + size) + content


def oid(dotted: str) -> bytes:
    """An object identifier."""
    first, second, *rest = map(int, dotted.split("."))
    encoded = bytes([first * 40 + second])
    for number in rest:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.insert(0, number & 0x7F | 0x80)
        encoded += bytes(digits)
    return der(OID, encoded)


def pem(certificate: bytes) -> str:
    """A certificate as text."""
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(certificate).decode()}-----END CERTIFICATE-----\n"
