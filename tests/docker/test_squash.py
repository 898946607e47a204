"""A squashfs file written by the distribution's own mksquashfs: what is in it, and that it is the same each time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import clones
import pytest
import registry_process as registries

from torchyard.world import image_squash, registry_taking
from torchyard.world.store import Store

pytestmark = pytest.mark.docker

MADE = registries.image(
    [registries.tar_of({"usr/bin/one": b"1", "gone": b"x"}), registries.tar_of({".wh.gone": b"", "etc/two": b"2"})],
    {"Env": ["PATH=/usr/bin"]},
)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mksquashfs and unsquashfs: the installed ones, or those of the package, which is unpacked."""
    folder = tmp_path_factory.mktemp("squashfs")
    binaries = folder / "bin"
    binaries.mkdir()
    if shutil.which("mksquashfs") is None:
        subprocess.run(["apt-get", "download", "-q", "squashfs-tools", "liblzo2-2"], cwd=folder, check=True)
        for deb in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(folder / "root")], check=True)
    libraries = ":".join(str(path.parent) for path in (folder / "root").rglob("liblzo2.so.2"))
    for name in ("mksquashfs", "unsquashfs"):
        there = shutil.which(name) or str(folder / "root" / "usr" / "bin" / name)
        (binaries / name).write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {there} "$@"\n')
        (binaries / name).chmod(0o755)
    return binaries


def test_a_squashfs_file_has_what_the_image_shows(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    store = Store(tmp_path / "store")
    for data in MADE.blobs.values():
        registry_taking.keep(data, store)
    for name in ("one.sqsh", "two.sqsh"):
        image_squash.write(registry_taking.read(MADE.manifest), store, tmp_path / name)
    assert clones.digest_of(tmp_path / "one.sqsh") == clones.digest_of(tmp_path / "two.sqsh")
    listed = subprocess.run(
        [str(tools / "unsquashfs"), "-l", "-d", "", str(tmp_path / "one.sqsh")],
        check=True,
        capture_output=True,
        text=True,
    )
    seen = {line for line in listed.stdout.splitlines() if line.startswith("/")}
    assert {"/usr/bin/one", "/etc/two", "/etc/environment", "/etc/rc"} <= seen and "/gone" not in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.sqsh", "store", "two.sqsh"]
