"""`compression: zstd` from env.yaml to the layers, and that gzip changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from lock_samples import image, lock
from test_context import keep, ready
from test_publish import PASSED, receipt

from torchyard import catalog, matrix, oci, render, resolve
from torchyard import lock as locking
from torchyard.errors import CheckFailed, Incompatible, InputError, YardError
from torchyard.oci import Layer
from torchyard.plan import CellState, Compression, Plan
from torchyard.verbs import push
from torchyard.verbs.project import Project
from torchyard.world import context, zstd_layer
from torchyard.world.registry_taking import Blob, Result
from torchyard.world.workspace import Workspace

C = catalog.load()
SITES = """schema: 1
project: acme
sites:
  desk: {runs: compose, registry: "127.0.0.1:5000/desk"}
  lab: {runs: slurm, registry: "127.0.0.1:5000/lab"}
  new: {runs: slurm, consumer: "enroot 4.1.2"}
hardware:
"""
SOFTWARE = 'software: {torch: "2.14.1", python: "3.11", compression: zstd}\n'
ZSTD = "torch2.14.1-cu130-py311-debian12-zstd-amd64"
GZIP = "torch2.14.1-cu130-py311-debian12-amd64"


def read(text: str) -> matrix.Matrix:
    return matrix.parse(text, files={}, known=resolve.names(C))


def planned(entries: str, more: str = SOFTWARE) -> Plan:
    return resolve.plan(read(SITES + entries + more), C)


def test_zstd_where_the_site_does_not_read_it_is_refused_with_both_sides_and_the_nearest_thing() -> None:
    (cell,) = planned("  a100: {gpu: a100-sxm4-40gb, site: lab}\n").cells
    assert cell.state is CellState.REFUSED and cell.where.endswith("hardware.a100")
    (against,) = [verdict for verdict in cell.verdicts if not verdict.ok]
    assert against.rule == "compression"
    assert "zstd layers are asked for; enroot, whose version is not said, may not" in against.what
    assert "4.0.0 or newer" in against.what and "enroot-zstd" in against.source
    assert cell.nearest.startswith("compression zstd → gzip (torch 2.14.1 cu130")
    assert "(compression)" in resolve.refusal(cell).what


def test_the_place_of_a_refusal_is_the_key_of_the_entry() -> None:
    (cell,) = planned(
        "  a100: {gpu: a100-sxm4-40gb, site: lab, compression: zstd}\n", SOFTWARE.replace(", comp", "}#")
    ).cells
    assert cell.where.endswith("hardware.a100.compression")


def test_zstd_and_gzip_of_the_same_content_are_two_images_of_one_project() -> None:
    plan = planned(
        "  one: {gpu: a100-sxm4-40gb, site: desk}\n  two: {gpu: a100-sxm4-40gb, site: new}\n"
        "  three: {gpu: a100-sxm4-40gb, site: lab, compression: gzip}\n  four: {gpu: a100-sxm4-40gb}\n"
    )
    assert [cell.image for cell in plan.cells] == [ZSTD, ZSTD, GZIP, ZSTD]
    assert [each.compression for each in plan.images] == [None, Compression.ZSTD]


def test_the_rule_may_be_overruled_and_the_push_follows_that(tmp_path: Path) -> None:
    allow = "allow: [{rule: compression, hardware: a100, reason: ours is patched}]\n"
    text = SITES + "  a100: {gpu: a100-sxm4-40gb, site: lab}\n" + SOFTWARE + allow
    plan = resolve.plan(read(text), C)
    (made,) = plan.images
    assert "-zstd-" in made.id and "-allowed" in made.id
    project = Project(work=Workspace(tmp_path), matrix=read(text), catalog=C, plan=plan)
    kinds = (Blob(digest="sha256:" + "1" * 64, size=1, kind=oci.LAYER_ZSTD),)
    result = Result(manifest=b"{}", config=kinds[0], layers=kinds)
    going = push._Ready(lock=lock(image=made), receipt=receipt(PASSED), places={"lab": "127.0.0.1:5000/lab"})
    push._check_sites(project, going, result)
    bare = replace(going, lock=lock(image=replace(made, allowed=())))
    with pytest.raises(Incompatible, match="enroot") as caught:
        push._check_sites(project, bare, result)
    assert caught.value.where == "env.yaml  sites.lab.runs" and "compression: gzip" in caught.value.hint
    push._check_sites(project, replace(bare, places={"desk": "127.0.0.1:5000/desk"}), result)


@pytest.mark.parametrize(
    ("site", "said"),
    [("enrot 4.1.2", "nothing known of 'enrot'"), ("enroot", "its version"), ("Enroot 4", "its version")],
)
def test_a_consumer_has_a_name_of_the_catalogue_and_a_version(site: str, said: str) -> None:
    with pytest.raises(YardError, match=said):
        read(SITES.replace("enroot 4.1.2", site) + "  cpu: {site: new}\n" + SOFTWARE)


def test_gzip_said_or_not_leaves_image_lock_and_recipe_as_they_were() -> None:
    silent = planned("  a100: {gpu: a100-sxm4-40gb}\n", SOFTWARE.replace(", compression: zstd", "")).images
    said = planned("  a100: {gpu: a100-sxm4-40gb}\n", SOFTWARE.replace("zstd", "gzip")).images
    assert silent == said and "compression" not in locking.plain(said[0])
    assert locking.fingerprint(silent[0]) == locking.fingerprint(said[0])


def test_a_lock_of_zstd_is_read_back_and_another_word_is_refused() -> None:
    made = lock(image=image(id=ZSTD, compression=Compression.ZSTD))
    text = locking.to_text(made)
    assert locking.from_text(text, name="x") == made
    assert locking.fingerprint(made.image) != locking.fingerprint(replace(made.image, compression=None))
    with pytest.raises(InputError, match="xz"):
        locking.from_text(text.replace('compression: "zstd"', 'compression: "xz"'), name="x")


def test_the_exporter_is_told_of_zstd_and_of_nothing_for_gzip() -> None:
    packed, plain = lock(image=image(id=ZSTD, compression=Compression.ZSTD)), lock()
    plan = Plan(project="acme", cells=(), images=(packed.image, plain.image))
    text = render.bake([packed, plain], plan)
    targets = json.loads(text)["target"]
    both = [targets[render.target_name(one.id)]["output"] for one in (plain, packed)]
    assert both[0] == ["type=image,oci-mediatypes=true"]
    assert both[1] == [f"type=image,oci-mediatypes=true,compression=zstd,compression-level={oci.ZSTD_LEVEL}"]
    archive = render.archive_output(text, ZSTD, "a/b.tar")
    assert archive == f"type=oci,oci-mediatypes=true,compression=zstd,compression-level={oci.ZSTD_LEVEL},dest=a/b.tar"
    assert render.archive_output(text, plain.id, "c") == "type=oci,oci-mediatypes=true,dest=c"
    for broken in (None, "", "[]", "{}", '{"target": {}}'):
        with pytest.raises(InputError, match="no target"):
            render.archive_output(broken, ZSTD, "c")


def gzip_layer(work: Workspace, size: int = 3_000_000) -> tuple[Layer, bytes]:
    """A layer in the store, of two gzip members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("file")
        info.size = size
        tar.addfile(info, io.BytesIO(random.Random(1).randbytes(size // 2) + bytes(size - size // 2)))
    data = buffer.getvalue()
    sha256, length = keep(work, gzip.compress(data[:1000], mtime=0) + gzip.compress(data[1000:], mtime=0))
    diff_id = oci.digest_of(data)
    return Layer(digest=f"sha256:{sha256}", size=length, diff_id=diff_id, unpacked=len(data)), data


def test_a_zstd_layer_is_one_frame_of_the_same_tar_with_an_id_of_its_own(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    layer, data = gzip_layer(work)
    said: list[str] = []
    packed = zstd_layer.of(layer, work, said.append)
    blob = work.store.path(packed.digest.removeprefix("sha256:")).read_bytes()
    assert (packed.size, packed.digest) == (len(blob), oci.digest_of(blob))
    seen = zstandard.ZstdDecompressor().decompressobj()
    tar = seen.decompress(blob)
    assert seen.eof and not seen.unused_data and zstandard.get_frame_parameters(blob).has_checksum
    assert tar == data + zstd_layer.MORE and (packed.diff_id, packed.unpacked) == (oci.digest_of(tar), len(tar))
    assert packed.diff_id != layer.diff_id and packed.size < layer.size * 1.01
    with tarfile.open(fileobj=io.BytesIO(tar)) as read_back:
        assert read_back.getnames() == ["file"]
    assert zstd_layer.of(layer, work, said.append) == packed and len(said) == 1


def test_a_zstd_layer_has_the_same_bytes_from_any_gzip_of_the_same_tar(tmp_path: Path) -> None:
    """The bytes are those of the pinned libzstd: another version that packs otherwise makes other images."""
    made = []
    for name, level in (("one", 1), ("two", 9)):
        work = Workspace(tmp_path / name)
        _, data = gzip_layer(work)
        sha256, length = keep(work, gzip.compress(data, level, mtime=0))
        plain = Layer(digest=f"sha256:{sha256}", size=length, diff_id=oci.digest_of(data), unpacked=len(data))
        made.append(zstd_layer.of(plain, work, lambda _: None))
    assert made[0] == made[1]
    if zstandard.ZSTD_VERSION == (1, 5, 7):
        assert made[0].digest == KNOWN


KNOWN = "sha256:7595c1ffa349ebdcf5589963e8b034090654e644a5f1fd0ad5ea57ad552b3582"


def test_a_layer_that_is_not_what_it_says_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    layer, _ = gzip_layer(work)
    with pytest.raises(CheckFailed, match="unpacks to"):
        zstd_layer.of(replace(layer, diff_id="sha256:" + "0" * 64), work, lambda _: None)
    blob = work.store.path(layer.digest.removeprefix("sha256:"))
    blob.write_bytes(blob.read_bytes()[:-9])
    with pytest.raises(CheckFailed, match="cannot be read|unpacks to"):
        zstd_layer.of(layer, work, lambda _: None)
    files = [path for path in work.store.root.rglob("*") if path.is_file()]
    assert [path.name for path in files] == [layer.digest.removeprefix("sha256:")]


def test_a_note_that_is_not_ours_or_a_layer_that_is_gone_is_made_again(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    layer, _ = gzip_layer(work)
    packed = zstd_layer.of(layer, work, lambda _: None)
    (note,) = (work.local / "layers").glob("*.json")
    note.write_text("{")
    assert zstd_layer.made(layer, work) is None and zstd_layer.of(layer, work, lambda _: None) == packed
    work.store.path(packed.digest.removeprefix("sha256:")).unlink()
    assert zstd_layer.made(layer, work) is None and zstd_layer.of(layer, work, lambda _: None) == packed


def test_the_layout_that_a_build_starts_from_has_only_zstd_layers(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    packed = replace(made, image=replace(made.image, id=ZSTD, compression=Compression.ZSTD))
    before = context.unmade(packed, work)
    for each in (made, packed):
        context.lay_out(each, base, work, say=lambda _: None)
    assert before > 0 and context.unmade(packed, work) == 0
    kinds, configs = [], []
    for each in (made, packed):
        blobs = work.root / render.contexts(each)["base"] / "blobs" / "sha256"
        index = json.loads((blobs.parent.parent / "index.json").read_text())
        manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_bytes())
        kinds.append({layer["mediaType"] for layer in manifest["layers"]})
        configs.append(json.loads((blobs / manifest["config"]["digest"][7:]).read_bytes()))
        for layer, diff_id in zip(manifest["layers"], configs[-1]["rootfs"]["diff_ids"], strict=True):
            blob = (blobs / layer["digest"][7:]).read_bytes()
            plain = zstandard.ZstdDecompressor().decompressobj().decompress(blob) if each is packed else gunzip(blob)
            assert "sha256:" + hashlib.sha256(plain).hexdigest() == diff_id
    assert kinds == [{oci.LAYER_GZIP}, {oci.LAYER_ZSTD}]
    first, second = (set(config["rootfs"]["diff_ids"]) for config in configs)
    assert not first & second, "BuildKit would take layers of one for those of the other"


def gunzip(blob: bytes) -> bytes:
    return gzip.decompress(blob)
