"""A small package archive of real .deb files, signed with a key of its own and served on loopback."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from email.utils import formatdate
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SUITE = "bookworm"
ESSENTIAL = "Essential: yes\nPriority: required\n"


class SmallArchive:
    """An archive in a directory; what is in its pool is offered after `publish`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.overrides: dict[str, str] = {}  # the priority that the lists give a package, whatever its file says
        self.hold, self.held = threading.Event(), threading.Event()  # no answer before the one; a request waits for it
        self.hold.set()
        self.pool = root / "pool" / "main"
        self.pool.mkdir(parents=True)
        # gpg's agent has a socket in here, and the path of a socket must be short
        self._gnupg = tempfile.mkdtemp(prefix="yard-gpg-")
        self._gpg("--passphrase", "", "--quick-generate-key", "archive@example.invalid", "rsa2048", "sign")
        self.keyring = root / "archive.gpg"
        self.keyring.write_bytes(self._gpg("--export"))

    def add(self, name: str, version: str, fields: str = "", content: str = "") -> Path:
        """Build a package with one file and put it into the pool."""
        path = self.pool / f"{name}_{version}_all.deb"
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            tree.chmod(0o755)
            (tree / "DEBIAN").mkdir()
            (tree / "usr/share" / name).mkdir(parents=True)
            (tree / "usr/share" / name / "content").write_text(content or version)
            control = (
                f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <n@example.invalid>\n"
            )
            (tree / "DEBIAN/control").write_text(f"{control}{fields}Description: a test\n")
            subprocess.run(
                ["dpkg-deb", "--root-owner-group", "--build", folder, str(path)], check=True, capture_output=True
            )
        return path

    def publish(self, date: int) -> None:
        """Write and sign the lists of what is in the pool now."""
        paragraphs = []
        for deb in sorted(self.pool.glob("*.deb")):
            control = subprocess.run(["dpkg-deb", "--field", str(deb)], check=True, capture_output=True, text=True)
            sha = hashlib.sha256(deb.read_bytes()).hexdigest()
            place = deb.relative_to(self.root)
            text = self._listed(deb.name.partition("_")[0], control.stdout)
            paragraphs.append(f"{text}Filename: {place}\nSize: {deb.stat().st_size}\nSHA256: {sha}\n")
        dist = self.root / "dists" / SUITE
        packages = dist / "main/binary-amd64/Packages"
        packages.parent.mkdir(parents=True, exist_ok=True)
        packages.write_text("\n".join(paragraphs))
        data = packages.read_bytes()
        (dist / "Release").write_text(
            f"Origin: Small\nSuite: stable\nCodename: {SUITE}\nDate: {formatdate(date, usegmt=True)}\n"
            "Architectures: amd64\nComponents: main\nSHA256:\n"
            f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages\n"
        )
        (dist / "InRelease").unlink(missing_ok=True)
        self._gpg("--output", str(dist / "InRelease"), "--clearsign", str(dist / "Release"))
        for file in (packages, dist / "Release", dist / "InRelease"):
            os.utime(file, (date, date))  # a server tells by it whether there is something new

    def _listed(self, name: str, control: str) -> str:
        given = self.overrides.get(name)
        return re.sub(r"^Priority: .*$", f"Priority: {given}", control, flags=re.MULTILINE) if given else control

    def close(self) -> None:
        """End what gpg left running."""
        subprocess.run(["gpgconf", "--homedir", self._gnupg, "--kill", "all"], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", self._gnupg], check=True)

    def _gpg(self, *words: str) -> bytes:
        argv = ["gpg", "--homedir", self._gnupg, "--batch", "--quiet", "--pinentry-mode", "loopback", *words]
        return subprocess.run(argv, check=True, capture_output=True).stdout


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: object, archive: SmallArchive) -> None:
        self._archive = archive
        super().__init__(*args, directory=str(archive.root))  # type: ignore[arg-type]  # handed on as they come

    def do_GET(self) -> None:
        self._archive.asked.append(self.path)
        if not self._archive.hold.is_set():
            self._archive.held.set()
            self._archive.hold.wait()
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(archive: SmallArchive) -> Iterator[str]:
    """The address at which the archive is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, archive=archive))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
