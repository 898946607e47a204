"""The licences that packages declare, as SPDX expressions; what SPDX does not know is a LicenseRef of its words."""

from __future__ import annotations

import email.parser
import re
from functools import cache
from importlib import resources
from typing import Any, cast

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

NONE = "NOASSERTION"
_FIELD = re.compile(r"^License:[ \t]*(\S[^\n]*)", re.MULTILINE)
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z][A-Za-z0-9.+-]*[A-Za-z0-9+])")
_CLASSIFIER = re.compile(r"^License :: (?:OSI Approved :: )?(.+)$")
_REF = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_LONGEST = 60


def debian(text: str, package: str) -> str:
    """What the copyright file of a package declares, all of it together; NOASSERTION where there is none."""
    if not text.strip():
        return NONE
    if text.lstrip().lower().startswith("format"):
        named = {_alternatives(name.strip()) for name in _FIELD.findall(text)}
    else:
        named = {_debian_name(name) for name in _COMMON.findall(text)}
    parts = sorted(named - {""})
    if len(parts) == 1:
        return parts[0]
    return " AND ".join(f"({part})" if " OR " in part else part for part in parts) or reference(
        f"copyright-of-{package}"
    )


def python(metadata: str) -> str:
    """What the metadata of a distribution declares: its expression, else its classifiers, else its words."""
    head = email.parser.HeaderParser().parsestr(metadata)
    if expression := head.get("License-Expression"):
        try:
            return str(canonicalize_license_expression(str(expression)))
        except InvalidLicenseExpression:
            return reference(str(expression))
    found = [_classified(str(line)) for line in head.get_all("Classifier", [])]
    named = sorted({each for each in found if each})
    words = str(head.get("License") or "").strip().splitlines()
    if words and (not named or all(each.startswith("LicenseRef-") for each in named)):
        try:
            return str(canonicalize_license_expression(words[0]))
        except InvalidLicenseExpression:
            named = named or [reference(words[0])]
    return " AND ".join(named) or NONE


def references(expression: str) -> list[str]:
    """The LicenseRefs in an expression."""
    return _REF.findall(expression)


def reference(words: str) -> str:
    """A LicenseRef for words that SPDX does not know."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", words[:_LONGEST]).strip("-.")
    return f"LicenseRef-{plain}" if plain else NONE


def _classified(line: str) -> str:
    found = _CLASSIFIER.match(line)
    if found is None or found[1] == "OSI Approved":
        return ""
    return cast(str, _data()["classifiers"].get(found[1])) or reference(found[1])


def _alternatives(text: str) -> str:
    """One License field: names joined by `or`, `and`, `and/or` and commas."""
    choices = re.split(r"\s+(?:or|and/or)\s+|,\s*or\s+", text)
    named = [" AND ".join(_debian_name(name) for name in re.split(r"\s+and\s+|,\s+", each)) for each in choices]
    unique = list(dict.fromkeys(named))
    if len(unique) == 1:
        return unique[0]
    return " OR ".join(f"({each})" if " AND " in each else each for each in unique)


def _debian_name(name: str) -> str:
    table = _lower("debian")
    return table.get(name.strip().lower()) or reference(name)


@cache
def _lower(section: str) -> dict[str, str]:
    return {str(name).lower(): str(identifier) for name, identifier in _data()[section].items()}


@cache
def _data() -> dict[str, Any]:
    text = resources.files("torchyard.data").joinpath("licences.yaml").read_text(encoding="utf-8")
    return cast(dict[str, Any], yaml.safe_load(text))
