"""A registry on loopback that misbehaves: what is tried again, and what is told."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from torchyard import oci
from torchyard.errors import CheckFailed, Incompatible, InputError, Surroundings, YardError
from torchyard.oci import LAYER_GZIP, Start
from torchyard.world import registry, registry_ref, registry_session
from torchyard.world.store import Store

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DATA = bytes(range(256)) * 8192  # stands for a tar: nothing reads it as one here


class Fake:
    """What a small registry answers: bodies by path, and per path what goes wrong before it is answered."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.faults: dict[str, list[Callable[[BaseHTTPRequestHandler], None]]] = {}
        self.asked: list[str] = []
        self.logins: list[str] = []  # the Authorization headers that came
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.ref = f"127.0.0.1:{self.server.server_port}/base:1"

    def image(self, *, kind: str = LAYER_GZIP, diff_id: str = "", media: str = oci.MANIFEST, **changed: Any) -> str:
        """Offer an image of one layer under the tag 1, and answer its digest."""
        layer = gzip.compress(DATA, mtime=0)
        config = {
            "os": "linux",
            "architecture": "amd64",
            "rootfs": {"type": "layers", "diff_ids": [diff_id or self.digest(DATA)]},
        }
        blob = json.dumps(config | changed).encode()
        config_kind = oci.CONFIG if media == oci.MANIFEST else DOCKER_CONFIG
        manifest = {
            "schemaVersion": 2,
            "mediaType": media,
            "config": {"mediaType": config_kind, "digest": self.digest(blob), "size": len(blob)},
            "layers": [{"mediaType": kind, "digest": self.digest(layer), "size": len(layer)}],
        }
        self.layer = self.digest(layer)
        for data in (blob, layer):
            self.bodies[f"blobs/{self.digest(data)}"] = data
        return self.manifest(manifest)

    def manifest(self, document: Any) -> str:
        data = json.dumps(document).encode()
        self.bodies["manifests/1"] = self.bodies[f"manifests/{self.digest(data)}"] = data
        return self.digest(data)

    def pull(self, digest: str, store: Store) -> Start:
        return registry.pull(self.ref, digest, "x86_64", store, lambda _: None)

    @staticmethod
    def digest(data: bytes) -> str:
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.removeprefix("/v2/base/")
                fake.asked.append(path)
                fake.logins += [self.headers["Authorization"]] if "Authorization" in self.headers else []
                if fake.faults.get(path):
                    fake.faults[path].pop(0)(self)
                    return
                body = fake.bodies.get(path)
                start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
                self.send_response(404 if body is None else 206 if start else 200)
                body = (body or b"")[start:]
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{start + len(body)}")
                self.send_header("ETag", '"same"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler


@contextlib.contextmanager
def served(fake: Fake) -> Iterator[Fake]:
    """The fake while it answers."""
    thread = threading.Thread(target=fake.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        fake.server.server_close()
        thread.join()


def status(code: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def cut(body: bytes, after: int) -> Callable[[BaseHTTPRequestHandler], None]:
    """The start of an answer, and then nothing."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("ETag", '"same"')
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[:after])
        request.close_connection = True

    return answer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Fake]:
    monkeypatch.setattr(registry_session, "PAUSE", 0.0)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("TORCHYARD_ENGINE_HOME", str(tmp_path / "engine"))
    with served(Fake()) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "local" / "store")


def test_an_image_of_dockers_kind_is_taken_with_layers_of_ours(fake: Fake, store: Store) -> None:
    digest = fake.image(kind=DOCKER_LAYER, media=DOCKER_MANIFEST)
    assert registry.resolve(fake.ref, "x86_64") == digest
    start = fake.pull(digest, store)
    assert (start.layers[0].diff_id, start.layers[0].unpacked) == (fake.digest(DATA), len(DATA))


def test_a_busy_registry_is_asked_again(fake: Fake, store: Store) -> None:
    digest = fake.image()
    fake.faults = {"manifests/1": [status(429, Retry_After="0"), status(503)], f"blobs/{fake.layer}": [status(500)]}
    assert registry.resolve(fake.ref, "x86_64") == digest
    assert fake.pull(digest, store).layers[0].digest == fake.layer


def test_a_registry_that_stays_busy_is_told_with_its_own_words(fake: Fake) -> None:
    fake.image()
    said = json.dumps({"errors": [{"code": "TOOMANYREQUESTS", "message": "you pulled too much"}]}).encode()
    fake.faults = {"manifests/1": [status(429, said)] * registry_session.ATTEMPTS}
    with pytest.raises(Surroundings, match="does not answer .*429.*you pulled too much"):
        registry.resolve(fake.ref, "x86_64")


def test_a_layer_that_was_cut_goes_on_where_it_was(fake: Fake, store: Store) -> None:
    digest = fake.image()
    blob = fake.bodies[f"blobs/{fake.layer}"]
    fake.faults = {f"blobs/{fake.layer}": [cut(blob, 1000), cut(blob, 0)]}
    assert fake.pull(digest, store).layers[0].digest == fake.layer
    assert store.has(fake.layer.removeprefix("sha256:"), len(blob))


def test_a_second_pull_asks_for_nothing(fake: Fake, store: Store) -> None:
    digest = fake.image()
    first = fake.pull(digest, store)
    fake.asked.clear()
    assert fake.pull(digest, store) == first and fake.asked == []


def test_nobody_listening_is_told(fake: Fake) -> None:
    with pytest.raises(Surroundings, match="does not answer") as caught:
        registry.resolve("127.0.0.1:9/base:1", "x86_64")
    assert "HTTPS_PROXY" in caught.value.hint


@pytest.mark.parametrize("part", ["manifest", "configuration", "layer"])
def test_another_content_under_a_digest_is_refused(fake: Fake, store: Store, part: str) -> None:
    digest = fake.image()
    config = json.loads(fake.bodies["manifests/1"])["config"]["digest"]
    path = {"manifest": f"manifests/{digest}", "configuration": f"blobs/{config}", "layer": f"blobs/{fake.layer}"}[part]
    changed = bytearray(fake.bodies[path])
    changed[-2] ^= 1
    fake.bodies[path] = bytes(changed)
    with pytest.raises(CheckFailed, match=f"another content: expected {path.partition('/')[2]}, seen .*[0-9a-f]{{64}}"):
        fake.pull(digest, store)


def test_layers_that_unpack_to_something_else_are_refused(fake: Fake, store: Store) -> None:
    digest = fake.image(diff_id="sha256:" + "00" * 32)
    with pytest.raises(CheckFailed, match="the image's configuration says sha256:00"):
        fake.pull(digest, store)


@pytest.mark.parametrize(
    "kind",
    [
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ],
)
def test_layers_of_another_kind_are_refused_before_anything_is_fetched(fake: Fake, store: Store, kind: str) -> None:
    digest = fake.image(kind=kind)
    for ask in (lambda: registry.resolve(fake.ref, "x86_64"), lambda: fake.pull(digest, store)):
        with pytest.raises(Incompatible, match="layer 1") as caught:
            ask()
        assert kind in caught.value.what and "compression=gzip" in caught.value.hint
    assert f"blobs/{fake.layer}" not in fake.asked


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"schemaVersion": 1, "fsLayers": []},
        {"config": 1, "layers": [1]},
        {"config": {"mediaType": oci.CONFIG, "digest": "sha256:../../../etc/passwd", "size": 1}, "layers": []},
        {"manifests": [{"digest": "sha256:..", "platform": {"os": "linux", "architecture": "amd64"}}]},
    ],
)
def test_a_manifest_that_is_none_is_told(fake: Fake, document: Any) -> None:
    fake.manifest(document)
    with pytest.raises(YardError):
        registry.resolve(fake.ref, "x86_64")


def test_an_image_of_another_machine_is_refused_with_what_it_is(fake: Fake, store: Store) -> None:
    digest = fake.image(architecture="arm64")
    with pytest.raises(Incompatible, match="no image for linux/amd64; it has linux/arm64"):
        fake.pull(digest, store)


def test_a_registry_that_wants_to_know_who_asks_is_told_so(fake: Fake) -> None:
    fake.image()
    fake.faults = {"manifests/1": [status(401, WWW_Authenticate='Basic realm="x"')] * 2}
    with pytest.raises(Surroundings, match="refuses .*401") as caught:
        registry.resolve(fake.ref, "x86_64")
    assert "docker login" in caught.value.hint


@pytest.mark.filterwarnings("ignore:docker-credential")
def test_a_missing_credential_helper_is_told(fake: Fake, tmp_path: Path) -> None:
    fake.image()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text('{"credsStore": "no-such-helper"}')
    fake.faults = {"manifests/1": [status(401, WWW_Authenticate='Basic realm="x"')]}
    with pytest.raises(InputError, match="no credentials for 127.0.0.1.*no-such-helper"):
        registry.resolve(fake.ref, "x86_64")


def test_the_host_that_a_registry_sends_to_for_a_layer_is_not_told_the_login(
    fake: Fake, store: Store, tmp_path: Path
) -> None:
    digest = fake.image()
    other = fake.bodies.pop(f"blobs/{fake.layer}")
    host = fake.ref.partition("/")[0]
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": "YTpi"}}}))
    with served(Fake()) as elsewhere:
        elsewhere.bodies[f"blobs/{fake.layer}"] = other
        place = f"http://{elsewhere.ref.partition('/')[0]}/v2/base/blobs/{fake.layer}"
        fake.faults = {
            f"manifests/{digest}": [status(401, WWW_Authenticate='Basic realm="x"')],
            f"blobs/{fake.layer}": [status(307, Location=place)],
        }
        assert fake.pull(digest, store).layers[0].digest == fake.layer
        assert fake.logins == ["Basic YTpi"] * 3
        assert elsewhere.asked == [f"blobs/{fake.layer}"] and elsewhere.logins == []


def test_cuda_that_is_there_already_is_remarked() -> None:
    def start(*env: str) -> Start:
        return Start(layers=(), words="", config=json.dumps({"Env": ["PATH=/bin", *env]}))

    told = registry.remarks(start("CUDA_VERSION=12.8.1", "LD_LIBRARY_PATH=/usr/local/nvidia/lib"), "x:1", "13.0")
    assert "has CUDA 12.8.1: torch brings CUDA 13.0 itself" in told[0] and "LD_LIBRARY_PATH" in told[1]
    assert "CPU build uses none" in registry.remarks(start("CUDA_VERSION=12.8.1"), "x:1", None)[0]
    assert registry.remarks(start("LANG=C"), "x:1", "13.0") == []


def test_downloads_that_begin_at_once_all_wait_for_how_the_registry_speaks(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = registry_session.Registry(registry_ref.parse(fake.ref))
    asked, others = threading.Event(), threading.Event()

    def speaks_tls() -> bool:
        asked.set()
        others.wait(1)  # time for a second one to take an answer that is not there yet
        return False

    monkeypatch.setattr(there, "_speaks_tls", speaks_tls)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(there.url, "blobs/a")
        asked.wait()
        second = pool.submit(there.url, "blobs/b")
        assert second.result().startswith("http://") and first.result().startswith("http://")
