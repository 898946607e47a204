"""Which packages have another version in the second image, and which files are theirs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STATUS = re.compile(r"^/var/lib/dpkg/(?:status|status\.d/[^/]+)$")
LIST = re.compile(r"^/var/lib/dpkg/info/(?P<package>[^/]+)\.list$")
INFO = re.compile(r"^/var/lib/dpkg/info/(?P<package>[^/:]+)(?::[a-z0-9]+)?\.[a-z0-9]+$")
METADATA = re.compile(r"^(?P<site>.*)/(?P<info>[^/]+\.(?:dist|egg)-info)/(?:METADATA|PKG-INFO)$")
RECORD = re.compile(r"^(?P<site>.*)/(?P<info>[^/]+\.dist-info)/RECORD$")
SUMS = re.compile(r"^/var/lib/dpkg/info/[^/]+\.md5sums$")
_FIELD = re.compile(r"^(Package|Version|Name): *(\S+)", re.MULTILINE)


@dataclass(slots=True)
class Moved:
    """Packages whose version differs, in words by name, and the package of each path."""

    versions: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def of(self, path: str) -> str:
        """The package with another version that a path belongs to, in words; empty where there is none."""
        owner = self.owners.get(path, "")
        if not owner and (found := INFO.match(path)):
            owner = found["package"]
        return self.versions.get(owner, "")


def wanted(path: str) -> bool:
    """Whether a file says which packages there are, or what is theirs."""
    return bool(STATUS.match(path) or LIST.match(path) or METADATA.match(path) or RECORD.match(path))


def moved(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> Moved:
    """The packages with another version, by the files that say so in both images."""
    found = Moved()
    here, there = _versions(first), _versions(second)
    for name in here.keys() | there.keys():
        if here.get(name) != there.get(name):
            found.versions[name] = f"{name} {here.get(name, 'absent')} and {there.get(name, 'absent')}"
    for files in (first, second):
        _own(files, found)
    return found


def _versions(files: Mapping[str, bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, data in files.items():
        if STATUS.match(path):
            for stanza in data.decode("utf-8", "replace").split("\n\n"):
                fields = dict(_FIELD.findall(stanza))
                if "Package" in fields:
                    found[fields["Package"]] = fields.get("Version", "")
        elif METADATA.match(path):
            fields = dict(_FIELD.findall(data.decode("utf-8", "replace")[:20_000]))
            if "Name" in fields:
                found[f"python {fields['Name']}"] = fields.get("Version", "")
    return found


def _own(files: Mapping[str, bytes], found: Moved) -> None:
    names = {
        f"{m['site']}/{m['info']}": f"python {dict(_FIELD.findall(data.decode('utf-8', 'replace'))).get('Name', '')}"
        for path, data in files.items()
        if (m := METADATA.match(path))
    }
    for path, data in files.items():
        if match := LIST.match(path):
            name = match["package"].partition(":")[0]
            for line in data.decode("utf-8", "replace").splitlines():
                found.owners[line] = name if found.owners.get(line, name) == name else ""  # a folder of several
        elif match := RECORD.match(path):
            name = names.get(f"{match['site']}/{match['info']}", "")
            for target in _recorded(data):
                found.owners[joined(match["site"], target)] = name


def _recorded(data: bytes) -> Iterable[str]:
    return (row[0] for row in csv.reader(io.StringIO(data.decode("utf-8", "replace"))) if row)


def joined(folder: str, path: str) -> str:
    """A path that is written as seen from a folder."""
    if path.startswith("/"):
        return path
    parts = folder.split("/")
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def named(path: str, was: bytes, now: bytes) -> set[str] | None:
    """The files whose lines differ in a list of files with their digests; None where this is no such list."""
    if match := RECORD.match(path):
        rows = [set(data.decode("utf-8", "replace").splitlines()) for data in (was, now)]
        return {joined(match["site"], name) for name in _recorded("\n".join(rows[0] ^ rows[1]).encode())}
    if SUMS.match(path):
        rows = [set(data.decode("utf-8", "replace").splitlines()) for data in (was, now)]
        return {"/" + line.partition("  ")[2] for line in rows[0] ^ rows[1]}
    return None


def same_stanzas(was: bytes, now: bytes) -> bool:
    """Whether two status files have the same stanzas, in whatever order."""
    return sorted(was.strip().split(b"\n\n")) == sorted(now.strip().split(b"\n\n"))
