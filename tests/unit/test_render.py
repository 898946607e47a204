"""The recipe: what is written for a lock, that hostile values stay values, and what drift is called."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lock_samples import ID, image, lock, package, wheel

from torchyard import catalog, matrix, render, resolve
from torchyard import lock as locking
from torchyard.errors import InputError
from torchyard.matrix import fragment
from torchyard.plan import Base, BaseKind, PackageSet, Plan
from torchyard.world import workspace

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden").glob("render-*"))
DOCKERFILES = sorted((ROOT / "images").glob("*/Dockerfile"))
HADOLINT = ROOT / ".venv" / "bin" / "hadolint"
HOSTILE = {
    "QUOTES": "\"'",
    "DOLLAR": "$HOME ${PATH} ${PATH:-x} $$ $(id)",
    "BACKSLASH": "a\\b\\\\c\\n",
    "TRAILING": "ends with \\",
    "TRAILING_TWO": "ends with \\\\",
    "BACKTICK": "`id`",
    "BRACES": "{{ image.id }} {% if 1 %} {# x #}",
    "HASH": "# not a comment",
    "HEREDOC": "<<EOF",
    "SPACES": "  two  and	a tab  ",
    "LOOKALIKES": "\u201cquoted\u201d \uff04HOME \uff3c \u2028 \u00a0 \u200b",
    "FIRE": "\U0001f525",
    "EMPTY": "",
    "EQUALS": "a=b c=d",
    "INSTRUCTION": 'x" \\ RUN id',
}


def dockerfile(**packages: object) -> str:
    """The Dockerfile of an image with these packages."""
    made = lock(image=image(packages=PackageSet(**packages)))  # type: ignore[arg-type]
    return render.image_files(made, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]


def words(instruction: str, text: str) -> dict[str, str]:
    """The last NAME="value" list of this instruction, read as BuildKit's lexer reads double quotes.

    Within them a backslash takes the meaning of a quote, a dollar or a backslash (shell/lex.go, processDoubleQuote);
    before all else a backslash at the end of a line joins it with the next (parser.go).
    """
    joined = re.sub(r"\\[ \t]*\n", "", text)
    line = [each for each in joined.split("\n") if each.startswith(instruction + " ")][-1]
    found = {}
    rest = line.removeprefix(instruction + " ").strip(" ")
    while rest:
        match = re.match(r'([^=" ]+)="((?:\\.|[^"\\$])*)"(?: +|$)', rest)
        assert match, rest
        found[match[1]] = re.sub(r'\\(["$\\])', r"\1", match[2])
        rest = rest[match.end() :]
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_comes_back_as_it_was(name: str) -> None:
    text = dockerfile(env=((name, HOSTILE[name]),))
    assert words("ENV", text.split("FROM locked AS dev")[0])[name] == HOSTILE[name]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0")))
def test_a_quoted_value_is_one_word_in_which_nothing_is_expanded(value: str) -> None:
    assert words("ENV", f'ENV A={render.dockerfile_quote(value)} B=""\n') == {"A": value, "B": ""}


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\0"])
def test_a_line_break_in_a_value_is_refused(value: str) -> None:
    with pytest.raises(InputError) as caught:
        dockerfile(env=(("A", value),))
    assert caught.value.hint


def test_a_fragment_is_taken_to_the_letter_and_comes_after_everything_else() -> None:
    text = 'ENV A="{{ image.id }}" B="${HOME}" \\\n    C=1\n# {% end %}\n\n\n'
    whole = dockerfile(extend=text)
    locked, _, targets = whole.partition("FROM locked AS dev")
    assert locked.endswith('/sealed"]\n' + text.rstrip("\n") + '\nSHELL ["/bin/sh", "-c"]\n\n')
    assert "{{ image.id }}" not in targets


@pytest.mark.parametrize(
    ("step", "sealed"),
    [
        ("RUN true", "RUN {} true"),
        ("  run  a \\\n  && b", "  run {}  a \\\n  && b"),
        ("RUN \\\n  a", "RUN {} \\\n  a"),
        ("RUN <<EOF\nRUN x\nEOF", "RUN {} <<EOF\nRUN x\nEOF"),
        ("COPY <<EOF /x\nRUN y\nEOF", "COPY <<EOF /x\nRUN y\nEOF"),
        ("# RUN x\nENV RUN=1", "# RUN x\nENV RUN=1"),
    ],
)
def test_each_step_of_a_fragment_reaches_what_seals_it_and_nothing_else_is_touched(step: str, sealed: str) -> None:
    assert fragment.sealed(step) == sealed.format("--network=none --mount=type=bind,from=steps,target=/run/yard/steps")


def test_users_packages_are_a_step_of_their_own_only_where_there_are_some() -> None:
    with_some = lock(os=(package("bash", "base"), package("git", "user")))
    text = render.image_files(with_some, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]
    assert "from=debs-user" in text and "from=debs-user" not in dockerfile()
    assert "debs-user" in render.contexts(with_some) and "debs-user" not in render.contexts(lock())


@pytest.mark.parametrize("extend", ["", "RUN a \\\n  && b\nENV X=1\nRUN <<EOF\nRUN x\nEOF\n"], ids=["plain", "extend"])
@pytest.mark.parametrize("os", [(), (package("git", "user"),)], ids=["plain", "user-packages"])
def test_every_step_before_the_targets_has_a_title(os: tuple[object, ...], extend: str) -> None:
    made = lock(os=os, image=image(packages=PackageSet(extend=extend)))
    assert not extend or render.step_titles(made)[-2:] == ["extend: a && b", "extend: <<EOF RUN x EOF"]
    text = render.image_files(made, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]
    assert len(render.step_titles(made)) == text.split("FROM locked AS dev")[0].count("\nRUN --")


def test_every_step_is_without_a_network_and_sealed() -> None:
    for step in re.findall(r"^RUN (?:.*\\\n)*.*$", dockerfile(apt=("git",)), re.MULTILINE):
        assert step.startswith("RUN --network=none ")
        assert step.endswith("sh /run/yard/steps/seal")


def test_no_gpu_and_no_place_is_named() -> None:
    text = dockerfile()
    assert not re.search(r"a100|h100|rtx|v100|://|ENTRYPOINT|# syntax", text, re.IGNORECASE)


def test_every_named_context_that_a_step_uses_is_given_to_its_target() -> None:
    made = lock(os=(package("git", "user"), package("gdb", "dev")))
    text = render.image_files(made, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]
    bake = json.loads(render.bake([made], Plan(project="a", cells=(), images=(made.image,))))
    target = bake["target"][render.target_name(ID) + "-dev"]
    assert set(re.findall(r"from=([\w-]+)", text)) | {"base"} == set(target["contexts"])


def test_the_runtime_target_is_not_given_what_only_dev_uses() -> None:
    bake = json.loads(render.bake([lock()], Plan(project="a", cells=(), images=())))
    runtime = bake["target"][render.target_name(ID)]
    assert not [name for name in runtime["contexts"] if name.endswith("-dev")]
    assert runtime["args"] == {"SOURCE_DATE_EPOCH": str(lock().epoch)}
    assert runtime["tags"] == [f"a:{ID}"]


def test_two_ids_have_two_targets_and_no_dev_target_is_another_images_runtime() -> None:
    ids = [f"torch2.14.1-cu130-py311-debian12-amd64{end}" for end in ("", "-nlp", "-imagedev")]
    names = [render.target_name(each) for each in ids]
    assert len({*names, *(f"{name}-dev" for name in names)}) == 2 * len(ids)


@pytest.mark.parametrize("name", ["dev", "nlp-dev"])
def test_a_package_set_cannot_take_the_name_of_the_dev_target(name: str) -> None:
    text = f'schema: 1\nproject: a\nsoftware: {{torch: "2.13.0"}}\nhardware: {{cpu: {{packages: {{name: {name}}}}}}}\n'
    with pytest.raises(InputError, match="dev target"):
        matrix.parse(text, known=resolve.names(catalog.load()))


def test_a_broken_template_is_told_with_its_place() -> None:
    def template(name: str) -> str | None:
        return "{{ image.nothing }}" if name == "Dockerfile.j2" else workspace.packaged_template(name)

    with pytest.raises(InputError) as caught:
        render.image_files(lock(), template)
    assert caught.value.where.startswith("templates/Dockerfile.j2") and caught.value.hint


def test_a_template_that_is_not_there_is_told() -> None:
    with pytest.raises(InputError) as caught:
        render.image_files(lock(), lambda name: None)
    assert caught.value.hint


def test_drift_says_what_is_missing_too_many_and_other() -> None:
    one, two, three = (PurePosixPath(name) for name in "abc")
    said = render.drift({one: "1", two: "2"}, {one: "x", three: "3"})
    assert said == [
        "a: differs from what its lock and template make",
        "b: missing",
        "c: not made from env.yaml any more",
    ]
    assert render.drift({one: "1"}, {one: "1", two: None}) == []


def test_a_base_from_a_registry_is_named_in_the_recipe() -> None:
    made = lock(image=image(base=Base(kind=BaseKind.IMAGE, os="debian-12", ref="debian:12-slim")))
    text = render.image_files(made, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]
    assert "debian:12-slim (debian-12)" in text


def test_a_dev_target_without_nvcc_has_no_cuda_home() -> None:
    cpu = lock(image=image(cuda=None, cuda_tag="cpu"), dev_wheels=(wheel("py-spy"),))
    text = render.image_files(cpu, workspace.packaged_template)[PurePosixPath(f"images/{ID}/Dockerfile")]
    assert "CUDA_HOME" not in text and "NVIDIA" not in text


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_recipe_is_what_was_agreed(folder: Path) -> None:
    known = catalog.load()
    text = (folder / "env.yaml").read_text()
    files = {name: (folder / name).read_text() for name in matrix.needed_files(text)}
    plan = resolve.plan(matrix.parse(text, files=files, known=resolve.names(known)), known)
    made = locking.from_text((folder / "lock.yaml").read_text(), name="lock.yaml")
    assert [each.id for each in plan.images] == [made.id]
    assert plan.images[0].packages == made.image.packages
    written = {**render.image_files(made, workspace.packaged_template), **render.shared_files([made], plan)}
    seen = {path.name: content for path, content in written.items()}
    expected = folder / "expected"
    if os.environ.get("ACCEPT"):
        expected.mkdir(exist_ok=True)
        for path in expected.iterdir():
            path.unlink()
        for name, content in seen.items():
            (expected / name).write_text(content)
    assert seen == {path.name: path.read_text() for path in expected.iterdir()}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_hadolint_has_nothing_to_say_of_a_committed_recipe(path: Path) -> None:
    assert lint(path.read_text()) == []


def test_hadolint_reads_what_is_made_of_hostile_values() -> None:
    misread = {
        "TRAILING",
        "TRAILING_TWO",
        "DOLLAR",
    }  # by hadolint; BuildKit's reading is in tests/docker/test_render_env.py
    assert lint(dockerfile(env=tuple((name, HOSTILE[name]) for name in sorted(HOSTILE.keys() - misread)))) == []


def test_at_most_three_kinds_of_findings_are_ignored_each_with_a_reason_before_it() -> None:
    lines = [line for path in (ROOT / "templates").rglob("*.j2") for line in numbered(path)]
    ignored = [(before, line) for before, line in lines if "hadolint" in line]
    assert len({line for _, line in ignored}) <= 3
    assert all(before.startswith("# ") for before, _ in ignored)


def numbered(path: Path) -> list[tuple[str, str]]:
    """Each line of a template with the one before it."""
    found = path.read_text().splitlines()
    return list(zip(["", *found], found))


def lint(text: str) -> list[str]:
    """What hadolint says of a Dockerfile."""
    done = subprocess.run([HADOLINT, "--format", "json", "-"], input=text, capture_output=True, text=True, check=False)
    return [f"{each['line']} {each['code']} {each['message']}" for each in yaml.safe_load(done.stdout or "[]")]
