"""A small package index for tests, a process of its own: `wheel_server.py FOLDER [PEM]`, which prints its port.

With PEM, a file of a key and a certificate, it speaks TLS.

FOLDER/files holds what is served. FOLDER/how.json is read at every request:
    kind      "json" or "html", the kind of page
    hidden    names of files that the pages name and the server no longer has
    cut       {file: [0.3, 0.6]}: the share of the body after which the connection is dropped, one for each request
    ranges    whether parts of a file can be asked for
    login     "name:password" that every request must bring
    uploaded  {file: time}
    claimed   {file: sha256} that the page says instead of the true one
Every request is a line of FOLDER/requests.txt.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

FOLDER = Path(sys.argv[1])
SERVED: dict[str, int] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        how = json.loads((FOLDER / "how.json").read_text())
        path = unquote(self.path)
        with (FOLDER / "requests.txt").open("a") as log:
            log.write(f"{self.command} {path} {self.headers.get('Range', '')}\n")
        login = how.get("login")
        if login and self.headers.get("Authorization") != "Basic " + base64.b64encode(login.encode()).decode():
            return self.send(401, "text/plain", b"who are you?", body)
        if found := re.fullmatch(r"/simple/([^/]+)/", path):
            files = [each for each in sorted((FOLDER / "files").iterdir()) if project(each.name) == found[1]]
            if not files:
                return self.send(404, "text/plain", b"no such project", body)
            return self.send(200, *page(found[1], files, how), body)
        file = FOLDER / "files" / path.removeprefix("/files/")
        if not file.is_file() or file.name in how.get("hidden", []):
            return self.send(404, "text/plain", b"no such file", body)
        return self.file(file, how, body)

    def file(self, file: Path, how: dict[str, Any], body: bool) -> None:
        data = file.read_bytes()
        asked = re.match(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if how.get("ranges", True) else None
        status, start, end = 200, 0, len(data)
        if asked:
            status = 206
            start = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
            end = int(asked[2]) + 1 if asked[1] and asked[2] else len(data)
        part = data[start:end]
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"' + hashlib.sha256(data).hexdigest() + '"')
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.end_headers()
        if not body:
            return
        cuts = how.get("cut", {}).get(file.name, [])
        time = SERVED.get(file.name, 0)
        if time < len(cuts):
            SERVED[file.name] = time + 1
            self.wfile.write(part[: max(0, int(len(data) * cuts[time]) - start)])
            self.close_connection = True
        else:
            self.wfile.write(part)

    def send(self, status: int, kind: str, text: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        pass


def project(file: str) -> str:
    return re.sub(r"[-_.]+", "-", file.split("-")[0]).lower()


def page(name: str, files: list[Path], how: dict[str, Any]) -> tuple[str, bytes]:
    claimed = how.get("claimed", {})
    hashes = {file.name: claimed.get(file.name) or hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    if how.get("kind", "json") == "html":
        links = "".join(f'<a href="../../files/{f}#sha256={h}">{f}</a><br>\n' for f, h in hashes.items())
        return "text/html", f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode()
    entries = [
        {
            "filename": file.name,
            "url": f"../../files/{file.name}",
            "hashes": {"sha256": hashes[file.name]},
            "size": file.stat().st_size,
            "upload-time": how.get("uploaded", {}).get(file.name),
        }
        for file in files
    ]
    text = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": entries})
    return "application/vnd.pypi.simple.v1+json", text.encode()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()
