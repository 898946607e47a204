"""The one name of an image."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.ids import image_id, set_name
from torchyard.plan import Base, BaseKind, BuildKind, Compression, PackageSet, SourceBuild

DEBIAN = Base(kind=BaseKind.ARCHIVE, os="debian-12")
PLAIN: dict[str, Any] = {"python": "3.11", "python_from": "distribution", "base": DEBIAN, "arch": "x86_64"}


def test_a_usual_image_has_a_short_name() -> None:
    assert image_id(torch="2.14.1", cuda_tag="cu130", **PLAIN) == "torch2.14.1-cu130-py311-debian12-amd64"
    assert image_id(torch="2.13.0", cuda_tag="cpu", **PLAIN) == "torch2.13.0-cpu-py311-debian12-amd64"


def test_zstd_is_in_the_name_and_gzip_is_not() -> None:
    usual = image_id(torch="2.14.1", cuda_tag="cu130", **PLAIN)
    assert image_id(torch="2.14.1", cuda_tag="cu130", compression=Compression.GZIP, **PLAIN) == usual
    packed = image_id(torch="2.14.1", cuda_tag="cu130", compression=Compression.ZSTD, **PLAIN)
    assert packed == "torch2.14.1-cu130-py311-debian12-zstd-amd64"
    assert packed != image_id(torch="2.14.1", cuda_tag="cu130", packages_name="zstd", **PLAIN)


def test_what_is_less_usual_is_in_the_name() -> None:
    source = SourceBuild(ref="v2.14.1", cpu="x86-64-v3", arch_list=("8.0", "9.0a", "12.0+PTX"), gcc="12")
    name = image_id(
        torch="2.14.1", cuda_tag="cu130", python="3.12", python_from="standalone",
        base=Base(kind=BaseKind.IMAGE, os="ubuntu-24.04", ref="ubuntu:24.04"), arch="aarch64",
        packages_name="nlp",
        build=BuildKind.SOURCE, blas="openblas", cudnn="9.24", source=source,
    )  # fmt: skip
    assert re.fullmatch(
        r"torch2\.14\.1-cu130-src-openblas-x86-64-v3-sm80\.90a\.120ptx-[0-9a-f]{8}"
        r"-py312-standalone-ubuntu24\.04-image[0-9a-f]{8}-arm64-nlp",
        name,
    )


versions = st.from_regex(r"[0-9]\.[0-9]{1,2}\.[0-9](rc1)?", fullmatch=True)
words = st.from_regex(r"[a-z0-9]{1,4}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
bases = st.builds(
    Base,
    kind=st.sampled_from(BaseKind),
    os=st.from_regex(r"[a-z]{1,3}[0-9]?-[0-9]{1,2}(\.[0-9]{1,2})?", fullmatch=True),
    ref=words,
).map(lambda b: b if b.kind is BaseKind.IMAGE else Base(kind=b.kind, os=b.os))
sources = st.builds(
    SourceBuild,
    ref=words,
    commit=st.sampled_from(["", "a" * 40]),
    flags=st.dictionaries(words, words, max_size=2).map(lambda d: tuple(sorted(d.items()))),
    cpu=st.sampled_from(["x86-64", "x86-64-v3", "znver4"]),
    arch_list=st.lists(st.sampled_from(["8.0", "8.6", "9.0a", "12.0+PTX"]), unique=True).map(tuple),
    gcc=st.sampled_from(["", "12", "13"]),
)
partners = st.lists(st.tuples(st.sampled_from(["torchvision", "torchaudio"]), versions), unique_by=lambda p: p[0])
shared = {
    "torch": versions, "cuda_tag": st.sampled_from(["cpu", "cu118", "cu128", "cu130"]),
    "python": st.sampled_from(["3.11", "3.12", "3.13t", "3.1"]),
    "python_from": st.sampled_from(["distribution", "standalone"]),
    "base": bases, "arch": st.sampled_from(["x86_64", "aarch64"]), "pairs": partners.map(lambda p: tuple(sorted(p))),
    "packages_name": st.just("") | words | st.just("zstd"), "compression": st.sampled_from([None, Compression.ZSTD]),
}  # fmt: skip
wheels = st.fixed_dictionaries(shared)
compiled = st.fixed_dictionaries(
    {**shared, "build": st.just(BuildKind.SOURCE), "blas": st.sampled_from(["mkl", "openblas"]),
     "cudnn": st.sampled_from([None, "9.24.0.43"]), "source": sources}
)  # fmt: skip
images = wheels | compiled


@settings(max_examples=150, deadline=None)
@given(images, images, st.data())
def test_two_images_have_one_name_only_if_they_are_one(
    a: dict[str, Any], b: dict[str, Any], data: st.DataObject
) -> None:
    """b is also tried as a with a single part of b, which is where two names come closest."""
    part = data.draw(st.sampled_from(sorted(a.keys() & b.keys())))
    for other in (b, {**a, part: b[part]}):
        assert (image_id(**a) == image_id(**other)) == (a == other)


@settings(max_examples=60, deadline=None)
@given(images)
def test_a_name_is_a_folder_and_a_tag(a: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,127}", image_id(**a))


def test_a_set_is_named_by_what_is_in_it_and_not_by_its_name() -> None:
    sets = [
        PackageSet(),
        PackageSet(apt=("a",)),
        PackageSet(pip=("a",)),
        PackageSet(env=(("a", "b"),)),
        PackageSet(extend="a"),
    ]
    assert len({set_name(each) for each in sets}) == 5
    assert set_name(PackageSet(name="x", apt=("a",))) == set_name(PackageSet(apt=("a",)))
