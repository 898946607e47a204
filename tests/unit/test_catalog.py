"""The catalogue: what its files must say, how names are found, how a user's files extend it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard import catalog
from torchyard.catalog import read
from torchyard.errors import InputError
from torchyard.versions import numbers

C = catalog.load()


def test_every_row_has_a_source_of_the_list_and_a_date() -> None:
    for section, rows in C.rows.items():
        for row in rows:
            assert row.source, section
            assert set(row.source) <= C.sources.keys(), (section, row)
            assert len(row.checked) == 10, (section, row)


def test_every_source_is_used_by_a_row() -> None:
    used = {s for rows in C.rows.values() for row in rows for s in row.source}
    used |= {g.tflops_source for g in C.gpus}
    assert C.sources.keys() - used == set()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{os: x-1, glibc: '2.1', python: '3.1', gcc: '1', checked: '2026-11-30'}", "no source"),
        ("{os: x-1, glibc: '2.1', python: '3.1', gcc: '1', source: [], checked: '2026-11-30'}", "no source"),
        ("{os: x-1, glibc: '2.1', python: '3.1', gcc: '1', source: [mine]}", "no date"),
        ("{os: x-1, glibc: 2.1, python: '3.1', gcc: '1', source: [mine], checked: '2026-11-30'}", "`glibc` is a text"),
        ("{os: x-1, glibs: '2.1', python: '3.1', gcc: '1', source: [mine], checked: '2026-11-30'}", "unknown field"),
        ("{os: x-1, python: '3.1', gcc: '1', source: [mine], checked: '2026-11-30'}", "lacks glibc"),
        ("17", "a row is a mapping"),
    ],
)
def test_a_row_that_cannot_stand_is_refused_with_its_place(row: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.load([("catalog.d/mine.yaml", f"distributions:\n- {row}\n")])
    assert said in caught.value.what
    assert caught.value.where and caught.value.hint


@pytest.mark.parametrize("text", ["[", "- 1", "gpu: []", "gpus: {a: 1}", "sources: [a]"])
def test_a_file_that_is_no_catalogue_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        catalog.load([("catalog.d/mine.yaml", text)])


def test_a_packaged_row_must_cite_a_known_source() -> None:
    with pytest.raises(InputError, match="unknown source"):
        read.merge(
            {},
            "distributions:\n- {os: a-1, source: [nobody], checked: '2026-11-30'}",
            where="packaged.yaml",
            known_sources=C.sources,
        )


def test_a_users_file_adds_a_row() -> None:
    text = (
        "gpus:\n- {id: rtx-6090, name: NVIDIA GeForce RTX 6090, kind: consumer, arch: Rubin, cc: '13.0',\n"
        "   memory_gb: [48], memory: GDDR7, nvlink: false, host: [x86_64], precision: [fp16, bf16],\n"
        "   source: [the box], checked: '2027-01-01'}\n"
    )
    mine = catalog.load([("catalog.d/new.yaml", text)])
    assert mine.gpu("6090").cc == "13.0"
    assert mine.date == "2027-01-01"
    assert len(mine.gpus) == len(C.gpus) + 1


def test_a_users_file_corrects_fields_of_a_known_row_and_keeps_the_rest() -> None:
    text = "distributions:\n- {os: rocky-9, python: '3.9', source: [read it], checked: '2027-01-01'}\n"
    mine = catalog.load([("catalog.d/rocky.yaml", text)])
    row = mine.distribution("rocky-9")
    assert (row.glibc, row.python, row.checked) == ("2.34", "3.9", "2027-01-01")
    assert row.source == ("read it", "manylinux", "general")
    assert row.unverified == ("more_python", "gcc", "more_gcc")


def test_a_users_torch_release_brings_its_builds() -> None:
    text = """
torch_releases:
- {version: 2.16.0, released: '2027-01-20', requires_python: '>=3.11', python: {x86_64: ['3.12']},
  glibc_min: {x86_64: '2.28'}, pypi: {x86_64: cu134}, cuda: {x86_64: [cu134]}, triton: 4.0.0,
  source_build: {cxx: '20', gcc_min: '11.3', cuda_min: '12.6', backend: scikit-build-core}, cxx11_abi: true,
  source: [wheel], checked: '2027-01-21'}
torch_builds:
- {torch: 2.16.0, tag: cu134, arch: x86_64, toolkit: 13.4.1, cudnn: 9.28.0.42, sass: ['8.0', '9.0'], ptx: [],
  glibc_min: '2.28', source: [wheel], checked: '2027-01-21'}
