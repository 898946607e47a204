"""A registry on loopback that takes one pushed image: layers that are known already are not sent, others are seen.

An engine sends a whole image with `save`, and takes a minute for one of 3 GB. With `push` it asks first which layers
the other side has. Nothing is stored: a layer is looked through while it comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any, cast

_START = 512
_TLS = b"\x16"  # the first byte of a handshake
_UPLOAD = re.compile(r"^/v2/.+/blobs/uploads/([0-9a-f-]*)(?:\?(.*))?$")
_BLOB = re.compile(r"^/v2/.+/blobs/(sha256:[0-9a-f]{64})$")
_MANIFEST = re.compile(r"^/v2/.+/manifests/([^/?]+)$")
_DIGEST = re.compile(r"(?:^|&)digest=(sha256(?::|%3A)[0-9a-f]{64})")
Look = Callable[[IO[bytes], str], None]


@dataclass(slots=True)
class Pushed:
    """What came: small documents by digest, and the manifests in the order of their coming."""

    documents: dict[str, bytes] = field(default_factory=dict)
    manifests: list[bytes] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


class Body(io.RawIOBase):
    """A request's body as a stream that ends, with its digest."""

    def __init__(self, stream: IO[bytes], length: int | None) -> None:
        self._stream, self._left, self._chunked = stream, length or 0, length is None
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left and self._chunked:
            self._left = int(self._stream.readline().split(b";")[0] or b"0", 16)
            if not self._left:
                self._stream.readline()
                self._chunked = False
        block = self._stream.read(min(len(buffer), self._left)) if self._left else b""
        self._left -= len(block)
        if block and not self._left and self._chunked:
            self._stream.readline()
        self.digest.update(block)
        buffer[: len(block)] = block
        return len(block)


@contextlib.contextmanager
def receiving(known: Callable[[str], bool], look: Look) -> Iterator[tuple[str, Pushed]]:
    """A registry while the block runs: its `host:port`, and what comes.

    known says whether a layer of this digest need not come; look is given each other layer's stream and digest.
    """
    pushed = Pushed()
    handler = type("Handler", (_Handler,), {"known": staticmethod(known), "look": staticmethod(look), "pushed": pushed})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", pushed
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    known: Callable[[str], bool]
    look: Look
    pushed: Pushed

    def handle_one_request(self) -> None:
        """Take one request. An engine asks by TLS first, and takes an answer that begins with HTTP as a no."""
        if self.rfile.peek(1)[:1] == _TLS:  # type: ignore[attr-defined]  # it is a BufferedReader
            self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            self.close_connection = True
            return
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(200 if self.path.rstrip("/") == "/v2" else 404)

    def do_HEAD(self) -> None:
        blob = _BLOB.match(self.path)
        there = blob is not None and (type(self).known(blob[1]) or blob[1] in self.pushed.documents)
        self._answer(200 if there else 404, {"Docker-Content-Digest": blob[1]} if blob and there else {})

    def do_POST(self) -> None:
        self._body().read()
        self._answer(202, {"Location": f"{self.path.split('?')[0].rstrip('/')}/{uuid.uuid4()}", "Range": "0-0"})

    def do_PATCH(self) -> None:
        self._answer(416)  # a layer comes in one piece, or the image by `save`

    def do_PUT(self) -> None:
        body = self._body()
        try:
            if _MANIFEST.match(self.path):
                self.pushed.manifests.append(body.read())
                return self._answer(201, {"Docker-Content-Digest": f"sha256:{body.digest.hexdigest()}"})
            upload = _UPLOAD.match(self.path)
            found = _DIGEST.search(upload[2] or "") if upload else None
            if found is None:
                body.read()
                return self._answer(400)
            self._blob(body, found[1].replace("%3A", ":"))
            seen = f"sha256:{body.digest.hexdigest()}"
            return self._answer(201, {"Docker-Content-Digest": seen})
        except Exception as error:  # told by the one who pushes: this thread has nobody to tell
            self.pushed.errors.append(error)
            self.close_connection = True

    def _blob(self, body: Body, digest: str) -> None:
        stream = io.BufferedReader(body, 1 << 20)
        if stream.peek(_START)[:1] in (b"{", b"["):
            self.pushed.documents[digest] = stream.read()
        else:
            type(self).look(stream, digest)
            while stream.read(1 << 20):
                pass

    def _body(self) -> Body:
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        return Body(cast(IO[bytes], self.rfile), None if chunked else int(self.headers.get("Content-Length") or 0))

    def _answer(self, code: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
