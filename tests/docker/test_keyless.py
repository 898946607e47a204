"""Images signed without a key of one's own, by the real cosign and services on loopback: whose signature counts."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cosign_program
import pytest
import requests
import sigstore_services
import yaml
from clones import Ended
from sigstore_services import Services
from small_cases import NUMBERS, Cases, own_registry
from small_project import Small

pytestmark = pytest.mark.docker

ME = "ada@example.com"
PUSH = ("push", "--gpu", "cpu", "--registry", "one")
SIGN = (*PUSH, "--sign", "keyless")
PULL = ("pull", "--gpu", "cpu", "--to", "oci", "--output", "taken.oci")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cosign_program.folder(tmp_path_factory.mktemp("cosign"))


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with sigstore_services.running(tmp_path_factory.mktemp("sigstore")) as made:
        yield made


@pytest.fixture(scope="module")
def fresh(cases: Cases, services: Services, programs: Path) -> Iterator[Small]:
    """A checkout whose image is in no registry yet; its mirrors file names the services."""
    yield prepared(cases, services, programs)


@pytest.fixture(scope="module")
def signed(fresh: Small, services: Services) -> Small:
    """The checkout whose image is in its registry, signed by me."""
    token = given(fresh, services.token(ME))
    told = fresh.yard(*SIGN, "--identity-token", token).good()
    assert f"names {ME} (of {services.address})" in told.err
    assert f"{services.address} publishes it for good" in told.err
    return fresh


def prepared(cases: Cases, services: Services, programs: Path, **row: object) -> Small:
    at = own_registry(cases["push"].begins.copy(f"keyless-{next(NUMBERS)}"))
    mine = {"fulcio": services.address, "rekor": services.address, "issuer": services.address, **row}
    mirrors = Path(at.env["TORCHYARD_MIRRORS"])
    told = yaml.safe_load(mirrors.read_text())
    told["mirrors"]["sigstore"] = mine
    mirrors.write_text(yaml.safe_dump(told))
    path = f"{programs}:{os.environ['PATH']}"
    return replace(at, env={**at.env, **services.environment, "PATH": path})


def given(at: Small, token: str) -> str:
    """A file with a token, which ends in a new line as editors leave it."""
    file = at.root.parent / f"token-{next(NUMBERS)}"
    file.write_text(token + "\n")
    return str(file)


def by(identity: str, issuer: str) -> tuple[str, ...]:
    return ("--verify", "keyless", "--identity", identity, "--issuer", issuer)


def refused(at: Small, *arguments: str, code: int) -> str:
    """What is said where nothing may be taken or sent; nothing is."""
    ended = at.yard(*arguments)
    assert ended.code == code, f"{ended.code}\n{ended.out}\n{ended.err}"
    assert "Traceback" not in ended.err
    assert not (at.root / "taken.oci").exists()
    return ended.err


def test_an_image_signed_by_who_is_asked_for_is_taken(signed: Small, services: Services) -> None:
    taken = signed.yard(*PULL, *by(ME, services.address)).good()
    assert f"signed by {ME}, as {services.address} says" in taken.err
    assert (signed.root / "taken.oci" / "index.json").is_file()
    subprocess.run(["rm", "-r", str(signed.root / "taken.oci")], check=True)


def test_the_log_has_the_hash_of_what_was_signed_and_not_the_name_of_the_image(
    signed: Small, services: Services
) -> None:
    assert services.issued[0] == ME
    text = json.dumps(services.entries[0])
    assert signed.image() not in text and "small" not in text


def test_the_record_names_neither_signer_nor_services(signed: Small, services: Services) -> None:
    text = (signed.root / "images" / signed.image() / "published.yaml").read_text()
    assert ME not in text and services.address not in text


def test_a_pattern_has_to_match_the_whole_identity(signed: Small, services: Services) -> None:
    like = ("--verify", "keyless", "--issuer", services.address, "--identity-like")
    assert "by an identity like" in refused(signed, *PULL, *like, "ada@example", code=1)
    assert "by an identity like" in refused(signed, *PULL, *like, "x|da@example.com", code=1)
    taken = signed.yard(*PULL, *like, ".*@example[.]com").good()
    assert f"signed by {ME}" in taken.err
    subprocess.run(["rm", "-r", str(signed.root / "taken.oci")], check=True)
    issuer = ("--verify", "keyless", "--identity", ME, "--issuer-like")
    assert "an issuer like" in refused(signed, *PULL, *issuer, "127", code=1)


def test_another_identity_is_refused(signed: Small, services: Services) -> None:
    said = refused(signed, *PULL, *by("eve@example.com", services.address), code=1)
    assert "no signature on the image is by eve@example.com" in said and ME in said


def test_another_issuer_is_refused(signed: Small) -> None:
    said = refused(signed, *PULL, *by(ME, "https://accounts.example.org"), code=1)
    assert f"by {ME}, as https://accounts.example.org says" in said


def test_the_same_identity_by_another_authority_is_refused(signed: Small, services: Services, tmp_path: Path) -> None:
    with sigstore_services.running(tmp_path) as others:
        variables = services.environment | {"SIGSTORE_ROOT_FILE": others.environment["SIGSTORE_ROOT_FILE"]}
        at = replace(signed, env={**signed.env, **variables})
        assert "certificate signed by unknown authority" in refused(at, *PULL, *by(ME, services.address), code=1)


@pytest.mark.parametrize("variable", ["SIGSTORE_REKOR_PUBLIC_KEY", "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE"])
def test_a_signature_that_another_log_vouches_for_is_refused(
    signed: Small, services: Services, variable: str, tmp_path: Path
) -> None:
    with sigstore_services.running(tmp_path) as others:
        at = replace(signed, env={**signed.env, variable: others.environment[variable]})
        assert "no signature on the image is by" in refused(at, *PULL, *by(ME, services.address), code=1)


def test_an_unsigned_image_is_refused(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs)
    at.yard(*PUSH).good()
    assert "the image is not signed" in refused(at, *PULL, *by(ME, services.address), code=1)


def test_an_image_signed_with_a_key_is_no_keyless_one(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs)
    at = replace(at, env={**at.env, "COSIGN_PASSWORD": ""})
    subprocess.run(["cosign", "generate-key-pair"], cwd=at.root.parent, env=at.environment, check=True)
    key, public = at.root.parent / "cosign.key", at.root.parent / "cosign.pub"
    at.yard(*PUSH, "--sign", str(key)).good()
    refused(at, *PULL, *by(ME, services.address), code=1)
    at.yard(*PULL, "--verify", str(public)).good()
    subprocess.run(["rm", "-r", str(at.root / "taken.oci")], check=True)


def test_a_signature_is_not_one_with_a_key(signed: Small, services: Services, tmp_path: Path) -> None:
    env = {**signed.environment, "COSIGN_PASSWORD": ""}
    subprocess.run(["cosign", "generate-key-pair"], cwd=tmp_path, env=env, check=True)
    said = refused(signed, *PULL, "--verify", str(tmp_path / "cosign.pub"), code=1)
    assert "no signature on the image is by the key" in said


def test_a_token_of_somebody_else_or_that_has_ended_signs_nothing(
    cases: Cases, services: Services, programs: Path, tmp_path: Path
) -> None:
    at = prepared(cases, services, programs)
    ended = refused(at, *SIGN, "--identity-token", given(at, services.token(ME, ends=-60)), code=2)
    assert "the identity token has ended" in ended
    assert tags(at) == []
    with sigstore_services.running(tmp_path) as others:
        forged = given(at, others.token(ME, issuer=services.address))
    before = len(services.entries)
    said = refused(at, *SIGN, "--identity-token", forged, code=3)
    assert "the token is not of the issuer" in said and "without its tags" in said
    assert len(services.entries) == before
    assert not [tag for tag in tags(at) if tag == "cpu" or tag.startswith(at.image())]
    at.yard(*SIGN, "--identity-token", given(at, services.token(ME))).good()
    assert "cpu" in tags(at)


def tags(at: Small) -> list[str]:
    """The tags of the image's repository in the checkout's registry."""
    place = yaml.safe_load(Path(at.env["TORCHYARD_MIRRORS"]).read_text())["mirrors"]["registry"]["one"]
    host, _, path = place.partition("/")
    answer = requests.get(f"http://{host}/v2/{path}/small/tags/list")
    return (answer.json().get("tags") or []) if answer.status_code == 200 else []


def test_the_token_in_the_environment_and_that_of_a_ci_system_sign(
    cases: Cases, services: Services, programs: Path
) -> None:
    for variables, who in (
        ({"SIGSTORE_ID_TOKEN": services.token("bob@example.com")}, "bob@example.com"),
        (
            {
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of the job",
                "ACTIONS_ID_TOKEN_REQUEST_URL": f"{services.address}/ci-token?",
            },
            "job@ci.test",
        ),
    ):
        at = prepared(cases, services, programs)
        replace(at, env={**at.env, **variables}).yard(*SIGN).good()
        assert f"signed by {who}" in at.yard(*PULL, *by(who, services.address)).good().err


def test_without_a_token_and_a_person_nothing_is_sent(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs)
    said = refused(at, *SIGN, code=2)
    assert "no identity token is here" in said and "--identity-token FILE" in said
    assert tags(at) == []


def test_a_person_logs_in_with_a_browser(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs)
    services.who = "carol@example.com"
    ended = person(at, *SIGN)
    assert ended.code == 0, ended.out
    assert "publishes it for good" in ended.out
    assert "signed by carol@example.com" in at.yard(*PULL, *by("carol@example.com", services.address)).good().err


def person(at: Small, *arguments: str) -> Ended:
    """Run a command at a terminal, agree to what it asks, and open the address that it shows."""
    ours, theirs = pty.openpty()
    env = {**at.environment, "BROWSER": "true"}
    argv = [sys.executable, "-P", "-m", "torchyard", *arguments]
    child = subprocess.Popen(argv, cwd=at.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, opened, agreed = "", False, 0
    with contextlib.suppress(OSError):  # what reading says when nobody is at the other end
        while child.poll() is None or select.select([ours], [], [], 0)[0]:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            seen += os.read(ours, 1 << 16).decode("utf-8", "replace")
            while seen.count("[y/N]") > agreed:
                agreed += 1
                os.write(ours, b"y\n")
            address = sigstore_services.address_in(seen)
            if address and not opened:
                opened = True
                requests.get(address)
    os.close(ours)
    return Ended(code=child.wait(), out=seen, err="")


def test_a_person_who_does_not_agree_signs_nothing(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs)
    before = len(services.entries), len(services.issued)
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-P", "-m", "torchyard", *SIGN]
    os.write(ours, b"n\n")
    child = subprocess.Popen(argv, cwd=at.root, env=at.environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):
        while block := os.read(ours, 1 << 16):
            seen += block
    os.close(ours)
    assert child.wait() == 3 and b"not signed" in seen
    assert (len(services.entries), len(services.issued)) == before
    assert "cpu" not in tags(at)


def test_without_a_log_a_time_stamp_says_when_it_was_signed(cases: Cases, services: Services, programs: Path) -> None:
    at = prepared(cases, services, programs, rekor=None, tsa=f"{services.address}/stamp")
    before = len(services.entries), services.stamped
    said = at.yard(*SIGN, "--identity-token", given(at, services.token(ME))).good().err
    assert "no transparency log is told" in said
    assert (len(services.entries), services.stamped) == (before[0], before[1] + 1)
    assert f"signed by {ME}" in at.yard(*PULL, *by(ME, services.address)).good().err
    subprocess.run(["rm", "-r", str(at.root / "taken.oci")], check=True)
    refused(at, *PULL, *by("eve@example.com", services.address), code=1)
    mirrors = Path(at.env["TORCHYARD_MIRRORS"])
    told = yaml.safe_load(mirrors.read_text())
    told["mirrors"]["sigstore"] |= {"tsa": None, "rekor": services.address}
    mirrors.write_text(yaml.safe_dump(told))  # as somebody has it who wants an entry in the log
    refused(at, *PULL, *by(ME, services.address), code=1)
