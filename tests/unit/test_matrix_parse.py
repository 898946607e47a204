"""What env.yaml says becomes values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from torchyard import catalog, matrix, resolve
from torchyard.errors import YardError
from torchyard.matrix import Budget, Matrix, describe, keys
from torchyard.plan import BaseKind, BuildKind

ROOT = Path(__file__).parents[2]
HEAD = 'schema: 1\nproject: acme\nsoftware: {torch: "2.14.1"}\n'
HARDWARE = "hardware: {a: {gpu: a100}, b: {gpu: h100}}\n"
SCHEMA: dict[str, Any] = json.loads((ROOT / "schema" / "env.schema.json").read_text())


def parsed(rest: str, **files: str) -> Matrix:
    """The matrix of the usual head and this."""
    return matrix.parse(HEAD + rest, files={name.replace("__", "."): text for name, text in files.items()})


def refused(rest: str, **files: str) -> list[str]:
    """What is said of the usual head and this."""
    with pytest.raises(YardError) as caught:
        parsed(rest, **files)
    return [each.what for each in caught.value.problems()]


def test_the_shipped_file_is_right() -> None:
    made = matrix.parse((ROOT / "env.yaml").read_text())
    assert [cell.hardware.name for cell in made.cells] == [
        "cpu", "rtx3080ti", "rtx4090", "a100", "h100", "v100", "rtx5090",
    ]  # fmt: skip


def test_the_committed_schema_and_page_are_the_generated_ones() -> None:
    assert (ROOT / "schema" / "env.schema.json").read_text() == describe.schema_text()
    assert (ROOT / "docs" / "env.md").read_text() == describe.page()


def test_the_schema_validates_the_shipped_file() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(yaml.safe_load((ROOT / "env.yaml").read_text()), SCHEMA)


def test_the_schema_marks_each_mistake_of_the_case_with_twelve() -> None:
    text = (ROOT / "tests" / "bad" / "twelve-mistakes" / "env.yaml").read_text()
    marked = {
        "/".join(map(str, e.absolute_path))
        for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text))
    }
    assert marked >= {
        "schema", "project", "sites/lab/driver", "sites/lab/registry", "hardware/a100/count", "software/torch",
        "software/python", "software/build", "packages/apt/0", "packages/apt/1",
    }  # fmt: skip


SITES = 'sites: {desk: {driver: "580.65.06"}, lab: {}}\n'
FILES = {"requirements.txt": "numpy\n", "extend.Dockerfile": "RUN true\n", "extend-a100.Dockerfile": ""}


def examples() -> list[tuple[str, str]]:
    """Each key that has an example, as path, with a file that holds the example there."""
    start = "schema: 1\nproject: acme\n"
    entries = "hardware: {v100: {gpu: v100}, h100: {gpu: h100}}\n"
    torch = 'software: {torch: "2.14.1"}\n'
    whole = ("schema", "project", "hardware", "software", "sites")
    found = [
        (f"sites.x.{k.name}", HEAD + HARDWARE + f"sites: {{x: {{{k.name}: {k.example}}}}}\n") for k in keys.SITE.keys
    ]
    for key in keys.HARDWARE.keys:
        gpu = "" if key.name == "gpu" else "gpu: a100, "
        found.append(
            (f"hardware.x.{key.name}", HEAD + SITES + f"hardware: {{x: {{{gpu}{key.name}: {key.example}}}}}\n")
        )
    for key in keys.SOFTWARE:
        more = "" if key.name == "torch" else ', torch: "2.14.1"'
        found.append((f"software.{key.name}", start + entries + f"software: {{{key.name}: {key.example}{more}}}\n"))
    found += [(f"source.{k.name}", HEAD + HARDWARE + f"source: {{{k.name}: {k.example}}}\n") for k in keys.SOURCE.keys]
    found += [
        (k.name, start + entries + torch + f"{k.name}: {k.example}\n") for k in keys.FILE.keys if k.name not in whole
    ]
    return found


@pytest.mark.parametrize(("path", "text"), examples(), ids=lambda value: value if "\n" not in value else "")
def test_every_example_of_the_docs_is_taken(path: str, text: str) -> None:
    if path.endswith("exclude"):
        text = text.replace("matrix: {", "matrix: {build: [wheel, source], ")
    matrix.parse(text, files=FILES)
    jsonschema.validate(yaml.safe_load(text), SCHEMA)


def test_an_entry_goes_over_the_file_key_by_key() -> None:
    made = parsed(
        "packages: {apt: [tmux, git], pip: [numpy]}\n"
        "env: {A: 1, B: two}\n"
        "source: {cpu: x86-64-v3, flags: {USE_NCCL: 1, USE_MKLDNN: 0}}\n"
        "hardware:\n"
        "  a: {gpu: a100}\n"
        "  b:\n"
        "    gpu: [h100, b200]\n"
        "    torch: 2.15.0\n"
        '    base: {from: image, ref: "ubuntu:24.04"}\n'
        '    python: {version: "3.12", from: standalone}\n'
        "    packages: {apt: [ffmpeg]}\n"
        "    env: {B: , C: '3'}\n"
        "    source: {flags: {USE_NCCL: 0}}\n"
    )
    a, b = made.cells
    assert a.packages == made.packages
    assert (a.packages.apt, a.packages.pip, a.packages.env) == (("git", "tmux"), ("numpy",), (("A", "1"), ("B", "two")))
    assert (b.packages.apt, b.packages.pip, b.packages.env) == (("ffmpeg",), ("numpy",), (("A", "1"), ("C", "3")))
    assert (b.software.torch, b.software.base.kind, b.software.base.os) == ("2.15.0", BaseKind.IMAGE, "ubuntu-24.04")
    assert (b.software.python, b.software.python_from) == ("3.12", "standalone")
    assert (b.source.cpu, b.source.flags) == ("x86-64-v3", (("USE_MKLDNN", "0"), ("USE_NCCL", "0")))
    assert b.hardware.gpus == ("h100", "b200")


def test_an_entry_that_says_the_same_has_the_default_set() -> None:
    made = parsed("packages: {apt: [git]}\nhardware: {a: {gpu: a100, packages: {apt: [git], name: own}}}\n")
    assert made.cells[0].packages == made.packages


def test_an_entry_without_a_gpu_is_a_cpu() -> None:
    made = matrix.parse('schema: 1\nproject: a\nsoftware: {torch: "2.13.0", cuda: "13.0"}\nhardware: {cpu: {}}\n')
    assert (made.cells[0].software.cuda, made.cells[0].hardware.gpus) == ("cpu", ())


def test_a_site_gives_its_driver_and_an_entry_has_its_own() -> None:
    made = parsed(
        'sites: {x: {driver: "580.65.06"}}\n'
        'hardware: {a: {gpu: a100, site: x}, b: {gpu: h100, site: x, driver: "595.71.05"}}\n'
    )
    assert [cell.hardware.driver for cell in made.cells] == ["580.65.06", "595.71.05"]


def test_a_budget_goes_over_the_files_key_by_key_and_the_least_of_sharers_holds() -> None:
    made = parsed(
        'budget: {layer: "1.5 GB", image: 8 GB}\n'
        'hardware: {a: {gpu: a100}, b: {gpu: a100, budget: {image: "900MB"}}, c: {gpu: h100, budget: {layer: 2 TB}}}\n'
    )
    assert made.budget_of(["a"]) == Budget(layer=1_500_000_000, image=8_000_000_000)
    assert made.budget_of(["a", "b", "c"]) == Budget(layer=1_500_000_000, image=900_000_000)
    assert made.budget_of(["c"]).layer == 2_000_000_000_000
    assert parsed(HARDWARE).budget_of(["a", "b"]) == Budget()


def test_a_budget_changes_no_image() -> None:
    known = catalog.load()
    plain, tight = (resolve.plan(parsed(rest + HARDWARE), known) for rest in ("", "budget: {image: 1 MB}\n"))
    assert plain.images == tight.images


def test_axes_make_a_cell_of_each_combination_and_the_first_is_the_default() -> None:
    made = parsed(HARDWARE + "matrix: {build: [wheel, source], blas: [auto, openblas]}\n")
    assert [(c.hardware.name, dict(c.choice)["build"], dict(c.choice)["blas"], c.default) for c in made.cells] == [
        (name, build, blas, (build, blas) == ("wheel", "auto"))
        for name in "ab" for build in ("wheel", "source") for blas in ("auto", "openblas")
    ]  # fmt: skip


def test_exclude_and_include_work_as_in_ci() -> None:
    made = parsed(
        HARDWARE
        + "matrix:\n  build: [wheel, source]\n  exclude: [{hardware: a, build: source}, {hardware: b, build: wheel}]\n"
        '  include: [{hardware: a, torch: "2.15.0"}]\n'
    )
    assert [(c.hardware.name, c.software.build, c.software.torch, c.default) for c in made.cells] == [
        ("a", BuildKind.WHEEL, "2.14.1", True),
        ("a", BuildKind.WHEEL, "2.15.0", False),
        ("b", BuildKind.SOURCE, "2.14.1", True),
    ]


def test_a_key_that_an_entry_sets_is_not_varied_for_it() -> None:
    made = parsed(
        'hardware: {a: {gpu: a100}, v: {gpu: v100, torch: "2.10.0"}}\nmatrix: {torch: ["2.14.1", "2.15.0"]}\n'
    )
    assert [(c.hardware.name, c.software.torch) for c in made.cells] == [
        ("a", "2.14.1"),
        ("a", "2.15.0"),
        ("v", "2.10.0"),
    ]


def test_a_number_is_a_name_and_a_value_of_a_variable() -> None:
    made = parsed("hardware: {4090: {gpu: 4090}}\nenv: {OMP_NUM_THREADS: 8}\n")
    assert (made.cells[0].hardware.name, made.cells[0].hardware.gpus, made.packages.env) == (
        "4090",
        ("4090",),
        (("OMP_NUM_THREADS", "8"),),
    )


@pytest.mark.parametrize(
    "text", ["$HOME", "a'b\"c", "back\\slash", "{{ x }}", "${A:-b}", "`id`", "a;b|c&d", "%s", "ünï", " "]
)
def test_the_value_of_a_variable_stays_as_it_is(text: str) -> None:
    assert parsed(HARDWARE + f"env: {{A: {json.dumps(text)}}}\n").packages.env == (("A", text),)


def test_an_empty_block_is_a_key_that_is_not_given() -> None:
    made = parsed(HARDWARE + "matrix:\nsites:\nsource:\npackages:\nenv:\nextend:\nallow:\n")
    assert (made.packages.apt, made.sites, made.allow) == ((), (), ())


def test_needed_files_are_named_once_and_given_back_as_text() -> None:
    text = (
        HEAD
        + HARDWARE.replace("h100}", "h100, packages: {pip: more.txt}}")
        + "packages: {pip: r.txt}\nextend: x.Dockerfile\n"
    )
    assert matrix.needed_files(text) == ("more.txt", "r.txt", "x.Dockerfile")
    made = matrix.parse(text, files={"r.txt": "b\na==1 # why\n\n", "more.txt": "c", "x.Dockerfile": "RUN true"})
    assert (made.packages.pip, made.packages.extend, made.cells[1].packages.pip) == (
        ("a==1", "b"),
        "RUN true\n",
        ("c",),
    )


@pytest.mark.parametrize("text", ["", "- a", "a: *x", "packages: {pip: ../x}", "hardware: {a: 1}"])
def test_needed_files_of_a_wrong_file_are_none(text: str) -> None:
    assert matrix.needed_files(text) == ()


@pytest.mark.parametrize("line", ["torch==", "torch @ file:x.whl", "-e .", "--index-url http://x", "-r more.txt"])
def test_a_requirement_that_cannot_be_locked_is_told(line: str) -> None:
    assert len(refused(HARDWARE + "packages: {pip: r.txt}\n", r__txt=line + "\n")) == 1
    assert len(refused(HARDWARE + f"packages: {{pip: [{json.dumps(line)}]}}\n")) == 1


@pytest.mark.parametrize("line", ["torch", " torch == 2.6.0 ", "numpy>=2,<3", "x[y]; python_version < '3.12'"])
def test_a_requirement_by_name_and_version_is_taken(line: str) -> None:
    assert len(parsed(HARDWARE + f"packages: {{pip: [{json.dumps(line)}]}}\n").packages.pip) == 1


@pytest.mark.parametrize(
    "fragment",
    [
        "RUN echo 'FROM here'\n", "# FROM x\nENV A=b\n", "COPY <<EOF /etc/x\nFROM inside a heredoc\nEOF\n",
        "RUN a \\\n  && b \\\n# a comment\n  && c\n", "RUN <<'EOS'\nCOPY is a word here\nEOS\n",
        "USER 1000\nWORKDIR /w\n",
        "run true\n", "",
    ],
)  # fmt: skip
def test_instructions_that_can_follow_are_taken(fragment: str) -> None:
    assert parsed(HARDWARE + "extend: f\n", f=fragment).packages.extend.rstrip("\n") == fragment.rstrip("\n")


@pytest.mark.parametrize(
    "fragment",
    [
        "FROM x", "from x", "COPY a b", "COPY --from=x:1 a b", "ADD http://x /y", "# syntax=docker/dockerfile:1",
        "# escape=`", "ENTRYPOINT x", "RUN --network=host true",
        "RUN --mount=type=bind,from=x:1 true", "RUN nvidia-smi",
        "FR\u043eM x", "RUN x\x00", "RUN a \\\nb\nFROM x", "RUN <<EOF\nx\nEOF\nFROM y", "RUN true\r\nENV A=b\r",
    ],
)  # fmt: skip
def test_instructions_that_break_the_image_are_refused(fragment: str) -> None:
    assert refused(HARDWARE + "extend: f\n", f=fragment + "\n")
