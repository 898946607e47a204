"""What several images take together, and what programs of a site can read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lock_samples import package, wheel
from test_publish import LOCK

from torchyard import catalog, consumers, storage
from torchyard.errors import Incompatible
from torchyard.oci import LAYER_GZIP, LAYER_ZSTD
from torchyard.plan import Compression
from torchyard.storage import Built

BIG = replace(
    LOCK,
    wheels=(
        wheel("nvidia-cublas", size=400_000_000),
        wheel("numpy", size=10_000_000),
        wheel("torch", size=500_000_000),
    ),
)
MORE = replace(BIG, os=(*BIG.os, package("tree", "user")), wheels=(*BIG.wheels, wheel("einops", size=50_000)))


def test_images_with_the_same_framework_hold_it_once() -> None:
    one, two = storage.held({"one": storage.pieces(BIG, None), "two": storage.pieces(MORE, None)})
    assert one.packed == one.new_packed > 900_000_000 and not one.exact
    assert two.packed > one.packed and two.new_packed < 0.05 * one.packed


def test_a_built_image_is_exact_and_shares_with_one_that_is_not_built() -> None:
    layers = tuple((f"sha256:{n}", 100, 200) for n in range(6))
    one, two = storage.held({"one": storage.pieces(BIG, Built(layers=layers)), "two": storage.pieces(MORE, None)})
    assert (one.packed, one.unpacked, one.exact) == (600, 1200, True)
    assert two.new_packed < 0.2 * two.packed and not two.exact


def test_the_same_image_twice_adds_nothing() -> None:
    pieces = storage.pieces(BIG, None)
    assert storage.held({"one": pieces, "two": pieces})[1].new_packed == 0


def test_zstd_and_gzip_images_share_nothing_in_a_registry() -> None:
    packed = replace(BIG, image=replace(BIG.image, compression=Compression.ZSTD))
    two = storage.held({"one": storage.pieces(BIG, None), "two": storage.pieces(packed, None)})[1]
    assert two.new_packed == two.packed > 0


C = catalog.load()


@pytest.mark.parametrize(
    ("consumer", "version", "said"),
    [
        ("docker", "20.10.24+dfsg1", "docker 20.10.24.dfsg1 does not read .*23.0 or newer does"),
        ("podman", "1.6.1", "podman 1.6.1 does not read .*1.6.2 or newer does"),
        ("enroot", "", "enroot, whose version is not said, may not read .*4.0.0 or newer does"),
        ("apptainer", "1.3.6-1", "1.4.5 or newer does"),
        ("singularity", "4.1.0", "no version that was seen does"),
    ],
)
def test_layers_that_a_program_cannot_read_are_refused_with_the_way_on(consumer: str, version: str, said: str) -> None:
    with pytest.raises(Incompatible, match=said) as caught:
        consumers.check([LAYER_GZIP, LAYER_ZSTD], consumer, version, C, where="x")
    assert "https://" in caught.value.hint


@pytest.mark.parametrize(
    ("consumer", "version"),
    [("docker", "26.1.5+dfsg1"), ("docker", ""), ("containerd", "2.0"), ("podman", "4"), ("apptainer", "1.4.5")],
)
def test_layers_that_a_program_reads_are_taken(consumer: str, version: str) -> None:
    consumers.check([LAYER_ZSTD], consumer, version, C, where="x")


def test_gzip_is_read_everywhere_and_zstd_where_a_site_says_so() -> None:
    for runs in consumers.RUNS:
        consumers.check_site([LAYER_GZIP], consumers.of_site(runs, ""), C, where="x")
    with pytest.raises(Incompatible, match=r"enroot, whose version is not said, .* 4\.0\.0 or newer does"):
        consumers.check_site([LAYER_ZSTD], consumers.of_site("slurm", ""), C, where="x")
    consumers.check_site([LAYER_ZSTD], consumers.of_site("slurm", "enroot 4.1.2"), C, where="x")
    consumers.check_site([LAYER_ZSTD], consumers.of_site("compose", ""), C, where="x")


def test_a_row_of_the_users_own_catalogue_counts() -> None:
    row = "consumers:\n- {consumer: enroot, zstd: '3.4.1', granted: true, source: [ours], checked: '2026-12-01'}\n"
    ours = catalog.load([("catalog.d/enroot.yaml", row)])
    consumers.check_site([LAYER_ZSTD], ("enroot 3.4.1",), ours, where="x")
    with pytest.raises(Incompatible, match=r"3\.4\.1 or newer"):
        consumers.check([LAYER_ZSTD], "enroot", "3.3", ours, where="x")
