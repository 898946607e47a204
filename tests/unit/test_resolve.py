"""The matrix and the catalogue become a plan."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from torchyard import catalog, matrix, resolve
from torchyard.errors import Exit, YardError
from torchyard.plan import CellState, Plan
from torchyard.verbs import matrix as matrix_verb

ROOT = Path(__file__).parents[2]
CATALOG = catalog.load()
HEAD = "schema: 1\nproject: acme\n"
SOFTWARE = 'software: {torch: "2.14.1", python: "3.11"}\n'
SCHEMA: dict[str, Any] = json.loads((ROOT / "schema" / "matrix.schema.json").read_text())


def planned(text: str, **files: str) -> Plan:
    """The plan of this file."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    return resolve.plan(matrix.parse(text, files=named, known=resolve.names(CATALOG)), CATALOG)


def images(plan: Plan) -> dict[str, str]:
    """The image of each entry's default cell."""
    return {cell.hardware: cell.image for cell in plan.cells if cell.default}


SHIPPED = planned((ROOT / "env.yaml").read_text())


def test_the_shipped_file_selects_four_images_and_refuses_nothing() -> None:
    assert images(SHIPPED) == {
        "cpu": "torch2.13.0-cpu-py311-debian12-amd64",
        "rtx3080ti": "torch2.14.1-cu130-py311-debian12-amd64",
        "rtx4090": "torch2.14.1-cu130-py311-debian12-amd64",
        "a100": "torch2.14.1-cu130-py311-debian12-amd64",
        "h100": "torch2.14.1-cu130-py311-debian12-amd64",
        "v100": "torch2.10.0-cu128-py311-debian12-amd64",
        "rtx5090": "torch2.15.0-cu132-py312-ubuntu24.04-amd64",
    }
    assert len(SHIPPED.images) == 4
    assert all(cell.state is not CellState.REFUSED for cell in SHIPPED.cells)


def test_an_image_says_what_its_wheel_is() -> None:
    shared = SHIPPED.image("torch2.14.1-cu130-py311-debian12-amd64")
    assert (shared.torch_requirement, shared.cuda, shared.index, shared.blas) == ("2.14.1", "13.0", "pypi", "mkl")
    assert shared.sass == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    cpu = SHIPPED.image("torch2.13.0-cpu-py311-debian12-amd64")
    assert (cpu.torch_requirement, cpu.cuda, cpu.cudnn, cpu.sass) == ("2.13.0+cpu", None, None, ())
    assert (cpu.index, cpu.driver_require) == ("pytorch-cpu", "")


def test_who_shares_an_image_is_known() -> None:
    assert SHIPPED.sharers("torch2.14.1-cu130-py311-debian12-amd64") == ("rtx3080ti", "rtx4090", "a100", "h100")


def test_a_refused_cell_is_in_the_plan_with_reason_place_and_a_way_on() -> None:
    plan = planned(HEAD + SOFTWARE + 'hardware:\n  v100: {gpu: v100, cuda: "13.0"}\n  a100: {gpu: a100}\n')
    refused = plan.cell("v100")
    assert refused is not None
    assert (refused.state, refused.image) == (CellState.REFUSED, "")
    error = resolve.refusal(refused)
    assert error.code is Exit.INPUT
    assert "gpu-code" in error.what
    assert error.where.startswith("env.yaml:5:")
    assert error.hint
    assert images(plan)["a100"]


def test_an_old_driver_at_the_site_refuses_the_cell() -> None:
    plan = planned(
        HEAD + SOFTWARE + 'sites: {x: {driver: "550.54.15"}}\nhardware: {a100: {gpu: a100, site: x, cuda: "13.0"}}\n'
    )
    refused = plan.cells[0]
    assert refused.state is CellState.REFUSED
    assert "580" in resolve.refusal(refused).what


def test_auto_takes_another_line_where_the_driver_is_old() -> None:
    plan = planned(HEAD + SOFTWARE + 'sites: {x: {driver: "550.54.15"}}\nhardware: {a100: {gpu: a100, site: x}}\n')
    assert images(plan) == {"a100": "torch2.14.1-cu126-py311-debian12-amd64"}