"""
    mine = catalog.load([("catalog.d/torch-2.16.yaml", text)])
    build = mine.builds_of("2.16.0", "x86_64")[0]
    assert (build.tag, build.index, build.requirement, build.sass) == ("cu134", "pypi", "2.16.0", ("8.0", "9.0"))


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("rtx-4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("GeForce RTX 3080 Ti", "rtx-3080-ti"),
        ("3080ti", "rtx-3080-ti"),
        ("a100", "a100-sxm4-40gb"),
        ("A100 80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("h100", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("v100", "v100-sxm2-16gb"),
        ("Tesla T4", "t4"),
        ("t4", "t4"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("dgx-spark", "gb10"),
        ("agx-orin", "jetson-agx-orin"),
        ("rtx-pro-6000", "rtx-pro-6000-blackwell"),
        ("1080-ti", "gtx-1080-ti"),
    ],
)
def test_a_gpu_is_found_by_whatever_people_call_it(name: str, gpu: str) -> None:
    assert C.gpu(name).id == gpu


def test_every_id_alias_and_printed_name_finds_its_own_gpu() -> None:
    for gpu in C.gpus:
        for name in (gpu.id, gpu.name, *gpu.aliases):
            assert C.gpu(name) is gpu, name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("a800", "a800-40gb"),
        ("rtx-4900", "rtx-4090"),
        ("h1000", "h100-sxm5-80gb"),
        ("orin", "jetson-orin-nx"),
        ("", "?"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        C.gpu(name)
    assert near in caught.value.hint


def test_an_ambiguous_name_lists_what_it_could_be() -> None:
    twin = (
        "gpus:\n- {id: gtx-4090, name: NVIDIA GeForce GTX 4090, kind: consumer, arch: Ada, cc: '8.9', memory_gb: [24], "
    )
    twin += "memory: x, nvlink: false, host: [x86_64], precision: [], source: [joke], checked: '2026-11-30'}\n"
    mine = catalog.load([("catalog.d/twin.yaml", twin)])
    with pytest.raises(InputError, match="ambiguous") as caught:
        mine.gpu("4090")
    assert "gtx-4090" in caught.value.hint and "rtx-4090" in caught.value.hint


def test_a_memory_size_beside_a_short_alias_chooses_the_sibling() -> None:
    assert C.gpu("a100", memory_gb=80).id == "a100-sxm4-80gb"
    assert C.gpu("v100", memory_gb=32).id == "v100-sxm2-32gb"
    assert C.gpu("a100-sxm4-40gb", memory_gb=80).id == "a100-sxm4-40gb"


@given(st.text(max_size=60))
def test_any_text_as_a_gpu_name_is_an_answer_or_an_input_error(name: str) -> None:
    try:
        assert C.gpu(name) in C.gpus
    except InputError as error:
        assert error.hint


def test_releases_go_from_1_13_to_2_15_newest_first() -> None:
    versions = [r.version for r in C.releases]
    assert versions[0] == "2.15.0" and versions[-1] == "1.13.0"
    assert all(numbers(a) > numbers(b) for a, b in pairwise(versions))


def test_every_build_that_a_release_names_has_its_row() -> None:
    for build in C.builds:
        if build.cuda:
            assert build.sass, (build.torch, build.tag, build.arch)


def test_the_default_build_is_the_one_that_pypi_serves() -> None:
    for release in C.releases:
        for arch in catalog.ARCHES:
            first = C.builds_of(release.version, arch)[0]
            assert (first.tag, first.index, first.requirement) == (release.pypi[arch], "pypi", release.version)


def test_the_pins_of_a_release_name_the_cudnn_of_its_default_build() -> None:
    for release in C.releases:
        pins, build = C.pins(release.version), C.builds_of(release.version, "x86_64")[0]
        assert pins is not None
        assert build.cudnn in {v for name, v in pins.pins.items() if name.startswith("nvidia-cudnn")}


def test_every_rule_row_is_a_rule_and_every_rule_has_a_row() -> None:
    from torchyard.rules import RULES

    assert [r.id for r in C.rules()] == [r.id for r in RULES]


def test_the_row_that_held_three_rule_ids_is_split() -> None:
    assert {"torch-known", "cuda-known", "cudnn-known"} <= {r.id for r in C.rules()}
