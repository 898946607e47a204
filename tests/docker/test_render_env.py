"""The ENV lines of a recipe, read by the engine's own parser: what env.yaml says is what the image has."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest

from torchyard import render
from torchyard.world import engine, process

pytestmark = pytest.mark.docker
VALUES = {
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
    "CONTROL": "\x01\x1b[31m\x7f\x85",
    "EMPTY": "",
    "EQUALS": "a=b c=d",
    "INSTRUCTION": 'x" \\ RUN id',
}


def test_every_value_is_in_the_image_as_it_was_written(tmp_path: Path) -> None:
    lines = " \\\n    ".join(f"{name}={render.dockerfile_quote(value)}" for name, value in VALUES.items())
    (tmp_path / "Dockerfile").write_text(f"FROM scratch\nENV {lines}\nCOPY Dockerfile /\n", encoding="utf-8")
    found = engine.ensure(lambda text: print(text, file=sys.stderr))
    tag = f"torchyard-test-env:{uuid.uuid4().hex}"
    try:
        process.run([*found.buildx, "build", "--output", "type=docker", "--tag", tag, str(tmp_path)], env=found.env)
        told = process.run([*found.docker, "image", "inspect", "--format", "{{json .Config.Env}}", tag], env=found.env)
        seen = dict(pair.split("=", 1) for pair in json.loads(told.out))
        assert {name: seen.get(name) for name in VALUES} == VALUES
    finally:
        process.run([*found.docker, "image", "rm", "--force", tag], env=found.env, check=False)
