"""Bundles: the same bytes from the same files, whole or not there, and taken over only where they are right."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from test_publish import LOCK

from torchyard import bundle, oci
from torchyard.bundle import Made
from torchyard.errors import CheckFailed, InputError, Surroundings
from torchyard.world import bundle_file, image_deliver, offline, registry_taking
from torchyard.world.registry_taking import Blob, Result
from torchyard.world.store import Store

MADE = Made(images=("torch2.14.1-x",), torchyard="1.0", python="3.11", machine="x86_64")


def quiet(_: int) -> None:
    """Say nothing."""


def files(store: Store) -> dict[str, Path | bytes]:
    """A small bundle: a stored file, a script, bundle.json."""
    sha256 = registry_taking.keep(b"a package", store).removeprefix("sha256:")
    made: dict[str, Path | bytes] = {"offline.sh": b"#!/bin/sh\n", "env.yaml": b"schema: 1\n"}
    made[bundle.DOCUMENT] = bundle.document(MADE, bundle_file.measured(made)).encode()
    return made | {bundle.store_path(sha256): store.path(sha256)}


def test_a_bundle_is_sorted_and_has_no_clock_and_no_user(tmp_path: Path) -> None:
    content = files(Store(tmp_path / "store"))
    for name, ordered in (("one", content), ("two", dict(reversed(content.items())))):
        bundle_file.write(tmp_path / name, "top", ordered, mtime=7, progress=quiet)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.mtime, m.uid, m.uname) for m in members} == {(7, 0, "")}
    assert {m.name: m.mode for m in members}["top/offline.sh"] == 0o755


def test_a_bundle_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "made.tar"
    target.write_bytes(b"the former one")

    def broken(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bundle_file.write(target, "top", {"a": b"b"}, mtime=0, progress=broken)
    assert [path.name for path in tmp_path.iterdir()] == ["made.tar"] and target.read_bytes() == b"the former one"


def test_a_bundle_that_does_not_fit_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    with pytest.raises(Surroundings, match="GB of disk"):
        bundle_file.write_pieces(tmp_path / "x", iter(()), 1 << 60, progress=quiet)
    assert list(tmp_path.iterdir()) == []


def test_what_is_loaded_is_in_the_store_and_a_second_time_nothing_is_new(tmp_path: Path) -> None:
    bundle_file.write(tmp_path / "b.tar", "top", files(Store(tmp_path / "store")), mtime=0, progress=quiet)
    other = Store(tmp_path / "other")
    loaded = bundle_file.load(tmp_path / "b.tar", other, progress=quiet)
    assert (loaded.made, loaded.files) == (MADE, 1)
    assert other.has(hashlib.sha256(b"a package").hexdigest())
    assert bundle_file.load(tmp_path / "b.tar", other, progress=quiet).files == 0


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("members", "error", "said"),
    [
        ({"top/.torchyard/store/aa/" + "a" * 64: b"other"}, CheckFailed, "gives sha256:"),
        ({"blobs/sha256/../../../evil": b"other"}, CheckFailed, "gives sha256:"),
        ({"top/readme": b""}, InputError, "no bundle"),
        ({"top/bundle.json": b"{}"}, InputError, "not a bundle"),
        ({"top/bundle.json": b'{"schema": 9}'}, InputError, "this torchyard reads 1"),
        ({"torchyard.json": b"{}", "index.json": b'{"manifests": []}'}, CheckFailed, "cannot be read"),
    ],
)
def test_what_is_no_bundle_or_not_what_it_says_is_told(
    tmp_path: Path, members: dict[str, bytes], error: type[Exception], said: str
) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(error, match=said):
        bundle_file.load(archive(tmp_path / "b.tar", members), store, progress=quiet)
    assert not list((tmp_path / "store").glob("??/*")) and not (tmp_path / "evil").exists()


@pytest.mark.parametrize("content", [b"", b"no archive at all", None])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "b.tar").write_bytes(content)
    with pytest.raises((CheckFailed, InputError), match="b.tar"):
        bundle_file.load(tmp_path / "b.tar", Store(tmp_path / "store"), progress=quiet)


def test_the_archive_of_a_finished_image_is_read_back_with_what_lies_beside(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "one"), Store(tmp_path / "two")
    result = image(store)
    pieces = image_deliver.archive(result, "acme:x", store, more={bundle.PIECE: b"{}"})
    bundle_file.write_pieces(tmp_path / "i.tar", pieces, 1, progress=quiet)
    loaded = bundle_file.load(tmp_path / "i.tar", other, progress=quiet)
    assert (loaded.manifest, loaded.receipt, loaded.made) == (result.manifest, "{}", None)
    assert registry_taking.stored(result.digest, other) == result
    assert registry_taking.unpack(tmp_path / "i.tar", Store(tmp_path / "three")) == result.manifest


def image(store: Store) -> Result:
    """A small image in the store."""
    blobs = [b'{"rootfs":{"diff_ids":["sha256:1"]}}', b"layer"]
    kinds = (oci.CONFIG, oci.LAYER_GZIP)
    config, layer = (Blob(digest=registry_taking.keep(b, store), size=len(b), kind=k) for b, k in zip(blobs, kinds))
    described = [{"mediaType": b.kind, "digest": b.digest, "size": b.size} for b in (config, layer)]
    manifest = json.dumps({"mediaType": oci.MANIFEST, "config": described[0], "layers": described[1:]}).encode()
    registry_taking.keep(manifest, store)
    return Result(manifest=manifest, config=config, layers=(layer,))


def test_a_layout_has_every_blob_and_takes_no_folder_that_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    result = image(store)
    for _ in range(2):
        image_deliver.layout(result, "acme:x", store, tmp_path / "oci")
    names = {path.name for path in (tmp_path / "oci" / "blobs" / "sha256").iterdir()}
    assert names == {digest.removeprefix("sha256:") for digest in (result.digest, *(b.digest for b in result.blobs))}
    (tmp_path / "mine").mkdir()
    with pytest.raises(Surroundings, match="is no OCI layout"):
        image_deliver.layout(result, "acme:x", store, tmp_path / "mine")


def test_what_is_missing_for_an_offline_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(Surroundings, match="3 of the files .*torch-2.14.1-py3-none-any.whl") as caught:
        offline.require([LOCK], Store(tmp_path))
    assert f"./yard bundle --id {LOCK.id}" in caught.value.hint


def test_the_script_is_shell_and_names_its_python(tmp_path: Path) -> None:
    text = bundle.start_script(MADE)
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert "python3.11" in text and "build --offline --id torch2.14.1-x" in text
    (tmp_path / "offline.sh").write_text(
        bundle.start_script(Made(images=("x",), torchyard="1", python="2.0", machine="x"))
    )
    refused = subprocess.run(["sh", str(tmp_path / "offline.sh")], capture_output=True, text=True)
    assert refused.returncode == 3 and "Python 2.0" in refused.stderr and "hint:" in refused.stderr


def test_names_have_the_image_or_how_many_and_the_day() -> None:
    assert bundle.name(["a"], LOCK.epoch) == "a-20261129"
    assert bundle.name(["a", "b"], LOCK.epoch) == "2-images-20261129"
    assert bundle.name(["a"], LOCK.epoch, finished=True) == "a-20261129-image"
