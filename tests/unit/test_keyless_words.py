"""What is told and refused of signatures without a key, before cosign is asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from torchyard import keyless
from torchyard.errors import InputError
from torchyard.world import signing

OWN = {"fulcio": "https://ca.example.com", "rekor": "https://log.example.com"}
WHERE = "mirrors.yaml  mirrors.sigstore"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("https://ca.example.com", "a table of addresses"),
        ({"fulcoi": "https://ca.example.com"}, "unknown key 'fulcoi'"),
        ({**OWN, "tsa": "time.example.com"}, "'time.example.com' is not an address"),
        ({**OWN, "rekor": "file:///etc"}, "not an address"),
        ({**OWN, "sct": "no"}, "'no' does not fit"),
        ({"fulcio": "https://ca.example.com"}, "would go into the public log"),
        ({"rekor": None}, "only with an authority of your own"),
        ({"sct": False}, "only with an authority of your own"),
        ({"fulcio": "https://ca.example.com", "rekor": None}, "nothing says when something was signed"),
    ],
)
def test_services_that_do_not_fit_together_are_refused(row: object, words: str) -> None:
    with pytest.raises(InputError) as told:
        keyless.services(row, where=WHERE)
    assert words in told.value.what and told.value.where.startswith(WHERE) and told.value.hint


def test_the_public_services_are_never_asked_to_skip_a_check() -> None:
    asked = keyless.who("ada@example.com", "", "https://accounts.example.com", "")
    words = [*keyless.sign_words(keyless.PUBLIC), *keyless.verify_words(keyless.PUBLIC, asked)]
    assert not [word for word in words if "insecure" in word or "private" in word or "tlog" in word]
    assert words == [
        "--certificate-identity=ada@example.com",
        "--certificate-oidc-issuer=https://accounts.example.com",
    ]


def test_a_check_is_left_out_only_where_the_services_are_said_not_to_have_it() -> None:
    asked = keyless.who("ada@example.com", "", "https://accounts.example.com", "")
    with_both = keyless.verify_words(keyless.services(OWN, where=WHERE), asked)
    row = {"fulcio": OWN["fulcio"], "rekor": None, "tsa": "https://time.example.com", "sct": False}
    with_none = keyless.verify_words(keyless.services(row, where=WHERE), asked)
    leaving_out = ["--use-signed-timestamps=true", "--private-infrastructure=true", "--insecure-ignore-sct=true"]
    assert with_none[2:] == leaving_out
    assert with_both[2:] == ["--rekor-url=https://log.example.com"]


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (("", "", "https://accounts.example.com", ""), "--identity"),
        (("ada@example.com", "", "", ""), "--issuer"),
        (("", "", "", ""), "--identity"),
        (("ada@example.com", "ada@.*", "https://accounts.example.com", ""), "--identity"),
        (("", "ada)|(.*", "https://accounts.example.com", ""), "--identity-like"),
        (("ada@example.com", "", "", "("), "--issuer-like"),
    ],
)
def test_who_signs_has_to_be_said_in_one_form(given: tuple[str, str, str, str], option: str) -> None:
    with pytest.raises(InputError) as told:
        keyless.who(*given)
    assert told.value.where == option and int(told.value.code) == 2


def test_a_pattern_is_given_to_cosign_with_both_ends() -> None:
    asked = keyless.who("", "a|b", "", "https://ci[.].*")
    words = keyless.verify_words(keyless.PUBLIC, asked)
    assert "--certificate-identity-regexp=^(?:a|b)$" in words
    assert "--certificate-oidc-issuer-regexp=^(?:https://ci[.].*)$" in words


def token(claims: object) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, "x")
    )


def test_a_token_says_who_has_it_and_until_when() -> None:
    told = keyless.claims(token({"iss": "https://ci.example.com", "sub": "repo:x", "exp": 17}), where="t")
    assert (told.identity, told.issuer, told.ends) == ("repo:x", "https://ci.example.com", 17)
    named = keyless.claims(token({"iss": "https://a.example.com", "sub": "1", "email": "ada@example.com"}), where="t")
    assert (named.identity, named.ends) == ("ada@example.com", 0)


@pytest.mark.parametrize("text", ["", "x", "a.b", "a.b.c", "..", token([]), token({"sub": "x"}), token({"exp": "x"})])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InputError) as told:
        keyless.claims(text, where="t")
    assert "not an identity token" in told.value.what and (not text or text not in told.value.what)


def test_what_becomes_public_is_said() -> None:
    told = keyless.Claims(identity="ada@example.com", issuer="https://accounts.example.com", ends=0)
    public = keyless.published(keyless.PUBLIC, told)
    assert "ada@example.com" in public and keyless.REKOR in public and "for good" in public
    own = {"fulcio": OWN["fulcio"], "rekor": None, "tsa": "https://time.example.com"}
    assert "no transparency log" in keyless.published(keyless.services(own, where=WHERE), None)


@pytest.mark.parametrize("option", ["identity", "identity_like", "issuer", "issuer_like"])
@pytest.mark.parametrize("key", ["", "cosign.pub"])
def test_a_signer_that_nothing_looks_at_is_refused(option: str, key: str) -> None:
    names = {"identity": "", "identity_like": "", "issuer": "", "issuer_like": "", option: "x"}
    with pytest.raises(InputError) as told:
        signing.trust(key, names, [])
    assert told.value.hint == "--verify keyless" and told.value.where == f"--{option.replace('_', '-')}"


def test_a_token_beside_a_key_is_refused() -> None:
    with pytest.raises(InputError) as told:
        signing.signer("cosign.key", "token", [], print)
    assert told.value.hint == "--sign keyless"


def test_the_nearest_mirrors_file_with_services_counts(tmp_path: Path) -> None:
    near, far = tmp_path / "near.yaml", tmp_path / "far.yaml"
    near.write_text("mirrors: {registry: {lab: registry.example.com/ml}}\n")
    far.write_text("mirrors: {sigstore: {rekor: 'https://log.example.com'}}\n")
    assert signing.read_services([near, far]).rekor == "https://log.example.com"
    assert signing.read_services([near]) == keyless.PUBLIC