def test_python_of_another_distribution_is_refused_and_a_standalone_one_is_not() -> None:
    text = HEAD + 'software: {{torch: "2.14.1", python: {}}}\nhardware: {{a100: {{gpu: a100}}}}\n'
    assert planned(text.format('"3.12"')).cells[0].state is CellState.REFUSED
    plan = planned(text.format('{version: "3.12", from: standalone}'))
    assert images(plan) == {"a100": "torch2.14.1-cu130-py312-standalone-debian12-amd64"}
    assert images(planned(text.format("auto"))) == {"a100": "torch2.14.1-cu130-py311-debian12-amd64"}


def test_an_entry_with_its_own_packages_has_its_own_image() -> None:
    plan = planned(
        HEAD + SOFTWARE + "packages: {apt: [git]}\nhardware:\n"
        "  a: {gpu: a100}\n  b: {gpu: a100, packages: {apt: [git]}}\n"
        "  c: {gpu: a100, packages: {apt: [tmux], name: video}}\n"
        "  d: {gpu: a100, env: {A: 1}}\n  e: {gpu: h100, env: {A: 1}}\n  f: {gpu: a100, env: {A: 2}}\n"
    )
    found = images(plan)
    assert found["a"] == found["b"]
    assert found["c"] == found["a"] + "-video"
    assert found["d"] == found["e"]
    assert len({found[name] for name in "acdf"}) == 4


def test_a_base_of_kind_image_and_partners_are_in_the_id() -> None:
    plan = planned(
        HEAD + 'software: {torch: "2.14.1", torchvision: auto, base: {from: image, ref: "debian:12-slim"}}\n'
        "hardware: {a100: {gpu: a100}}\n"
    )
    assert plan.images[0].id.startswith("torch2.14.1-vision0.29.1-cu130-py311-debian12-image")
    assert plan.images[0].pairs == (("torchvision", "0.29.1"),)


def test_one_image_for_two_gpus_has_code_for_both() -> None:
    plan = planned(HEAD + SOFTWARE + "hardware: {both: {gpu: [a100-sxm4-40gb, h100]}}\n")
    assert plan.cells[0].compute_capability == ("8.0", "9.0")
    assert plan.cells[0].image


def test_a_source_build_names_its_cpu_arch_list_and_flags() -> None:
    plan = planned(
        HEAD
        + SOFTWARE
        + "hardware: {a100: {gpu: a100, build: source, blas: openblas}}\nsource: {flags: {USE_MPI: 0}}\n"
    )
    image = plan.images[0]
    assert image.source is not None
    assert (image.source.ref, image.source.cpu, image.source.arch_list) == ("v2.14.1", "x86-64-v3", ("8.0",))
    assert image.id.startswith("torch2.14.1-cu1")
    assert "-src-openblas-x86-64-v3-sm80-" in image.id


def test_an_allowed_rule_does_not_refuse_and_is_shown() -> None:
    text = HEAD + SOFTWARE + 'hardware: {v100: {gpu: v100, cuda: "13.0"}, a100: {gpu: a100}}\n'
    refused = planned(text).cells[0]
    broken = [v.rule for v in refused.verdicts if not v.ok]
    allow = "".join(f"  - {{rule: {rule}, hardware: v100, reason: by hand}}\n" for rule in broken)
    plan = planned(text + "allow:\n" + allow)
    assert plan.cells[0].state is not CellState.REFUSED
    assert {v.allowed for v in plan.cells[0].verdicts if v.rule in broken} == {"by hand"}
    image = refused.candidate.id if refused.candidate else ""
    by_image = "".join(f"  - {{rule: {rule}, image: {image}, reason: by hand}}\n" for rule in broken)
    assert planned(text + "allow:\n" + by_image).cells[0].image.startswith(f"{image}-allowed")


def test_an_allow_for_no_image_is_told() -> None:
    with pytest.raises(YardError, match="no cell selects the image") as caught:
        planned(
            HEAD + SOFTWARE + "hardware: {a: {gpu: a100}}\n"
            "allow: [{rule: cudnn-gpu, image: torch2.14.1-cu131-py311-debian12-amd64, reason: x}]\n"
        )
    assert caught.value.hint == "did you mean 'torch2.14.1-cu130-py311-debian12-amd64'?"


FLEET = [
    "p100",
    "v100-sxm2-16gb",
    "t4",
    "rtx-3090",
    "rtx-3080-ti",
    "a10",
    "a100-sxm4-40gb",
    "rtx-4090",
    "l40s",
    "h100-sxm5-80gb",
    "b200",
    "rtx-5090",
]


