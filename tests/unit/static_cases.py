"""Recorded facts: of a good image whole, of a spoiled one what differs from the good one that it was made of."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from torchyard import catalog, lock
from torchyard.judge import static, static_facts
from torchyard.judge.static_case import Reference
from torchyard.judge.static_facts import ImageFacts

FOLDER = Path(__file__).parents[1] / "facts"
# The GPUs that select the recorded images, by the good case.
GPUS = {
    "static-good-cpu": (),
    "static-good-a100": (
        ("rtx-3080-ti", "8.6"),
        ("rtx-4090", "8.9"),
        ("a100-sxm4-40gb", "8.0"),
        ("h100-sxm5-80gb", "9.0"),
    ),
}


def names() -> list[str]:
    """The recorded cases."""
    return sorted(path.name for path in FOLDER.glob("static-*"))


def facts(name: str) -> ImageFacts:
    """The facts of a recorded case."""
    return static_facts.from_data(data(name))


@cache
def data(name: str) -> dict[str, Any]:
    """The recorded data of a case."""
    whole = FOLDER / name / "facts.json"
    if whole.is_file():
        found: dict[str, Any] = json.loads(whole.read_text(encoding="utf-8"))
        return found
    changes = json.loads((FOLDER / name / "changes.json").read_text(encoding="utf-8"))
    return patched(data(changes["of"]), changes)


def good(name: str) -> str:
    """The good case that a case was made from."""
    changes = FOLDER / name / "changes.json"
    return str(json.loads(changes.read_text(encoding="utf-8"))["of"]) if changes.is_file() else name


def reference(name: str) -> Reference:
    """What a case is judged by."""
    return _reference(good(name))


@cache
def _reference(of: str) -> Reference:
    text = (FOLDER / of / "lock.yaml").read_text(encoding="utf-8")
    locked = lock.from_text(text, name=of)
    return Reference(
        lock=locked, gpus=GPUS[of], catalog=catalog.load(), budget=static.BUDGET, image_budget=static.IMAGE_BUDGET
    )


def changed(before: dict[str, Any], after: dict[str, Any], of: str) -> dict[str, Any]:
    """What has to be done to one case's data to have another's."""
    fields: dict[str, Any] = {}
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if isinstance(old, list) and isinstance(new, list):
            have, want = {json.dumps(x) for x in old}, {json.dumps(x) for x in new}
            fields[key] = {
                "less": [x for x in old if json.dumps(x) not in want],
                "more": [x for x in new if json.dumps(x) not in have],
            }
        else:
            fields[key] = {"now": new}
    return {"of": of, "fields": fields}


def patched(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A case's data with changes done to it."""
    after = dict(before)
    for key, change in changes["fields"].items():
        if "now" in change:
            after[key] = change["now"]
        else:
            less = {json.dumps(x) for x in change["less"]}
            after[key] = [x for x in before[key] if json.dumps(x) not in less] + change["more"]
    return {key: value for key, value in after.items() if value is not None}


def text(value: dict[str, Any]) -> str:
    """JSON with one item a line, so that differences can be read."""
    lines = []
    for key, item in sorted(value.items()):
        if isinstance(item, list) and item and not isinstance(item[0], str):
            inner = ",\n".join("  " + json.dumps(each) for each in item)
            lines.append(f" {json.dumps(key)}: [\n{inner}\n ]")
        elif isinstance(item, dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(item.items()))
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
