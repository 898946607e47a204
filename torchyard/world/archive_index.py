"""The lists of a package archive: which package files it has, in which version, and since when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

KEPT = "kept"  # the list of the package files in the store
_NAME = re.compile(r"^Package: (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFile:
    """One package file that an archive offers; `control` is its whole paragraph."""

    name: str
    version: str
    architecture: str
    size: int
    sha256: str
    path: str
    archive: str
    control: str


class Index:
    """The package lists of one distribution's archives, looked up by package name."""

    def __init__(self, lists: Sequence[tuple[str, str]]) -> None:
        """`lists`: pairs of archive name and text, the archive to be named first in front."""
        self._lists = lists
        self._places: dict[str, list[tuple[int, int]]] = {}
        for number, (_, text) in enumerate(lists):
            for found in _NAME.finditer(text):
                self._places.setdefault(found[1], []).append((number, found.start()))

    def names(self) -> list[str]:
        """Every package name, sorted."""
        return sorted(self._places)

    def files(self, name: str) -> list[PackageFile]:
        """The files of this package, in the order of the archives."""
        return [self._file(number, start) for number, start in self._places.get(name, ())]

    def find(self, name: str, version: str, architecture: str) -> PackageFile | None:
        """The file of exactly this version, from the first archive that has it."""
        for file in self.files(name):
            if file.version == version and file.architecture in (architecture, "all"):
                return file
        return None

    def minimal(self) -> list[str]:
        """The packages that every system of this distribution has: the Essential and the required ones, sorted.

        The priority is what the archive's lists say: a package file's own may be another, and counts only where the
        file was kept and its archive has the package no more.
        """
        found = set()
        for number, (archive, text) in enumerate(self._lists):
            for match in re.finditer(r"^(?:Essential: yes|Priority: required)$", text, re.MULTILINE):
                start = text.rfind("\n\n", 0, match.start()) + 2
                if (name := _NAME.search(text, start if start > 1 else 0)) and (
                    archive != KEPT or not any(other != number for other, _ in self._places[name[1]])
                ):
                    found.add(name[1])
        return sorted(found)

    def _file(self, number: int, start: int) -> PackageFile:
        archive, text = self._lists[number]
        end = text.find("\n\n", start)
        control = text[start : end if end >= 0 else len(text)].strip("\n")
        return package_file(control, archive)


def fields(control: str) -> Mapping[str, str]:
    """The fields of one paragraph; a field over several lines keeps its line ends."""
    found: dict[str, str] = {}
    name = ""
    for line in control.splitlines():
        if line[:1] in (" ", "\t"):
            found[name] += "\n" + line
        elif ":" in line:
            name, _, value = line.partition(":")
            found[name] = value.strip()
    return found


def package_file(control: str, archive: str) -> PackageFile:
    """The package file that a paragraph of a package list describes."""
    field = fields(control)
    return PackageFile(
        name=field["Package"],
        version=field["Version"],
        architecture=field["Architecture"],
        size=int(field["Size"]),
        sha256=field["SHA256"],
        path=field["Filename"].removeprefix("./"),
        archive=archive,
        control=control,
    )


def release_date(text: str) -> int | None:
    """The date of a Release or InRelease file, in seconds since 1970; None where it has none."""
    found = re.search(r"^Date: (.+)$", text, re.MULTILINE)
    return int(parsedate_to_datetime(found[1].strip()).timestamp()) if found else None


def with_installed(status: str, files: Sequence[PackageFile]) -> str:
    """The text of a dpkg status file with these packages installed too, each instead of another version of it."""
    new: dict[str, set[str]] = {}
    for file in files:
        new.setdefault(file.name, set()).add(file.architecture)

    def replaced(paragraph: str) -> bool:
        field = fields(paragraph)
        ours, theirs = new.get(field.get("Package", ""), set()), field.get("Architecture", "")
        return bool(ours) and (theirs in {*ours, "all"} or "all" in ours)

    kept = (paragraph for paragraph in paragraphs(status) if not replaced(paragraph))
    return "".join(f"{paragraph}\n\n" for paragraph in kept) + installed_status(files)


def installed_status(files: Sequence[PackageFile]) -> str:
    """The text of a dpkg status file that says of these packages that they are installed."""
    dropped = re.compile(r"^(?:Filename|Size|SHA256|SHA1|MD5sum|Description-md5): .*\n?", re.MULTILINE)
    paragraphs = (dropped.sub("", file.control + "\n").rstrip("\n") for file in files)
    return "".join(f"{text}\nStatus: install ok installed\n\n" for text in paragraphs)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a control file, without comment lines."""
    without = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in re.split(r"\n[ \t]*\n", without):
        if block.strip():
            yield block.strip("\n")
