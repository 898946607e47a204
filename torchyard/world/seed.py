"""The seed: a minimal file system laid out from package files without running anything, in which dpkg can then run."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from torchyard.world import archive_deb

MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")  # in /usr; the names in / are links to them
DPKG_CONFIG = "etc/dpkg/dpkg.cfg.d/torchyard"
# Licences stay. The file stays in the image, so that later layers leave out the same things.
DPKG_CONFIG_TEXT = """\
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/groff/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/linda/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
path-exclude=/usr/share/man/*
force-unsafe-io
"""
_LEFT_OUT = re.compile(r"usr/share/(?:groff|info|linda|lintian|locale|man|doc)/(?!.*/copyright$)")
NO_SERVICES = "usr/sbin/policy-rc.d"

# Empty files and the like that dpkg needs, or that every image has.
ADDED: Mapping[str, tuple[str, int]] = {
    DPKG_CONFIG: (DPKG_CONFIG_TEXT, 0o644),
    NO_SERVICES: ("#!/bin/sh\nexit 101\n", 0o755),
    "var/lib/dpkg/available": ("", 0o644),
    "var/lib/dpkg/status": ("", 0o644),
}


def write(debs: Sequence[Path], target: Path, *, epoch: int) -> None:
    """Write the seed of these package files as a tar: the same files in the same order give the same bytes."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        seen: set[str] = set()
        links = _links(debs)
        for name, linkname in sorted(links.items()):
            _add(out, _entry(name, tarfile.SYMTYPE, 0o777, epoch, linkname=linkname), seen)
        for deb in debs:
            with archive_deb.opened(deb, "data") as tar:
                for member in tar:
                    name = merged(member.name)
                    if name in ("", ".") or name in links or name in seen or _LEFT_OUT.match(name):
                        continue
                    content = tar.extractfile(member) if member.isreg() else None
                    _parents(out, name, seen, epoch)
                    _add(out, _plain(member, name, epoch), seen, content)
        for name, (text, mode) in sorted(ADDED.items()):
            if name not in seen:
                data = text.encode()
                _parents(out, name, seen, epoch)
                _add(out, _entry(name, tarfile.REGTYPE, mode, epoch, size=len(data)), seen, io.BytesIO(data))


def merged(name: str) -> str:
    """The path in a system whose /bin, /sbin and /lib* are links into /usr."""
    plain = name.removeprefix("./").strip("/")
    first, slash, _ = plain.partition("/")
    return f"usr/{plain}" if slash and first in MERGED else plain


def _links(debs: Iterable[Path]) -> dict[str, str]:
    """The links in / to directories of /usr: for each directory of this kind that a package has there."""
    found = set()
    for deb in debs:
        with archive_deb.opened(deb, "data") as tar:
            for member in tar:
                first = PurePosixPath(member.name.removeprefix("./")).parts[:1]
                if first and first[0] in MERGED:
                    found.add(first[0])
    return {name: f"usr/{name}" for name in found}


def _parents(out: tarfile.TarFile, name: str, seen: set[str], epoch: int) -> None:
    for parent in reversed(PurePosixPath(name).parents):
        if str(parent) != "." and str(parent) not in seen:
            _add(out, _entry(str(parent), tarfile.DIRTYPE, 0o755, epoch), seen)


def _plain(member: tarfile.TarInfo, name: str, epoch: int) -> tarfile.TarInfo:
    linkname = merged(member.linkname) if member.islnk() else member.linkname
    entry = _entry(name, member.type, member.mode, min(int(member.mtime), epoch), linkname=linkname)
    entry.size, entry.uid, entry.gid = member.size if member.isreg() else 0, member.uid, member.gid
    return entry


def _entry(name: str, kind: bytes, mode: int, mtime: int, *, linkname: str = "", size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime, entry.linkname, entry.size = kind, mode, mtime, linkname, size
    return entry


def _add(out: tarfile.TarFile, entry: tarfile.TarInfo, seen: set[str], content: IO[bytes] | None = None) -> None:
    out.addfile(entry, content)
    seen.add(entry.name)
