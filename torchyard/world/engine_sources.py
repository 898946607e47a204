"""Where the private engine's packages come from: this machine's distribution, and the mirrors that its apt uses."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard.errors import Surroundings

FORMAT = "1"  # of the unpacked root; a root of another format is made anew
DEBIAN_SUITE = "trixie"  # Debian 12's own engine (20.10) is too old; this one's programs run on its kernel
OLDEST = {"debian": (12,), "ubuntu": (24, 4)}
ALIASES = ("stable", "oldstable", "oldoldstable", "testing", "unstable", "sid")
COMMON = (
    "apparmor", "ca-certificates", "coreutils", "dash", "docker-buildx", "docker.io", "findutils", "git", "grep",
    "gzip", "iproute2", "iptables", "kmod", "libc-bin", "mount", "procps", "sed", "tar", "tini", "util-linux",
)  # fmt: skip
OWN = {"debian": ("docker-cli", "docker-compose"), "ubuntu": ("docker-compose-v2",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The distribution that this machine runs."""

    id: str
    name: str
    version: tuple[int, ...]
    codename: str

    @property
    def supported(self) -> bool:
        """Whether a private engine can be set up from this distribution's packages."""
        return self.id in OLDEST and (not self.version or self.version >= OLDEST[self.id])


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One entry of apt's sources; `signed_by` is as written: a path, a fingerprint or a key block."""

    uris: tuple[str, ...]
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What the root is made from: a suite, the host's sources turned to it, and the packages."""

    distribution: str
    suite: str
    sources: tuple[Source, ...]
    packages: tuple[str, ...]


def parse_host(os_release: str) -> Host:
    """The distribution of an os-release text."""
    values = {
        name: value.strip().strip("\"'")
        for name, _, value in (line.partition("=") for line in os_release.splitlines())
        if value
    }
    return Host(
        id=values.get("ID", ""),
        name=values.get("PRETTY_NAME", values.get("NAME", "an unknown system")),
        version=tuple(int(part) for part in re.findall(r"\d+", values.get("VERSION_ID", ""))),
        codename=values.get("VERSION_CODENAME", ""),
    )


def parse_sources(files: Mapping[str, str]) -> tuple[Source, ...]:
    """The package sources in apt's source files (`*.list`, `*.sources`), the distribution's own files first."""
    first = ("sources.list", "debian.sources", "ubuntu.sources")
    order = sorted(files, key=lambda name: (first.index(name) if name in first else len(first), name))
    sources: list[Source] = []
    for name in order:
        sources += _stanzas(files[name]) if name.endswith(".sources") else _lines(files[name])
    return tuple(sources)


def _lines(text: str) -> Iterable[Source]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>[^#]*)", line)
        if match:
            options = dict(part.split("=", 1) for part in (match["options"] or "").split() if "=" in part)
            yield Source(
                uris=(match["uri"],),
                suite=match["suite"],
                components=tuple(match["rest"].split()),
                signed_by=options.get("signed-by", ""),
            )


def _stanzas(text: str) -> Iterable[Source]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t"):
                fields[name] = f"{fields.get(name, '')}\n{line}"
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        for suite in fields.get("suites", "").split():
            yield Source(
                uris=tuple(fields.get("uris", "").split()),
                suite=suite,
                components=tuple(fields.get("components", "").split()),
                signed_by=fields.get("signed-by", ""),
            )


def suite_of(host: Host) -> str:
    """The suite whose engine runs on this host."""
    return DEBIAN_SUITE if host.id == "debian" else host.codename


def packages_of(host: Host) -> tuple[str, ...]:
    """The packages that the root is made from, beside what they depend on."""
    return tuple(sorted((*COMMON, *OWN[host.id])))


def stamp(host: Host) -> str:
    """The text that a finished root for this host carries (no address is in it)."""
    return "\n".join((f"format {FORMAT}", f"suite {host.id} {suite_of(host)}", *packages_of(host), ""))


def recipe(host: Host, sources: Sequence[Source]) -> Recipe:
    """What the private engine's root on this host is made from; the mirrors are those that the host's apt uses."""
    suite = suite_of(host)
    names = (host.codename, *(ALIASES if host.id == "debian" else ()))
    components = ("main",) if host.id == "debian" else ("main", "universe")
    pockets = ("", "-updates", "-security")
    found: list[Source] = []
    for pocket in pockets:
        wanted = {name + pocket for name in names}
        own = [
            s
            for s in sources
            if s.suite in wanted and "main" in s.components and not any(u.startswith("cdrom:") for u in s.uris)
        ]
        if own:
            found.append(replace(own[0], suite=suite + pocket, components=components))
    if not found or found[0].suite != suite:
        raise Surroundings(
            f"apt has no source for {host.name} (suite {host.codename}, component main) on this machine",
            where="/etc/apt/sources.list, /etc/apt/sources.list.d",
            hint="add the distribution's own archive to apt's sources, or install Docker yourself",
        )
    return Recipe(distribution=host.id, suite=suite, sources=tuple(found), packages=packages_of(host))


def sources_text(sources: Sequence[Source]) -> str:
    """The entries as one deb822 file."""
    stanzas = []
    for source in sources:
        lines = [
            "Types: deb",
            f"URIs: {' '.join(source.uris)}",
            f"Suites: {source.suite}",
            f"Components: {' '.join(source.components)}",
        ]
        if source.signed_by:
            lines.append(f"Signed-By: {source.signed_by}")
        stanzas.append("\n".join(lines) + "\n")
    return "\n".join(stanzas)


def read_host() -> Host:
    """The distribution of this machine; an unknown one where no os-release file is there."""
    for path in (Path("/etc/os-release"), Path("/usr/lib/os-release")):
        if path.is_file():
            return parse_host(path.read_text())
    return Host(id="", name=platform.system(), version=(), codename="")


def read_sources(etc: Path = Path("/etc/apt")) -> tuple[Source, ...]:
    """The package sources of this machine's apt."""
    paths = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    files = {p.name: p.read_text() for p in paths if p.suffix in (".list", ".sources") and p.is_file()}
    return parse_sources(files)
