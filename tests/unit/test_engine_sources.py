"""Where the private engine's packages come from: the mirrors that the host's own apt uses, and no others."""

from __future__ import annotations

import pytest

from torchyard.errors import Surroundings
from torchyard.world import engine_sources
from torchyard.world.engine_sources import Host, Source

BOOKWORM = Host(id="debian", name="Debian GNU/Linux 12 (bookworm)", version=(12,), codename="bookworm")
NOBLE = Host(id="ubuntu", name="Ubuntu 24.04.5 LTS", version=(24, 4), codename="noble")
STANZAS = """\
Types: deb deb-src
# the mirror of the house
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/house.gpg

Enabled: no
Types: deb
URIs: http://off.example.com/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.example.com/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBFit
 -----END PGP PUBLIC KEY BLOCK-----
"""
LINES = """\
# deb http://no.example.com/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example.com/linux bookworm main # theirs
deb-src http://mirror.example.com/debian bookworm main
"""


@pytest.mark.parametrize(
    ("text", "supported"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', True),
        ('ID=debian\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\n', False),
        ("ID=debian\nVERSION_CODENAME=forky\n", True),
        ('ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', True),
        ('ID=ubuntu\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\n', False),
        ("ID=fedora\nVERSION_ID=41\n", False),
        ("", False),
    ],
)
def test_debian_12_and_ubuntu_24_04_and_newer_are_supported(text: str, supported: bool) -> None:
    assert engine_sources.parse_host(text).supported is supported


def test_both_formats_of_apt_are_read_and_what_is_switched_off_is_not() -> None:
    sources = engine_sources.parse_sources({"vendor.list": LINES, "debian.sources": STANZAS})
    assert [(s.uris[0], s.suite) for s in sources] == [
        ("http://mirror.example.com/debian", "bookworm"),
        ("http://mirror.example.com/debian", "bookworm-updates"),
        ("http://mirror.example.com/debian-security", "bookworm-security"),
        ("https://vendor.example.com/linux", "bookworm"),
    ]
    assert sources[0].signed_by == "/usr/share/keyrings/house.gpg"
    assert "mQINBFit" in sources[2].signed_by
    assert sources[3].signed_by == "/etc/apt/keyrings/vendor.gpg"


def test_a_vendor_with_the_same_suite_name_is_not_taken_for_the_distribution() -> None:
    sources = engine_sources.parse_sources({"a-vendor.list": LINES, "debian.sources": STANZAS})
    made = engine_sources.recipe(BOOKWORM, sources)
    assert [s.uris[0] for s in made.sources] == [
        "http://mirror.example.com/debian",
        "http://mirror.example.com/debian",
        "http://mirror.example.com/debian-security",
    ]
    assert [s.suite for s in made.sources] == ["trixie", "trixie-updates", "trixie-security"]
    assert all(s.components == ("main",) for s in made.sources)


def test_ubuntu_takes_its_own_suite_with_universe() -> None:
    lines = "deb http://mirror.example.com/ubuntu noble main restricted\ndeb cdrom:[Ubuntu] noble main\n"
    made = engine_sources.recipe(NOBLE, engine_sources.parse_sources({"sources.list": lines}))
    assert [(s.suite, s.components) for s in made.sources] == [("noble", ("main", "universe"))]
    assert "docker-compose-v2" in made.packages


def test_debian_by_the_name_of_its_state_is_known() -> None:
    made = engine_sources.recipe(
        BOOKWORM, engine_sources.parse_sources({"sources.list": "deb http://mirror.example.com/debian oldstable main"})
    )
    assert [s.suite for s in made.sources] == ["trixie"]


def test_a_machine_without_its_distributions_source_is_told_so() -> None:
    with pytest.raises(Surroundings, match="suite bookworm") as caught:
        engine_sources.recipe(
            BOOKWORM, engine_sources.parse_sources({"vendor.list": "deb http://x.example.com/ y main"})
        )
    assert caught.value.hint


def test_sources_survive_being_written_and_read() -> None:
    sources = engine_sources.parse_sources({"debian.sources": STANZAS})
    assert engine_sources.parse_sources({"debian.sources": engine_sources.sources_text(sources)}) == sources


def test_the_stamp_names_suite_and_packages_and_no_address() -> None:
    text = engine_sources.stamp(BOOKWORM)
    assert "suite debian trixie" in text
    assert "docker.io" in text
    assert "example.com" not in text
    assert text != engine_sources.stamp(NOBLE)


def test_a_source_without_a_key_says_nothing_of_one() -> None:
    text = engine_sources.sources_text([Source(uris=("http://x.example.com/",), suite="s", components=("main",))])
    assert "Signed-By" not in text
