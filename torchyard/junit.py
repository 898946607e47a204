"""Findings as a JUnit file, which CI systems show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from .finding import Finding, State

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(findings: Mapping[str, Sequence[Finding]]) -> str:
    """One suite an image, one case a finding."""
    root = ElementTree.Element("testsuites", name="torchyard verify")
    for image, found in findings.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(image),
            tests=str(len(found)),
            failures=str(sum(f.state is State.FAIL for f in found)),
            skipped=str(sum(f.state is State.SKIPPED for f in found)),
            errors="0",
        )
        for each in found:
            _case(suite, image, each)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, image: str, finding: Finding) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_clean(image), name=_clean(finding.rule))
    if finding.state is State.SKIPPED:
        ElementTree.SubElement(case, "skipped", message=_clean(finding.because))
    elif finding.state is State.FAIL:
        lines = [f"expected: {finding.expected}", f"seen: {finding.seen}", f"fix: {finding.fix}", finding.because]
        words = finding.what + (f" ({finding.because})" if finding.because else "")
        failure = ElementTree.SubElement(case, "failure", message=_clean(words), type=_clean(finding.rule))
        failure.text = _clean("\n".join(line for line in lines if line))


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("�", words)
