"""The schemas, as an editor or a script uses them: what is right passes, what is wrong is marked where it is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from torchyard import catalog, matrix, resolve
from torchyard.verbs import matrix as matrix_verb

ROOT = Path(__file__).resolve().parents[2]
BAD = ROOT / "tests" / "bad"
ENV = jsonschema.Draft202012Validator(json.loads((ROOT / "schema" / "env.schema.json").read_text()))
MATRIX = jsonschema.Draft202012Validator(json.loads((ROOT / "schema" / "matrix.schema.json").read_text()))
CATALOG = catalog.load()

# What a schema cannot see, and why; an editor marks the rest.
NOT_YAML = {"broken-pieces", "colon-in-value", "tabs", "tags", "template-braces", "two-documents"}
NOT_SEEN = {
    "duplicate-keys": "a loader keeps the last of them",
    "fragment": "another file",
    "missing-files": "other files",
    "requirements": "another file",
    "no-torch": "one of two places has it",
    "nothing-left": "it takes the cells laid out",
    "too-many-cells": "it takes the cells laid out",
    "references": "names are given elsewhere in the file",
    "same-set-name": "names are given elsewhere in the file",
    "switches": "the catalogue knows which switches go together",
}


def loaded(folder: Path) -> Any:
    return yaml.safe_load((folder / "env.yaml").read_bytes())


def marked(data: Any) -> set[str]:
    """The places that an editor marks, as paths of keys."""
    return {".".join(str(part) for part in error.absolute_path) for error in ENV.iter_errors(data)}


def told(folder: Path) -> set[str]:
    """The places that the tool names, in the same form."""
    places = re.findall(r"^\S+?:\d+(?::\d+)?(?:  (\S+))?$", (folder / "expected.txt").read_text(), re.MULTILINE)
    return {re.sub(r"\[(\d+)\]", r".\1", place) for place in places}


RIGHT = [ROOT / "env.yaml", *sorted((ROOT / "tests" / "golden").glob("*/env.yaml"))]


@pytest.mark.parametrize(
    "path", [*RIGHT, *sorted((ROOT / "tests" / "fuzz").glob("*.yaml"))], ids=lambda p: p.parent.name
)
def test_what_the_tool_takes_an_editor_does_not_mark(path: Path) -> None:
    assert marked(yaml.safe_load(path.read_text())) == set()


@pytest.mark.parametrize(
    "folder",
    [each for each in sorted(BAD.iterdir()) if each.name not in NOT_YAML | NOT_SEEN.keys()],
    ids=lambda folder: folder.name,
)
def test_an_editor_marks_what_is_wrong_and_nothing_else(folder: Path) -> None:
    places = {place for place in marked(loaded(folder)) if place.isprintable()}
    assert places
    named = told(folder)
    assert all("" in (place, *named) or any(f"{each}.".startswith(f"{place}.") for each in named) for place in places)


@pytest.mark.parametrize("name", NOT_SEEN)
def test_what_a_schema_cannot_see_is_not_seen(name: str) -> None:
    assert marked(loaded(BAD / name)) == set()


@pytest.mark.parametrize("name", sorted(NOT_YAML))
def test_what_is_no_plain_yaml_is_refused_by_every_loader(name: str) -> None:
    with pytest.raises(yaml.YAMLError):
        loaded(BAD / name)


def test_most_of_twelve_mistakes_are_marked() -> None:
    assert len(list(ENV.iter_errors(loaded(BAD / "twelve-mistakes")))) >= 9


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.parent.name)
def test_matrix_json_is_what_its_schema_says(path: Path) -> None:
    text = path.read_text()
    files = {name: (path.parent / name).read_text() for name in matrix.needed_files(text)}
    plan = resolve.plan(matrix.parse(text, files=files, known=resolve.names(CATALOG)), CATALOG)
    MATRIX.validate(json.loads(json.dumps(matrix_verb.document(plan))))
