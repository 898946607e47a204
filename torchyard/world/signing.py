"""Signatures on images in registries, made and checked by cosign where it is there: by a pair of keys, or keyless."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .. import keyless
from ..errors import CheckFailed, InputError, Surroundings
from ..keyless import Services, Who
from . import process
from .registry_session import Registry

Say = Callable[[str], None]
MIRROR = "sigstore"  # the row of a mirrors file
TOKEN = "SIGSTORE_ID_TOKEN"  # what cosign reads
INSTALL = "install cosign 2 (Debian 13 has it), or leave the option out: nothing is signed or checked then"
AGAIN = "the image is there, without its tags: with a fresh identity token, push again"
# cosign's exit codes for what it found: no signature, no image, none that holds, none with a certificate.
UNSIGNED, BAD = (10,), (11, 12, 13)
# Where cosign looks for a token when none is given: variables that CI systems set, all of each group, and files.
AMBIENT = (
    ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"),
    ("BUILDKITE_AGENT_ACCESS_TOKEN",),
    ("GOOGLE_SERVICE_ACCOUNT_NAME",),
)
AMBIENT_FILES = ("/var/run/sigstore/cosign/oidc-token", "/tmp/spire-agent/public/api.sock")
PRODUCT = Path("/sys/class/dmi/id/product_name")  # where it begins with Google, cosign asks the machine's own service


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """How an image is signed: with a private key, or else by these services, with a token or by a person at hand."""

    program: str
    key: str = ""
    services: Services = keyless.PUBLIC
    token: str = ""
    person: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Trust:
    """Which signature is asked for: that of a public key, or of somebody by these services."""

    program: str
    key: str = ""
    services: Services = keyless.PUBLIC
    who: Who | None = None


def signer(key: str, token_file: str, mirrors: Sequence[Path], say: Say) -> Signer:
    """What signs, after a look at all that it needs, before anything is sent; `key` may be the word keyless."""
    if key != keyless.WORD:
        if token_file:
            raise InputError("an identity token signs nothing here", where="--identity-token", hint="--sign keyless")
        return Signer(program=_program(key, "--sign"), key=key)
    known = read_services(mirrors)
    token, where = _token(token_file)
    told = keyless.claims(token, where=where) if token or token_file else None
    person = not token and not _ambient(os.environ) and sys.stdin.isatty() and sys.stderr.isatty()
    if not (token or person or _ambient(os.environ)):
        raise InputError(
            "nothing says who signs: no identity token is here, and nobody is at a terminal to log in",
            where="--sign keyless",
            hint=f"give one: --identity-token FILE, or {TOKEN}, or let the CI system give one (id-token: write)",
        )
    if person and known.fulcio and not known.issuer:
        raise InputError(
            "where one logs in for an authority of your own is not known",
            where=f"mirrors.{MIRROR}.issuer",
            hint="name it in the mirrors file, or give --identity-token FILE",
        )
    if told and told.ends and told.ends < time.time():
        raise InputError("the identity token has ended", where=where, hint="get a fresh one: they hold for minutes")
    found = Signer(program=_program("", "--sign"), services=known, token=token, person=person)
    say(keyless.published(known, told))
    return found


def trust(key: str, names: Mapping[str, str], mirrors: Sequence[Path]) -> Trust:
    """Which signature is asked for; `key` may be the word keyless, and names are then the options that say whose."""
    if key != keyless.WORD:
        if given := [name for name, value in names.items() if value]:
            option = f"--{given[0].replace('_', '-')}"
            raise InputError("only a keyless signature names who signed", where=option, hint="--verify keyless")
        return Trust(program=_program(key, "--verify"), key=key)
    asked = keyless.who(names["identity"], names["identity_like"], names["issuer"], names["issuer_like"])
    return Trust(program=_program("", "--verify"), services=read_services(mirrors), who=asked)


def sign(registry: Registry, digest: str, by: Signer) -> None:
    """Sign the image of this digest; the signature lies beside it."""
    tail = [*_plain(registry), _named(registry, digest)]
    if by.key:  # nothing goes elsewhere
        words = [by.program, "sign", "--yes", "--tlog-upload=false", "--key", by.key, *tail]
        process.run(words, hint="COSIGN_PASSWORD holds the key's password")
        return
    words = [by.program, "sign", *keyless.sign_words(by.services)]
    if by.person:  # cosign asks whether its terms are agreed to, and opens a browser or shows an address
        if code := process.attached([*words, *tail]):
            raise Surroundings(f"cosign ended with {code}: the image is not signed", hint=AGAIN)
        return
    words += ["--yes", "--fulcio-auth-flow=token", *(["--oidc-provider=envvar"] if by.token else [])]
    process.run([*words, *tail], env={TOKEN: by.token} if by.token else None, hint=AGAIN)


def verify(registry: Registry, digest: str, by: Trust) -> list[str]:
    """Raise CheckFailed where no signature as it is asked for is on the image of this digest; else who signed."""
    image = _named(registry, digest)
    if by.who is None:
        words, asked = ["--insecure-ignore-tlog=true", "--key", by.key], f"the key {by.key}"
    else:
        words, asked = keyless.verify_words(by.services, by.who), by.who.words
    done = process.run([by.program, "verify", *words, *_plain(registry), image], check=False)
    if done.code in UNSIGNED:
        raise CheckFailed("the image is not signed", where=image, hint="do not run it, ask who pushed it")
    if done.code in BAD:
        raise CheckFailed(
            f"no signature on the image is by {asked}; cosign says:\n{process.last_lines(done.err, 4)}",
            where=image,
            hint="do not run it, ask who pushed it",
        )
    if "error parsing regexp" in done.err:
        raise InputError("cosign cannot read the regular expression", where=asked, hint="it takes those of RE2")
    if done.code:
        raise process.failed(
            done, hint="whether it is signed was not seen: the services' addresses and keys are cosign's"
        )
    return keyless.signers(done.out) if by.who else []


def read_services(files: Sequence[Path]) -> Services:
    """The services that the first of these mirrors files names which has the row; the public ones where none has."""
    for file in files:
        try:
            raw = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except yaml.YAMLError as error:
            raise InputError(
                f"the mirrors file is not YAML: {error}", where=str(file), hint="mend it, or remove it"
            ) from error
        mirrors = raw.get("mirrors") if isinstance(raw, dict) else None
        if isinstance(mirrors, dict) and MIRROR in mirrors:
            return keyless.services(mirrors[MIRROR], where=f"{file}  mirrors.{MIRROR}")
    return keyless.PUBLIC


def _program(key: str, option: str) -> str:
    """cosign; raises where it or the key is missing."""
    if key and "://" not in key and not Path(key).is_file():
        raise InputError(
            f"there is no key {key}",
            where=option,
            hint=f"make a pair: cosign generate-key-pair, or do without: {option} {keyless.WORD}",
        )
    found = shutil.which("cosign")
    if found is None:
        raise Surroundings("there is no cosign on this machine, which makes and checks signatures", hint=INSTALL)
    return found


def _token(file: str) -> tuple[str, str]:
    """The identity token that the command line or the environment gives, and where it is from."""
    if not file:
        return os.environ.get(TOKEN, "").strip(), TOKEN
    try:
        return Path(file).read_text(encoding="utf-8").strip(), file
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the identity token cannot be read: {error}", where="--identity-token", hint="name a file that has it"
        ) from error


def _ambient(environ: Mapping[str, str]) -> bool:
    """Whether there is something that gives cosign a token."""
    socket = environ.get("SPIFFE_ENDPOINT_SOCKET", "")
    files = [Path(name) for name in (*AMBIENT_FILES, socket) if name]
    google = PRODUCT.is_file() and PRODUCT.read_text(errors="replace").startswith("Google")
    return google or any(all(map(environ.get, group)) for group in AMBIENT) or any(map(Path.exists, files))


def _named(registry: Registry, digest: str) -> str:
    return f"{registry.ref.host}/{registry.ref.repository}@{digest}"


def _plain(registry: Registry) -> list[str]:
    """Options for a registry without TLS."""
    if registry.url("").startswith("http://"):
        return ["--allow-http-registry=true", "--allow-insecure-registry=true"]
    return []
