"""The receipt: text and back, what counts as good, and what is no receipt."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard import receipt
from torchyard.finding import Finding, State
from torchyard.receipt import Computed, Level, Receipt, Sized, Tier

PASSED = Finding(rule="torch.version", state=State.PASS, what="the torch that loads", expected="2", seen="2")
FAILED = Finding(rule="torch.cuda", state=State.FAIL, expected="13.0", seen="12.8", fix="build again")
SKIPPED = Finding.skipped("torch.cudnn", because="not named")


def tier(level: Level, *findings: Finding) -> Tier:
    """A level with these findings."""
    return Tier(level=level, checks="e" * 64, findings=findings)


GOOD = Receipt(
    image="torch2.14.1",
    tag="acme:torch2.14.1",
    digest="sha256:" + "a" * 64,
    layers=("sha256:" + "b" * 64,),
    lock="c" * 64,
    fingerprint="d" * 64,
    buildkit="v0.29.0",
    tiers=(tier(Level.STATIC, PASSED), tier(Level.CPU, PASSED, SKIPPED)),
    size=1,
    layer_sizes=(7,),
    layer_steps=("RUN it",),
)
SEEN = Computed(device="AVX2", threads=2, torch="2.14.1", hashes=(("gemm", "1"),), values=(("gemm", (1.0,)),))
findings = st.builds(
    Finding,
    rule=st.text(),
    state=st.sampled_from(State),
    what=st.text(),
    expected=st.text(),
    seen=st.text(),
    fix=st.text(),
    because=st.text(),
)
levels = [level for level in Level if level is not Level.NONE]
tiers = st.lists(
    st.builds(
        Tier,
        level=st.sampled_from(levels),
        checks=st.text(),
        on=st.text(),
        findings=st.lists(findings, max_size=3).map(tuple),
    ),
    max_size=3,
    unique_by=lambda each: each.level,
)
texts = st.text(max_size=5)
sizes = st.integers(0, 2**50)
computed = st.builds(
    Computed,
    device=texts,
    threads=st.integers(0, 64),
    torch=texts,
    hashes=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    values=st.lists(st.tuples(texts, st.lists(st.floats(allow_nan=False)).map(tuple)), max_size=2).map(tuple),
)
receipts = st.builds(
    Receipt,
    image=st.text(),
    tag=st.text(),
    digest=st.text(),
    layers=st.lists(st.text()).map(tuple),
    lock=st.text(),
    fingerprint=st.text(),
    buildkit=st.text(),
    tiers=tiers.map(tuple),
    size=sizes,
    layer_sizes=st.lists(sizes, max_size=2).map(tuple),
    layer_steps=st.lists(texts, max_size=2).map(tuple),
    former=st.lists(st.builds(Sized, diff_id=texts, step=texts, size=sizes), max_size=2).map(tuple),
    computed=st.lists(computed, max_size=2).map(tuple),
)


@given(receipts)
def test_reading_what_was_written_changes_nothing(made: Receipt) -> None:
    assert receipt.from_text(receipt.to_text(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"schema"',
        "{}",
        "17",
        "[[",
        receipt.to_text(GOOD)[:-30],
        receipt.to_text(GOOD).replace('"schema": 2', '"schema": 1'),
        receipt.to_text(GOOD).replace('"state": "pass"', '"state": "good"'),
        receipt.to_text(GOOD).replace('"size": 1', '"size": "1"'),
        receipt.to_text(GOOD).replace('"layers": [', '"layers": {"a": [').replace('    "sha256', '"sha256'),
        receipt.to_text(GOOD).replace('"tag"', '"tags"'),
        receipt.to_text(GOOD).replace('"level": "cpu",\n  "tiers"', '"level": "gpu",\n  "tiers"'),
        receipt.to_text(GOOD).replace('"level": "static",\n      "rule"', '"level": "gpu",\n      "rule"'),
    ],
)
def test_what_is_no_receipt_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a receipt"):
        receipt.from_text(text)


def test_a_receipt_is_good_when_something_passed_and_nothing_failed() -> None:
    assert GOOD.good
    assert not GOOD.with_tier(tier(Level.STATIC, PASSED, FAILED)).good
    assert not replace(GOOD, tiers=()).good


def test_a_receipt_of_skipped_checks_alone_is_not_good() -> None:
    assert not replace(GOOD, tiers=(tier(Level.CPU, SKIPPED),)).good


def test_each_finding_is_written_with_its_level() -> None:
    written = json.loads(receipt.to_text(GOOD))
    assert written["level"] == "cpu"
    assert [(each["level"], each["rule"]) for each in written["findings"]] == [
        ("static", "torch.version"),
        ("cpu", "torch.version"),
        ("cpu", "torch.cudnn"),
    ]


def test_a_later_look_at_files_alone_does_not_lower_the_level() -> None:
    again = GOOD.with_tier(tier(Level.STATIC, FAILED))
    assert again.level is Level.CPU
    assert again.findings == (FAILED, PASSED, SKIPPED)


def test_what_could_not_look_neither_raises_the_level_nor_takes_the_place_of_what_did() -> None:
    absent = tier(Level.GPU, SKIPPED)
    assert replace(GOOD, tiers=(tier(Level.STATIC, PASSED), tier(Level.CPU, SKIPPED))).level is Level.STATIC
    assert GOOD.with_tier(absent).level is Level.CPU
    assert GOOD.with_tier(tier(Level.GPU, FAILED)).level is Level.CPU
    on_gpu = GOOD.with_tier(replace(tier(Level.GPU, PASSED), on="2 x NVIDIA L4, driver 580.65.06"))
    assert on_gpu.level is Level.GPU
    assert on_gpu.with_tier(absent) == on_gpu


def test_what_was_computed_first_on_a_kind_of_cpu_is_what_later_runs_there_are_compared_with() -> None:
    other = replace(SEEN, device="AVX512")
    wrong = replace(SEEN, hashes=(("gemm", "2"),))
    kept = GOOD.with_computed(SEEN)
    assert GOOD.reference(SEEN) is None
    assert kept.reference(wrong) == SEEN and kept.with_computed(wrong) == kept
    assert kept.reference(other) == SEEN
    assert kept.with_computed(other).reference(other) == other


def test_what_a_probe_computed_comes_back_as_it_was() -> None:
    assert Computed.of(SEEN.seen()) == SEEN


def test_another_build_of_the_same_image_keeps_what_is_known_of_it() -> None:
    before = GOOD.with_computed(SEEN)
    new = replace(GOOD, tiers=(), layer_sizes=(), layer_steps=(), buildkit="v0.30.0")
    assert receipt.following(before, new) == replace(before, buildkit="v0.30.0")
    assert receipt.following(replace(before, lock="0" * 64), new).tiers == ()
    assert receipt.following(None, new) == new


def test_a_build_of_another_image_keeps_only_the_layers_to_compare_with() -> None:
    new = replace(GOOD, digest="sha256:other", tiers=(), layer_sizes=(), layer_steps=())
    found = receipt.following(GOOD.with_computed(SEEN), new)
    assert found == replace(new, former=(Sized(diff_id=GOOD.layers[0], step="RUN it", size=7),))
    unsized = receipt.following(found, replace(new, digest="sha256:third"))
    assert unsized.former == found.former


def test_a_row_tells_the_fix_of_a_failure_and_the_reason_of_a_skip() -> None:
    assert [row[4] for row in receipt.table((PASSED, FAILED, SKIPPED))] == ["", "build again", "not named"]
