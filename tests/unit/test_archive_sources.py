"""Where package addresses come from, read from texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.errors import InputError
from torchyard.ospin import OsPin
from torchyard.world import archive, archive_data, archive_session, archive_sources
from torchyard.world.archive_sources import HostEntry, Source

DEBIAN = archive_data.distribution("debian-12")
UBUNTU = archive_data.distribution("ubuntu-24.04")
KEYS = (Path("/keys.gpg"),)

DEB822 = """\
Types: deb deb-src
# the mirror of this house
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/house.gpg

Types: deb
URIs: http://mirror.example/sec
Suites: bookworm-security
Components: main

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Enabled: no

Types: deb-src
URIs: http://src.example/debian
Suites: bookworm
"""

ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian bookworm main contrib # why
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security/ bookworm-security main
"""


def uris(sources: tuple[Source, ...]) -> dict[str, str]:
    return {source.archive: source.uri for source in sources}


def test_deb822_sources_are_read_with_their_keys() -> None:
    entries = archive_sources.parse_deb822(DEB822)
    assert [(e.uri, e.suite, e.keys) for e in entries] == [
        ("http://mirror.example/debian", "bookworm", (Path("/usr/share/keyrings/house.gpg"),)),
        ("http://mirror.example/debian", "bookworm-updates", (Path("/usr/share/keyrings/house.gpg"),)),
        ("http://mirror.example/sec", "bookworm-security", ()),
    ]


def test_a_key_in_the_sources_file_is_taken_as_text() -> None:
    text = "Types: deb\nURIs: http://m.example\nSuites: s\nSigned-By:\n"
    text += " -----BEGIN PGP X-----\n .\n abc\n -----END PGP X-----\n"
    assert archive_sources.parse_deb822(text)[0].keys == ("-----BEGIN PGP X-----\n\nabc\n-----END PGP X-----\n",)


def test_one_line_sources_are_read_with_their_options() -> None:
    entries = archive_sources.parse_one_line(ONE_LINE)
    assert [(e.uri, e.suite, e.keys, e.architectures) for e in entries] == [
        ("http://mirror.example/debian", "bookworm", (Path("/usr/share/keyrings/a.gpg"),), ("amd64",)),
        ("http://mirror.example/debian-security/", "bookworm-security", (), ()),
    ]


def test_a_list_of_mirrors_stands_for_its_first(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "mirrors.list").write_text("# ours\nhttp://first.example/debian\tpriority:1\nhttp://second.example\n")
    (tmp_path / "sources.list").write_text(
        f"deb mirror+file:{tmp_path}/mirrors.list bookworm main\ndeb cdrom:[x]/ bookworm main\n"
    )
    assert [e.uri for e in archive_sources.host_entries(tmp_path)] == ["http://first.example/debian"]


def test_the_hosts_own_suites_come_first() -> None:
    entries = [*archive_sources.parse_one_line(ONE_LINE), *archive_sources.parse_deb822(DEB822)]
    sources = archive_sources.from_host(entries, DEBIAN, same_architecture=True, keys=KEYS)
    assert uris(sources) == {
        "release": "http://mirror.example/debian",
        "updates": "http://mirror.example/debian",
        "security": "http://mirror.example/debian-security",
    }
    assert [source.suite for source in sources] == ["bookworm", "bookworm-updates", "bookworm-security"]
    assert sources[0].keys == (Path("/usr/share/keyrings/a.gpg"),) and sources[2].keys == KEYS


def test_a_mirror_of_another_release_of_the_family_serves_this_one_too() -> None:
    entries = archive_sources.parse_deb822(DEB822)
    sources = archive_sources.from_host(
        entries, archive_data.distribution("debian-13"), same_architecture=True, keys=KEYS
    )
    assert uris(sources)["security"] == "http://mirror.example/sec"
    assert {source.keys for source in sources} == {KEYS}
    assert [source.suite for source in sources] == ["trixie", "trixie-updates", "trixie-security"]


def test_a_host_of_another_family_says_nothing() -> None:
    assert (
        archive_sources.from_host(archive_sources.parse_deb822(DEB822), UBUNTU, same_architecture=True, keys=KEYS) == ()
    )


def test_a_host_with_another_architecture_has_another_ubuntu_mirror() -> None:
    entries = [HostEntry(uri="http://m.example/ubuntu", suite="noble")]
    assert archive_sources.from_host(entries, UBUNTU, same_architecture=False, keys=KEYS) == ()
    found = archive_sources.from_host(entries, UBUNTU, same_architecture=True, keys=KEYS)
    assert set(uris(found).values()) == {"http://m.example/ubuntu"}


