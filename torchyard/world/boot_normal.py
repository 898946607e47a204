"""A root file system as a tar that says nothing of when, where and by whom it was made."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

KEPT_EMPTY = ("dev", "proc", "run", "sys", "tmp", "var/tmp")
STICKY = frozenset({"tmp", "var/tmp"})
# Files that a build step, not a package, is the reason for: logs, caches, locks, copies of the state before.
LEFT_OUT = re.compile(
    r"\.dockerenv$"
    r"|etc/(?:passwd|group|shadow|gshadow|subuid|subgid)-$"
    r"|etc/\.pwd\.lock$"
    r"|var/cache/apt/.*\.(?:bin|deb)$"
    r"|var/cache/debconf/.*-old$"
    r"|var/cache/ldconfig/."
    r"|var/lib/apt/lists/(?!partial$)"
    r"|var/lib/dpkg/(?:.*-old|lock|lock-frontend|triggers/Lock)$"
)
LOGS = "var/log/"
WRITTEN: Mapping[str, str] = {
    "etc/hostname": "localhost\n",
    "etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    "etc/machine-id": "",
    "etc/resolv.conf": "",
}


def normalise(source: Path, target: Path, *, epoch: int) -> None:
    """Write the tar `source` anew: sorted, nothing newer than `epoch`, owners as numbers, no logs and caches."""
    with tarfile.open(source, "r:") as tar, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        members = _members(tar)
        first: dict[str, str] = {}  # of each file with several names, the first name in the order of writing
        for name in sorted({*members, *WRITTEN, *KEPT_EMPTY}):
            if name in WRITTEN:
                data = WRITTEN[name].encode()
                out.addfile(_plain(name, mtime=epoch, size=len(data)), io.BytesIO(data))
                continue
            member = members.get(name)
            if member is None or name in KEPT_EMPTY:
                out.addfile(_folder(name, member, epoch))
                continue
            content = _content_of(member, members)
            entry = _copy(member, content, name, epoch)
            if content.isreg() and content.name in first:
                entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, first[content.name], 0
                out.addfile(entry)
                continue
            if content.isreg():
                first[content.name] = name
            out.addfile(entry, tar.extractfile(content) if content.isreg() else None)


def _members(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """What stays of a tar, by name."""
    found: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        name = member.name.removeprefix("./").strip("/")
        member.name = name
        if name not in ("", ".") and not _goes(member):
            found[name] = member
    return found


def _goes(member: tarfile.TarInfo) -> bool:
    name = member.name
    if any(name.startswith(f"{folder}/") for folder in KEPT_EMPTY) or name in WRITTEN:
        return True
    if name.startswith(LOGS) and not member.isdir():
        return True
    return LEFT_OUT.match(name) is not None


def _content_of(member: tarfile.TarInfo, members: Mapping[str, tarfile.TarInfo]) -> tarfile.TarInfo:
    return members[member.linkname.removeprefix("./").strip("/")] if member.islnk() else member


def _copy(member: tarfile.TarInfo, content: tarfile.TarInfo, name: str, epoch: int) -> tarfile.TarInfo:
    entry = _plain(name, mtime=min(int(content.mtime), epoch), size=content.size if content.isreg() else 0)
    entry.type, entry.mode, entry.uid, entry.gid = content.type, content.mode & 0o7777, content.uid, content.gid
    entry.linkname = content.linkname
    entry.devmajor, entry.devminor = content.devmajor, content.devminor
    entry.pax_headers = {k: v for k, v in sorted(content.pax_headers.items()) if k.startswith("SCHILY.xattr.")}
    return entry


def _folder(name: str, member: tarfile.TarInfo | None, epoch: int) -> tarfile.TarInfo:
    entry = _plain(name, mtime=min(int(member.mtime), epoch) if member else epoch)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in STICKY else 0o755
    return entry


def _plain(name: str, *, mtime: int, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime, entry.size = 0o644, mtime, size
    return entry
