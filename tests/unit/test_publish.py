"""What may go into a registry, under which tags, and the record of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lock_samples import ID, package, wheel
from lock_samples import image as sample_image

from torchyard import lock as locking
from torchyard import proven, publish
from torchyard.errors import CheckFailed, InputError
from torchyard.finding import Finding, State
from torchyard.lock import LockedBase, LockedImage, Tools
from torchyard.plan import BaseKind, Cell, CellState, Plan
from torchyard.publish import Published
from torchyard.receipt import Level, Receipt, Tier

IMAGE = sample_image()
LOCK = LockedImage(
    image=IMAGE,
    fingerprint=locking.fingerprint(IMAGE),
    epoch=1795913593,
    base=LockedBase(kind=BaseKind.ARCHIVE, tar="a" * 64),
    os=(package("bash", "base"),),
    wheels=(wheel("torch", "2.14.1"),),
    dev_wheels=(),
    tools=Tools(base_format="1", layer_format="1", uv=wheel("uv", "0.13.9"), buildkit_min="0.12"),
)
DIGEST = "sha256:" + "ab" * 32
PASSED = Finding(rule="torch.version", state=State.PASS, expected="2", seen="2")
FAILED = Finding(rule="torch.cuda", state=State.FAIL, expected="13.0", seen="12.8")
SKIPPED = Finding.skipped("torch.cudnn", because="not named")


def receipt(*findings: Finding, lock: str = "c" * 64) -> Receipt:
    """A receipt of the lock, with these findings."""
    return Receipt(
        image=ID,
        tag=f"acme:{ID}",
        digest=DIGEST,
        layers=("sha256:" + "1" * 64, "sha256:" + "2" * 64),
        lock=lock,
        fingerprint=LOCK.fingerprint,
        buildkit="v0.29.0",
        tiers=(Tier(level=Level.CPU, checks="e", findings=findings),),
        size=1,
    )


def check(made: Receipt | None, override: str = "") -> Receipt:
    return publish.check(LOCK, "c" * 64, made, override)


def test_an_image_whose_findings_pass_may_go() -> None:
    assert check(receipt(PASSED, SKIPPED)) == receipt(PASSED, SKIPPED)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "has no receipt"),
        (receipt(PASSED, FAILED), "torch.cuda failed: expected 13.0, seen 12.8"),
        (receipt(FAILED, FAILED), "and 1 more"),
        (receipt(), "it has no findings"),
        (receipt(SKIPPED), "it has no finding that passed"),
        (receipt(PASSED, lock="d" * 64), "built from another lock"),
        (replace(receipt(PASSED), fingerprint="0"), "built from another lock"),
    ],
)
def test_an_image_that_is_not_proven_is_refused_with_the_reason(made: Receipt | None, said: str) -> None:
    with pytest.raises(CheckFailed, match=said) as caught:
        check(made)
    assert "./yard" in caught.value.hint


@pytest.mark.parametrize("made", [receipt(PASSED, FAILED), receipt()])
def test_an_override_lets_it_go_and_stays_in_the_record(made: Receipt) -> None:
    assert check(made, "the node is down, see 4711") == made
    assert record(made, "the node is down, see 4711").override == "the node is down, see 4711"


def test_an_override_that_was_not_needed_is_not_recorded() -> None:
    assert record(receipt(PASSED), "just in case").override == ""


@pytest.mark.parametrize("made", [None, receipt(FAILED, lock="d" * 64)])
def test_no_override_lets_an_image_go_that_is_not_of_this_lock(made: Receipt | None) -> None:
    with pytest.raises(CheckFailed):
        check(made, "never mind")


def record(made: Receipt, override: str = "", registries: tuple[str, ...] = ("lab",)) -> Published:
    return publish.record(
        made, digest=DIGEST, epoch=LOCK.epoch, repository="acme", registries=registries, override=override
    )


texts = st.text(st.characters(codec="utf-8"))
fields = dict.fromkeys(("digest", "lock", "override", "buildkit", "tag"), texts)


@given(st.builds(Published, image=st.just(ID), registries=st.lists(texts).map(tuple), **fields))
def test_the_record_says_the_same_after_it_was_written_and_read(made: Published) -> None:
    assert publish.from_text(publish.to_text(made), name="published.yaml") == made


@pytest.mark.parametrize(
    "text", ["", "[]", "schema: 2", "schema: 1\nimage: [1]", "schema: 1\nwhat: x", "{", "schema: 1"]
)
def test_what_is_no_record_is_told(text: str) -> None:
    if text == "schema: 1":
        assert publish.from_text(text, name="x").image == ""
        return
    with pytest.raises(InputError, match="not a record"):
        publish.from_text(text, name="images/x/published.yaml")


def test_the_tag_that_never_moves_has_the_day_of_the_lock_and_the_digest() -> None:
    assert publish.tag(ID, DIGEST, LOCK.epoch) == f"{ID}-20261129-abababab"


@given(st.text("abc0123456789.-", min_size=1, max_size=119), st.integers(0, 4_000_000_000))
def test_every_tag_is_one_that_registries_take(name: str, epoch: int) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", "t" + publish.tag("t" + name, DIGEST, epoch)[1:])


def test_two_long_ids_have_two_tags() -> None:
    assert publish.tag("a" * 118 + "b", DIGEST, 0) != publish.tag("a" * 118 + "c", DIGEST, 0)


def cell(hardware: str, *, image: str = ID, default: bool = True) -> Cell:
    return Cell(
        hardware=hardware, gpus=(), compute_capability=(), count=1, site="", choice=(), default=default,
        state=CellState.OK, image=image, driver_min="",
    )  # fmt: skip


def test_every_entry_whose_default_cell_selects_the_image_is_an_alias() -> None:
    cells = (cell("a100"), cell("h100"), cell("v100", image="other"), cell("cpu", default=False))
    assert publish.aliases(Plan(project="acme", cells=cells, images=()), ID) == ("a100", "h100")


def test_registries_of_an_earlier_push_of_the_same_image_stay_and_those_of_another_go() -> None:
    before = record(receipt(PASSED), registries=("desk",))
    assert publish.joined(record(receipt(PASSED)), before).registries == ("desk", "lab")
    assert publish.joined(record(receipt(PASSED)), replace(before, digest="sha256:0")).registries == ("lab",)


def tier(level: Level, *findings: Finding) -> Tier:
    return Tier(level=level, checks="e", findings=findings)


@pytest.mark.parametrize(
    ("tiers", "level"),
    [
        ((), "none"),
        ((tier(Level.IDENTITY, PASSED), tier(Level.STATIC, PASSED), tier(Level.CPU, PASSED, SKIPPED)), "cpu"),
        ((tier(Level.IDENTITY, PASSED), tier(Level.STATIC, FAILED, PASSED), tier(Level.CPU, PASSED)), "identity"),
        ((tier(Level.STATIC, PASSED), tier(Level.CPU, PASSED), tier(Level.GPU, SKIPPED)), "cpu"),
        ((tier(Level.GPU, PASSED),), "gpu"),
        ((tier(Level.CPU, FAILED),), "none"),
    ],
)
def test_an_image_is_proven_up_to_the_first_level_that_failed(tiers: tuple[Tier, ...], level: str) -> None:
    made = replace(receipt(), tiers=tiers)
    assert proven.level(made) == level == record(made).level


def test_levels_are_ordered() -> None:
    assert proven.at_least("gpu", "cpu") and proven.at_least("cpu", "cpu")
    assert not proven.at_least("static", "cpu") and not proven.at_least("made up", "none")
