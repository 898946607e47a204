"""What happens when a package archive has moved since the lock, on a small archive served on loopback."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from archive_server import ESSENTIAL, SmallArchive, served

from torchyard.errors import Incompatible, InputError, Surroundings
from torchyard.ospin import OsPin
from torchyard.world import archive
from torchyard.world.archive import ArchiveAnswer, Archives
from torchyard.world.store import Store

OS, ARCH = "debian-12", "x86_64"
GROUPS = {"base": (), "os": ("lib",), "user": ("tool",)}
DAY = 86_400
FIRST = 1_700_000_000


@dataclass
class Yard:
    """A small archive that is being served, and what reaches it."""

    small: SmallArchive
    uri: str
    root: Path
    said: list[str]

    def archives(self, store: str = "store", extra: str = "") -> Archives:
        mirrors = self.root / "mirrors.yaml"
        mirrors.write_text(
            f"mirrors:\n  debian:\n    release: {self.uri}\n    updates: null\n    security: null\n"
            f"    keyring: {self.small.keyring}\n{extra}"
        )
        cache = self.root / "a cache"
        return Archives(store=Store(self.root / store), cache=cache, mirrors=[mirrors], say=self.said.append)

    def resolve(self, *, prefer: Sequence[OsPin] = (), store: str = "store", **groups: Sequence[str]) -> ArchiveAnswer:
        return archive.resolve(OS, ARCH, {**GROUPS, **groups}, archives=self.archives(store), prefer=prefer)

    def fetch(self, answer: ArchiveAnswer, store: str = "store", extra: str = "") -> None:
        archive.fetch(answer.pins, os=OS, arch=ARCH, archives=self.archives(store, extra), dates=answer.dates)

    def replace(self, name: str, old: str, new: str, fields: str = "") -> None:
        (self.small.pool / f"{name}_{old}_all.deb").unlink()
        self.small.add(name, new, fields)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    small = SmallArchive(tmp_path / "archive")
    try:
        small.add("base-files", "12", ESSENTIAL)
        small.add("apt", "2")
        small.add("usr-is-merged", "1")
        small.add("lib", "1.0")
        small.add("tool", "1.0", "Depends: lib (>= 1.0), dep\nRecommends: more\n")
        small.add("dep", "1.0")
        small.add("more", "1.0")
        small.publish(FIRST)
        with served(small) as uri:
            yield Yard(small=small, uri=uri, root=tmp_path, said=[])
    finally:
        small.close()


def versions(answer: ArchiveAnswer) -> dict[str, str]:
    return {pin.name: pin.version for pin in answer.pins}


def test_each_group_adds_what_the_groups_before_it_lack(yard: Yard) -> None:
    answer = yard.resolve()
    assert {(pin.group, pin.name) for pin in answer.pins} == {
        ("base", "apt"),
        ("base", "base-files"),
        ("base", "usr-is-merged"),
        ("os", "lib"),
        ("user", "dep"),
        ("user", "tool"),
    }
    lib = next(pin for pin in answer.pins if pin.name == "lib")
    file = yard.small.root / lib.path
    assert (lib.archive, lib.version, lib.architecture) == ("release", "1.0", "all")
    assert (lib.size, lib.sha256) == (file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())
    assert answer.dates == {"release": FIRST} and answer.epoch == FIRST
    assert list(answer.pins) == sorted(answer.pins, key=lambda pin: (pin.group, pin.name))


def test_the_archives_priorities_count_also_where_package_files_of_others_are_in_the_store(yard: Yard) -> None:
    yard.small.add("helper", "1.0", "Priority: required\n")
    yard.small.overrides["helper"] = "important"
    yard.small.publish(FIRST + DAY)
    first = yard.resolve(dev=("helper",))
    yard.fetch(first)
    assert next(pin for pin in first.pins if pin.name == "helper").group == "dev"
    assert yard.resolve(dev=("helper",), prefer=first.pins) == first  # its file, which says `required`, is there now


def test_what_is_in_the_base_stays_there_until_an_upgrade(yard: Yard) -> None:
    yard.small.add("helper", "1.0", "Priority: required\n")
    yard.small.publish(FIRST + DAY)
    first = yard.resolve(dev=("helper",))
    assert next(pin for pin in first.pins if pin.name == "helper").group == "base"
    yard.small.overrides["helper"] = "optional"
    yard.small.publish(FIRST + 2 * DAY)
    assert yard.resolve(dev=("helper",), prefer=first.pins).pins == first.pins
    assert next(pin for pin in yard.resolve(dev=("helper",)).pins if pin.name == "helper").group == "dev"
    yard.replace("helper", "1.0", "1.1", "Priority: optional\n")
    yard.small.publish(FIRST + 3 * DAY)
    moved = yard.resolve(dev=("helper",), prefer=first.pins)  # that version is nowhere any more
    assert next(pin for pin in moved.pins if pin.name == "helper").group == "dev"


def test_a_second_fetch_asks_for_nothing(yard: Yard) -> None:
    answer = yard.resolve()
    yard.fetch(answer)
    yard.small.asked.clear()
    yard.fetch(answer)
    assert yard.small.asked == []


def test_every_package_that_left_the_archive_is_named_and_an_upgrade_goes_on(yard: Yard) -> None:
    locked = yard.resolve()
    yard.replace("lib", "1.0", "1.1")
    yard.replace("dep", "1.0", "1.0.1")
    yard.small.publish(FIRST + DAY)
    with pytest.raises(Surroundings) as caught:
        yard.fetch(locked)
    lib = next(pin for pin in locked.pins if pin.name == "lib")
    assert f"lib 1.0 (sha256 {lib.sha256}): gone; the archive now has 1.1" in caught.value.what
    assert "dep 1.0 (sha256 " in caught.value.what and "2 locked packages" in caught.value.what
    assert "lock --upgrade os" in caught.value.hint and "snapshot" in caught.value.hint
    upgraded = yard.resolve()
    yard.fetch(upgraded)
    assert versions(upgraded)["lib"] == "1.1" and upgraded.epoch == FIRST + DAY
    assert all(Store(yard.root / "store").has(pin.sha256, pin.size) for pin in upgraded.pins)


def test_another_file_under_the_same_name_is_told_with_both_hashes(yard: Yard) -> None:
    locked = yard.resolve()
    lib = next(pin for pin in locked.pins if pin.name == "lib")
    file = yard.small.root / lib.path
    other = bytes(reversed(file.read_bytes()))
    file.write_bytes(other)
    with pytest.raises(Surroundings) as caught:
        yard.fetch(locked)
    assert f"lib 1.0: changed; expected sha256 {lib.sha256}" in caught.value.what
    assert hashlib.sha256(other).hexdigest() in caught.value.what


def test_locking_again_keeps_what_the_store_has(yard: Yard) -> None:
    locked = yard.resolve()
    yard.fetch(locked)
    yard.replace("lib", "1.0", "1.1")
    yard.small.publish(FIRST + DAY)
    again = yard.resolve(prefer=locked.pins)
    assert again.pins == locked.pins
    assert versions(yard.resolve(prefer=[p for p in locked.pins if p.name != "lib"]))["lib"] == "1.1"
    assert versions(yard.resolve(prefer=locked.pins, store="empty"))["lib"] == "1.1"


def test_locking_again_keeps_an_older_version_that_the_archive_still_has(yard: Yard) -> None:
    locked = yard.resolve()
    yard.small.add("lib", "1.1")
    yard.small.publish(FIRST + DAY)
    assert versions(yard.resolve(prefer=locked.pins, store="empty"))["lib"] == "1.0"
    assert versions(yard.resolve(store="empty"))["lib"] == "1.1"


def test_a_kept_version_gives_way_to_a_package_that_needs_a_newer_one(yard: Yard) -> None:
    locked = yard.resolve()
    yard.fetch(locked)
    yard.replace("lib", "1.0", "1.1")
    yard.replace("dep", "1.0", "1.1")
    yard.small.add("newer", "1.0", "Depends: lib (>= 1.1)\n")
    yard.small.publish(FIRST + DAY)
    answer = yard.resolve(prefer=locked.pins, user=("tool", "newer"))
    assert versions(answer)["lib"] == "1.1"
    assert versions(answer)["dep"] == "1.0"
    assert any("lib" in line and "do not fit" in line for line in yard.said)


def test_stale_pins_are_told_with_what_the_archive_has(yard: Yard) -> None:
    locked = yard.resolve()
    yard.replace("lib", "1.0", "1.1")
    yard.small.add("dep", "1.0.1")
    (yard.small.pool / "tool_1.0_all.deb").unlink()
    yard.small.publish(FIRST + DAY)
    found = archive.stale(locked.pins, os=OS, arch=ARCH, archives=yard.archives())
    assert [(s.pin.name, s.gone, s.newest) for s in found] == [
        ("lib", True, "1.1"),
        ("dep", False, "1.0.1"),
        ("tool", True, ""),
    ]


def test_a_snapshot_archive_serves_what_left_the_mirror(yard: Yard) -> None:
    locked = yard.resolve()
    snapshot = yard.root / "snapshots" / "20231114T221320Z"
    shutil.copytree(yard.small.root / "pool", snapshot / "pool")
    yard.replace("lib", "1.0", "1.1")
    yard.small.publish(FIRST + DAY)
    address = (yard.root / "snapshots").as_uri() + "/{date}"
    yard.fetch(locked, extra=f"    snapshot: '{address}'\n")
    assert all(Store(yard.root / "store").has(pin.sha256, pin.size) for pin in locked.pins)


def test_lists_signed_with_another_key_are_refused(yard: Yard, tmp_path: Path) -> None:
    other = SmallArchive(tmp_path / "other")
    try:
        shutil.copy(other.keyring, yard.small.keyring)
        with pytest.raises(Surroundings, match="(?i)sign|key"):
            yard.resolve()
    finally:
        other.close()


def test_an_unknown_package_is_told_with_the_nearest_name(yard: Yard) -> None:
    with pytest.raises(InputError) as caught:
        yard.resolve(user=("toool",))
    assert "toool" in caught.value.what and "tool" in caught.value.hint


def test_packages_that_shut_each_other_out_are_told(yard: Yard) -> None:
    yard.small.add("against", "1.0", "Conflicts: lib\n")
    yard.small.publish(FIRST + DAY)
    with pytest.raises(Incompatible, match="against"):
        yard.resolve(user=("against",))


KILLED = """
import sys
from pathlib import Path
from torchyard.world import archive
from torchyard.world.archive import Archives
from torchyard.world.store import Store
root = Path(sys.argv[1])
archives = Archives(store=Store(root / "store"), cache=root / "a cache", mirrors=[root / "mirrors.yaml"], say=print)
archive.resolve("debian-12", "x86_64", {"base": (), "os": ("lib",)}, archives=archives)
"""


def test_an_apt_that_outlives_its_killed_command_is_waited_for(yard: Yard, tmp_path: Path) -> None:
    yard.archives()
    yard.small.hold.clear()
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.DEVNULL)
    yard.small.held.wait()  # its apt is at work
    child.kill()
    child.wait()

    def say(line: str) -> None:
        yard.said.append(line)
        if "waiting" in line:
            yard.small.hold.set()

    archives = dataclasses.replace(yard.archives(), say=say)
    answer = archive.resolve(OS, ARCH, GROUPS, archives=archives)
    assert versions(answer)["lib"] == "1.0" and any("waiting" in line for line in yard.said)
