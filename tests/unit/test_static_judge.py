"""What tier 1 of verify says of recorded images: the cause first, its consequences marked, nothing else."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import static_cases as cases

from torchyard.finding import Finding, State
from torchyard.judge import static, static_causes


@cache
def found(name: str) -> list[Finding]:
    """The findings on a recorded image."""
    return static.judge(cases.reference(name), cases.facts(name))


def told(findings: list[Finding]) -> str:
    """The findings that fail, a line each, and how many of the others there are."""
    lines = [
        f"{f.rule}{f' ({f.because})' if f.because else ''}\n  expected: {f.expected}\n  seen: {f.seen}\n  fix: {f.fix}"
        for f in findings
        if f.state is State.FAIL
    ]
    states = [f.state for f in findings]
    return "\n".join([*lines, f"{states.count(State.PASS)} pass, {states.count(State.SKIPPED)} skipped"]) + "\n"


@pytest.mark.parametrize("name", cases.names())
def test_a_recorded_image_is_judged_as_expected(name: str) -> None:
    seen = told(found(name))
    expected = cases.FOLDER / name / "expected.txt"
    if os.environ.get("ACCEPT"):
        expected.write_text(seen, encoding="utf-8")
    assert seen == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in cases.names() if "-good-" in name])
def test_a_good_image_has_no_failure(name: str) -> None:
    findings = found(name)
    assert [f for f in findings if f.state is State.FAIL] == []


@pytest.mark.parametrize("name", [name for name in cases.names() if "-good-" not in name])
def test_a_fault_has_one_cause_and_it_comes_first(name: str) -> None:
    failed = [f for f in found(name) if f.state is State.FAIL]
    assert failed
    assert [f.rule for f in failed if not f.because] == [failed[0].rule]


@pytest.mark.parametrize("name", cases.names())
def test_every_failure_says_what_was_expected_seen_and_mends_it_and_every_skip_why(name: str) -> None:
    for finding in found(name):
        if finding.state is State.FAIL:
            assert finding.what and finding.expected and finding.seen and finding.fix
        elif finding.state is State.SKIPPED:
            assert finding.because


def test_every_rule_is_answered_once() -> None:
    for name in cases.names():
        rules = [f.rule for f in found(name)]
        assert len(rules) == len(set(rules)) == 31


def test_there_are_at_least_ten_recorded_situations() -> None:
    assert len(cases.names()) >= 10
    assert all((cases.FOLDER / name / "expected.txt").is_file() for name in cases.names())
    assert Path(cases.FOLDER).is_dir()


def fails(rule: str, because: str = "") -> Finding:
    """A failure."""
    return Finding(rule=rule, state=State.FAIL, because=because)


def test_what_fails_to_run_follows_from_broken_files_and_not_from_a_trace() -> None:
    passes = Finding(rule="x", state=State.PASS)
    broken = static_causes.combined([fails("wheels.files"), fails("traces.secrets"), passes], [passes, fails("import")])
    assert [(f.rule, f.because) for f in broken] == [
        ("wheels.files", ""),
        ("traces.secrets", ""),
        ("import", "consequence of wheels.files"),
        ("x", ""),
        ("x", ""),
    ]
    alone = static_causes.combined(
        [fails("traces.secrets")], [fails("import"), fails("later", "consequence of import")]
    )
    assert [(f.rule, f.because) for f in alone] == [
        ("traces.secrets", ""),
        ("import", ""),
        ("later", "consequence of import"),
    ]
