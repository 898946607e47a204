"""What an image has installed, with what is added to it."""

from __future__ import annotations

import re

from torchyard.world.archive_index import PackageFile, package_file, with_installed

STATUS = """\
Package: lib
Status: install ok installed
Architecture: amd64
Version: 1
Description: a
 b
 .
 c

Package: lib
Status: install ok installed
Architecture: i386
Version: 1

Package: data
Status: hold ok installed
Architecture: all
Version: 1
"""


def file(name: str, architecture: str) -> PackageFile:
    text = f"Package: {name}\nVersion: 2\nArchitecture: {architecture}\nFilename: x\nSize: 1\nSHA256: 0\nDescription: x"
    return package_file(text, "release")


def installed(*files: PackageFile) -> list[tuple[str, ...]]:
    text = with_installed(STATUS, files)
    found = [dict(re.findall(r"^(\w+): (.+)$", part, re.MULTILINE)) for part in text.split("\n\n") if part.strip()]
    assert all(each["Status"].endswith(" ok installed") for each in found)
    return [(each["Package"], each["Architecture"], each["Version"]) for each in found]


def test_an_added_package_stands_beside_what_is_installed() -> None:
    kept = [("lib", "amd64", "1"), ("lib", "i386", "1"), ("data", "all", "1")]
    assert installed() == kept
    assert installed(file("new", "amd64")) == [*kept, ("new", "amd64", "2")]
    assert "hold ok installed" in with_installed(STATUS, [])


def test_a_newer_version_takes_the_place_of_the_older_one() -> None:
    assert installed(file("lib", "amd64")) == [("lib", "i386", "1"), ("data", "all", "1"), ("lib", "amd64", "2")]


def test_a_package_that_is_of_every_architecture_now_takes_the_place_of_all_and_the_other_way_round() -> None:
    assert installed(file("lib", "all")) == [("data", "all", "1"), ("lib", "all", "2")]
    assert installed(file("data", "amd64"))[-1] == ("data", "amd64", "2") and len(installed(file("data", "amd64"))) == 3
