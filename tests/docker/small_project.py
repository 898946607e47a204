"""A project whose image takes seconds: tiny packages, wheels and base, from servers of its own on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import registry_process as registries
import yaml
from archive_server import SmallArchive, served
from clones import DROPPED, Ended

from torchyard.verbs.lock import UV
from torchyard.world import engine_home

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("wheel_server.py")
DAY = 1_700_000_000
TAG = "cp311-cp311-manylinux_2_28_x86_64"
IN_BASE = ("ca-certificates", "g++", "gcc", "ibverbs-providers", "libc6-dev", "libgomp1", "libibverbs1", "libnuma1")
IN_BASE += ("librdmacm1", "python3", "python3-dev")
PACKAGES = ("cmake", "gdb", "git", "less", "ninja-build", "nvtop", "procps")
WHEELS = {"torch": "2.13.0+cpu", "pip": "26.0", "setuptools": "80.0", "uv": UV, "py-spy": "0.4.3"}
SITE = "opt/venv/lib/python3.11/site-packages"
DOCKERFILE = "# {{ image.id }}\nFROM base AS locked\nARG SOURCE_DATE_EPOCH\nLABEL kind=small\n"
DOCKERFILE += "FROM locked AS dev\nFROM locked AS runtime\n"
FACTS = {
    "python": "3.11.2",
    "machine": "x86_64",
    "prefix": "/opt/venv",
    "torch": {"version": "2.13.0+cpu", "cuda": None, "file": "/torch", "sum": 512.0, "arch_flags": None},
    "distributions": {name: version for name, version in WHEELS.items() if name != "py-spy"},
}


def program(prints: bytes) -> bytes:
    """A program for x86-64 that needs no library: it prints these bytes, and ends well if it has few arguments.

    With more than four, as the probes of tier 2 are called, it waits to be killed.
    """
    base, head, length = 0x400000, 64 + 56, 52
    code = b"\xb8\x01\0\0\0\xbf\x01\0\0\0"  # write to standard output
    code += b"\x48\xbe" + struct.pack("<Q", base + head + length)
    code += b"\xba" + struct.pack("<I", len(prints)) + b"\x0f\x05"
    code += b"\x83\x3c\x24\x05\x7f\x09"  # the number of words on the stack: over five, skip what follows
    code += b"\xb8\x3c\0\0\0\x31\xff\x0f\x05"  # exit with 0
    code += b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7"  # pause, again and again
    code = code.ljust(length, b"\x90")
    size = head + len(code) + len(prints)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf = ident + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + head, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return elf + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096) + code + prints


@dataclass(frozen=True, kw_only=True)
class Small:
    """One checkout of the project; its servers and its engine are those of all."""

    root: Path
    home: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> Path:
        return self.root / ".torchyard"

    @property
    def store(self) -> Path:
        return self.local / "store"

    @property
    def environment(self) -> dict[str, str]:
        """What its commands see: nothing of this machine's settings but where its engine is."""
        engines = {name: value for name, value in os.environ.items() if name in ("DOCKER_HOST", "TORCHYARD_ENGINE")}
        dropped = (*DROPPED, "PIP_", "UV_")
        kept = {n: v for n, v in os.environ.items() if not n.startswith(dropped) and not n.lower().endswith("_proxy")}
        own = {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        own |= {"TORCHYARD_ENGINE_HOME": str(engine_home.home_of(os.environ).path)}
        own |= {"TORCHYARD_MIRRORS": str(self.home / "mirrors.yaml"), "PIP_CONFIG_FILE": str(self.home / "pip.conf")}
        return {**kept, **engines, **own, **self.env}

    def image(self) -> str:
        """The id of its one image."""
        (lock,) = (self.root / "images").glob("*/lock.yaml")
        return lock.parent.name

    def start(self, *arguments: str, program: Sequence[str] = ("-m", "torchyard")) -> subprocess.Popen[str]:
        """A torchyard command of this checkout, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-P", *program, *arguments],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def yard(self, *arguments: str, before: Sequence[str] = ()) -> Ended:
        """Run a torchyard command to its end."""
        done = subprocess.run(
            [*before, sys.executable, "-P", "-m", "torchyard", *arguments],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    def copy(self, name: str, *, env: Mapping[str, str] | None = None) -> Small:
        """Another checkout with the same files, beside this one."""
        made = Small(root=self.root.with_name(name), home=self.home, env={**self.env, **(env or {})})
        shutil.copytree(self.root, made.root, symlinks=True)
        return made

    def files(self) -> dict[str, str]:
        """The sha256 of every file of the project by path, but for logs, lists and the locks of processes."""
        passing = (".torchyard/archives/", ".torchyard/logs/", ".torchyard/turn", ".git/")
        names = {path: path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()}
        return {name: _hash(name, path) for path, name in names.items() if not name.startswith(passing)}


def _hash(name: str, path: Path) -> str:
    data = path.read_bytes()
    if name == ".env":  # its values are a token and what the checkout is called: whether each is there is what counts
        data = b"\n".join(line.partition(b"=")[0] for line in data.splitlines())
    return sha256(data).hexdigest()


@contextlib.contextmanager
def project(folder: Path, binary: str) -> Iterator[Small]:
    """The project with its servers: an archive, an index and a registry, which also takes what is pushed."""
    archive = SmallArchive(folder / "archive")
    try:
        for name in PACKAGES:
            archive.add(name, "1.0")
        archive.publish(DAY)
        with (
            served(archive) as uri,
            _index(folder / "index") as index,
            registries.running(binary, folder / "registry") as host,
        ):
            registries.push(host, "base", "1", _base())
            home = folder / "home"
            home.mkdir()
            (home / "pip.conf").write_text(f"[global]\nindex-url = {index}\n")
            places = {"release": uri, "updates": None, "security": None, "keyring": str(archive.keyring)}
            mirrors = {"debian": places, "pytorch": index, "registry": {"one": f"{host}/ml"}}
            (home / "mirrors.yaml").write_text(yaml.safe_dump({"mirrors": mirrors}))
            yield _checkout(folder / "work" / "project", home, host)
    finally:
        archive.close()


def _checkout(root: Path, home: Path, host: str) -> Small:
    root.mkdir(parents=True)
    (root / "env.yaml").write_text(
        "schema: 1\nproject: small\nhardware:\n  cpu: {torch: '2.13.0'}\n"
        f"software:\n  base: {{from: image, os: debian-12, ref: '{host}/base:1'}}\n  python: '3.11'\n"
    )
    (root / "templates").mkdir()
    (root / "templates" / "Dockerfile.j2").write_text(DOCKERFILE)
    return Small(root=root, home=home)


def _base() -> registries.Image:
    """A base with a list of packages, distributions, and one program: a python that tells what the probe would see."""
    release = b'ID=debian\nVERSION_ID="12"\n'
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@x>\n\n"
        for name in IN_BASE
    )
    files = {"etc/os-release": release, "usr/lib/os-release": release, "var/lib/dpkg/status": status.encode()}
    for name in ("pip", "setuptools", "uv"):
        told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {WHEELS[name]}\n"
        files[f"{SITE}/{name}-{WHEELS[name]}.dist-info/METADATA"] = told.encode()
    return registries.image([registries.tar_of(files), _executable(program(json.dumps(FACTS).encode()))], {})


def _executable(data: bytes) -> bytes:
    plain = bytearray(registries.tar_of({"usr/bin/python": data}))
    plain[100:108] = b"0000755\0"
    plain[148:156] = b" " * 8
    plain[148:156] = f"{sum(plain[:512]):06o}\0 ".encode()
    return bytes(plain)


@contextlib.contextmanager
def _index(folder: Path) -> Iterator[str]:
    from test_wheel_index import make_wheel

    for name, version in WHEELS.items():
        path = make_wheel(folder / "files", name.replace("-", "_"), version, tag=TAG, filler=name.encode() * 10_000)
        if name == "uv":
            import zipfile

            with zipfile.ZipFile(path, "a") as wheel:
                wheel.writestr(zipfile.ZipInfo(f"uv-{UV}.data/scripts/uv"), "#!/bin/sh\n")
    (folder / "how.json").write_text("{}")
    server = subprocess.Popen([sys.executable, str(SERVER), str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/simple"
    finally:
        server.kill()
        server.communicate()
