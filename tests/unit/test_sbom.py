"""The bill of materials: from the lock, checked against the image, in two forms; and what licences packages declare."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from packaging.licenses import canonicalize_license_expression
from test_publish import DIGEST, LOCK, PASSED, receipt

from torchyard import licences, provenance, sbom
from torchyard.errors import CheckFailed
from torchyard.plan import BaseKind
from torchyard.sbom import Bill, Contents, Seen

SITE = "/opt/venv/lib/python3.11/site-packages"
BASH = Seen(name="bash", version="1:2.0-1+b2", architecture="amd64", licence="GPL-3.0-or-later")
TORCH = Seen(name="Torch", version="2.14.1", place=SITE, licence="BSD-3-Clause")
PIP = Seen(name="pip", version="26.3", place=SITE, licence="MIT")
VENDORED = Seen(name="tomli", version="2.4.0", place=f"{SITE}/setuptools/_vendor", licence="LicenseRef-own")
CONTENTS = Contents(packages=(BASH,), distributions=(TORCH, PIP, VENDORED))


def bill(contents: Contents = CONTENTS, **changes: object) -> Bill:
    return sbom.bill(replace(LOCK, **changes), contents, digest=DIGEST, version="1.0")  # type: ignore[arg-type]


def test_the_bill_has_what_the_image_has_with_the_hashes_that_the_lock_pins() -> None:
    made = {each.name: each for each in bill().components}
    assert set(made) == {"bash", "Torch", "pip", "tomli"}
    assert made["bash"].sha256 == LOCK.os[0].sha256 and made["Torch"].sha256 == LOCK.wheels[0].sha256
    assert made["bash"].purl == "pkg:deb/debian/bash@1:2.0-1%2Bb2?arch=amd64&distro=debian-12"
    assert made["Torch"].purl == "pkg:pypi/torch@2.14.1" and made["tomli"].sha256 == ""


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (replace(CONTENTS, packages=()), "bash is missing, locked 1:2.0-1"),
        (replace(CONTENTS, packages=(replace(BASH, version="3"),)), "bash is 3, locked 1:2.0"),
        (replace(CONTENTS, packages=(BASH, replace(BASH, name="vim"))), "vim 1:2.0-1.b2 is not locked"),
        (replace(CONTENTS, distributions=(PIP,)), "torch is missing, locked 2.14.1"),
        (replace(CONTENTS, distributions=(TORCH, replace(PIP, name="Own.thing"))), "own-thing 26.3 is not locked"),
    ],
)
def test_an_image_that_is_not_what_its_lock_says_gets_no_bill(contents: Contents, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        bill(contents)


def test_a_registry_base_may_bring_packages_of_its_own() -> None:
    base = replace(LOCK.base, kind=BaseKind.IMAGE, digest=DIGEST)
    made = bill(replace(CONTENTS, packages=(BASH, replace(BASH, name="vim"))), base=base)
    assert {each.name: bool(each.sha256) for each in made.components}["vim"] is False


def test_both_forms_name_every_component_once_and_are_the_same_bytes_each_time() -> None:
    spdx, cyclonedx = json.loads(sbom.spdx(bill())), json.loads(sbom.cyclonedx(bill()))
    names = [each["name"] for each in spdx["packages"]]
    assert sorted(names[1:]) == sorted(each["name"] for each in cyclonedx["components"]) and len(names) == 5
    assert len({each["SPDXID"] for each in spdx["packages"]}) == 5
    assert [each["licenseId"] for each in spdx["hasExtractedLicensingInfos"]] == ["LicenseRef-own"]
    assert spdx["creationInfo"]["created"] == cyclonedx["metadata"]["timestamp"] == "2026-11-29T00:53:13Z"
    assert sbom.spdx(bill()) == sbom.spdx(bill()) and sbom.cyclonedx(bill()) == sbom.cyclonedx(bill())


def test_what_a_distribution_requires_is_a_relation_in_both_forms() -> None:
    made = bill(
        replace(CONTENTS, distributions=(TORCH, replace(TORCH, name="numpy"))),
        wheels=(replace(LOCK.wheels[0], requires=("numpy",)), replace(LOCK.wheels[0], name="numpy")),
    )
    ids = {each["name"]: each["SPDXID"] for each in json.loads(sbom.spdx(made))["packages"]}
    relations = json.loads(sbom.spdx(made))["relationships"]
    assert {
        "spdxElementId": ids["Torch"],
        "relationshipType": "DEPENDS_ON",
        "relatedSpdxElement": ids["numpy"],
    } in relations
    assert any(len(each["dependsOn"]) == 1 for each in json.loads(sbom.cyclonedx(made))["dependencies"])


def test_the_provenance_names_the_image_and_every_file_that_went_in() -> None:
    told = json.loads(provenance.statement(LOCK, receipt(PASSED), digest=DIGEST, version="1.0"))
    assert told["subject"][0]["digest"]["sha256"] == DIGEST.removeprefix("sha256:")
    files = {each["digest"]["sha256"] for each in told["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert files == set(LOCK.files())


def test_the_findings_say_of_which_image_they_are_and_how_far_was_looked() -> None:
    told = json.loads(provenance.findings(receipt(PASSED), DIGEST, ""))
    assert (told["digest"], told["level"], told["proven"]) == (DIGEST, "cpu", "cpu")


DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        (f"{DEP5}License: Expat\n\nLicense: GPL-2+\n text\n", "GPL-2.0-or-later AND MIT"),
        (f"{DEP5}License: GPL-1+ or Artistic\n", "GPL-1.0-or-later OR Artistic-1.0-Perl"),
        (f"{DEP5}License: BSD-MIT or GPL-2\nLicense: MIT\n", "(LicenseRef-BSD-MIT OR GPL-2.0-only) AND MIT"),
        (f"{DEP5}License: Sleepycat and BSD-3-clause\n", "Sleepycat AND BSD-3-Clause"),
        (
            "See /usr/share/common-licenses/LGPL-2.1, and /usr/share/common-licenses/GPL-3.",
            "GPL-3.0-only AND LGPL-2.1-only",
        ),
        ("It is free.", "LicenseRef-copyright-of-own"),
        ("", licences.NONE),
    ],
)
def test_copyright_files_become_expressions(text: str, declared: str) -> None:
    found = licences.debian(text, "own")
    assert found == declared
    assert found == licences.NONE or canonicalize_license_expression(found)


@pytest.mark.parametrize(
    ("head", "declared"),
    [
        ("License-Expression: mit or apache-2.0", "MIT OR Apache-2.0"),
        ("License: MIT", "MIT"),
        ("License: BSD\nClassifier: License :: OSI Approved :: BSD License", "LicenseRef-BSD-License"),
        ("Classifier: License :: OSI Approved :: MIT License\nLicense: whole text", "MIT"),
        ("License: NVIDIA Proprietary Software", "LicenseRef-NVIDIA-Proprietary-Software"),
        ("License-Expression: what is this", "LicenseRef-what-is-this"),
        ("Classifier: Topic :: Scientific", licences.NONE),
        ("License: ???", licences.NONE),
    ],
)
def test_metadata_become_expressions(head: str, declared: str) -> None:
    found = licences.python(f"Metadata-Version: 2.4\nName: own\nVersion: 1\n{head}\n\nLicense: not this\n")
    assert found == declared
    assert found == licences.NONE or canonicalize_license_expression(found)
