"""The seed and the normalised tar, made of small package files and tars."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import zstandard

from torchyard.errors import CheckFailed
from torchyard.world import archive_deb, boot_normal, boot_oci, seed

EPOCH = 1_000_000


def tar_of(members: Sequence[tuple[str, bytes, str]], *, mtime: int = 5) -> bytes:
    """A tar of (name, type, content or link target)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mtime = kind, mtime
            member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
            if kind == tarfile.REGTYPE:
                member.size = len(text.encode())
            else:
                member.linkname = text
            tar.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


def deb(path: Path, members: Sequence[tuple[str, bytes, str]], suffix: str = ".xz") -> Path:
    """A package file with these members; the control part has an odd length, as some have."""
    packs: Mapping[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    pack = packs[suffix]
    control = lzma.compress(tar_of([("./control", tarfile.REGTYPE, "Package: a\nVersion: 1\n")]))
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", control), (f"data.tar{suffix}", pack(tar_of(members)))]
    with path.open("wb") as out:
        out.write(archive_deb.MAGIC)
        for name, data in parts:
            out.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data)
            out.write(b"\n" * (len(data) % 2))
    return path


BASE = [
    ("./", tarfile.DIRTYPE, ""),
    ("./bin/", tarfile.DIRTYPE, ""),
    ("./bin/dash", tarfile.REGTYPE, "dash"),
    ("./bin/sh", tarfile.SYMTYPE, "dash"),
    ("./usr/bin/perl", tarfile.REGTYPE, "perl"),
    ("./usr/bin/perl5", tarfile.LNKTYPE, "./usr/bin/perl"),
    ("./usr/share/doc/a/copyright", tarfile.REGTYPE, "free"),
    ("./usr/share/doc/a/README", tarfile.REGTYPE, "read me"),
    ("./usr/share/man/man1/a.1", tarfile.REGTYPE, "manual"),
]


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


@pytest.mark.parametrize("suffix", ["", ".xz", ".zst"])
def test_a_package_file_is_read_without_dpkg(tmp_path: Path, suffix: str) -> None:
    file = deb(tmp_path / "a.deb", BASE, suffix)
    assert archive_deb.control(file) == "Package: a\nVersion: 1"
    assert archive_deb.file_in(file, "usr/bin/perl") == b"perl"
    assert archive_deb.file_in(file, "usr/bin/none") is None


def test_what_is_no_package_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(b"<html>")
    with pytest.raises(CheckFailed, match="not a package file"):
        archive_deb.control(tmp_path / "a.deb")


def test_the_seed_is_merged_into_usr(tmp_path: Path) -> None:
    seed.write([deb(tmp_path / "a.deb", BASE)], tmp_path / "seed.tar", epoch=EPOCH)
    with tarfile.open(tmp_path / "seed.tar") as tar:
        assert tar.getmember("bin").linkname == "usr/bin"
        assert tar.getmember("usr/bin/sh").linkname == "dash"
        assert tar.getmember("usr/bin/perl5").linkname == "usr/bin/perl"
        found = tar.getnames()
    assert "usr/bin/dash" in found and "bin/dash" not in found
    assert len(found) == len(set(found))


def test_a_link_to_usr_in_a_package_is_the_link_of_the_seed(tmp_path: Path) -> None:
    file = deb(tmp_path / "a.deb", [("./bin", tarfile.SYMTYPE, "usr/bin"), ("./usr/bin/dash", tarfile.REGTYPE, "dash")])
    seed.write([file], tmp_path / "seed.tar", epoch=EPOCH)
    assert names(tmp_path / "seed.tar").count("bin") == 1


def test_the_seed_has_licences_but_no_manuals(tmp_path: Path) -> None:
    seed.write([deb(tmp_path / "a.deb", BASE)], tmp_path / "seed.tar", epoch=EPOCH)
    found = names(tmp_path / "seed.tar")
    assert "usr/share/doc/a/copyright" in found
    assert not [name for name in found if "README" in name or "man1" in name]


def test_the_seed_is_the_same_each_time(tmp_path: Path) -> None:
    file = deb(tmp_path / "a.deb", BASE)
    seed.write([file], tmp_path / "one.tar", epoch=EPOCH)
    seed.write([file], tmp_path / "two.tar", epoch=EPOCH)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


ROOT = [
    ("var/log/dpkg.log", tarfile.REGTYPE, "today"),
    ("var/log/apt", tarfile.DIRTYPE, ""),
    ("var/cache/ldconfig/aux-cache", tarfile.REGTYPE, "inodes"),
    ("var/lib/dpkg/status", tarfile.REGTYPE, "status"),
    ("var/lib/dpkg/status-old", tarfile.REGTYPE, "old"),
    ("run/step", tarfile.DIRTYPE, ""),
    ("etc/machine-id", tarfile.REGTYPE, "b71f"),
    ("etc/shadow-", tarfile.REGTYPE, "x"),
    ("usr/bin/z", tarfile.REGTYPE, "same"),
    ("usr/bin/a", tarfile.LNKTYPE, "usr/bin/z"),
]


def normalised(tmp_path: Path, members: Sequence[tuple[str, bytes, str]], mtime: int) -> Path:
    raw, out = tmp_path / "raw.tar", tmp_path / f"out{mtime}.tar"
    raw.write_bytes(tar_of(members, mtime=mtime))
    boot_normal.normalise(raw, out, epoch=EPOCH)
    return out


def test_a_normalised_tar_says_nothing_of_its_making(tmp_path: Path) -> None:
    out = normalised(tmp_path, ROOT, EPOCH + 7)
    with tarfile.open(out) as tar:
        members = tar.getmembers()
        assert (stream := tar.extractfile("etc/machine-id")) and stream.read() == b""
    found = [member.name for member in members]
    assert found == sorted(found)
    assert {"var/log/apt", "var/lib/dpkg/status", "etc/hosts", "tmp", "proc", "run"} <= set(found)
    assert not {"var/log/dpkg.log", "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old", "run/step"} & set(found)
    assert "etc/shadow-" not in found
    assert {member.mtime for member in members} == {EPOCH}
    assert {(member.uname, member.gname) for member in members} == {("", "")}
    assert next(member for member in members if member.name == "tmp").mode == 0o1777


def test_a_file_with_two_names_keeps_one_content_under_its_first_name(tmp_path: Path) -> None:
    with tarfile.open(normalised(tmp_path, ROOT, 5)) as tar:
        assert tar.getmember("usr/bin/a").isreg()
        assert tar.getmember("usr/bin/z").linkname == "usr/bin/a"
        assert (stream := tar.extractfile("usr/bin/z")) and stream.read() == b"same"


def test_the_order_and_the_time_of_making_do_not_show(tmp_path: Path) -> None:
    plain = [member for member in ROOT if member[1] != tarfile.LNKTYPE]
    one = normalised(tmp_path, plain, EPOCH + 7).read_bytes()
    assert normalised(tmp_path, plain[::-1], EPOCH + 99).read_bytes() == one


def test_a_layout_is_the_same_each_time_and_reads_back(tmp_path: Path) -> None:
    tar = normalised(tmp_path, ROOT, 5)
    one = boot_oci.write(tar, tmp_path / "one", epoch=EPOCH, arch="x86_64", words="w")
    two = boot_oci.write(tar, tmp_path / "two", epoch=EPOCH, arch="x86_64", words="w")
    assert (one.layer, one.manifest) == (two.layer, two.manifest)
    assert boot_oci.read(tmp_path / "one") == one
    assert one.blob.stat().st_size == one.layer.size and one.layer.unpacked == tar.stat().st_size
    assert boot_oci.read(tmp_path / "none") is None