def test_a_mirrors_file_names_each_archive() -> None:
    text = (
        "mirrors:\n  pypi: http://p.example\n  debian: {release: 'http://a.example/debian/', updates: null, snapshot: 'http://s.example/{date}',"
        " keyring: /k.gpg}\n"
    )
    mirror = archive_sources.parse_mirrors(text, "mirrors.yaml")["debian"]
    sources = archive_sources.from_mirror(mirror, DEBIAN, ())
    assert uris(sources) == {"release": "http://a.example/debian", "security": "http://a.example/debian-security"}
    assert sources[0].keys == (Path("/k.gpg"),) and sources[1].snapshots == ("http://s.example/{date}",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mirrors: [1]", "no table 'mirrors'"),
        ("mirrors: {debain: {release: 'http://a'}}", "'debain'"),
        ("mirrors: {debian: {updates: 'http://a'}}", "'release'"),
        ("mirrors: {debian: {release: 'http://a', securty: 'http://a'}}", "'securty'"),
        ("mirrors: {debian: {release: 'a.example/debian'}}", "is not an address"),
        ("mirrors: {", "is not YAML"),
    ],
)
def test_a_wrong_mirrors_file_is_told(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        archive_sources.parse_mirrors(text, "mirrors.yaml")
    assert caught.value.where.startswith("mirrors.yaml") and caught.value.hint


def pin(place: str, path: str) -> OsPin:
    return OsPin(
        name="a", version="1:2~b+c", architecture="amd64", size=1, sha256="0", archive=place, path=path, group="os"
    )


def test_a_package_is_looked_for_in_its_archive_then_the_main_one_then_a_snapshot() -> None:
    sources = [
        Source(archive="release", uri="http://m/debian", suite="s"),
        Source(archive="security", uri="http://m/sec", suite="t", snapshots=("http://s/{date}",)),
    ]
    assert archive.addresses(pin("security", "pool/updates/main/a/a_2~b+c_amd64.deb"), sources, {"security": 0}) == [
        "http://m/sec/pool/updates/main/a/a_2~b%2Bc_amd64.deb",
        "http://m/debian/pool/main/a/a_2~b%2Bc_amd64.deb",
        "http://s/19700101T000000Z/pool/updates/main/a/a_2~b%2Bc_amd64.deb",
    ]


def test_an_archive_that_a_mirror_lacks_falls_back_to_the_main_one() -> None:
    sources = [Source(archive="release", uri="http://m/debian", suite="s")]
    assert archive.addresses(pin("updates", "pool/a.deb"), sources, {}) == ["http://m/debian/pool/a.deb"]


def test_an_unknown_distribution_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        archive_data.distribution("ubuntu-24.4")
    assert caught.value.hint == "use os: ubuntu-24.04"


def test_credentials_of_apt_are_for_their_address_only() -> None:
    entries = archive_session.parse_auth(
        "# ours\nmachine a.example/debian login me\n password secret\nmachine b login x password y"
    )
    assert entries == [("a.example/debian", "me", "secret"), ("b", "x", "y")]
    matches = archive_session.matches
    assert matches("a.example/debian", "https://a.example/debian/pool/x.deb")
    assert not matches("a.example/debian", "https://a.example/ubuntu/pool/x.deb")
    assert not matches("a.example", "http://a.example/debian")
    assert matches("http://a.example", "http://a.example/debian")
    assert matches("https://a.example:8443", "https://a.example:8443/debian")
    assert not matches("a.example", "https://aa.example/debian")


def test_a_vendor_that_uses_the_suite_name_is_not_taken_for_the_distribution() -> None:
    vendors = [
        HostEntry(
            uri="https://vendor.example/linux/debian", suite="bookworm", keys=(Path("/etc/apt/keyrings/vendor.gpg"),)
        ),
        HostEntry(uri="https://apt.other.example", suite="bookworm"),
    ]
    own = HostEntry(uri="http://m.example/debian", suite="bookworm")
    distribution = archive_data.distribution("debian-12")
    sources = archive_sources.from_host([*vendors, own], distribution, same_architecture=True, keys=())
    assert {source.uri for source in sources if source.archive == "release"} == {"http://m.example/debian"}