def fleet() -> str:
    """Twelve GPUs, three torch lines, wheel and source, two distributions: 144 cells and more."""
    entries = "".join(f"  g{number}: {{gpu: {gpu}}}\n" for number, gpu in enumerate(FLEET))
    return (
        HEAD + f"hardware:\n{entries}  cpu: {{}}\n  more: {{gpu: h100, packages: {{apt: [git], name: more}}}}\n"
        "software: {torch: '2.14.1', python: auto}\n"
        "matrix:\n  torch: ['2.14.1', '2.10.0', '2.7.1']\n  build: [wheel, source]\n"
        "  base: [{from: archive, os: debian-12}, {from: archive, os: ubuntu-24.04}]\n"
    )


def test_images_of_a_fleet_are_shared_where_they_are_equal_and_only_there() -> None:
    plan = planned(fleet())
    assert len(plan.cells) == 14 * 12
    assert len({image.id for image in plan.images}) == len(plan.images)
    assert len({repr(replace(image, id="")) for image in plan.images}) == len(plan.images)
    assert {cell.image for cell in plan.cells if cell.image} == {image.id for image in plan.images}
    wheels = {cell.image for cell in plan.cells if "-src-" not in cell.image and cell.image}
    assert len(wheels) < sum(bool(cell.image) for cell in plan.cells) / 3
    assert all(resolve.refusal(cell).what for cell in plan.cells if cell.state is CellState.REFUSED)


def test_planning_twice_gives_the_same() -> None:
    assert planned(fleet()) == planned(fleet())


@pytest.mark.parametrize("text", [(ROOT / "env.yaml").read_text(), fleet()], ids=["shipped", "fleet"])
def test_matrix_json_fits_its_committed_schema(text: str) -> None:
    document = matrix_verb.document(planned(text))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    cells = {(c["hardware"], *c["choice"].items()): c["image"] for c in document["cells"]}
    for image in document["images"]:
        assert all(cells[(c["hardware"], *c["choice"].items())] == image["id"] for c in image["cells"])


def test_matrix_json_of_the_shipped_file_is_the_promised_one() -> None:
    golden = ROOT / "tests" / "golden" / "matrix" / "expected.json"
    said = json.dumps(matrix_verb.document(SHIPPED), indent=2) + "\n"
    if os.environ.get("ACCEPT"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(said)
    assert said == golden.read_text()


def test_the_table_says_who_shares_an_image() -> None:
    row = matrix_verb.rows(SHIPPED)[3]
    assert (row.hardware, row.shared_with, row.state) == ("a100", ("rtx3080ti", "rtx4090", "h100"), CellState.OK)


def test_a_ci_matrix_has_one_job_for_each_changed_image() -> None:
    changed = ["torch2.14.1-cu130-py311-debian12-amd64"]
    assert matrix_verb.ci(SHIPPED, changed, "github") == {"include": [{"image": changed[0], "gpu": "rtx3080ti"}]}
    assert matrix_verb.ci(SHIPPED, changed, "gitlab") == {
        "parallel": {"matrix": [{"IMAGE": changed[0], "GPU": "rtx3080ti"}]}
    }


def test_an_overruled_rule_is_in_the_id_and_the_image_and_leaves_others_alone() -> None:
    text = """
schema: 1
project: p
hardware:
  old: {gpu: v100-sxm2-16gb}
  new: {gpu: a100-sxm4-40gb}
software: {torch: "2.14.1", base: {from: archive, os: debian-12}, python: "3.11", cuda: "13.0"}
"""
    known = catalog.load()
    refused = resolve.plan(matrix.parse(text, known=resolve.names(known)), known).cells[0]
    broken = {v.rule for v in refused.verdicts if not v.ok}
    assert "gpu-code" in broken
    text += "allow:\n" + "".join(
        f"  - {{rule: {rule}, hardware: old, reason: a build of our own}}\n" for rule in broken
    )
    made = resolve.plan(matrix.parse(text, known=resolve.names(known)), known)
    old, new = made.cells
    assert (old.state, new.state) == (CellState.OK, CellState.OK)
    assert ("gpu-code", "a build of our own") in made.image(old.image).allowed
    assert made.image(new.image).allowed == ()
    assert old.image.startswith(f"{new.image}-allowed")
