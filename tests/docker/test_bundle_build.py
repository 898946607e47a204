"""A bundle in a place without any network, home or cache: the same image comes out, built step by step."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def bundle(yard: Clone, cpu: dict[str, Any], place: Path) -> Iterator[Path]:
    """The bundle of the CPU image."""
    file = place / "bundle.tar"
    yard.yard("bundle", "--gpu", "cpu", "--output", str(file)).good()
    yield file
    file.unlink()


def test_a_bundle_is_the_same_bytes_each_time(yard: Clone, bundle: Path, place: Path) -> None:
    again = place / "again.tar"
    yard.yard("bundle", "--gpu", "cpu", "--output", str(again)).good()
    assert clones.digest_of(again) == clones.digest_of(bundle)
    again.unlink()


def test_a_bundle_has_what_is_locked_and_no_finished_layer(yard: Clone, bundle: Path, cpu: dict[str, Any]) -> None:
    with tarfile.open(bundle) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", members[0].mtime)}
    stored = {name.rpartition("/")[2] for name in names if "/.torchyard/store/" in name}
    text = (yard.root / "images" / cpu["image"] / "lock.yaml").read_text()
    assert stored == set(clones.HEXADECIMAL.findall(text))
    manifest = (
        json.loads((yard.store / cpu["digest"][7:9] / cpu["digest"][7:]).read_text()) if in_store(yard, cpu) else {}
    )
    assert not stored & {each["digest"][7:] for each in manifest.get("layers", [])}


def in_store(yard: Clone, cpu: dict[str, Any]) -> bool:
    return (yard.store / cpu["digest"][7:9] / cpu["digest"][7:]).is_file()


def test_a_bundle_builds_the_same_image_without_network_home_or_cache(
    yard: Clone, bundle: Path, cpu: dict[str, Any], place: Path
) -> None:
    """The engine's programs are those of another engine: an engine cannot be installed without a network."""
    top, engine, home = place / "an empty room", place / "engine-bundle", place / "home-bundle"
    top.mkdir()
    home.mkdir()
    subprocess.run(["tar", "--extract", "--file", str(bundle), "--directory", str(top)], check=True)
    (folder,) = top.iterdir()
    clones.programs(yard.engine, engine)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TORCHYARD_ENGINE": "private",
        "TORCHYARD_ENGINE_HOME": str(engine),
    }
    started = Clone(root=folder, engine=engine, home=home)
    try:
        started.yard("engine", "--up").good()
        build = ["build", "--offline", "--gpu", "cpu", "--level", "identity"]
        argv = ["unshare", "--net", str(folder / "offline.sh"), *build]
        built = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd="/")
        assert built.returncode == 0, built.stderr[-3000:]
        assert started.receipt(cpu["image"])["digest"] == cpu["digest"]
        log = started.log(cpu["image"])
        numbers = dict(re.findall(r"^#(\d+) \[[^]]*\] (RUN .*)$", log, re.MULTILINE))
        ends = dict(re.findall(r"^#(\d+) (DONE|CACHED)", log, re.MULTILINE))
        assert len(numbers) >= 3 and {ends[number] for number in numbers} == {"DONE"}
        assert "bootstrapping" in built.stderr and "fetching" not in built.stderr
    finally:
        started.yard("engine", "--down", "--purge").good()
        clones.end_tree(top)
        clones.end_tree(home)


def test_an_offline_build_says_at_once_what_is_missing(yard: Clone, bundle: Path, tmp_path: Path) -> None:
    empty = Clone(root=tmp_path / "clone", engine=tmp_path / "engine", home=yard.home)
    clones.copy_checkout(yard.root, empty.root)
    refused = empty.yard("build", "--offline", "--gpu", "cpu")
    assert refused.code == 3 and "are not in the store" in refused.err and "bundle" in refused.err
    assert not (tmp_path / "engine").exists()
    loaded = empty.yard("load", str(bundle)).good()
    assert "new files" in loaded.out
    short = tmp_path / "short.tar"
    with bundle.open("rb") as whole, short.open("wb") as cut:
        shutil.copyfileobj(whole, cut, 1 << 20)
        cut.truncate(bundle.stat().st_size // 2)
    cut_off = empty.yard("load", str(short))
    assert cut_off.code == 1 and "cannot be read" in cut_off.err


def test_a_finished_image_is_loaded_with_its_receipt(yard: Clone, cpu: dict[str, Any], place: Path) -> None:
    file = place / "finished.tar"
    yard.yard("bundle", "--gpu", "cpu", "--finished", "--output", str(file)).good()
    yard.docker("image", "rm", "--force", cpu["tag"]).good()
    (yard.root / ".torchyard" / "receipts" / f"{cpu['image']}.json").unlink()
    yard.yard("load", str(file)).good()
    assert json.loads(yard.docker("image", "inspect", cpu["tag"]).good().out)[0]["Id"] == cpu["digest"]
    assert yard.receipt(cpu["image"]) == cpu
    file.unlink()
