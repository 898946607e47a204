"""Where the packages of a distribution come from: a mirrors file, this host's apt sources, the bootstrap tool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from torchyard.errors import InputError
from torchyard.world import archive_data, archive_index, wheel_mirrors
from torchyard.world.archive_data import ARCHIVES, Distribution
from torchyard.world.download import local_path

MIRROR_KEYS = ("keyring", *ARCHIVES, "snapshot")
SCHEMES = ("http", "https", "file", "copy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One archive of a distribution, and where its files are.

    keys: keyring files, or key text. snapshots: addresses of the same archive as it was at other times, where
    `{date}` stands for the date of the archive (20260131T235959Z).
    """

    archive: str
    uri: str
    suite: str
    keys: tuple[Path | str, ...] = ()
    trusted: bool = False
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirror:
    """What a mirrors file says of one family; None for an archive that this mirror does not have."""

    where: str
    uris: Mapping[str, str | None]
    snapshots: Mapping[str, str]
    keyring: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEntry:
    """One line of this host's apt sources: one address, one suite."""

    uri: str
    suite: str
    keys: tuple[Path | str, ...] = ()
    trusted: bool = False
    architectures: tuple[str, ...] = ()


def read_mirrors(files: Sequence[Path], family: str) -> Mirror | None:
    """What the first of these files that names the family says of it; a file that is not there says nothing."""
    for file in files:
        if file.is_file():
            mirror = parse_mirrors(file.read_text(encoding="utf-8"), str(file)).get(family)
            if mirror is not None:
                return mirror
    return None


def parse_mirrors(text: str, where: str) -> dict[str, Mirror]:
    """The mirrors of distributions that the text of a mirrors file names; those of wheels are read elsewhere."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InputError(f"the mirrors file is not YAML: {error}", where=where, hint="mend it, or remove it") from error
    table = raw.get("mirrors") if isinstance(raw, dict) else None
    if not isinstance(table, dict):
        raise InputError(
            "the mirrors file has no table 'mirrors'", where=where, hint="write mirrors: {debian: {release: ADDRESS}}"
        )
    families = {d.family.name for d in archive_data.distributions().values()}
    known = families | {wheel_mirrors.PYPI, *wheel_mirrors.shipped().prefixes, "git", "registry"}
    if unknown := sorted(str(name) for name in table if name not in known):
        raise InputError(
            f"neither a distribution nor an index is called {unknown[0]!r}",
            where=f"{where}  mirrors.{unknown[0]}",
            hint=f"use one of: {', '.join(sorted(known))}",
        )
    return {name: _mirror(row, f"{where}  mirrors.{name}") for name, row in table.items() if name in families}


def _mirror(row: Any, where: str) -> Mirror:
    if not isinstance(row, dict) or not isinstance(row.get("release"), str):
        raise InputError("the key 'release' with an address is needed", where=where, hint="write release: ADDRESS")
    if unknown := sorted(set(row) - set(MIRROR_KEYS)):
        raise InputError(f"unknown key {unknown[0]!r}", where=where, hint=f"the keys are {', '.join(MIRROR_KEYS)}")
    uris: dict[str, str | None] = {}
    for archive in ARCHIVES:
        if archive in row:
            uris[archive] = None if row[archive] is None else _address(row[archive], f"{where}.{archive}")
    snapshot = row.get("snapshot") or {}
    if isinstance(snapshot, str):
        snapshot = dict.fromkeys(ARCHIVES, snapshot)
    if not isinstance(snapshot, dict):
        raise InputError(
            "an address is needed, or one for each of release, updates and security",
            where=f"{where}.snapshot",
            hint="write snapshot: ADDRESS/{date}",
        )
    keyring = row.get("keyring")
    return Mirror(
        where=where,
        uris=uris,
        snapshots={archive: _address(uri, f"{where}.snapshot") for archive, uri in snapshot.items()},
        keyring=Path(keyring).expanduser() if keyring else None,
    )


def _address(value: Any, where: str) -> str:
    if isinstance(value, str) and urlsplit(value).scheme in SCHEMES:
        return value.rstrip("/")
    raise InputError(
        f"{value!r} is not an address", where=where, hint=f"addresses begin with {', '.join(s + ':' for s in SCHEMES)}"
    )


def from_mirror(mirror: Mirror, distribution: Distribution, keys: tuple[Path | str, ...]) -> tuple[Source, ...]:
    """The sources of this distribution as a mirrors file has them."""
    release = str(mirror.uris["release"])
    given = {"updates": release, "security": security_uri(release, distribution), **mirror.uris}
    return tuple(
        Source(
            archive=archive,
            uri=uri,
            suite=distribution.suites[archive],
            keys=(mirror.keyring,) if mirror.keyring else keys,
            snapshots=(mirror.snapshots[archive],) if archive in mirror.snapshots else (),
        )
        for archive in ARCHIVES
        if (uri := given[archive]) is not None
    )


def from_release(uri: str, distribution: Distribution, keys: tuple[Path | str, ...]) -> tuple[Source, ...]:
    """The sources of this distribution where only the address of its main archive is known."""
    mirror = Mirror(where="", uris={"release": uri.rstrip("/")}, snapshots={}, keyring=None)
    return from_mirror(mirror, distribution, keys)


def security_uri(release: str, distribution: Distribution) -> str:
    """Where the security archive is by custom, from the address of the main one."""
    return release.rstrip("/") + "-security" if distribution.family.security_beside_release else release


def from_host(
    entries: Sequence[HostEntry],
    distribution: Distribution,
    *,
    same_architecture: bool,
    keys: tuple[Path | str, ...],
) -> tuple[Source, ...]:
    """The sources of this distribution, by the host's entries for it or for another release of its family; or none."""
    if distribution.family.mirror_per_architecture and not same_architecture:
        return ()
    known = archive_data.distributions()
    kinds = {
        suite: archive
        for other in known.values()
        if other.family == distribution.family
        for archive, suite in other.suites.items()
    }
    chosen: dict[str, HostEntry] = {}
    for exact in (True, False):
        for entry in sorted(entries, key=lambda entry: _foreign(entry, distribution)):
            archive = kinds.get(entry.suite)
            if archive is not None and (not exact or entry.suite == distribution.suites[archive]):
                chosen.setdefault(archive, entry)
    if "release" not in chosen:
        return ()
    release = chosen["release"]
    fallback = {
        "release": release,
        "updates": release,
        "security": HostEntry(uri=security_uri(release.uri, distribution), suite="", keys=release.keys),
    }
    picked = {archive: chosen.get(archive, fallback[archive]) for archive in ARCHIVES}
    return tuple(
        Source(
            archive=archive,
            uri=entry.uri.rstrip("/"),
            suite=distribution.suites[archive],
            keys=entry.keys if entry.keys and entry.suite == distribution.suites[archive] else keys,
            trusted=entry.trusted,
        )
        for archive, entry in picked.items()
    )


