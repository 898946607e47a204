"""Whether an image is what its lock says: every difference is a failure that names both sides."""

from __future__ import annotations

from typing import Any

import pytest
from lock_samples import image, lock

from torchyard.finding import Finding, State
from torchyard.judge import identity
from torchyard.lock import LockedImage
from torchyard.plan import BuildKind, PackageSet, SourceBuild

LOCK = lock()


def facts(**torch: Any) -> dict[str, Any]:
    """What the probe sees in an image that is as locked, but for what is given of torch."""
    return {
        "python": "3.11.2",
        "torch": {
            "version": "2.14.1+cu130",
            "cuda": "13.0",
            "cudnn": 92400,
            "arch_flags": "sm_80 sm_75 compute_120",
            "file": "/opt/venv/lib/python3.11/site-packages/torch/__init__.py",
            "sum": 512.0,
            **torch,
        },
        "distributions": {w.name: w.version for w in LOCK.wheels},
    }


def failed(found: dict[str, Any], locked: LockedImage = LOCK) -> list[Finding]:
    return [finding for finding in identity.judge(locked, found) if finding.state is State.FAIL]


def test_an_image_that_is_as_locked_passes_every_check() -> None:
    findings = identity.judge(LOCK, facts())
    assert {finding.state for finding in findings} == {State.PASS}
    assert all(finding.seen for finding in findings)
    assert len({finding.rule for finding in findings}) == len(findings) == 8


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"version": "2.14.1"}, "torch.version"),
        ({"version": "2.14.1+cpu"}, "torch.version"),
        ({"cuda": None}, "torch.cuda"),
        ({"cuda": "12.8"}, "torch.cuda"),
        ({"cudnn": 92401}, "torch.cudnn"),
        ({"cudnn": None}, "torch.cudnn"),
        ({"arch_flags": "sm_75 sm_80"}, "torch.arch-list"),
        ({"arch_flags": "sm_75 sm_80 sm_90 compute_120"}, "torch.arch-list"),
        ({"arch_flags": ""}, "torch.arch-list"),
        ({"sum": float("nan")}, "torch.computes"),
        ({"sum": 511.0}, "torch.computes"),
    ],
    ids=str,
)
def test_a_difference_fails_with_both_sides_and_a_fix(changed: dict[str, Any], rule: str) -> None:
    (finding,) = failed(facts(**changed))
    assert finding.rule == rule
    assert finding.expected != finding.seen
    assert LOCK.id in finding.fix


def test_a_torch_that_does_not_load_fails_and_the_rest_is_still_judged() -> None:
    findings = identity.judge(LOCK, {**facts(), "torch": {"error": "ImportError: libcudart.so.13"}})
    assert [f.rule for f in findings if f.state is State.FAIL] == ["torch.import"]
    assert "libcudart" in next(f.seen for f in findings if f.rule == "torch.import")
    assert {f.rule for f in findings} == {"python.version", "torch.import", "python.distributions"}


@pytest.mark.parametrize(("seen", "good"), [("3.11.99", True), ("3.1.1", False), ("3.12.0", False)])
def test_python_is_judged_by_its_two_first_numbers(seen: str, good: bool) -> None:
    assert (failed({**facts(), "python": seen}) == []) is good


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"jinja2": "3.1.5"}, "jinja2 3.1.5 (locked 3.1.6)"),
        ({"more": "1"}, "more 1 (locked none)"),
        ({"uv": None}, "uv missing (locked 0.13.9)"),
    ],
)
def test_a_distribution_that_is_other_more_or_missing_is_named(change: dict[str, str | None], said: str) -> None:
    found = facts()
    kept = {n: v for n, v in {**found["distributions"], **change}.items() if v is not None}
    (finding,) = failed({**found, "distributions": kept})
    assert (finding.rule, finding.seen) == ("python.distributions", said)


def test_a_cpu_image_has_no_cuda_and_its_device_code_is_not_judged() -> None:
    cpu = lock(image=image(cuda=None, cuda_tag="cpu", cudnn=None, sass=(), ptx=()))
    assert failed(facts(version="2.14.1+cpu", cuda=None, cudnn=None), cpu) == []
    assert [f.rule for f in failed(facts(version="2.14.1+cpu"), cpu)] == ["torch.cuda"]


def test_a_compiled_torch_is_measured_by_its_own_targets_and_is_not_locked_as_a_wheel() -> None:
    source = SourceBuild(ref="v2.14.1", arch_list=("8.0", "9.0a", "12.0+PTX"))
    wheels = tuple(w for w in LOCK.wheels if w.name != "torch")
    compiled = lock(image=image(build=BuildKind.SOURCE, source=source), wheels=wheels)
    seen = facts(arch_flags="sm_80 sm_90a sm_120 compute_120")
    seen["distributions"]["torch"] = "2.14.1+cu130"
    assert failed(seen, compiled) == []
    assert [f.rule for f in failed(facts(), compiled)] == ["torch.arch-list", "python.distributions"]


def test_what_extend_adds_is_said_and_what_it_changes_fails() -> None:
    extended = lock(image=image(packages=PackageSet(extend="RUN pip install mine\n")))
    found = facts()
    more = {**found, "distributions": {**found["distributions"], "mine": "1"}}
    assert failed(more, extended) == []
    (said,) = [f for f in identity.judge(extended, more) if f.rule == "python.distributions"]
    assert said.seen == "6 as locked, and of `extend`: mine 1"
    changed = {**more, "distributions": {**more["distributions"], "jinja2": "0"}}
    assert [f.rule for f in failed(changed, extended)] == ["python.distributions"]


def test_what_cannot_be_known_is_skipped_with_a_reason_and_not_passed() -> None:
    unnamed = lock(image=image(cudnn=None))
    findings = identity.judge(unnamed, facts(arch_flags=None))
    skipped = [f for f in findings if f.state is State.SKIPPED]
    assert {f.rule for f in skipped} == {"torch.cudnn", "torch.arch-list"}
    assert all(f.because for f in skipped)


@pytest.mark.parametrize(("version", "number"), [("9.24.0.43", 92400), ("8.9.2.26", 8902), ("9.1.0", 90100)])
def test_cudnn_is_counted_as_its_header_does(version: str, number: int) -> None:
    assert identity.cudnn_number(version) == number
