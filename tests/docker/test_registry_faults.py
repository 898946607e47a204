"""A real registry behind a proxy that misbehaves: what goes on after a fault, and what is told when it cannot."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import fault_proxy as faults
import pytest
import registry_process as registries
from fault_proxy import Proxy, Rule
from registry_process import NAME, PASSWORD, TokenServer

from torchyard import oci, provenance
from torchyard.errors import CheckFailed, Surroundings
from torchyard.world import registry_pull, registry_ref, registry_referrers, registry_session, registry_taking
from torchyard.world import registry_upload as upload
from torchyard.world.registry_referrers import Artifact
from torchyard.world.registry_session import Registry
from torchyard.world.registry_taking import Result
from torchyard.world.registry_upload import How, Sent
from torchyard.world.store import Store

pytestmark = pytest.mark.docker

MADE = registries.image(
    [registries.tar_of({"a": random.Random(1).randbytes(300_000)}), registries.tar_of({"b": b"b"})], {"Env": ["A=b"]}
)
WRITERS = 8
INDEXES = int(os.environ.get("TORCHYARD_INDEXES", "2"))  # that they all write to, one after the other
BIG = max(MADE.blobs, key=lambda digest: len(MADE.blobs[digest]))


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    return registries.program(tmp_path_factory.mktemp("registry-program"))


@pytest.fixture
def proxy(binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before an empty registry, with no log-in, short pauses and small chunks."""
    quiet(tmp_path, monkeypatch)
    with registries.running(binary, tmp_path / "registry") as host, faults.before(host) as made:
        yield made


