"""Programs from the packages of another release of Debian, unpacked into a folder; nothing of the machine is changed.

Which version that is decides the archive on the day. Other releases than the stable one move, so their index can name
files that are gone: what the wanted packages do not need from there comes from the stable one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard.world import engine_root, engine_sources

STABLE = engine_sources.DEBIAN_SUITE
AGAIN = 'Acquire::Check-Valid-Until "false";\nAPT::Get::Assume-Yes "true";\n'  # an index that is old still serves


def unpacked(folder: Path, release: str, wanted: Sequence[str], others: Sequence[str] = ()) -> Path:
    """A root with the `wanted` packages of a release, with `others` and what all of them need; skips where none is."""
    first = _downloaded(folder / "apt-mixed", (STABLE, release), [f"{name}/{release}" for name in wanted], others)
    if isinstance(first, str):  # the stable one has not what they need
        second = _downloaded(folder / "apt", (release,), wanted, others)
        if isinstance(second, str):
            pytest.skip(f"Debian {release} does not give {' '.join(wanted)} on this machine: {second or first}")
        first = second
    root = folder / "root"
    engine_root.unpack(first, root, lock=0)
    for name in ("apt-mixed", "apt"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return root


def _downloaded(
    folder: Path, releases: Sequence[str], wanted: Sequence[str], others: Sequence[str]
) -> list[Path] | str:
    """The packages' files, or what apt said last where it cannot have them."""
    host = engine_sources.read_host()
    own = [
        source
        for source in engine_sources.read_sources()
        if host.id == "debian"
        and source.suite in (host.codename, *engine_sources.ALIASES)
        and "main" in source.components
    ]
    if not own:
        return f"apt has no source of Debian's archive for {host.name}"
    for name in ("cache/archives/partial", "sources", "state/lists/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    sources = [replace(own[0], suite=release, components=("main",)) for release in releases]
    (folder / "sources" / "these.sources").write_text(engine_sources.sources_text(sources))
    machine = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    settings = engine_root.apt_configuration(folder, machine) + AGAIN
    if len(releases) > 1:
        settings += f'APT::Default-Release "{releases[0]}";\n'
    (folder / "conf").write_text(settings)
    apt = ("apt-get", "--config-file", str(folder / "conf"), "--quiet")
    for words in (["--error-on=any", "update"], ["--download-only", "install", *wanted, *others]):
        done = subprocess.run([*apt, *words], capture_output=True, text=True)
        if done.returncode:
            return " ".join(line for line in done.stderr.splitlines() if line.startswith("E: ")) or done.stderr[-500:]
    return sorted((folder / "cache" / "archives").glob("*.deb"))
