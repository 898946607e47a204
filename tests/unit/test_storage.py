"""What several images take together, and what programs of a site can read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lock_samples import package, wheel
from test_publish import LOCK

from torchyard import consumers, storage
from torchyard.errors import Incompatible
from torchyard.oci import LAYER_GZIP
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


ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"


@pytest.mark.parametrize(
    ("consumer", "version", "said"),
    [
        ("docker", "20.10.24+dfsg1", "docker 20.10.24.dfsg1 does not read .*23.0 or newer does"),
        ("enroot", "", "no version that was seen does"),
        ("apptainer", "1.3.6-1", "1.4.5 or newer does"),
        ("singularity", "4.1.0", "no version that was seen does"),
    ],
)
def test_layers_that_a_program_cannot_read_are_refused_with_the_way_on(consumer: str, version: str, said: str) -> None:
    with pytest.raises(Incompatible, match=said) as caught:
        consumers.check([LAYER_GZIP, ZSTD], consumer, version, where="x")
    assert "https://" in caught.value.hint


@pytest.mark.parametrize(
    ("consumer", "version"),
    [("docker", "26.1.5+dfsg1"), ("docker", ""), ("containerd", "2.0"), ("podman", "4"), ("apptainer", "1.4.5")],
)
def test_layers_that_a_program_reads_are_taken(consumer: str, version: str) -> None:
    consumers.check([ZSTD], consumer, version, where="x")


def test_gzip_is_read_everywhere_and_a_slurm_site_reads_no_zstd() -> None:
    for runs in ("slurm", "kubernetes", "compose"):
        consumers.check_site([LAYER_GZIP], runs, where="x")
    with pytest.raises(Incompatible, match="enroot"):
        consumers.check_site([ZSTD], "slurm", where="x")
