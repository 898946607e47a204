"""What a download promises, seen against a real server on loopback."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from torchyard.world.download import Changed, CutOff, NotThere, download
from torchyard.world.store import Store

BODY = bytes(range(256)) * 8192  # 2 MiB
SHA = hashlib.sha256(BODY).hexdigest()


@dataclass(slots=True)
class Script:
    """How the server answers, request by request; the last entry goes on for ever."""

    answers: list[str]
    asked: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Serves BODY as the script says."""

    def do_GET(self) -> None:
        script: Script = self.server.script  # type: ignore[attr-defined]  # the server carries its script
        script.asked.append(self.headers.get("Range"))
        answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
        body = BODY if answer != "other" else b"x" * len(BODY)
        start = 0
        if answer.isdigit():
            self.send_response(int(answer))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = self.headers.get("Range")
        if wanted and answer != "whole":
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(body) - start if answer != "longer" else len(body) + 5))
        self.end_headers()
        end = start + 300_000 if answer == "cut" else len(body)
        self.wfile.write(body[start:end])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def fetch(server: ThreadingHTTPServer, store: Store, *answers: str, progress: list[int] | None = None) -> Script:
    script = Script(list(answers))
    server.script = script  # type: ignore[attr-defined]  # the server carries its script
    with requests.Session() as session:
        session.trust_env = False
        download(
            [f"http://127.0.0.1:{server.server_port}/pool/a.deb"],
            sha256=SHA,
            size=len(BODY),
            store=store,
            session=session,
            on_progress=progress.append if progress is not None else None,
            pause=lambda _: None,
        )
    return script


def left_over(store: Store) -> list[Path]:
    return list((store.root / "incoming").iterdir())


def test_a_cut_transfer_goes_on_where_it_stopped(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path)
    progress: list[int] = []
    script = fetch(server, store, "cut", "503", "good", progress=progress)
    assert store.path(SHA).read_bytes() == BODY
    assert script.asked[0] is None and script.asked[1] == script.asked[2] and script.asked[1] is not None
    assert sum(progress) == len(BODY)
    assert left_over(store) == []


def test_a_server_that_cannot_resume_is_asked_for_the_whole_again(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path)
    progress: list[int] = []
    fetch(server, store, "cut", "whole", progress=progress)
    assert store.has(SHA, len(BODY))
    assert sum(progress) == len(BODY)


def test_pieces_of_two_files_are_fetched_again_as_one(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path)
    script = fetch(server, store, "cut", "other", "good")
    assert store.has(SHA)
    assert script.asked[2] is None


def test_another_content_is_not_asked_for_twice(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(Changed) as caught:
        fetch(server, store, "other")
    seen = hashlib.sha256(b"x" * len(BODY)).hexdigest()
    assert caught.value.seen_sha256 == seen and SHA in caught.value.what and seen in caught.value.what
    assert not store.has(SHA) and left_over(store) == []


def test_another_size_is_known_before_the_body(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    with pytest.raises(Changed, match=f"expected {len(BODY)} bytes, seen {len(BODY) + 5} bytes"):
        fetch(server, Store(tmp_path), "longer")


def test_a_missing_file_is_said_to_be_missing(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="404"):
        fetch(server, Store(tmp_path), "404")


def test_a_server_that_stays_busy_ends_in_one_error(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    with pytest.raises(CutOff, match="429") as caught:
        fetch(server, Store(tmp_path), "429")
    assert caught.value.hint


def test_the_next_address_is_asked_when_one_has_not_got_it(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    kept = tmp_path / "a package.deb"
    kept.write_bytes(BODY)
    server.script = Script(["404"])  # type: ignore[attr-defined]  # the server carries its script
    urls = [f"http://127.0.0.1:{server.server_port}/a.deb", (tmp_path / "none").as_uri(), kept.as_uri()]
    with requests.Session() as session:
        session.trust_env = False
        download(urls, sha256=SHA, size=None, store=store, session=session)
    assert store.path(SHA).read_bytes() == BODY


def test_an_address_is_shown_without_its_password(tmp_path: Path) -> None:
    with requests.Session() as session, pytest.raises(CutOff) as caught:
        session.trust_env = False
        url = "http://me:secret@127.0.0.1:1/a.deb?token=t"
        download([url], sha256=SHA, size=1, store=Store(tmp_path), session=session, pause=lambda _: None)
    assert caught.value.where == "http://127.0.0.1:1/a.deb"
    assert "secret" not in caught.value.what


def test_several_processes_may_fetch_one_file_at_once(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    server.script = Script(["good"])  # type: ignore[attr-defined]  # the server carries its script
    url = f"http://127.0.0.1:{server.server_port}/a.deb"

    def one(_: int) -> bool:
        store = Store(tmp_path)
        with requests.Session() as session:
            session.trust_env = False
            download([url], sha256=SHA, size=len(BODY), store=store, session=session)
        return store.has(SHA, len(BODY))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(8)))
    assert left_over(Store(tmp_path)) == []
