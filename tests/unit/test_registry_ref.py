"""References to registry images."""

from __future__ import annotations

import pytest

from torchyard.errors import Incompatible, InputError
from torchyard.world import registry, registry_ref, registry_session
from torchyard.world.registry_ref import DEFAULT_REGISTRY

DIGEST = "sha256:" + "0a" * 32
OTHER = "sha256:" + "0b" * 32


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("debian:12-slim", DEFAULT_REGISTRY, "library/debian", "12-slim", ""),
        ("team/base:1", DEFAULT_REGISTRY, "team/base", "1", ""),
        (f"{DEFAULT_REGISTRY}/debian:12", DEFAULT_REGISTRY, "library/debian", "12", ""),
        (f"index.{DEFAULT_REGISTRY}/debian:12", DEFAULT_REGISTRY, "library/debian", "12", ""),
        ("localhost/base:1", "localhost", "base", "1", ""),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000", "a/b", "1", ""),
        ("[::1]:5000/a:1", "[::1]:5000", "a", "1", ""),
        ("registry.example.com/a/b/c_d:v1.0_x", "registry.example.com", "a/b/c_d", "v1.0_x", ""),
        (f"registry.example.com:443/a@{DIGEST}", "registry.example.com:443", "a", "", DIGEST),
        (f"debian:12@{DIGEST}", DEFAULT_REGISTRY, "library/debian", "12", DIGEST),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text: str, host: str, repository: str, tag: str, digest: str) -> None:
    found = registry_ref.parse(text)
    assert (found.host, found.repository, found.tag, found.digest) == (host, repository, tag, digest)
    assert found.asked == (digest or tag)


@pytest.mark.parametrize(
    "text",
    [
        *("", "debian", "host:5000/a", "Debian:12", "a//b:1", "/a:1", "a:", "a:-1", "a:1 ", "a:1\n"),
        *("a@sha256:12", "a@md5:12", f"a@{DIGEST}/../x", f"a@{DIGEST}\n"),
        *("https://h/a:1", "-h.x/a:1", "h.x/../../v2/b:1", "h.x/a:1?x", "user@h.x/a:1"),
    ],
)
def test_what_is_no_reference_to_one_image_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a reference") as caught:
        registry_ref.parse(text)
    assert caught.value.hint and caught.value.where


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost:5000", True), ("127.3.0.1", True), ("[::1]:5000", True), ("10.0.0.1:5000", False), ("h.x", False)],
)
def test_only_this_machine_is_loopback(host: str, here: bool) -> None:
    assert registry_ref.parse(f"{host}/a:1").loopback is here


def test_the_plain_variant_of_a_machine_is_chosen_and_an_attestation_never() -> None:
    def entry(digest: str, **platform: str) -> dict[str, object]:
        return {"digest": digest, "platform": platform}

    ref = registry_ref.parse("debian:12")
    index = {
        "manifests": [
            entry(OTHER, os="unknown", architecture="unknown"),
            entry(OTHER, os="windows", architecture="amd64"),
            entry(OTHER, os="linux", architecture="amd64", variant="v3"),
            entry(DIGEST, os="linux", architecture="amd64"),
            entry(DIGEST, os="linux", architecture="arm64", variant="v8"),
        ]
    }
    assert registry_ref.choose(index, "x86_64", ref) == registry_ref.choose(index, "aarch64", ref) == DIGEST
    index = {"manifests": index["manifests"][:3]}
    with pytest.raises(Incompatible, match=r"it has linux/amd64/v3, windows/amd64$"):
        registry_ref.choose(index, "x86_64", ref)


def test_a_challenge_is_read_among_others() -> None:
    header = 'Basic realm="a", Bearer realm="https://t.x/token",service="s",scope="repository:a/b:pull,push"'
    assert registry_session.challenge(header, "Basic") == {"realm": "a"}
    assert registry_session.challenge(header, "Bearer") == {
        "realm": "https://t.x/token",
        "service": "s",
        "scope": "repository:a/b:pull,push",
    }
    assert registry_session.challenge(header, "Digest") is None


def test_environment_and_labels_are_taken_over_and_what_starts_something_is_not() -> None:
    section, dropped = registry.taken_over(
        {
            "Env": ["PATH=/opt/x:/bin", "B=2", "A=1"],
            "Labels": {"b": "2", "a": "1"},
            "Entrypoint": ["/start"],
            "Cmd": None,
            "Healthcheck": {"Test": ["CMD", "x"]},
            "Volumes": {"/data": {}},
            "User": "7",
            "WorkingDir": "/app",
            "OnBuild": ["RUN x"],
            "ExposedPorts": {},
        }
    )
    assert section == f'{{"Env":["PATH={registry.PATH}","B=2","A=1"],"Labels":{{"a":"1","b":"2"}}}}'
    assert dropped == ("Entrypoint", "Healthcheck", "OnBuild", "User", "Volumes", "WorkingDir")


@pytest.mark.parametrize(
    ("text", "os"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian-12"),
        ("VERSION_ID='24.04'\nID='ubuntu'\n", "ubuntu-24.04"),
        ("ID=debian\n", "debian"),
        ("", ""),
    ],
)
def test_a_system_is_known_by_its_os_release(text: str, os: str) -> None:
    assert registry.named_os(text) == os
