"""A matrix of two hundred cells: every image has its own id, and is shared where its bytes are equal, only there."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from canned_locks import canned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard import catalog, matrix, render, resolve
from torchyard import lock as locking
from torchyard.plan import BuildKind, CellState, Image, Plan
from torchyard.world import workspace

CATALOG = catalog.load()
GPUS = ("t4", "v100-sxm2-16gb", "rtx-2080-ti", "rtx-3080-ti", "a100-sxm4-40gb", "a100-sxm4-80gb", "rtx-4090", "l4",
        "l40s", "h100-sxm5-80gb", "h200", "rtx-5090")  # fmt: skip
TORCHES = ("2.10.0", "2.13.0", "2.14.1", "2.15.0")
SYSTEMS = ("debian-12", "ubuntu-24.04")


def text(gpus: tuple[str, ...], torches: tuple[str, ...], flags: str = "{}", more: str = "") -> str:
    """An env.yaml with an entry for each GPU and one without, and four axes."""
    entries = "".join(f"  g{number}: {{gpu: {gpu}}}\n" for number, gpu in enumerate(gpus))
    return (
        f"schema: 1\nproject: many\nsource: {{flags: {flags}}}\nhardware:\n  cpu: {{}}\n{entries}{more}"
        f"matrix:\n  torch: [{', '.join(f'{each!r}' for each in torches)}]\n  build: [wheel, source]\n"
        "  base: [{from: archive, os: debian-12}, {from: archive, os: ubuntu-24.04}]\n"
        "  blas: [auto, openblas]\n  exclude: [{build: wheel, blas: openblas}]\n"
    )


@cache
def planned(written: str) -> Plan:
    return resolve.plan(matrix.parse(written, known=resolve.names(CATALOG)), CATALOG)


LARGE = text(GPUS, TORCHES[1:])


def bytes_of(image: Image) -> tuple[str, ...]:
    """Everything that an image's bytes are made of, its name left out."""
    made = canned(image)
    files = render.image_files(made, workspace.packaged_template)
    return tuple(each.replace(image.id, "ID") for each in (*files.values(), locking.to_text(made)) if each)


def test_two_hundred_cells_over_twelve_gpus_are_decided() -> None:
    plan = planned(LARGE)
    assert len(GPUS) == 12 and len(plan.cells) >= 200
    assert {cell.state for cell in plan.cells} >= {CellState.OK, CellState.REFUSED}
    kinds = {(image.torch, image.build, image.base.os) for image in plan.images}
    assert len(kinds) == len(TORCHES[1:]) * 2 * len(SYSTEMS)


def test_every_id_is_of_one_image_and_every_image_has_one_id() -> None:
    plan = planned(LARGE)
    ids = [image.id for image in plan.images]
    assert len(set(ids)) == len(ids)
    assert len({render.target_name(each) for each in ids}) == len(ids)
    without = defaultdict(list)
    for image in plan.images:
        without[locking.fingerprint(image)].append(image.id)
    assert all(len(each) == 1 for each in without.values())


def test_images_are_shared_where_bytes_are_equal_and_only_there() -> None:
    plan = planned(LARGE)
    by_bytes = defaultdict(set)
    for image in plan.images:
        if image.index:
            by_bytes[bytes_of(image)].add(image.id)
    assert all(len(ids) == 1 for ids in by_bytes.values())
    shared = [image for image in plan.images if len(plan.sharers(image.id)) > 1]
    assert {image.build for image in shared} == set(BuildKind)


def test_a_wheel_serves_all_its_gpus_and_a_compiled_torch_those_of_one_capability() -> None:
    plan = planned(LARGE)
    for image in plan.images:
        capabilities = {cell.compute_capability for cell in plan.cells if cell.image == image.id}
        assert len(capabilities) == 1 if image.source else capabilities
    assert any(
        len({c.compute_capability for c in plan.cells if c.image == i.id}) > 3 for i in plan.images if not i.source
    )


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    gpus=st.lists(st.sampled_from(GPUS), min_size=1, max_size=3, unique=True).map(tuple),
    torches=st.lists(st.sampled_from(TORCHES), min_size=1, max_size=2, unique=True).map(tuple),
    flags=st.sampled_from(["{}", "{USE_KINETO: 0}", "{BUILD_TEST: 1}", "{USE_GLOO: 0, USE_FBGEMM: 0}"]),
    other=st.sampled_from(["{}", "{USE_KINETO: 0}", "{BUILD_TEST: 1}"]),
    env=st.sampled_from(["", "  e: {gpu: h200, env: {A: 1}}\n", "  e: {gpu: h200, packages: {apt: [git], name: x}}\n"]),
)
def test_two_files_give_one_id_to_one_image_only(
    gpus: tuple[str, ...], torches: tuple[str, ...], flags: str, other: str, env: str
) -> None:
    found: dict[str, Image] = {}
    for plan in (planned(text(gpus, torches, flags, env)), planned(text(gpus, torches, other))):
        for image in plan.images:
            assert found.setdefault(image.id, image) == image
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("axis", ["torch", "build", "base", "blas"])
def test_a_choice_is_shown_with_its_axes(axis: str) -> None:
    assert all(axis in dict(cell.choice) for cell in planned(LARGE).cells)
