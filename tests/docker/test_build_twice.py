"""The same bytes wherever and whenever: two clones, two engines, no network, plain docker; and again, quickly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone, Ended

pytestmark = pytest.mark.docker


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """What a second clone made: BuildKit's logs by hardware entry, the receipt of a100, and what `reproduce` said."""

    logs: dict[str, str]
    a100: dict[str, Any]
    built: Ended
    reproduced: Ended
    left: tuple[str, ...]  # engines of `reproduce` that were still there afterwards


@pytest.fixture(scope="session")
def elsewhere(place: Path, yard: Clone, cpu: dict[str, Any]) -> Iterator[Elsewhere]:
    """What a second clone made with engines of its own, in other surroundings: one build is without any network.

    It reproduces the CPU image, which its engine never had, by the receipt of the first clone, and builds what a100
    selects. Its engine is gone when the tests run, because two with these images need more disk than there may be.
    """
    clone = Clone(
        root=place / "second",
        engine=place / "engine-two",
        home=clones.new_home(place / "another home"),
        umask=0o077,
        env={"TZ": "Asia/Kathmandu", "LANG": "C", "LC_ALL": "POSIX"},
    )
    clones.copy_checkout(yard.root, clone.root, umask=clone.umask)
    clones.seed(clone, yard.store)
    clones.programs(yard.engine, clone.engine)
    try:
        clone.yard("engine", "--up").good()
        image, other = clone.image("cpu"), clone.image("a100")
        receipts = clone.root / ".torchyard" / "receipts"
        receipts.mkdir(parents=True)
        (receipts / f"{image}.json").write_text(json.dumps(cpu))
        reproduced = clone.yard("reproduce", "--gpu", "cpu", "--json")
        left = tuple(path.name for path in place.glob("reproduce-*"))
        argv = ["build", "--gpu", "a100", "--no-cache", "--level", "identity"]
        built = clone.yard(*argv, before=["unshare", "--net"]).good()
        made = Elsewhere(
            logs={"cpu": clone.log(image, verb="reproduce"), "a100": clone.log(other)},
            a100=clone.receipt(other),
            built=built,
            reproduced=reproduced,
            left=left,
        )
    finally:
        clone.yard("engine", "--down", "--purge").good()
        clones.end_tree(clone.root)
    yield made


def steps(log: str) -> dict[str, str]:
    """Every RUN of a build's log, with how it ended."""
    numbers = dict(re.findall(r"^#(\d+) \[[^]]*\] (RUN .*)$", log, re.MULTILINE))
    ends = dict(re.findall(r"^#(\d+) (DONE|CACHED)", log, re.MULTILINE))
    return {text: ends.get(number, "") for number, text in numbers.items()}


def test_two_clones_with_empty_engines_build_the_same_image(
    elsewhere: Elsewhere, yard: Clone, a100: dict[str, Any]
) -> None:
    """B116."""
    for each in (elsewhere.logs["a100"], yard.log(yard.image("a100"))):
        assert steps(each) and set(steps(each).values()) == {"DONE"}
    there = elsewhere.a100
    assert there["digest"].startswith("sha256:")
    assert there["layers"] == a100["layers"]
    assert there["digest"] == a100["digest"]
    assert there == a100


def test_an_image_is_reproduced_from_its_receipt_in_a_second_empty_engine(
    elsewhere: Elsewhere, yard: Clone, cpu: dict[str, Any]
) -> None:
    for each in (elsewhere.logs["cpu"], yard.log(yard.image("cpu"))):
        assert steps(each) and set(steps(each).values()) == {"DONE"}
    told = json.loads(elsewhere.reproduced.good().out)
    assert told["equal"] and told["by"] == "manifest digest" and told["compared"] is None
    assert told["builder"] == "a second private engine, empty before"
    assert told["first"]["digest"] == told["second"]["digest"] == cpu["digest"]
    assert told["first"]["layers"] == told["second"]["layers"] == cpu["layers"]
    assert elsewhere.left == ()


def test_a_build_without_any_network_works_once_the_store_is_filled(elsewhere: Elsewhere, a100: dict[str, Any]) -> None:
    assert "bootstrapping" in elsewhere.reproduced.err + elsewhere.built.err
    assert elsewhere.a100["digest"] == a100["digest"]
    assert {finding["state"] for finding in elsewhere.a100["findings"]} == {"pass"}


@pytest.mark.parametrize("gpu", ["cpu", "a100"])
def test_plain_bake_on_the_committed_file_builds_the_same_image(
    yard: Clone, request: pytest.FixtureRequest, tmp_path: Path, gpu: str
) -> None:
    receipt = request.getfixturevalue(gpu)
    target = re.sub(r"[.+]", "_", yard.image(gpu))
    told = tmp_path / "told.json"
    plain = replace(yard, env={**yard.env, "BUILDX_BAKE_ENTITLEMENTS_FS": ""})
    plain.docker("buildx", "bake", "-f", "images/docker-bake.json", "--metadata-file", str(told), target).good()
    assert json.loads(told.read_text())[target]["containerimage.digest"] == receipt["digest"]


def test_a_second_build_executes_nothing_fetches_nothing_and_gives_the_same_receipt(
    yard: Clone, cpu: dict[str, Any]
) -> None:
    again = yard.yard("build", "--gpu", "cpu", "--level", "identity").good()
    assert set(steps(yard.log(yard.image("cpu"))).values()) == {"CACHED"}
    assert "fetching" not in again.err and "bootstrapping" not in again.err and "layer of" not in again.err
    assert yard.receipt(yard.image("cpu")) == cpu
    assert yard.git("status", "--porcelain") == ""


def test_locking_and_rendering_twice_changes_nothing(yard: Clone) -> None:
    assert "nothing changed" in yard.yard("lock").good().out
    assert "nothing changed" in yard.yard("render").good().out
    yard.yard("render", "--check").good()
    assert yard.git("status", "--porcelain") == ""


def test_a_touched_recipe_is_named_and_left_alone(yard: Clone) -> None:
    recipe = yard.root / "images" / yard.image("cpu") / "Dockerfile"
    text = recipe.read_text()
    recipe.write_text(text + "# by hand\n")
    try:
        said = yard.yard("render", "--check")
        assert said.code == 1
        assert f"images/{yard.image('cpu')}/Dockerfile" in said.err
        assert recipe.read_text() == text + "# by hand\n"
        assert yard.git("status", "--porcelain").split() == ["M", f"images/{yard.image('cpu')}/Dockerfile"]
    finally:
        recipe.write_text(text)
