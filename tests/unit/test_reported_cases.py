"""Reports of real failures (configuration, source builds, package archives), each with its right outcome."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from canned_locks import canned

from torchyard import catalog, matrix, render, resolve
from torchyard.errors import Exit, YardError
from torchyard.plan import CellState, Plan
from torchyard.world import workspace

ROOT = Path(__file__).resolve().parents[2]
CATALOG = catalog.load()
HEAD = "schema: 1\nproject: a\n"
SOFTWARE = 'software: {torch: "2.14.1"}\n'


def planned(text: str, **files: str) -> Plan:
    named = {name.replace("__", "."): content for name, content in files.items()}
    return resolve.plan(matrix.parse(HEAD + text, files=named, known=resolve.names(CATALOG)), CATALOG)


def told(text: str, **files: str) -> YardError:
    """The one mistake that is told of this file."""
    with pytest.raises(YardError) as caught:
        planned(text, **files)
    (error,) = caught.value.problems()
    assert error.code is Exit.INPUT and error.where and error.hint
    return error


def recipes(plan: Plan) -> list[str]:
    found = []
    for image in plan.images:
        files = render.image_files(canned(image), workspace.packaged_template)
        found.append(files[PurePosixPath(f"images/{image.id}/Dockerfile")])
    return found


ROWS = recipes(
    planned(
        'software: {torch: "2.14.1"}\nhardware:\n  a: {gpu: a100}\n  b: {gpu: h100, build: source, cuda: "13.0"}\n'
        "  c: {gpu: rtx-4090, base: {from: archive, os: ubuntu-24.04}}\n"
        "  d: {base: {from: image, ref: debian:12-slim}}\n"
        "  e: {gpu: a100, packages: {apt: [tzdata]}}\n"
    )
)


def test_b036_a_python_without_quotes_is_refused_with_the_quotes_to_write() -> None:
    error = told('software: {torch: "2.14.1", python: 3.10}\nhardware: {a: {gpu: a100}}\n')
    assert 'python: "3.10"' in error.hint and "3.1" in error.what


@pytest.mark.parametrize("more", ["", ', cuda: "13.0"'])
def test_b038_what_is_not_given_is_in_no_name_and_no_file(more: str) -> None:
    plan = planned(f'software: {{torch: "2.14.1"}}\nhardware: {{a: {{gpu: a100{more}}}}}\n')
    (image,) = plan.images
    assert image.cuda == "13.0" and image.cudnn  # never a CPU image for a GPU
    for text in (image.id, *recipes(plan), render.bake([canned(image)], plan)):
        assert "None" not in text and "undefined" not in text.lower()
    assert "--" not in image.id and not image.id.endswith("-")


@pytest.mark.parametrize(
    ("requirement", "right"),
    [
        ("torch", True),
        ("torch==", False),
        ("torch===2.6", False),
        ("torch @ file:x.whl", False),
        (" torch == 2.14.1 ", True),
    ],
)
def test_b040_every_way_to_name_torch_is_locked_or_told_in_one_line(requirement: str, right: bool) -> None:
    text = f'software: {{torch: "2.14.1"}}\nhardware: {{a: {{gpu: a100}}}}\npackages: {{pip: ["{requirement}"]}}\n'
    if right:
        assert planned(text).images
        return
    try:
        plan = planned(text)
    except YardError as error:
        assert all("packages.pip" in each.where and "\n" not in each.what for each in error.problems())
        return
    from torchyard import requirements

    (line,) = plan.images[0].packages.pip
    with pytest.raises(YardError):
        requirements.check_torch(requirements.parse_requirement(line, "x"), "2.14.1", "x")


def test_b042_a_release_that_the_catalogue_does_not_know_is_told_with_its_date() -> None:
    (cell,) = planned('software: {torch: "2.99.0"}\nhardware: {a: {gpu: a100, cuda: "13.0"}}\n').cells
    error = resolve.refusal(cell)
    assert error.code is Exit.INPUT and "2.99.0" in error.what and CATALOG.date in error.what and error.hint


def test_b044_a_cuda_that_a_distribution_cannot_have_is_refused_for_a_source_build() -> None:
    text = (
        'software: {{torch: "2.10.0", base: {{from: archive, os: debian-13}}}}\n'
        'hardware: {{a: {{gpu: a100, cuda: "12.8", build: {}}}}}\n'
    )
    (refused,) = planned(text.format("source")).cells
    assert refused.state is CellState.REFUSED and "glibc" in resolve.refusal(refused).what
    (wheel,) = planned(text.format("wheel")).cells
    assert wheel.state is not CellState.REFUSED or "nvcc" not in resolve.refusal(wheel).what


@pytest.mark.parametrize("written", ['"cpu"', '""', '"sm_86"', '"86"', '"8.6 PTX"', '"8,6"', "[8,6]"])
def test_b050_a_target_that_is_none_is_refused_with_what_to_write(written: str) -> None:
    text = f"source: {{arch_list: {written}}}\nhardware: {{a: {{gpu: a100, build: source}}}}\n" + SOFTWARE
    with pytest.raises(YardError) as caught:
        planned(text)
    assert all("source.arch_list" in each.where and each.hint for each in caught.value.problems())


def test_b050_a_list_of_numbers_loses_no_digit() -> None:
    text = (
        'hardware: {a: {gpu: a100, build: source, cuda: "13.0"}}\nsource: {arch_list: [8.0, 10.0, 12.0]}\n' + SOFTWARE
    )
    image = planned(text).images[0]
    assert image.source is not None and image.source.arch_list == ("8.0", "10.0", "12.0")


def test_b052_both_forms_of_the_target_are_in_the_builder_and_none_in_the_image() -> None:
    (text,) = [each for each in ROWS if "AS builder" in each]
    builder, _, final = text.partition("FROM system AS locked")
    assert 'TORCH_CUDA_ARCH_LIST="9.0"' in builder and 'CMAKE_CUDA_ARCHITECTURES="90"' in builder
    assert "ARCH" not in final


def test_b092_no_step_reads_a_package_list_and_every_one_is_without_a_network() -> None:
    scripts = [path.read_text() for path in (ROOT / "templates" / "steps").iterdir()]
    for text in (*ROWS, *scripts):
        assert "apt-get update" not in text and "apt update" not in text
    for text in ROWS:
        assert all("--network=none" in line for line in text.splitlines() if line.startswith("RUN "))


@pytest.mark.parametrize("ref", ["something:latest", "debian", "debian:stable"])
def test_b094_a_moving_tag_is_refused(ref: str) -> None:
    error = told(
        f'software: {{torch: "2.14.1", base: {{from: image, ref: "{ref}", os: debian-12}}}}\nhardware: {{a: {{}}}}\n'
    )
    assert "moving tag" in error.what


def test_b090_b098_b102_b104_nothing_unsafe_or_left_over_is_in_a_recipe() -> None:
    scripts = [path.read_text() for path in (ROOT / "templates" / "steps").iterdir()]
    for text in (*ROWS, *scripts):
        assert not re.search(
            r"allow-unauthenticated|trusted=yes|trusted-host|sslVerify|insecure|break-system-packages", text
        )
    for text in ROWS:
        assert not re.search(r"^ENV .*DEBIAN_FRONTEND", text, re.MULTILINE)
        assert "/opt/venv" in text


def test_b122_every_cache_mount_says_how_it_is_shared() -> None:
    mounts = [mount for text in ROWS for mount in re.findall(r"--mount=type=cache\S*", text)]
    assert mounts and all(",sharing=" in mount and ",id=" in mount for mount in mounts)
