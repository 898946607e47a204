"""Layers of registry images: checked once, and read as the image shows them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from torchyard.errors import CheckFailed
from torchyard.oci import Layer
from torchyard.world import registry_layers
from torchyard.world.store import Store

STATUS = "var/lib/dpkg/status"


def tar_of(files: dict[str, bytes | None]) -> bytes:
    """A tar with these files, and with links where there is no content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            if data is None:
                member.type, member.linkname = tarfile.SYMTYPE, "elsewhere"
            else:
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data or b""))
    return stream.getvalue()


def stored(tar: bytes, store: Store) -> Layer:
    blob = gzip.compress(tar, mtime=0)
    with store.incoming() as stream:
        stream.write(blob)
        stream.flush()
        digest = store.keep(Path(stream.name))
    diff = hashlib.sha256(tar).hexdigest()
    return Layer(digest=f"sha256:{digest}", size=len(blob), diff_id=f"sha256:{diff}", unpacked=len(tar))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_layer_is_unpacked_once_to_be_checked(store: Store) -> None:
    layer = stored(tar_of({"a": b"1"}), store)
    assert registry_layers.checked(layer.digest, layer.size, layer.diff_id, store, where="x") == layer
    store.path(layer.digest.removeprefix("sha256:")).write_bytes(b"not unpacked again")
    assert registry_layers.checked(layer.digest, layer.size, layer.diff_id, store, where="x") == layer


def test_a_layer_that_unpacks_to_something_else_is_told_with_both_hashes(store: Store) -> None:
    layer = stored(tar_of({"a": b"1"}), store)
    other = "sha256:" + "00" * 32
    with pytest.raises(CheckFailed, match=f"unpacks to {layer.diff_id}, the image's configuration says {other}"):
        registry_layers.checked(layer.digest, layer.size, other, store, where="x")


def test_a_layer_that_is_cut_or_no_gzip_is_told(store: Store) -> None:
    whole = stored(tar_of({"a": b"1" * 5000}), store)
    path = store.path(whole.digest.removeprefix("sha256:"))
    for data in (path.read_bytes()[:-20], b"nothing compressed at all"):
        path.write_bytes(data)
        with pytest.raises(CheckFailed, match="cannot be unpacked"):
            registry_layers.checked(whole.digest, whole.size, whole.diff_id, store, where="x")


def test_the_topmost_layer_with_a_file_wins(store: Store) -> None:
    layers = [
        stored(tar_of({STATUS: b"old", "etc/os-release": b"os", "usr/bin/x": b"x"}), store),
        stored(tar_of({f"./{STATUS}": b"new", "etc/os-release": None}), store),
        stored(tar_of({"usr/bin/.wh.x": b""}), store),
    ]
    found = registry_layers.read(layers, [STATUS, "etc/os-release", "usr/bin/x", "no/such"], store)
    assert found == {STATUS: b"new", "etc/os-release": b""}


@pytest.mark.parametrize("whiteout", ["var/lib/dpkg/.wh.status", "var/.wh.lib", "var/lib/.wh..wh..opq", ".wh.var"])
def test_what_a_higher_layer_removed_is_not_there(store: Store, whiteout: str) -> None:
    below = stored(tar_of({STATUS: b"old"}), store)
    assert registry_layers.read([below, stored(tar_of({whiteout: b""}), store)], [STATUS], store) == {}


def test_a_file_beside_an_opaque_mark_of_its_own_layer_is_there(store: Store) -> None:
    below = stored(tar_of({STATUS: b"old"}), store)
    above = stored(tar_of({"var/lib/dpkg/.wh..wh..opq": b"", STATUS: b"new"}), store)
    assert registry_layers.read([below, above], [STATUS], store) == {STATUS: b"new"}
