"""A proxy on loopback before a registry: it counts what goes through, and at chosen requests something goes wrong."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


@dataclass(kw_only=True)
class Asked:
    """One request that came, and the status that went back (0 where none did)."""

    method: str
    path: str
    sent: int
    status: int = 0


Fault = Callable[["Handler", bytes], bool]


@dataclass(kw_only=True)
class Rule:
    """What goes wrong at the requests that match: at the first `times` of them, after `skip` others."""

    method: str
    path: str
    fault: Fault
    times: int = 1
    skip: int = 0

    def matches(self, method: str, path: str) -> bool:
        return re.fullmatch(self.method, method) is not None and re.search(self.path, path) is not None


@dataclass(kw_only=True)
class Proxy:
    """A running proxy: where it is, what it is to do wrong, and what came through."""

    host: str = ""
    upstream: str = ""
    rules: list[Rule] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, method: str, path: str) -> Fault | None:
        """What goes wrong with this request, if anything."""
        with self.lock:
            for rule in self.rules:
                if rule.times and rule.matches(method, path):
                    if rule.skip:
                        rule.skip -= 1
                        continue
                    rule.times -= 1
                    return rule.fault
        return None

    def sent(self, method: str = "PATCH|PUT|POST", path: str = "/blobs/") -> int:
        """Bytes of the bodies of the requests that match."""
        return sum(a.sent for a in self.asked if re.fullmatch(method, a.method) and path in a.path)

    def count(self, method: str, path: str = "") -> int:
        return sum(1 for a in self.asked if re.fullmatch(method, a.method) and path in a.path)


class Handler(BaseHTTPRequestHandler):
    """Hands each request on to the registry, unless a rule says otherwise."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def handle_one_request(self) -> None:
        if self.rfile.peek(1)[:1] == b"\x16":  # type: ignore[attr-defined]  # a TLS handshake: there is none here
            self.close_connection = True
            return
        super().handle_one_request()

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(method=self.command, path=self.path, sent=len(body))
        with self.proxy.lock:
            self.proxy.asked.append(asked)
        fault = self.proxy.fault(self.command, self.path)
        if fault is not None and fault(self, body):
            return
        status, headers, answer = self.upstream(body)
        asked.status = status
        self.answer(status, headers, answer)

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = _any

    def upstream(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the registry answers; it is told the proxy's own name, so that it sends back here."""
        connection = http.client.HTTPConnection(self.proxy.upstream)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        length = next((v for n, v in headers if n.lower() == "content-length"), str(len(body)))
        for name, value in headers:
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def status(code: int, **headers: str) -> Fault:
    """An answer of the proxy's own."""

    def fault(handler: Handler, body: bytes) -> bool:
        handler.answer(code, [(name.replace("_", "-"), value) for name, value in headers.items()], b"")
        return True

    return fault


def another_digest(handler: Handler, body: bytes) -> bool:
    """What a registry answers that reads a file while another request writes it."""
    text = b'{"errors":[{"code":"DIGEST_INVALID","message":"provided digest did not match uploaded content"}]}'
    handler.answer(400, [("Content-Type", "application/json")], text)
    return True


def dropped(handler: Handler, body: bytes) -> bool:
    """The connection ends without an answer; the registry never saw the request."""
    handler.close_connection = True
    return True


def unanswered(handler: Handler, body: bytes) -> bool:
    """The registry does what it was asked for, and the connection ends before its answer."""
    handler.upstream(body)
    handler.close_connection = True
    return True


def cut(after: int) -> Fault:
    """The registry gets only the first bytes of the body, then both connections end."""

    def fault(handler: Handler, body: bytes) -> bool:
        connection = http.client.HTTPConnection(handler.proxy.upstream)
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in handler.headers.items():
            if name.lower() not in HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:after])
        connection.close()
        handler.close_connection = True
        return True

    return fault


def spoiled(handler: Handler, body: bytes) -> bool:
    """The answer of the registry with one bit of it changed."""
    code, headers, data = handler.upstream(body)
    handler.answer(code, headers, data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    return True


def calling(act: Callable[[], None]) -> Fault:
    """Something is done, and the connection ends."""

    def fault(handler: Handler, body: bytes) -> bool:
        act()
        handler.close_connection = True
        return True

    return fault


@contextlib.contextmanager
def before(registry: str) -> Iterator[Proxy]:
    """A proxy before a registry (host and port), while the block runs."""
    proxy = Proxy(upstream=registry)
    handler = type("Bound", (Handler,), {"proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    proxy.host = f"127.0.0.1:{server.server_port}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
