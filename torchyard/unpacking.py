"""Where the files of a wheel go in a virtual environment: names in, paths out, no disk."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from installer.scripts import Script
from installer.utils import parse_entrypoints

from .errors import Surroundings

INSTALLER = "torchyard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """A virtual environment inside an image: `root` without a leading slash (`opt/venv`), python as `3.11`."""

    root: str
    python: str

    @property
    def site_packages(self) -> str:
        """The directory of libraries, pure and platform alike, as a virtual environment on Linux has it."""
        return f"{self.root}/lib/python{self.python}/site-packages"

    def scheme(self, distribution: str) -> Mapping[str, str]:
        """The directory of each key of a wheel's `.data` folder (PEP 427, sysconfig's venv scheme)."""
        return {
            "purelib": self.site_packages,
            "platlib": self.site_packages,
            "scripts": f"{self.root}/bin",
            "headers": f"{self.root}/include/site/python{self.python}/{distribution}",
            "data": self.root,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One file of a layer: the wheel member it is copied from, or the bytes it is (or that follow the member)."""

    path: str
    executable: bool
    member: zipfile.ZipInfo | None = None
    tail: bytes = b""

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return (self.member.file_size if self.member else 0) + len(self.tail)


def entries(wheel: str, members: Iterable[zipfile.ZipInfo], texts: Mapping[str, str], prefix: Prefix) -> list[Entry]:
    """The files that installing a wheel makes, sorted by path.

    wheel is the file's name (for messages and for the distribution's name); texts holds its RECORD and, where it
    has them, entry_points.txt and the scripts that carry the placeholder `#!python`, by member name.
    """
    files = [member for member in members if not member.is_dir()]
    record = _record_name(wheel, [member.filename for member in files])
    data_folder = record.removesuffix(".dist-info/RECORD") + ".data"
    scheme = prefix.scheme(wheel.split("-", 1)[0])
    found: dict[str, Entry] = {}
    moved: dict[str, Entry] = {}  # what lies elsewhere than in the wheel, by the wheel's name for it
    for member in files:
        name = member.filename
        path, is_script = _target(wheel, name, data_folder, scheme, prefix)
        if is_script and name in texts:
            text = _shebang(texts[name], prefix)
            found[path] = Entry(path=path, executable=True, tail=text.encode("utf-8", "surrogateescape"))
        else:
            executable = is_script or bool((member.external_attr >> 16) & 0o111)
            found[path] = Entry(path=path, executable=executable, member=member)
        if name.startswith(data_folder + "/"):
            moved[name] = found[path]
    added = [*_console_scripts(wheel, texts, record, prefix), _installer(record, prefix)]
    for entry in added:
        found[entry.path] = entry
    target = f"{prefix.site_packages}/{record}"
    found[target] = _record(wheel, found[target], texts[record], moved, added, prefix)
    return sorted(found.values(), key=lambda entry: entry.path)


def _record_name(wheel: str, names: Iterable[str]) -> str:
    found = [name for name in names if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
    if len(found) != 1:
        raise Surroundings(
            f"{wheel} has {len(found) or 'no'} RECORD: it is not a wheel",
            hint="fetch it again, or report it to its makers",
        )
    return found[0]


def wanted_texts(names: Iterable[str]) -> list[str]:
    """The members whose text `entries` needs: RECORD, entry points, and scripts."""
    return [
        n
        for n in names
        if n.endswith((".dist-info/RECORD", ".dist-info/entry_points.txt"))
        or (".data/scripts/" in n and not n.endswith("/"))
    ]


def _target(wheel: str, name: str, data_folder: str, scheme: Mapping[str, str], prefix: Prefix) -> tuple[str, bool]:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise Surroundings(f"{wheel} holds a file named {name!r}, outside its own folder", hint="do not use this wheel")
    if len(parts) > 2 and parts[0] == data_folder:
        if parts[1] not in scheme:
            raise Surroundings(
                f"{wheel} wants {name!r} installed by the scheme {parts[1]!r}, which does not exist",
                hint=f"the schemes are {', '.join(scheme)}: report it to the wheel's makers, or pin another version",
            )
        return "/".join((scheme[parts[1]], *parts[2:])), parts[1] == "scripts"
    return "/".join((prefix.site_packages, *parts)), False


def _shebang(text: str, prefix: Prefix) -> str:
    first, newline, rest = text.partition("\n")
    return f"#!/{prefix.root}/bin/python" + newline + rest if first.startswith("#!python") else text


def _console_scripts(wheel: str, texts: Mapping[str, str], record: str, prefix: Prefix) -> list[Entry]:
    text = texts.get(record.removesuffix("RECORD") + "entry_points.txt", "")
    made = []
    try:
        for name, module, attribute, section in parse_entrypoints(text):
            script = Script(name, module, attribute, section)
            file, data = script.generate(f"/{prefix.root}/bin/python", kind="posix")
            if PurePosixPath(file).name == file != "..":
                made.append(Entry(path=f"{prefix.root}/bin/{file}", executable=True, tail=data))
    except (configparser.Error, AssertionError, ValueError) as error:  # an assert is how installer refuses a line
        raise Surroundings(
            f"the entry points of {wheel} cannot be read: {error or 'a line is not module:attribute'}",
            hint="report it to the wheel's makers, or pin another version",
        ) from error
    return made


def _installer(record: str, prefix: Prefix) -> Entry:
    path = f"{prefix.site_packages}/{record.removesuffix('RECORD')}INSTALLER"
    return Entry(path=path, executable=False, tail=f"{INSTALLER}\n".encode())


def _record(
    wheel: str, entry: Entry, text: str, moved: Mapping[str, Entry], added: Iterable[Entry], prefix: Prefix
) -> Entry:
    """RECORD of what is installed: the wheel's own with rows behind it, made anew only where a row of it is wrong."""
    new = {_record_path(each, prefix): each for each in added}
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise Surroundings(f"RECORD of {wheel} cannot be read: {error}", hint="do not use this wheel") from error
    behind = "".join(_record_line([path, *_digest(each)]) for path, each in new.items())
    if not any(row[0] in moved or row[0] in new for row in rows):
        first = "" if text.endswith("\n") else "\n"
        return Entry(path=entry.path, executable=False, member=entry.member, tail=(first + behind).encode())
    kept = [row for row in (_moved_row(row, moved, prefix) for row in rows) if row[0] not in new]
    anew = "".join(_record_line(row) for row in kept) + behind
    return Entry(path=entry.path, executable=False, tail=anew.encode("utf-8", "surrogateescape"))


def _moved_row(row: list[str], moved: Mapping[str, Entry], prefix: Prefix) -> list[str]:
    entry = moved.get(row[0])
    if entry is None:
        return row
    return [_record_path(entry, prefix), *(row[1:] if entry.member else _digest(entry))]


def _record_line(row: list[str]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(row)
    return stream.getvalue()


def _record_path(entry: Entry, prefix: Prefix) -> str:
    if entry.path.startswith(prefix.site_packages + "/"):
        return entry.path.removeprefix(prefix.site_packages + "/")
    return "../../../" + entry.path.removeprefix(prefix.root + "/")


def _digest(entry: Entry) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(entry.tail).digest()).decode().rstrip("=")
    return [f"sha256={digest}", str(len(entry.tail))]