def _foreign(entry: HostEntry, distribution: Distribution) -> tuple[bool, bool]:
    """How little an entry looks like the distribution's own: vendors use its suite names, with their keys and paths."""
    family = distribution.family
    own_keys = not entry.keys or any(isinstance(key, Path) and family.name in key.name for key in entry.keys)
    last = urlsplit(entry.uri).path.rstrip("/").rpartition("/")[2]
    return not own_keys, not last.startswith(family.name)


def host_entries(etc: Path = Path("/etc/apt")) -> list[HostEntry]:
    """Every binary package source that this host's apt has switched on."""
    entries: list[HostEntry] = []
    parts = etc / "sources.list.d"
    for file in [etc / "sources.list", *(sorted(parts.glob("*.list")) if parts.is_dir() else [])]:
        if file.is_file():
            entries += parse_one_line(file.read_text(encoding="utf-8", errors="replace"))
    for file in sorted(parts.glob("*.sources")) if parts.is_dir() else []:
        entries += parse_deb822(file.read_text(encoding="utf-8", errors="replace"))
    return [plain for entry in entries for plain in _without_lists(entry)]


def parse_one_line(text: str) -> list[HostEntry]:
    """The entries of a file in apt's one-line format."""
    entries = []
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)", line.split("#", 1)[0])
        if found:
            options = dict(pair.split("=", 1) for pair in (found[1] or "").split() if "=" in pair)
            options = {name.rstrip("+-").lower(): value for name, value in options.items()}
            entries.append(_entry(found[2], found[3], options, ","))
    return entries


def parse_deb822(text: str) -> list[HostEntry]:
    """The entries of a file in apt's deb822 format."""
    entries = []
    for paragraph in archive_index.paragraphs(text):
        field = {name.lower(): value for name, value in archive_index.fields(paragraph).items()}
        if (
            field.get("enabled", "yes").lower() in ("no", "false", "0", "off")
            or "deb" not in field.get("types", "").split()
        ):
            continue
        for uri in field.get("uris", "").split():
            entries += [_entry(uri, suite, field, None) for suite in field.get("suites", "").split()]
    return entries


def _entry(uri: str, suite: str, options: Mapping[str, str], separator: str | None) -> HostEntry:
    return HostEntry(
        uri=uri,
        suite=suite,
        keys=tuple(_keys(options.get("signed-by", ""))),
        trusted=options.get("trusted", "").lower() in ("yes", "true", "1", "on"),
        architectures=tuple(options.get("architectures", options.get("arch", "")).replace(",", " ").split()),
    )


def _keys(signed_by: str) -> Iterator[Path | str]:
    """Keyring files, or the text of a key that stands in the sources file itself."""
    if "BEGIN PGP" in signed_by:
        lines = (line.strip() for line in signed_by.strip().splitlines())
        yield "\n".join("" if line == "." else line for line in lines) + "\n"
        return
    for word in signed_by.replace(",", " ").split():
        if word.startswith("/"):
            yield Path(word)


def _without_lists(entry: HostEntry) -> Iterator[HostEntry]:
    """The entry itself; for `mirror+file:` the first address of that list; nothing for what cannot be fetched from."""
    scheme = urlsplit(entry.uri).scheme
    uri = entry.uri
    if scheme == "mirror+file":
        listed = local_path(urlunsplit(("file", *urlsplit(entry.uri)[1:])))
        lines = listed.read_text(encoding="utf-8").splitlines() if listed and listed.is_file() else []
        words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
        uri = words[0] if words else ""
    if urlsplit(uri).scheme in SCHEMES:
        yield HostEntry(
            uri=uri, suite=entry.suite, keys=entry.keys, trusted=entry.trusted, architectures=entry.architectures
        )


def host_os(text: str) -> str:
    """The id of the distribution that an os-release file tells of: debian-12."""
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', text, re.MULTILINE))
    return f"{found.get('ID', '')}-{found.get('VERSION_ID', '')}"
