"""The host's apt at work in a directory of its own: it knows nothing of what is installed on the host."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from torchyard.errors import Incompatible, InputError, Surroundings
from torchyard.world import archive_index, process
from torchyard.world.archive_data import Distribution
from torchyard.world.archive_index import KEPT, Index, PackageFile
from torchyard.world.archive_sources import Source

PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]")
_INST = re.compile(r"^Inst (\S+?)(?::\S+)? (?:\[[^\]]*\] )?\((\S+) .*?\[(\S+)\]\)", re.MULTILINE)
_REMV = re.compile(r"^Remv (\S+)", re.MULTILINE)

# What the user set for apt (proxy, certificates, credentials) holds here too; what reacts to changes of the host, and
# what would make the answer depend on this host, does not.
_CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Post-Invoke-Stats;
#clear APT::Install::Pre-Invoke;
#clear APT::Install::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Default-Release;
#clear APT::Architectures;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Immediate-Configure "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::Always-Include-Phased-Updates "true";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
Dir "{root}/";
Dir::State "{root}/state/";
Dir::State::lists "{root}/lists/";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache/";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "{root}/log/";
Dir::Etc "{root}/etc/";
Dir::Etc::sourcelist "{root}/etc/none";
Dir::Etc::sourceparts "{root}/etc/sources.list.d/";
Dir::Etc::trusted "{root}/etc/none";
Dir::Etc::trustedparts "{root}/etc/trusted.gpg.d/";
Dir::Etc::preferences "{root}/etc/preferences";
Dir::Etc::preferencesparts "{root}/etc/preferences.d/";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
"""


