"""A base bootstrapped from the distribution's real archive by a real engine."""

from __future__ import annotations

import gzip
import os
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchyard.errors import YardError
from torchyard.ospin import OsPin
from torchyard.world import archive, bootstrap, engine, process
from torchyard.world.archive import Archives
from torchyard.world.boot_oci import Layout
from torchyard.world.bootstrap import Builder
from torchyard.world.store import Store

ARCH = "x86_64"


@dataclass(frozen=True, kw_only=True)
class Bases:
    """What bases are made with in this module; package files are fetched once."""

    builder: Builder
    archives: Archives
    root: Path

    def pins(self, system: str) -> tuple[tuple[OsPin, ...], int]:
        answer = archive.resolve(system, ARCH, {"base": ()}, archives=self.archives)
        archive.fetch(answer.pins, os=system, arch=ARCH, archives=self.archives, dates=answer.dates)
        return answer.pins, answer.epoch

    def build(self, system: str, pins: tuple[OsPin, ...], epoch: int, folder: str, *, no_cache: bool = False) -> Layout:
        return bootstrap.build_base(
            pins,
            store=self.archives.store,
            epoch=epoch,
            os=system,
            arch=ARCH,
            builder=self.builder,
            cache=self.root / folder,
            say=print,
            no_cache=no_cache,
        )


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    root = tmp_path_factory.mktemp("bases")
    found = engine.ensure(print)
    archives = Archives(store=Store(root / "store"), cache=root / "lists", mirrors=[], say=print)
    return Bases(builder=Builder(argv=found.buildx, env=found.env), archives=archives, root=root)


@contextmanager
def other_surroundings(home: Path) -> Iterator[None]:
    """Another umask, time zone, locale and home."""
    changed = {"HOME": str(home), "TZ": "Asia/Tokyo", "LC_ALL": "C", "LANG": "C"}
    before = {name: os.environ.get(name) for name in changed}
    umask = os.umask(0o077)
    os.environ.update(changed)
    try:
        yield
    finally:
        os.umask(umask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def members(layout: Layout) -> dict[str, tarfile.TarInfo]:
    with gzip.open(layout.blob) as plain, tarfile.open(fileobj=plain) as tar:
        return {member.name: member for member in tar}


def test_a_base_is_byte_identical_each_time_and_tells_nothing_of_its_making(bases: Bases, tmp_path: Path) -> None:
    pins, epoch = bases.pins("debian-12")
    one = bases.build("debian-12", pins, epoch, "one", no_cache=True)
    with other_surroundings(tmp_path):
        two = bases.build("debian-12", tuple(reversed(pins)), epoch, "two", no_cache=True)
    assert (one.layer, one.manifest) == (two.layer, two.manifest)
    found = members(one)
    assert max(member.mtime for member in found.values()) <= epoch
    assert not [name for name in found if name.startswith("var/log/") and not found[name].isdir()]
    assert "usr/share/doc/libc6/copyright" in found
    assert not [name for name in found if name.startswith("usr/share/man/") and not found[name].isdir()]
    assert found["etc/machine-id"].size == 0


def test_a_clock_that_is_a_year_late_is_refused_and_leaves_no_base(bases: Bases) -> None:
    pins, _ = bases.pins("debian-12")
    in_a_year = int(time.time()) + 365 * 24 * 3600  # what matters is how far the clock is behind the lock
    with pytest.raises(YardError, match="clock says .* before the lock's archive was made"):
        bases.build("debian-12", pins, in_a_year, "late")
    assert list((bases.root / "late").iterdir()) == []


@pytest.mark.parametrize("system", ["debian-12", "ubuntu-24.04"])
def test_an_image_builds_on_a_base_whose_packages_are_all_configured(bases: Bases, system: str, tmp_path: Path) -> None:
    pins, epoch = bases.pins(system)
    base = bases.build(system, pins, epoch, "one")
    (tmp_path / "Dockerfile").write_text(
        "FROM base\n"
        "RUN --network=none set -e; . /etc/os-release; echo $ID-$VERSION_ID >/seen;"
        ' test -z "$(dpkg --audit)"; dpkg-query -W -f "\\${Package} \\${Version} \\${db:Status-Abbrev}\\n" >>/seen;'
        " apt-get --version; getent passwd root; locale -a | grep -qi c.utf\n"
        "FROM scratch\nCOPY --from=0 /seen /seen\n"
    )
    out = tmp_path / "out"
    argv = [*bases.builder.argv, "build", "--no-cache", "--provenance=false", "--build-context", f"base={base.context}"]
    process.run([*argv, "--output", f"type=local,dest={out}", str(tmp_path)], env=dict(bases.builder.env))
    lines = (out / "seen").read_text().splitlines()
    assert lines[0] == system
    assert sorted(lines[1:]) == sorted(f"{pin.name} {pin.version} ii " for pin in pins)
