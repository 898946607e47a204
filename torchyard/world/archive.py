"""The package archives of the distributions: pins of packages, their files in the store, and what has moved since."""

from __future__ import annotations

import contextlib
import fcntl
import os as system
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from torchyard.errors import InputError, Surroundings
from torchyard.ospin import OsPin
from torchyard.world import (
    archive_apt,
    archive_data,
    archive_deb,
    archive_session,
    archive_sources,
    process,
)
from torchyard.world.archive_apt import Apt, Unsolvable
from torchyard.world.archive_data import Distribution, Family
from torchyard.world.archive_index import KEPT, Index, PackageFile, package_file
from torchyard.world.archive_sources import Source
from torchyard.world.download import Changed, DownloadError, NotThere, download, without_credentials
from torchyard.world.store import Store

AT_ONCE = 4  # downloads


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveAnswer:
    """Every OS package of an image, sorted by group and name, and the date of each archive in seconds since 1970."""

    pins: tuple[OsPin, ...]
    dates: Mapping[str, int]

    @property
    def epoch(self) -> int:
        """The date of the newest archive: what SOURCE_DATE_EPOCH may be."""
        return max(self.dates.values(), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stale:
    """A pin that the archive has left behind: `gone` when it has that version no more, `newest` what it has."""

    pin: OsPin
    gone: bool
    newest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Archives:
    """What it takes to reach the archives.

    store: where package files go. cache: a directory for package lists, kept between runs. mirrors: mirrors files, the
    first that names a distribution wins. say: told what is used and done.
    """

    store: Store
    cache: Path
    mirrors: Sequence[Path]
    say: Callable[[str], None]


def resolve(
    os: str,
    arch: str,
    groups: Mapping[str, Sequence[str]],
    *,
    archives: Archives,
    prefer: Sequence[OsPin] = (),
    installed: str = "",
) -> ArchiveAnswer:
    """The pins of every OS package; each group adds what the groups before it lack.

    The group `base` has the Essential and required packages and apt in any case, unless `installed`, the text of dpkg's
    status, says what the image starts from: then every group is what that lacks, or what has to be newer to fit.
    Versions of `prefer` are kept where the archive or the store still has them and the rest fits them; what of them is
    of the group `base` stays there, so that images of one distribution share their base also after its archive moved
    a package from the required ones to others.
    """
    distribution = archive_data.distribution(os)
    for names in groups.values():
        for name in names:
            archive_apt.check_name(name)
    with _apt(distribution, arch, archives) as apt:
        apt.update([_kept(pin, archives.store) for pin in prefer if archives.store.has(pin.sha256, pin.size)])
        index = apt.index()
        chosen = _solve(apt, index, groups, prefer, installed, archives.say)
        known = {(pin.name, pin.version, pin.architecture): pin for pin in prefer}
        pins = [_pin(file, group, known) for group, files in chosen.items() for file in files]
        return ArchiveAnswer(pins=tuple(sorted(pins, key=_order)), dates=apt.dates())


def fetch(
    pins: Sequence[OsPin],
    *,
    os: str,
    arch: str,
    archives: Archives,
    dates: Mapping[str, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Have the file of every pin in the store; all that the archive lacks or has otherwise is told in one error."""
    missing = {pin.sha256: pin for pin in pins if not archives.store.has(pin.sha256, pin.size)}
    if not missing:
        return
    sources = find_sources(os, arch, archives)
    failed: list[tuple[OsPin, DownloadError]] = []

    def one(pin: OsPin) -> tuple[OsPin, DownloadError] | None:
        with archive_session.open_session() as session:
            urls = addresses(pin, sources, dates or {})
            try:
                download(
                    urls,
                    sha256=pin.sha256,
                    size=pin.size,
                    store=archives.store,
                    session=session,
                    on_progress=progress,
                )
            except (NotThere, Changed) as error:
                return pin, error
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            failed = [found for found in pool.map(one, missing.values()) if found]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    if failed:
        raise _moved(failed, os, arch, archives, snapshot=any(s.snapshots for s in sources))


def stale(pins: Sequence[OsPin], *, os: str, arch: str, archives: Archives) -> list[Stale]:
    """The pins that the archive has no more, or has a newer version of, sorted."""
    with _apt(archive_data.distribution(os), arch, archives) as apt:
        apt.update()
        index = apt.index()
    return [found for pin in sorted(pins, key=_order) if (found := _stale(pin, index))]


def addresses(pin: OsPin, sources: Sequence[Source], dates: Mapping[str, int]) -> list[str]:
    """Where the file of a pin may be, the likeliest place first: its archive, the main archive, a snapshot."""
    by_archive = {source.archive: source for source in sources}
    own = by_archive.get(pin.archive)
    places = [(own, pin.path)] if own else []
    if pin.archive != "release" and "release" in by_archive:
        places.append((by_archive["release"], pin.path.replace("pool/updates/", "pool/", 1)))
    urls = [f"{source.uri}/{_quoted(path)}" for source, path in places]
    for template in own.snapshots if own else ():
        date = datetime.fromtimestamp(dates.get(pin.archive, 0), UTC).strftime("%Y%m%dT%H%M%SZ")
        urls.append(f"{template.replace('{date}', date)}/{_quoted(pin.path)}")
    return list(dict.fromkeys(urls))


def find_sources(os: str, arch: str, archives: Archives) -> tuple[Source, ...]:
    """Where the packages of this distribution come from, and the keys that they are signed with."""
    distribution = archive_data.distribution(os)
    family = distribution.family
    mirror = archive_sources.read_mirrors(archives.mirrors, family.name)
    if mirror is not None:
        keys = () if mirror.keyring else _keys(family, archives)
        sources, because = archive_sources.from_mirror(mirror, distribution, keys), mirror.where
    else:
        same = archive_data.deb_architecture(arch) == _host_architecture()
        sources = archive_sources.from_host(
            archive_sources.host_entries(), distribution, same_architecture=same, keys=_keys(family, archives)
        )
        because = "this host's apt sources"
        if not sources:
            default = _default_mirror(distribution, archive_data.deb_architecture(arch), archives)
            sources = archive_sources.from_release(default, distribution, _keys(family, archives))
            because = "the default of debootstrap"
    shown = ", ".join(dict.fromkeys(without_credentials(source.uri) for source in sources))
    archives.say(f"{os}: packages from {shown} ({because})")
    return sources


def _solve(
    apt: Apt,
    index: Index,
    groups: Mapping[str, Sequence[str]],
    prefer: Sequence[OsPin],
    status: str,
    say: Callable[[str], None],
) -> dict[str, list[PackageFile]]:
    """The package files of each group; preferred versions that stand in the way are given up, and named."""
    versions = {p.name: p.version for p in prefer if index.find(p.name, p.version, p.architecture)}
    while True:
        apt.prefer(sorted(versions.items()))
        try:
            stays = [p.name for p in prefer if p.group == "base" and versions.get(p.name) == p.version]
            return _groups(apt, index, groups, stays, status)
        except Unsolvable as error:
            if not versions:
                raise archive_apt.explain(error, index, apt.distribution, on_image=bool(status)) from error
            blamed = {word for line in error.text.splitlines() for word in re.findall(r"[a-z0-9][a-z0-9+.-]+", line)}
            dropped = sorted(blamed & versions.keys()) or sorted(versions)
            say(f"{apt.distribution.id}: locked versions that do not fit any more: {', '.join(dropped)}")
            versions = {name: version for name, version in versions.items() if name not in dropped}


def _groups(
    apt: Apt, index: Index, groups: Mapping[str, Sequence[str]], stays: Sequence[str], status: str
) -> dict[str, list[PackageFile]]:
    installed: list[PackageFile] = []
    chosen: dict[str, list[PackageFile]] = {}
    for group, names in groups.items():
        first = group == "base" and not status
        wanted = [*index.minimal(), *apt.distribution.base, *names, *stays] if first else list(names)
        added = [_file(index, *found) for found in apt.solve(sorted(set(wanted)), installed, status)]
        installed += added
        chosen[group] = added
    return chosen


def _file(index: Index, name: str, version: str, architecture: str) -> PackageFile:
    file = index.find(name, version, architecture)
    if file is None:
        raise Surroundings(
            f"apt chose {name} {version} ({architecture}), which its own package lists do not have",
            hint="the mirror changed while it was read: run the command again",
        )
    return file


def _order(pin: OsPin) -> tuple[str, str]:
    return pin.group, pin.name


def _pin(file: PackageFile, group: str, known: Mapping[tuple[str, str, str], OsPin]) -> OsPin:
    old = known.get((file.name, file.version, file.architecture)) if file.archive == KEPT else None
    return OsPin(
        name=file.name,
        version=file.version,
        architecture=file.architecture,
        size=file.size,
        sha256=file.sha256,
        archive=old.archive if old else file.archive,
        path=old.path if old else file.path,
        group=group,
    )


def _kept(pin: OsPin, store: Store) -> PackageFile:
    """A stored package file as a paragraph of a package list."""
    text = archive_deb.control(store.path(pin.sha256))
    return package_file(f"{text}\nFilename: {pin.path}\nSize: {pin.size}\nSHA256: {pin.sha256}", KEPT)


def _stale(pin: OsPin, index: Index) -> Stale | None:
    there = [f for f in index.files(pin.name) if f.architecture == pin.architecture and f.archive != KEPT]
    newest = pin.version if not there else there[0].version
    for file in there:
        if _newer(file.version, newest):
            newest = file.version
    gone = not any(file.sha256 == pin.sha256 for file in there)
    if gone or _newer(newest, pin.version):
        return Stale(pin=pin, gone=gone, newest=newest if there else "")
    return None


def _newer(version: str, than: str) -> bool:
    if version == than:
        return False
    return process.run(["dpkg", "--compare-versions", version, "gt", than], check=False).code == 0


def _moved(
    failed: Sequence[tuple[OsPin, DownloadError]], os: str, arch: str, archives: Archives, *, snapshot: bool
) -> Surroundings:
    """The one error that names every package which the archive lacks or has otherwise."""
    newest: dict[str, str] = {}
    with contextlib.suppress(Surroundings, InputError):
        newest = {s.pin.name: s.newest for s in stale([pin for pin, _ in failed], os=os, arch=arch, archives=archives)}
    lines = []
    for pin, error in sorted(failed, key=lambda pair: _order(pair[0])):
        match error:
            case Changed():
                seen = f"sha256 {error.seen_sha256}" if error.seen_sha256 else f"{error.seen_size} bytes"
                lines.append(
                    f"  {pin.name} {pin.version}: changed; expected sha256 {pin.sha256} ({pin.size} bytes), seen {seen}"
                )
            case _:
                now = newest.get(pin.name)
                seen = f"the archive now has {now}" if now else "the archive has no such package now"
                lines.append(
                    f"  {pin.name} {pin.version} (sha256 {pin.sha256}): gone; {seen if newest else error.what}"
                )
    count = "one locked package" if len(failed) == 1 else f"{len(failed)} locked packages"
    return Surroundings(
        f"the archive of {os} no longer serves {count} as locked:\n" + "\n".join(lines),
        where=failed[0][1].where,
        hint="./yard lock --upgrade os  takes what the archive has now"
        + ("" if snapshot else "; or name a snapshot archive in a mirrors file (docs/archive.md)"),
    )


@contextlib.contextmanager
def _apt(distribution: Distribution, arch: str, archives: Archives) -> Iterator[Apt]:
    """An apt for this distribution, held by this process alone."""
    if shutil.which("apt-get") is None:
        raise Surroundings(
            "this host has no apt, which finds the packages of an image's base",
            hint="lock on a Debian or Ubuntu machine; a build from a finished lock and store needs no apt",
        )
    sources = find_sources(distribution.id, arch, archives)
    root = archives.cache / f"{distribution.id}-{arch}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "held").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            archives.say(f"another apt is at work on the lists of {distribution.id}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Apt(root, distribution, archive_data.deb_architecture(arch), sources, (lock.fileno(),))


def _keys(family: Family, archives: Archives, asked: tuple[str, ...] = ()) -> tuple[Path | str, ...]:
    """The keyring of a distribution: the host's, or the one in a package that the host's own keys vouch for."""
    on_host = _host_keyring(family)
    if on_host.is_file():
        return (on_host,)
    extracted = archives.cache / "keyrings" / family.keyring
    if extracted.is_file():
        return (extracted,)
    for other in family.keyring_in:
        if _host_keyring(archive_data.distribution(other).family).is_file():
            data = _out_of_package(other, family.keyring_package, f"usr/share/keyrings/{family.keyring}", archives)
            _write(extracted, data)
            return (extracted,)
    raise Surroundings(
        f"the keys that {family.name}'s packages are signed with are not on this host",
        where=str(on_host),
        hint=f"install the package {family.keyring_package}, or name a keyring in a mirrors file (docs/archive.md)",
    )


def _default_mirror(distribution: Distribution, deb_arch: str, archives: Archives) -> str:
    """The address that debootstrap has for this distribution: the host's debootstrap, or that of its archive."""
    installed = Path("/usr/share/debootstrap")
    program = Path("/usr/sbin/debootstrap")
    if not (installed / "scripts").is_dir():
        program, installed = _debootstrap(archives)
    script = installed / "scripts" / distribution.family.default_mirror_script
    asked = (
        'default_mirror() { echo "$1"; }; for f in mirror_style download_style finddebs_style variants keyring info '
        'warning error exec_download doing_variant; do eval "$f() { :; }"; done; . "$1"'
    )
    done = process.run(
        ["sh", "-c", asked, "sh", str(script)],
        env={"ARCH": deb_arch, "SUITE": distribution.suites["release"], "DEBOOTSTRAP_DIR": str(installed)},
        check=False,
    )
    found = done.out.split() or re.findall(r'^DEF_MIRROR="([^"]+)"', program.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise Surroundings(
            f"debootstrap names no default mirror for {distribution.id}",
            where=str(script),
            hint=f"name one for '{distribution.family.name}' in a mirrors file (docs/archive.md)",
        )
    return str(found[0])


def _debootstrap(archives: Archives) -> tuple[Path, Path]:
    """The program and the folder of a debootstrap taken out of its package; nothing is installed on the host."""
    folder = archives.cache / "debootstrap"
    if not (folder / "complete").is_file():
        host = _host_distribution()
        archives.say(f"debootstrap is not installed: its list of default mirrors is read from {host}'s package of it")
        file = _package(host, "debootstrap", archives)
        with archive_deb.opened(file, "data") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if (
                    member.isreg()
                    and name.startswith("usr/")
                    and ".." not in name
                    and (data := tar.extractfile(member))
                ):
                    _write(folder / name, data.read())
        _write(folder / "complete", b"")
    return folder / "usr/sbin/debootstrap", folder / "usr/share/debootstrap"


def _out_of_package(os: str, package: str, name: str, archives: Archives) -> bytes:
    archives.say(f"{name.rpartition('/')[2]} is not on this host: it is taken from {os}'s package {package}")
    data = archive_deb.file_in(_package(os, package, archives), name)
    if data is None:
        raise Surroundings(
            f"the package {package} of {os} has no file {name}",
            hint="name a keyring in a mirrors file (docs/archive.md)",
        )
    return data


def _package(os: str, name: str, archives: Archives) -> Path:
    """The newest file of one package of this host's architecture, in the store."""
    arch = next((a for a, deb in archive_data.DEB_ARCHITECTURES.items() if deb == _host_architecture()), "x86_64")
    with _apt(archive_data.distribution(os), arch, archives) as apt:
        apt.update()
        files = apt.index().files(name)
    if not files:
        raise Surroundings(
            f"{os} has no package {name} in its archive", hint="name mirrors and keyring in a file (docs/archive.md)"
        )
    pin = _pin(files[-1], "", {})
    fetch([pin], os=os, arch=arch, archives=archives)
    return archives.store.path(pin.sha256)


def _host_distribution() -> str:
    found = ""
    with contextlib.suppress(FileNotFoundError):
        found = archive_sources.host_os(Path("/etc/os-release").read_text(encoding="utf-8"))
    for os in (found, *archive_data.distributions()):
        if os in archive_data.distributions() and _host_keyring(archive_data.distribution(os).family).is_file():
            return os
    raise Surroundings(
        "this host knows the keys of no distribution", hint="name mirrors and keyring in a file (docs/archive.md)"
    )


def _host_keyring(family: Family) -> Path:
    return Path("/usr/share/keyrings") / family.keyring


def _host_architecture() -> str:
    return archive_data.DEB_ARCHITECTURES.get(system.uname().machine, "")


def _quoted(path: str) -> str:
    return quote(path, safe="/~:")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{system.getpid()}")
    part.write_bytes(data)
    part.replace(path)
