"""Package lists and Release files, read from texts."""

from __future__ import annotations

from torchyard.world import archive_index
from torchyard.world.archive_index import Index

RELEASE = """\
Package: libc6
Version: 2.36-9
Architecture: amd64
Priority: required
Filename: pool/main/g/glibc/libc6_2.36-9_amd64.deb
Size: 11
SHA256: aa
Description: one
 and more

Package: base-files
Essential: yes
Priority: required
Version: 12
Architecture: amd64
Filename: ./pool/base-files.deb
Size: 12
SHA256: bb

Package: git
Version: 1
Architecture: amd64
Priority: optional
Filename: pool/git.deb
Size: 13
SHA256: cc
"""
SECURITY = RELEASE.split("\n\n")[0].replace("2.36-9", "2.36-9+u1").replace("aa", "dd") + "\n\n"
INDEX = Index([("release", RELEASE), ("security", SECURITY + RELEASE.split("\n\n")[2])])


def test_a_version_is_found_in_the_archive_that_has_it() -> None:
    found = INDEX.find("libc6", "2.36-9+u1", "amd64")
    assert found is not None
    assert (found.archive, found.sha256, found.size) == ("security", "dd", 11)
    assert INDEX.find("libc6", "3", "amd64") is None


def test_a_version_in_two_archives_is_named_after_the_first() -> None:
    found = INDEX.find("git", "1", "amd64")
    assert found is not None and found.archive == "release" and len(INDEX.files("git")) == 2


def test_a_path_begins_at_the_archive() -> None:
    assert INDEX.files("base-files")[0].path == "pool/base-files.deb"


def test_the_minimal_system_is_what_is_essential_or_required() -> None:
    assert INDEX.minimal() == ["base-files", "libc6"]


def test_a_kept_file_is_required_only_where_its_archive_has_the_package_no_more() -> None:
    kept = "Package: git\nVersion: 1\nPriority: required\n\nPackage: gone\nVersion: 1\nPriority: required\n"
    assert Index([("release", RELEASE), (archive_index.KEPT, kept)]).minimal() == ["base-files", "gone", "libc6"]


def test_the_status_of_installed_packages_has_no_places() -> None:
    text = archive_index.installed_status(INDEX.files("git")[:1])
    assert "Status: install ok installed\n\n" in text
    assert "Filename" not in text and "SHA256" not in text and "Version: 1\n" in text


def test_a_release_date_is_read_whatever_its_padding() -> None:
    assert archive_index.release_date("Origin: X\nDate: Thu, 01 Jan 1970  0:01:00 UTC\n") == 60
    assert archive_index.release_date("Origin: X\n") is None
