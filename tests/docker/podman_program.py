"""Debian's own Podman for tests, unpacked into a folder, with everything that it keeps in there too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

WANTED = ("podman", "conmon", "crun", "libyajl2", "libgpgme11", "libsubid4", "golang-github-containers-image")
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


def made(folder: Path) -> Path:
    """A folder for PATH that has `podman`; skips, with what apt said, where it cannot be had."""
    folder.mkdir()
    got = subprocess.run(["apt-get", "download", "-q", *WANTED], cwd=folder, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"podman cannot be had: {got.stderr[-300:]}")
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(deb), str(folder / "root")], check=True)
    programs, home, binaries = folder / "bin", folder / "home", folder / "root" / "usr" / "bin"
    (home / ".config" / "containers").mkdir(parents=True)
    (home / ".config" / "containers" / "policy.json").write_text(POLICY)
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/store"\n'
    )
    (home / "containers.conf").write_text(
        f'[engine]\nconmon_path = ["{binaries}/conmon"]\nruntime = "crun"\ncgroup_manager = "cgroupfs"\n'
        f'events_logger = "none"\n[engine.runtimes]\ncrun = ["{binaries}/crun"]\n'
    )
    libraries = ":".join(sorted({str(path.parent) for path in (folder / "root").rglob("lib*.so.*")}))
    programs.mkdir()
    (programs / "podman").write_text(
        f"#!/bin/sh\nexport HOME={home} CONTAINERS_CONF={home}/containers.conf LD_LIBRARY_PATH={libraries}\n"
        f'export CONTAINERS_STORAGE_CONF={home}/storage.conf\nexec {binaries}/podman "$@"\n'
    )
    (programs / "podman").chmod(0o755)
    return programs