class Unsolvable(Exception):
    """apt finds no set of packages; `text` is what it says."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Apt:
    """An apt that sees these sources only; `root` is its own directory, kept between runs for its lists.

    held is a lock on that directory, which the programs that run there hold too, should they outlive us.
    """

    def __init__(
        self, root: Path, distribution: Distribution, arch: str, sources: Sequence[Source], held: Sequence[int] = ()
    ) -> None:
        self.root = root.absolute()
        self.distribution = distribution
        self.arch = arch
        self.sources = sources
        self.held = held

    def update(self, kept: Sequence[PackageFile] = ()) -> None:
        """Have the newest package lists, each with a good signature; `kept` are files that are here in any case."""
        self._lay_out(kept)
        process.run(
            self._argv("update", "-q"),
            env={"LC_ALL": "C.UTF-8", "APT_CONFIG": None},
            pass_fds=self.held,
            hint=f"check the network, or name a mirror that you can reach for '{self.distribution.family.name}'"
            " in a mirrors file (docs/archive.md)",
        )

    def prefer(self, versions: Sequence[tuple[str, str]]) -> None:
        """Make apt take these versions of packages wherever it sees them."""
        text = "".join(
            f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n\n" for name, version in sorted(versions)
        )
        (self.root / "etc" / "preferences").write_text(text, encoding="utf-8")

    def solve(
        self, names: Sequence[str], installed: Sequence[PackageFile], status: str = ""
    ) -> list[tuple[str, str, str]]:
        """What has to be added to `installed` to have these packages: name, version and architecture of each.

        status: the text of dpkg's status of what is there beside `installed`; of that, no more is upgraded than has to.
        """
        if not names:
            return []
        (self.root / "status").write_text(archive_index.with_installed(status, installed), encoding="utf-8")
        done = process.run(
            self._argv(
                "install", "-s", "-q", "--no-install-recommends", *(["--no-upgrade"] if status else []), "--", *names
            ),
            env={"LC_ALL": "C.UTF-8", "APT_CONFIG": None},
            check=False,
        )
        if done.code != 0:
            raise Unsolvable(done.out + done.err)
        if removed := _REMV.findall(done.out):
            raise Incompatible(
                f"{', '.join(names)} cannot be installed together with {', '.join(removed)}",
                where=self.distribution.id,
                hint="leave one of them out of packages.apt",
            )
        return [(name, version, arch) for name, version, arch in _INST.findall(done.out)]

    def index(self) -> Index:
        """Every package file of the lists, those of `kept` last."""
        lists = [
            (source.archive, self._cat(file))
            for source in self.sources
            for component in self.distribution.components
            for file in self._lists(f"*_dists_{_escaped(source.suite)}_{component}_binary-{self.arch}_Packages*")
        ]
        return Index([*lists, (KEPT, (self.root / "kept" / "Packages").read_text(encoding="utf-8"))])

    def dates(self) -> dict[str, int]:
        """The date of each archive that says one, in seconds since 1970."""
        dates: dict[str, int] = {}
        for source in self.sources:
            for file in self._lists(f"*_dists_{_escaped(source.suite)}_*Release"):
                date = archive_index.release_date(file.read_text(encoding="utf-8"))
                if date is not None:
                    dates[source.archive] = date
        return dates

    def _lists(self, pattern: str) -> list[Path]:
        return sorted(path for path in (self.root / "lists").glob(pattern) if path.is_file())

    def _cat(self, file: Path) -> str:
        """The text of a list, which apt may keep compressed in any way that it knows."""
        if file.name.endswith("_Packages"):
            return file.read_text(encoding="utf-8", errors="replace")
        return process.run(["/usr/lib/apt/apt-helper", *self._config(), "cat-file", str(file)]).out

    def _config(self) -> list[str]:
        return ["-c", str(self.root / "apt.conf")]

    def _argv(self, *words: str) -> list[str]:
        return ["apt-get", *self._config(), *words]

    def _lay_out(self, kept: Sequence[PackageFile]) -> None:
        root = self.root
        for folder in ("state", "lists/partial", "cache/archives/partial", "log", "kept"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        shutil.rmtree(root / "etc", ignore_errors=True)
        for folder in ("sources.list.d", "trusted.gpg.d", "preferences.d"):
            (root / "etc" / folder).mkdir(parents=True)
        (root / "apt.conf").write_text(_CONFIG.format(root=root, arch=self.arch), encoding="utf-8")
        (root / "etc" / "sources.list.d" / "all.sources").write_text(self._sources(), encoding="utf-8")
        for number, key in enumerate(sorted({k for s in self.sources for k in s.keys}, key=str)):
            data = key.encode() if isinstance(key, str) else _read_key(key)
            kind = "asc" if data.lstrip().startswith(b"-----BEGIN") else "gpg"
            (root / "etc" / "trusted.gpg.d" / f"{number}.{kind}").write_bytes(data)
        (root / "kept" / "Packages").write_text("".join(f"{f.control}\n\n" for f in kept), encoding="utf-8")
        (root / "status").write_text("", encoding="utf-8")
        self.prefer(())

    def _sources(self) -> str:
        blocks = [
            f"Types: deb\nURIs: {source.uri}\nSuites: {source.suite}\n"
            f"Components: {' '.join(self.distribution.components)}\nArchitectures: {self.arch}\nTargets: Packages\n"
            + ("Trusted: yes\n" if source.trusted else "")
            for source in self.sources
        ]
        blocks.append(
            f"Types: deb\nURIs: copy:{quote(str(self.root))}/kept/\nSuites: ./\nTrusted: yes\nTargets: Packages\n"
        )
        return "\n".join(blocks)


def check_name(name: str) -> None:
    """Stop a word that apt would not take for the name of a package."""
    if not PACKAGE_NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not the name of a distribution package",
            where="packages.apt",
            hint="use lower-case letters, digits, '+', '-' and '.', and no version",
        )


def explain(error: Unsolvable, index: Index, distribution: Distribution, *, on_image: bool = False) -> InputError:
    """What the user can do about a set of packages that apt cannot put together, be it on a registry image."""
    unknown = sorted(set(re.findall(r"Unable to locate package (\S+)", error.text)))
    if unknown:
        near = [n for u in unknown for n in difflib.get_close_matches(u, index.names(), n=1)]
        return InputError(
            f"{distribution.id} has no package {', '.join(unknown)} in {', '.join(distribution.components)}",
            where="packages.apt",
            hint=f"the nearest name is {', '.join(near)}" if near else "look the name up with apt-cache search",
        )
    lines = [line for line in error.text.splitlines() if line.strip() and not line.startswith(("Reading", "Building"))]
    return Incompatible(
        f"the packages cannot be installed together on {distribution.id}:\n" + process.last_lines("\n".join(lines)),
        where="packages.apt",
        hint="leave out the package that is named there"
        + (", or take another base image: its own packages do not fit the archive's" if on_image else ""),
    )


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Surroundings(
            f"the keyring cannot be read: {error.strerror}",
            where=str(path),
            hint="install it, or name another one with 'keyring' in the mirrors file (docs/archive.md)",
        ) from error


def _escaped(suite: str) -> str:
    return suite.replace("/", "_")
