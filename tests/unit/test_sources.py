"""The source of torch, taken from a repository on this disk: the same tar each time, or what is said."""

from __future__ import annotations

import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from torchyard.errors import CheckFailed, Exit, InputError, Surroundings
from torchyard.sourcepin import SourceKind
from torchyard.world import archive_sources, sources
from torchyard.world.store import Store, sha256_of


def git(folder: Path, *argv: str) -> str:
    """Run git as nobody in particular; what it printed."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    argv = ("-c", "protocol.file.allow=always", *argv)
    done = subprocess.run(
        ["git", *argv], cwd=folder, env={**os.environ, **own, **names}, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder that mirrors a host: pytorch with a submodule, a program and a link."""
    root = tmp_path / "mirror"
    part, whole = root / "other" / "part.git", root / "pytorch" / "pytorch.git"
    for folder in (part, whole):
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
    (part / "part.c").write_text("int x;\r\n")
    git(part, "add", ".")
    git(part, "commit", "-qm", "part")
    (whole / "setup.py").write_text("print(1)\n")
    (whole / "setup.py").chmod(0o755)
    (whole / ".gitattributes").write_text("* text=auto\n")
    (whole / "link").symlink_to("setup.py")
    git(whole, "-c", f"url.file://{root}/.insteadOf=https://github.com/", "submodule", "add", "-q",
        "https://github.com/other/part.git", "third_party/part")  # fmt: skip
    git(whole, "add", ".")
    git(whole, "commit", "-qm", "whole")
    git(whole, "tag", "v1.0.0")
    return root


def mirrors(root: Path) -> dict[str, str]:
    return {"https://github.com/": f"file://{root}/"}


def commit_of(root: Path) -> str:
    return git(root / "pytorch" / "pytorch.git", "rev-parse", "HEAD")


def quiet(text: str) -> None:
    """Say nothing."""


def test_a_commit_is_one_tar_with_its_submodules_the_same_at_every_umask(mirror: Path, tmp_path: Path) -> None:
    pins = []
    for number, mask in enumerate((0o022, 0o077)):
        before = os.umask(mask)
        try:
            store = Store(tmp_path / f"store{number}")
            pins.append(sources.pin_git("v1.0.0", commit_of(mirror), store, mirrors(mirror), quiet))
        finally:
            os.umask(before)
    assert pins[0] == pins[1]
    with tarfile.open(store.path(pins[0].sha256)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert entries["pytorch/third_party/part/part.c"].isreg()
    assert entries["pytorch/link"].linkname == "setup.py"
    assert (entries["pytorch/setup.py"].mode, entries["pytorch/.gitmodules"].mode) == (0o755, 0o644)
    assert all((e.mtime, e.uid, e.uname) == (0, 0, "") for e in entries.values())
    assert not [name for name in entries if ".git" in Path(name).parts]
    assert not list((tmp_path / "store1").glob("torchyard-source-*"))


def test_a_locked_source_is_fetched_again_by_its_commit(mirror: Path, tmp_path: Path) -> None:
    pin = sources.pin_git("v1.0.0", commit_of(mirror), Store(tmp_path / "one"), mirrors(mirror), quiet)
    two = Store(tmp_path / "two")
    sources.fetch(pin, two, requests.Session(), mirrors(mirror), quiet)
    assert two.has(pin.sha256, pin.size)
    sources.fetch(pin, two, requests.Session(), {"https://github.com/": "file:///nowhere/"}, quiet)  # nothing to fetch


def test_a_source_that_comes_out_otherwise_is_told_with_both_hashes(mirror: Path, tmp_path: Path) -> None:
    pin = sources.pin_git("v1.0.0", commit_of(mirror), Store(tmp_path / "one"), mirrors(mirror), quiet)
    with pytest.raises(CheckFailed) as caught:
        sources.fetch(
            replace(pin, sha256="0" * 64), Store(tmp_path / "two"), requests.Session(), mirrors(mirror), quiet
        )
    assert "0" * 64 in caught.value.what and pin.sha256 in caught.value.what


def test_a_commit_that_is_not_there_is_told_with_what_helps(mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match="no commit " + "a" * 40) as caught:
        sources.pin_git("v1.0.0", "a" * 40, Store(tmp_path / "s"), mirrors(mirror), quiet)
    assert "source.commit" in caught.value.hint


def test_a_repository_that_cannot_be_reached_names_the_mirrors_file(tmp_path: Path) -> None:
    with pytest.raises(Surroundings) as caught:
        sources.pin_git("v1.0.0", "a" * 40, Store(tmp_path / "s"), {"https://github.com/": "file:///nowhere/"}, quiet)
    assert caught.value.code is Exit.SURROUNDINGS and "mirrors" in caught.value.hint


def test_an_archive_is_held_to_the_hash_of_env_yaml(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "pytorch/pytorch/releases/download/v1.0.0"
    folder.mkdir(parents=True)
    file = folder / "pytorch-v1.0.0.tar.gz"
    file.write_bytes(b"source")
    store = Store(tmp_path / "s")
    place = mirrors(tmp_path / "m")
    pin = sources.pin_archive("v1.0.0", "", sha256_of(file), store, requests.Session(), place, quiet)
    assert (pin.kind, pin.size) == (SourceKind.ARCHIVE, 6) and store.has(pin.sha256, 6)
    with pytest.raises(CheckFailed, match="another one") as caught:
        sources.pin_archive("v1.0.0", "", "0" * 64, store, requests.Session(), place, quiet)
    assert "source.archive" in caught.value.hint
    with pytest.raises(Surroundings):
        sources.pin_archive("v2.0.0", "", "0" * 64, store, requests.Session(), place, quiet)


def test_the_nearest_mirrors_file_wins_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    near, far = tmp_path / "near.yaml", tmp_path / "far.yaml"
    near.write_text("mirrors: {git: {'https://a/': 'https://near/'}}\n")
    far.write_text("mirrors: {git: {'https://a/': 'https://far/', 'https://b/': 'https://b2/'}}\n")
    assert sources.read_mirrors([near, far]) == {"https://a/": "https://near/", "https://b/": "https://b2/"}
    assert archive_sources.parse_mirrors(near.read_text(), "near.yaml") == {}
    near.write_text("mirrors: {git: [a]}\n")
    with pytest.raises(InputError) as caught:
        sources.read_mirrors([near])
    assert caught.value.where.endswith("mirrors.git")
