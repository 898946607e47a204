"""An index on loopback that shows a resolver only the wheels that one build may take.

The resolver asks nothing else: pages, certificates, proxies and passwords are this process's business alone, nothing of
another build can be chosen, and what was not there is known by name when the resolver fails.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from torchyard.errors import YardError
from torchyard.world.wheel_index import Offer, Offers


@dataclass(kw_only=True)
class View:
    """What the resolver asked for and was shown; filled while it runs."""

    choose: Callable[[str], tuple[Offers, dict[str, Offer]]]  # everything offered, and what of it may be taken
    metadata: Callable[[Offer], bytes]
    bound: frozenset[str] = frozenset()  # the projects of which only one build is shown
    url: str = ""
    asked: dict[str, Offers] = field(default_factory=dict)
    shown: dict[str, dict[str, Offer]] = field(default_factory=dict)
    failures: list[YardError] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, project: str) -> dict[str, Offer]:
        """The wheels of a project that may be taken, by file name."""
        if project not in self.shown:
            offers, fitting = self.choose(project)
            with self._lock:
                self.asked[project], self.shown[project] = offers, fitting
        return self.shown[project]


@contextlib.contextmanager
def serving(view: View) -> Iterator[View]:
    """The view served at `view.url` as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                kind, body = _answer(view, unquote(self.path))
            except YardError as error:
                view.failures.append(error)
                self._send(500, "text/plain", str(error).encode())
            except KeyError:
                self._send(404, "text/plain", b"not here")
            except Exception as error:  # a bug: raised again by the thread that asked, with its traceback
                view.failures.append(Broken(error))
                self._send(500, "text/plain", repr(error).encode())
            else:
                self._send(200, kind, body)

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    view.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield view
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a resolver that ends drops its open connections, and what fails in an answer is kept."""


class Broken(YardError):
    """A bug met while answering the resolver; `cause` keeps its traceback."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(repr(cause))
        self.cause = cause


def _answer(view: View, path: str) -> tuple[str, bytes]:
    """The type and text of a page, or of one wheel's METADATA; KeyError for anything else."""
    match path.strip("/").split("/"):
        case ["simple", project]:
            fitting = view.of(project)
            if not fitting:
                raise KeyError(project)
            page = {
                "meta": {"api-version": "1.1"},
                "name": project,
                "files": [_entry(project, offer) for offer in fitting.values()],
            }
            return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()
        case ["files", project, file] if file.endswith(".metadata"):
            return "application/octet-stream", view.metadata(view.of(project)[file.removesuffix(".metadata")])
        case _:
            raise KeyError(path)


def _entry(project: str, offer: Offer) -> dict[str, object]:
    wheel = offer.wheel
    return {
        "filename": wheel.file,
        "url": f"/files/{project}/{wheel.file}",
        "hashes": {"sha256": wheel.sha256} if wheel.sha256 else {},
        "requires-python": wheel.requires_python or None,
        "yanked": False if wheel.yanked is None else (wheel.yanked or True),
        "core-metadata": True,
    }
