"""Signatures without a key of one's own: whose they are, which services make them, and what cosign is told of that."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from . import json_text
from .errors import InputError

WORD = "keyless"  # in the place of a key
FULCIO = "https://fulcio.sigstore.dev"
REKOR = "https://rekor.sigstore.dev"
KEYS = ("fulcio", "rekor", "tsa", "issuer", "client", "sct")
_EXAMPLE = "https://fulcio.example.com"


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """Where certificates and entries of a log come from; an empty address is that of the public service.

    log: whether signatures go into a transparency log; sct: whether the authority's certificates are in a log.
    """

    fulcio: str = ""
    rekor: str = ""
    tsa: str = ""
    issuer: str = ""
    client: str = ""
    log: bool = True
    sct: bool = True


PUBLIC = Services()


@dataclass(frozen=True, kw_only=True, slots=True)
class Who:
    """The signer that is asked for: identity and issuer of the certificate, each as it is or as a pattern."""

    identity: str = ""
    identity_pattern: str = ""
    issuer: str = ""
    issuer_pattern: str = ""

    @property
    def words(self) -> str:
        """Whose signature it has to be, for a person."""
        identity = self.identity or f"an identity like {self.identity_pattern}"
        return f"{identity}, as {self.issuer or f'an issuer like {self.issuer_pattern}'} says"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """What an identity token says of who has it; ends: seconds since 1970, 0 where it does not say."""

    identity: str
    issuer: str
    ends: float


def services(row: object, *, where: str) -> Services:
    """What a mirrors file says of the services; raises InputError where it does not fit together."""
    if not isinstance(row, Mapping):
        raise InputError("a table of addresses is needed", where=where, hint=f"write {{fulcio: {_EXAMPLE}, rekor: …}}")
    if unknown := sorted(str(key) for key in row if key not in KEYS):
        raise InputError(f"unknown key {unknown[0]!r}", where=where, hint=f"the keys are {', '.join(KEYS)}")
    texts = {key: row.get(key) for key in ("fulcio", "rekor", "tsa", "issuer") if row.get(key) is not None}
    for key, value in texts.items():
        if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
            raise InputError(f"{value!r} is not an address", where=f"{where}.{key}", hint=f"write {_EXAMPLE}")
    client, sct = row.get("client", ""), row.get("sct", True)
    if not isinstance(client, str) or not isinstance(sct, bool):
        bad = "client" if not isinstance(client, str) else "sct"
        raise InputError(
            f"{row[bad]!r} does not fit", where=f"{where}.{bad}", hint="client is a text, sct true or false"
        )
    found = Services(
        **{key: str(value) for key, value in texts.items()},
        client=client,
        log=row.get("rekor", "") is not None,
        sct=sct,
    )
    _check(found, "rekor" in row, where)
    return found


def _check(found: Services, says_log: bool, where: str) -> None:
    """Refuse what would publish a private authority's certificates, or leave out a check of public ones."""
    if found.fulcio and not says_log:
        raise InputError(
            "signatures by an authority of your own would go into the public log",
            where=where,
            hint="name the log: rekor, or null for none",
        )
    if not found.fulcio and not (found.log and found.sct):
        raise InputError(
            "only with an authority of your own can the logs be left out", where=where, hint=f"write fulcio: {_EXAMPLE}"
        )
    if not found.log and not found.tsa:
        raise InputError(
            "without a log nothing says when something was signed, and a certificate holds for minutes",
            where=where,
            hint="name a time-stamp authority: tsa",
        )


def who(identity: str, identity_pattern: str, issuer: str, issuer_pattern: str) -> Who:
    """The signer that the command line asks for; each half has to be given, in one form."""
    for text, pattern, option in (
        (identity, identity_pattern, "identity"),
        (issuer, issuer_pattern, "issuer"),
    ):
        if bool(text) == bool(pattern):
            raise InputError(
                f"--{option} and --{option}-like cannot both hold"
                if text
                else f"anybody can sign without a key: the {option} of who may is missing",
                where=f"--{option}",
                hint="name who signs: --identity me@example.com --issuer https://accounts.example.com;"
                " --identity-like and --issuer-like take regular expressions",
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"{pattern!r} is not a regular expression: {error}", where=f"--{option}-like", hint="mend it"
            ) from error
    return Who(identity=identity, identity_pattern=identity_pattern, issuer=issuer, issuer_pattern=issuer_pattern)


def claims(token: str, *, where: str) -> Claims:
    """What an identity token says; who gave it is checked by the authority, not here."""
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        body = json_text.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = float(body.get("exp") or 0)
        return Claims(identity=str(body.get("email") or body["sub"]), issuer=str(body["iss"]), ends=ends)
    except (ValueError, binascii.Error, KeyError, AttributeError, TypeError) as error:
        raise InputError(
            "this is not an identity token: three parts of base64 with dots between them, with iss and sub",
            where=where,
            hint="ask for an OIDC token whose audience is sigstore",
        ) from error


def published(known: Services, told: Claims | None) -> str:
    """What becomes public by signing, for a person to read before it happens."""
    signer = f"{told.identity} (of {told.issuer})" if told else "who signs and who says so"
    what = f"keyless: the certificate beside the image names {signer}"
    if not known.log:
        return f"{what}; no transparency log is told"
    log = known.rekor or f"the public log {REKOR}"
    return f"{what}; {log} publishes it for good, with the time and the hash of what is signed"


def sign_words(known: Services) -> list[str]:
    """What `cosign sign` is told of the services."""
    words = _given({"--fulcio-url": known.fulcio, "--rekor-url": known.rekor, "--timestamp-server-url": known.tsa})
    words += _given({"--oidc-issuer": known.issuer, "--oidc-client-id": known.client})
    words += [] if known.log else ["--tlog-upload=false"]
    return words + ([] if known.sct else ["--insecure-skip-verify=true"])


def verify_words(known: Services, asked: Who) -> list[str]:
    """What `cosign verify` is told of the services and of the signer."""
    words = _given({"--certificate-identity": asked.identity, "--certificate-oidc-issuer": asked.issuer})
    patterns = {"identity": asked.identity_pattern, "oidc-issuer": asked.issuer_pattern}
    for name, pattern in patterns.items():  # cosign also takes a match of a part
        words += [f"--certificate-{name}-regexp=^(?:{pattern})$"] if pattern else []
    words += _given({"--rekor-url": known.rekor})
    words += ["--use-signed-timestamps=true"] if known.tsa else []
    words += [] if known.log else ["--private-infrastructure=true"]
    return words + ([] if known.sct else ["--insecure-ignore-sct=true"])


def signers(printed: str) -> list[str]:
    """Who signed, by what `cosign verify` prints of the signatures that hold."""
    try:
        found = [each["optional"] for each in json_text.loads(printed)]
        return sorted({f"{each['Subject']}, as {each['Issuer']} says" for each in found})
    except (ValueError, KeyError, TypeError):  # another version prints it otherwise: it holds all the same
        return []


def _given(options: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items() if value]
