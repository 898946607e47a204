"""By what a second build is compared with the first one, and what is said that this cannot show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.differ.values import Outline, Step
from torchyard.differ.verdict import Made, Measure, by_ids, verdict
from torchyard.errors import InputError
from torchyard.verbs import reproduce
from torchyard.world import empty_builder

FIRST = Made(digest="sha256:a", layers=("l1", "l2"), buildkit="v0.13")


def test_one_buildkit_is_compared_by_digest() -> None:
    assert verdict(FIRST, FIRST) == verdict(FIRST, Made(digest="sha256:a", layers=(), buildkit="v0.29"))
    assert verdict(FIRST, FIRST).measure is Measure.DIGEST and verdict(FIRST, FIRST).equal
    other = verdict(FIRST, Made(digest="sha256:b", layers=FIRST.layers, buildkit="v0.13"))
    assert not other.equal and other.measure is Measure.DIGEST


@pytest.mark.parametrize(("layers", "equal"), [(("l1", "l2"), True), (("l1", "l3"), False), (("l1",), False)])
def test_another_buildkit_is_compared_by_layers_and_says_what_that_leaves_open(
    layers: tuple[str, ...], equal: bool
) -> None:
    found = verdict(FIRST, Made(digest="sha256:b", layers=layers, buildkit="v0.29"))
    assert found.equal is equal and found.measure is Measure.LAYERS
    assert "v0.13" in found.notes[0] and "v0.29" in found.notes[0]


def test_an_engine_without_digests_is_compared_by_layers_and_says_how_to_change_it() -> None:
    found = verdict(Made(digest="", layers=FIRST.layers, buildkit="v0.13"), FIRST)
    assert found.equal and found.measure is Measure.LAYERS
    assert "containerd-snapshotter" in found.notes[0]


def test_where_only_a_receipt_is_left_layers_are_named_by_id_and_step() -> None:
    steps = (Step(diff_id="l1", blob="", words="RUN one"), Step(diff_id="l3", blob="", words="RUN two"))
    second = Outline(name="x", digest="", manifest={}, config={}, steps=steps)
    found = by_ids(("l1", "l2", "l9"), second)
    assert [(each.layer, each.step, each.was, each.now) for each in found] == [
        (2, "RUN two", "l2", "l3"),
        (3, "", "l9", "none"),
    ]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "c"]])
def test_a_comparison_takes_two_images(names: list[str]) -> None:
    with pytest.raises(InputError, match="two images"):
        reproduce.compare(names, epoch=None, look=False, say=lambda _: None)


def test_an_epoch_is_a_number() -> None:
    assert reproduce.number("17") == 17 and reproduce.number("") is None
    with pytest.raises(InputError):
        reproduce.number("yesterday")


def test_the_folder_of_a_killed_command_is_removed_by_the_next_one(tmp_path: Path) -> None:
    code = (
        f"from torchyard.world import empty_builder as b; import os, pathlib\n"
        f"with b.room(pathlib.Path({str(tmp_path)!r})): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with empty_builder.room(tmp_path) as mine, empty_builder.room(tmp_path) as another:
        assert sorted(tmp_path.iterdir()) == sorted([mine, another])
    assert list(tmp_path.iterdir()) == []
