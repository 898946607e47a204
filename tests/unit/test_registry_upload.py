"""Pushing to registries of other kinds: that take no parts, that want large ones, that know referrers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torchyard import oci, provenance
from torchyard.errors import CheckFailed, InputError, Surroundings
from torchyard.world import (
    registry_names,
    registry_pull,
    registry_ref,
    registry_referrers,
    registry_session,
    registry_taking,
    registry_upload,
)
from torchyard.world.registry_referrers import Artifact
from torchyard.world.registry_session import Registry
from torchyard.world.registry_taking import Blob
from torchyard.world.registry_upload import How
from torchyard.world.store import Store

DATA = bytes(range(256)) * 1000


class Small:
    """A registry that holds blobs and manifests in memory, and is of the kind that a test wants."""

    def __init__(self, *, parts: bool = True, least: int = 0, referrers: bool = False) -> None:
        self.parts, self.least, self.referrers = parts, least, referrers
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.sizes: list[int] = []  # of the parts that came
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self.server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        small = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                if self.rfile.peek(1)[:1] == b"\x16":  # type: ignore[attr-defined]  # a TLS handshake
                    self.close_connection = True
                    return
                super().handle_one_request()

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                code, headers, answer = small.answer(self.command, self.path, body)
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else answer)

            do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = _any

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        place, _, query = path.removeprefix("/v2/x/").partition("?")
        name = place.rpartition("/")[2]
        match method, place.partition("/")[0]:
            case ("POST", _):
                key = str(len(self.uploads))
                self.uploads[key] = b""
                headers = {"Location": f"/v2/x/blobs/uploads/{key}"}
                return 202, headers | ({"OCI-Chunk-Min-Length": str(self.least)} if self.least else {}), b""
            case ("PATCH", _):
                if not self.parts:
                    return 405, {}, b""
                self.sizes.append(len(body))
                self.uploads[name] += body
                return 202, {"Location": path, "Range": f"0-{len(self.uploads[name]) - 1}"}, b""
            case ("PUT", "blobs"):
                data = self.uploads[name] + body
                digest = re.sub("%3A", ":", query.partition("digest=")[2])
                if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
                    return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
                self.blobs[digest] = data
                return 201, {}, b""
            case ("PUT", _):
                digest = oci.digest_of(body)
                self.manifests[name] = self.manifests[digest] = body
                subject = json.loads(body).get("subject", {}).get("digest", "")
                return 201, {"OCI-Subject": subject} if self.referrers and subject else {}, b""
            case (_, "referrers"):
                return (200, {}, self.listed(name)) if self.referrers else (404, {}, b"")
        held = {**self.blobs, **self.manifests}.get(name)
        return (200, {}, held) if held is not None else (404, {}, b"")

    def listed(self, digest: str) -> bytes:
        found = {
            each: json.loads(data)
            for each, data in self.manifests.items()
            if each.startswith("sha256:") and json.loads(data).get("subject", {}).get("digest") == digest
        }
        rows = [
            {"digest": each, "size": 1, "artifactType": m["artifactType"], "annotations": m["annotations"]}
            for each, m in found.items()
        ]
        return json.dumps({"manifests": rows}).encode()


@contextlib.contextmanager
def served(small: Small) -> Iterator[Registry]:
    """The repository x of a running registry."""
    thread = threading.Thread(target=small.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Registry(registry_ref.parse(f"{small.host}/x:1"))
    finally:
        small.server.shutdown()
        small.server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry_session, "PAUSE", 0.0)
    monkeypatch.setattr(registry_referrers, "SETTLE", 0.0)
    monkeypatch.setattr(registry_upload, "CHUNK", 60_000)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("TORCHYARD_ENGINE_HOME", str(tmp_path / "engine"))


def blob(store: Store) -> Blob:
    return Blob(digest=registry_taking.keep(DATA, store), size=len(DATA), kind=oci.LAYER_GZIP)


@pytest.mark.parametrize(("parts", "least", "sizes"), [(True, 0, 5), (True, 200_000, 2), (False, 0, 0)])
def test_a_blob_goes_in_parts_as_large_as_the_registry_wants_or_in_one_piece(
    tmp_path: Path, parts: bool, least: int, sizes: int
) -> None:
    small, store = Small(parts=parts, least=least), Store(tmp_path / "store")
    with served(small) as registry:
        (sent,) = registry_upload.blobs(registry, [blob(store)], store)
    assert sent.how is How.SENT and small.blobs == {sent.blob.digest: DATA} and len(small.sizes) == sizes


def test_a_small_part_of_a_blob_is_counted_once(tmp_path: Path) -> None:
    small, store, counted = Small(), Store(tmp_path / "store"), []
    with served(small) as registry:
        registry_upload.blobs(registry, [blob(store)], store, progress=counted.append)
    assert sum(counted) == len(DATA)


SUBJECT = b'{"a manifest": 1}'


@pytest.mark.parametrize("api", [True, False])
def test_what_belongs_to_an_image_is_found_by_its_digest(tmp_path: Path, api: bool) -> None:
    small, store = Small(referrers=api), Store(tmp_path / "store")
    made = [Artifact(kind=f"application/{n}", name=n, data=n.encode(), annotations=(("n", n),)) for n in "ab"]
    with served(small) as registry:
        for _ in range(2):
            registry_referrers.attach(registry, SUBJECT, made, store)
        found = registry_referrers.find(registry, oci.digest_of(SUBJECT))
        assert {(each.kind, each.annotations["n"]) for each in found} == {
            ("application/a", "a"),
            ("application/b", "b"),
        }
        assert {registry_referrers.read(registry, each) for each in found} == {b"a", b"b"}
        assert registry_referrers.find(registry, "sha256:" + "0" * 64) == []
    assert (registry_referrers.fallback_tag(oci.digest_of(SUBJECT)) in small.manifests) is not api


def findings(level: str, announced: str = "", *, digest: str = "") -> Artifact:
    told = {"digest": digest or oci.digest_of(SUBJECT), "proven": level}
    annotations = ((provenance.PROVEN, announced or level),)
    return Artifact(kind=provenance.FINDINGS, name="f", data=json.dumps(told).encode(), annotations=annotations)


@pytest.mark.parametrize(
    ("made", "best"),
    [
        ([], "none"),
        ([findings("cpu")], "cpu"),
        ([findings("static"), findings("cpu")], "cpu"),
        ([findings("static", "gpu")], "static"),
        ([findings("gpu", digest="sha256:" + "0" * 64)], "none"),
        ([findings("made up")], "none"),
    ],
)
def test_the_level_is_what_findings_of_this_very_image_say_inside(
    tmp_path: Path, made: list[Artifact], best: str
) -> None:
    store = Store(tmp_path / "store")
    with served(Small()) as registry:
        registry_referrers.attach(registry, SUBJECT, made, store)
        assert registry_pull.check_level(registry, oci.digest_of(SUBJECT), "none") == best
        with pytest.raises(CheckFailed, match=f"to the level '{best}', 'gpu' is required"):
            registry_pull.check_level(registry, oci.digest_of(SUBJECT), "gpu")


def test_a_tag_that_is_not_there_has_no_digest() -> None:
    with served(Small()) as registry:
        assert registry_upload.digest_at(registry, "gone", (oci.MANIFEST,)) == ""


def test_names_come_from_sites_and_mirrors_files_move_them(tmp_path: Path) -> None:
    near, far = tmp_path / "near.yaml", tmp_path / "far.yaml"
    near.write_text("mirrors: {registry: {lab: '127.0.0.1:5000/ml'}}")
    far.write_text("mirrors: {registry: {lab: far.example.com, own: own.example.com/x}, pypi: https://p.example.com}")
    known = registry_names.places({"lab": "registry.example.com/ml", "desk": ""}, [near, far])
    assert known == {"lab": "127.0.0.1:5000/ml", "own": "own.example.com/x"}
    assert registry_names.chosen(known, (), ["lab", "gone"]) == {"lab": "127.0.0.1:5000/ml"}
    with pytest.raises(InputError, match="no registry is called 'lad'") as caught:
        registry_names.chosen(known, ["lad"], [])
    assert "did you mean lab" in caught.value.hint
    with pytest.raises(InputError, match="no site of this image has one"):
        registry_names.chosen({}, (), [])
    with pytest.raises(InputError, match="where the registry gone is"):
        registry_names.chosen(known, (), ["gone"])


@pytest.mark.parametrize(
    "text",
    ["mirrors: {registry: [x]}", "mirrors: {registry: {lab: 'https://x/y'}}", "mirrors: {registry: {a: 1}}", "{"],
)
def test_a_mirrors_file_that_names_no_registry_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        registry_names.read_mirrors([tmp_path / "m.yaml"])
    assert "m.yaml" in caught.value.where


def test_a_registry_that_is_gone_is_told_with_what_helps(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    registry = Registry(registry_ref.parse("127.0.0.1:9/x:1"), hint="run it again")
    with pytest.raises(Surroundings, match="does not answer") as caught:
        registry_upload.blobs(registry, [blob(store)], store)
    assert "run it again" in caught.value.hint