def quiet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_session, "PAUSE", 0.0)
    monkeypatch.setattr(upload, "CHUNK", 100_000)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder / "docker"))
    monkeypatch.setenv("TORCHYARD_ENGINE_HOME", "/nonexistent/engine")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the image."""
    made = Store(tmp_path / "local" / "store")
    for data in (*MADE.blobs.values(), MADE.manifest):
        registry_taking.keep(data, made)
    return made


def registry(host: str, repository: str = "small") -> Registry:
    return Registry(registry_ref.parse(f"{host}/{repository}@{MADE.digest}"))


def push(host: str, store: Store, repository: str = "small", mounts: tuple[str, ...] = ()) -> list[Sent]:
    """Blobs and manifest, as the verb sends them."""
    there, result = registry(host, repository), registry_taking.read(MADE.manifest)
    sent = upload.blobs(there, result.blobs, store, mounts=mounts)
    upload.manifest(there, MADE.digest, MADE.manifest, oci.MANIFEST)
    return sent


def pull(host: str, folder: Path) -> Result:
    return registry_pull.take(registry(host), MADE.digest, Store(folder / "pulled" / "store"), lambda _: None)


def served(host: str, folder: Path) -> bool:
    """Whether the registry has the image, byte for byte."""
    return pull(host, folder).manifest == MADE.manifest


def test_what_is_there_is_not_sent_again(proxy: Proxy, store: Store, tmp_path: Path) -> None:
    assert {each.how for each in push(proxy.host, store)} == {How.SENT}
    before = proxy.sent()
    assert before == sum(map(len, MADE.blobs.values()))
    assert {each.how for each in push(proxy.host, store)} == {How.THERE}
    assert proxy.sent() == before and served(proxy.host, tmp_path)


def test_another_repository_of_the_registry_hands_its_blobs_over(proxy: Proxy, store: Store) -> None:
    push(proxy.host, store)
    before = proxy.sent()
    assert {each.how for each in push(proxy.host, store, "other", mounts=("small",))} == {How.MOUNTED}
    assert proxy.sent() == before


def test_a_blob_that_is_in_no_named_repository_is_sent(proxy: Proxy, store: Store) -> None:
    assert {each.how for each in push(proxy.host, store, "other", mounts=("small",))} == {How.SENT}


@pytest.mark.parametrize(
    "rule",
    [
        Rule(method="PATCH", path="", fault=faults.dropped, times=2),
        Rule(method="PATCH", path="", fault=faults.unanswered, skip=1),
        Rule(method="PATCH", path="", fault=faults.cut(30_000), skip=1),
        Rule(method="PATCH", path="", fault=faults.status(429, Retry_After="0"), times=3),
        Rule(method="PATCH", path="", fault=faults.status(500), skip=2),
        Rule(method="PATCH", path="", fault=faults.status(404), skip=1),
        Rule(method="POST", path="", fault=faults.status(503)),
        Rule(method="POST", path="", fault=faults.unanswered),
        Rule(method="PUT", path="/blobs/", fault=faults.dropped, times=2),
        Rule(method="PUT", path="/blobs/", fault=faults.unanswered),
        Rule(method="PUT", path="/blobs/", fault=faults.status(500)),
        Rule(method="HEAD", path="", fault=faults.status(502), skip=1),
        Rule(method="PUT", path="/manifests/", fault=faults.unanswered),
        Rule(method="PUT", path="/manifests/", fault=faults.another_digest, times=2),
        Rule(method="PUT", path="/manifests/", fault=faults.status(429, Retry_After="0")),
        Rule(method="GET", path="/blobs/uploads/", fault=faults.status(404)),
    ],
    ids=lambda rule: f"{rule.method}-{getattr(rule.fault, '__name__', '')}-{rule.times}-{rule.skip}",
)
def test_a_push_goes_on_after_a_fault(proxy: Proxy, store: Store, tmp_path: Path, rule: Rule) -> None:
    proxy.rules = [rule, Rule(method="PATCH", path="", fault=faults.dropped, skip=3)]
    push(proxy.host, store)
    assert served(proxy.host, tmp_path)


def test_a_large_blob_goes_on_where_it_was_cut(proxy: Proxy, store: Store) -> None:
    proxy.rules = [Rule(method="PATCH", path="", fault=faults.dropped, skip=3)]
    push(proxy.host, store)
    assert proxy.sent() < 1.6 * sum(map(len, MADE.blobs.values()))


def test_a_registry_that_never_takes_a_blob_is_told_with_its_size(proxy: Proxy, store: Store) -> None:
    proxy.rules = [Rule(method="PATCH", path="", fault=faults.status(500), times=1000)]
    with pytest.raises(Surroundings, match=r"does not take the blob sha256:.*500") as caught:
        push(proxy.host, store)
    assert "disk may be full" in caught.value.hint


def test_a_full_registry_is_told_and_the_push_goes_on_when_there_is_room(
    binary: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which needs root")
    quiet(tmp_path, monkeypatch)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=True)
    try:
        with registries.running(binary, small) as host:
            with pytest.raises(Surroundings, match="does not take the blob") as caught:
                push(host, store)
            assert "disk may be full" in caught.value.hint
            subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
            push(host, store)
            assert served(host, tmp_path)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_note_that_a_full_disk_emptied_is_mended_by_the_next_push(
    binary: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(tmp_path, monkeypatch)
    with registries.running(binary, tmp_path / "registry") as host:
        push(host, store)
        notes = list((tmp_path / "registry").rglob("_layers/sha256/*/link"))
        assert len(notes) == len(MADE.blobs)
        for note in notes:
            note.write_bytes(b"")
        push(host, store)
        assert served(host, tmp_path)


def test_a_registry_that_cannot_tell_what_it_has_is_sent_the_blobs(proxy: Proxy, store: Store, tmp_path: Path) -> None:
    proxy.rules = [
        Rule(method="HEAD", path="/blobs/", fault=faults.status(500), times=1000),
        Rule(method="POST", path="mount=", fault=faults.status(500), times=1000),
    ]
    assert {each.how for each in push(proxy.host, store, mounts=("other",))} == {How.SENT}
    assert served(proxy.host, tmp_path)


def test_a_file_of_the_store_that_was_changed_is_named_and_not_pushed(proxy: Proxy, store: Store) -> None:
    path = store.path(BIG.removeprefix("sha256:"))
    path.write_bytes(bytes(len(MADE.blobs[BIG])))
    with pytest.raises(CheckFailed, match=f"not what its name says: expected {BIG}"):
        push(proxy.host, store)


@pytest.mark.parametrize("part", [f"/blobs/{BIG}", "/manifests/"])
def test_another_content_under_a_digest_is_refused_and_not_kept(
    proxy: Proxy, store: Store, tmp_path: Path, part: str
) -> None:
    push(proxy.host, store)
    proxy.rules = [Rule(method="GET", path=part, fault=faults.spoiled, times=100)]
    with pytest.raises(CheckFailed, match="another content"):
        pull(proxy.host, tmp_path)
    assert not Store(tmp_path / "pulled" / "store").has(BIG.removeprefix("sha256:"))
    proxy.rules = []
    assert served(proxy.host, tmp_path)


def test_a_manifest_that_the_registry_reads_otherwise_is_told(proxy: Proxy, store: Store) -> None:
    proxy.rules = [
        Rule(method="PUT", path="/manifests/", fault=faults.status(201, Docker_Content_Digest="sha256:" + "0" * 64))
    ]
    with pytest.raises(CheckFailed, match="took the manifest as sha256:000"):
        push(proxy.host, store)


def log_in(folder: Path, host: str, password: str) -> None:
    (folder / "docker").mkdir(exist_ok=True)
    auth = base64.b64encode(f"{NAME}:{password}".encode()).decode()
    (folder / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def test_credentials_that_no_longer_hold_are_told_and_new_ones_go_on(
    binary: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(tmp_path, monkeypatch)
    with registries.running(binary, tmp_path / "registry", registries.basic_auth(tmp_path / "auth")) as host:
        log_in(tmp_path, host, "an old one")
        with pytest.raises(Surroundings, match="refuses") as caught:
            push(host, store)
        assert "docker login" in caught.value.hint
        log_in(tmp_path, host, PASSWORD)
        push(host, store)
        assert served(host, tmp_path)


def test_a_token_that_expires_on_the_way_is_asked_for_again(
    binary: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(tmp_path, monkeypatch)
    tokens = TokenServer(tmp_path / "tokens", open_to_all=False)
    try:
        with (
            registries.running(binary, tmp_path / "registry", tokens.settings) as upstream,
            faults.before(upstream) as proxy,
        ):
            log_in(tmp_path, proxy.host, PASSWORD)
            challenge = (
                f'Bearer realm="{tokens.settings["token"]["realm"]}",service="test",scope="repository:small:pull,push"'
            )
            proxy.rules = [Rule(method="PATCH", path="", fault=faults.status(401, WWW_Authenticate=challenge), skip=1)]
            push(proxy.host, store)
            assert tokens.given >= 2 and served(proxy.host, tmp_path)
    finally:
        tokens.close()


def test_two_pushes_at_once_give_one_image_and_list_what_belongs_to_it_once(
    proxy: Proxy, store: Store, tmp_path: Path
) -> None:
    def both(number: int) -> None:
        push(proxy.host, store)
        own = Artifact(kind="application/x-own", name=f"{number}.json", data=f"{number}".encode())
        shared = Artifact(kind=provenance.FINDINGS, name="f.json", data=b"{}", annotations=(("a", "b"),))
        registry_referrers.attach(registry(proxy.host), MADE.manifest, [own, shared], store)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(both, range(4)))
    assert served(proxy.host, tmp_path)
    found = registry_referrers.find(registry(proxy.host), MADE.digest)
    assert (
        sorted(each.kind for each in found)
        == ["application/vnd.torchyard.findings.v1+json"] + ["application/x-own"] * 4
    )
    assert {registry_referrers.read(registry(proxy.host), each) for each in found} == {b"0", b"1", b"2", b"3", b"{}"}


def test_eight_writers_of_one_index_lose_nothing(proxy: Proxy, store: Store) -> None:
    push(proxy.host, store)

    def attach(subject: bytes, number: int) -> None:
        data = f"{number} {oci.digest_of(subject)}".encode()
        own = Artifact(kind="application/x-own", name=f"{number}.json", data=data)
        registry_referrers.attach(registry(proxy.host), subject, [own], store)

    for each in range(INDEXES):
        subject = MADE.manifest + b" " * each
        upload.manifest(registry(proxy.host), oci.digest_of(subject), subject, oci.MANIFEST)
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(partial(attach, subject), range(WRITERS)))
        found = registry_referrers.find(registry(proxy.host), oci.digest_of(subject))
        seen = {registry_referrers.read(registry(proxy.host), one) for one in found}
        assert seen == {f"{number} {oci.digest_of(subject)}".encode() for number in range(WRITERS)}
