"""A container engine that is none: it answers the API on a socket, keeps its containers, and notes what is asked."""

from __future__ import annotations

import json
import re
import socketserver
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchyard.world.engine import Engine


class FakeEngine:
    """Serves until it is left; a `mute` one makes the containers it is asked for, and the answer never comes."""

    def __init__(self, *, info: dict[str, Any] | None = None, mute: bool = False) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="engine-", dir="/tmp")  # the path of a socket has to be short
        self.socket = Path(self.folder.name) / "socket"
        self.info = info or {}
        self.mute = mute
        self.containers: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.server = _Server(str(self.socket), _handler(self))

    def __enter__(self) -> FakeEngine:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    @property
    def engine(self) -> Engine:
        """What the code under test is given."""
        address = f"unix://{self.socket}"
        return Engine(
            docker_host=address,
            private=False,
            docker=("docker",),
            buildx=("docker", "buildx"),
            compose=(),
            version="28.5.2",
            containerd_store=True,
            env={"DOCKER_HOST": address},
        )

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """The status and the document of one request."""
        self.asked.append((method, path))
        if path == "/_ping" or path == "/version":
            return 200, {"ApiVersion": "1.45", "Version": "28.5.2"}
        if path == "/info":
            return 200, self.info
        if (method, path) == ("POST", "/containers/create"):
            name = query["name"][0]
            self.containers[name] = {**body, "Id": name}
            if self.mute:
                raise ConnectionAbortedError
            return 201, {"Id": name, "Warnings": []}
        if (method, path) == ("GET", "/containers/json"):
            return 200, [{"Id": each, "Names": [f"/{each}"]} for each in self.containers]
        if found := re.fullmatch(r"/containers/([^/]+)(/json|/start|/wait|/logs)?", path):
            return self._container(method, found[1], found[2] or "")
        if path.startswith("/images/"):
            return 404, {"message": f"No such image: {path.split('/')[2]}"}
        return 404, {"message": f"no such thing: {path}"}

    def _container(self, method: str, name: str, what: str) -> tuple[int, Any]:
        if name not in self.containers:
            return 404, {"message": f"No such container: {name}"}
        if method == "DELETE":
            del self.containers[name]
            return 204, None
        if what == "/start":
            return 204, None
        if what == "/wait":
            return 200, {"StatusCode": 0}
        if what == "/logs":
            return 200, None
        made = self.containers[name]
        config = {"Labels": made.get("Labels") or {}, "Tty": False, "Image": made.get("Image", "")}
        return 200, {"Id": name, "Name": f"/{name}", "Config": config, "State": {"Status": "exited", "ExitCode": 0}}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32


def _handler(fake: FakeEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            url = urlsplit(self.path)
            path = re.sub(r"^/v1\.\d+", "", url.path)
            try:
                status, document = fake.answer(self.command, path, parse_qs(url.query), body)
                data = b"" if document is None else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status != 204:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the client went away, or is to get no answer
                self.close_connection = True

        do_GET = do_POST = do_DELETE = do_HEAD = _serve

    return Handler
