"""Which libraries each verb loads: what starts fast stays so, because nobody can load more without saying it here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Everything that costs more than a few milliseconds to import.
COSTLY = (
    "asyncio", "deflate", "docker", "hypothesis", "installer", "isal", "jinja2", "multiprocessing", "packaging",
    "pydantic", "requests", "rich", "ssl", "torch", "urllib3", "uv", "yaml", "zstandard",
)  # fmt: skip
OURS = ("torchyard.catalog", "torchyard.explain", "torchyard.render", "torchyard.resolve", "torchyard.verbs.lock",
        "torchyard.world.archive", "torchyard.world.engine", "torchyard.world.wheels")  # fmt: skip
INVOKE = {"asyncio", "ssl", "yaml"}  # invoke itself loads these
PLAN = INVOKE | {"torchyard.catalog", "torchyard.explain", "torchyard.resolve"}
PIP = {"packaging"}  # where env.yaml names requirements
LOADED = {
    ("--list",): INVOKE,
    ("--version",): INVOKE,
    ("matrix",): PLAN | PIP,
    ("matrix", "--json"): PLAN | PIP,
    ("render", "--check"): PLAN | PIP | {"jinja2", "torchyard.render"},
    ("explain", "--gpu", "h100", "--cuda", "11.7"): PLAN,
}
PROGRAM = """
import json, sys
from torchyard.__main__ import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(set(json.loads(sys.argv[1])) & set(sys.modules))))
"""


@pytest.mark.parametrize("words", LOADED, ids=" ".join)
def test_a_verb_loads_what_it_needs_and_no_more(words: tuple[str, ...]) -> None:
    asked = json.dumps([*COSTLY, *OURS])
    argv = [sys.executable, "-c", PROGRAM, asked, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.splitlines()[-1])) == LOADED[words], done.stderr
