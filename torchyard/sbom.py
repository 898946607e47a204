"""The bill of materials of an image: what its lock pins, checked against what the image has, as SPDX and CycloneDX."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from . import licences
from .errors import CheckFailed
from .lock import LockedImage
from .plan import BaseKind

SPDX = "application/spdx+json"
CYCLONEDX = "application/vnd.cyclonedx+json"
_PRODUCER = "torchyard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One package that the image has: `place` is the folder of a Python distribution, empty for the distribution's."""

    name: str
    version: str
    architecture: str = ""
    place: str = ""
    licence: str = licences.NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What an image has installed, as its files say."""

    packages: tuple[Seen, ...]
    distributions: tuple[Seen, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One line of the bill: sha256 is of the file that it was installed from, where the lock pins that."""

    purl: str
    name: str
    version: str
    licence: str
    sha256: str = ""
    place: str = ""
    requires: tuple[str, ...] = ()  # purls


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """The whole bill of one image."""

    image: str
    digest: str
    epoch: int
    version: str  # of torchyard
    components: tuple[Component, ...]


def bill(lock: LockedImage, contents: Contents, *, digest: str, version: str) -> Bill:
    """The bill of an image; raises CheckFailed, with names, where the image is not what the lock says."""
    differences = [*_packages_differ(lock, contents), *_distributions_differ(lock, contents)]
    if differences:
        more = f", and {len(differences) - 5} more" if len(differences) > 5 else ""
        raise CheckFailed(
            f"{lock.id} does not have what its lock pins: {'; '.join(differences[:5])}{more}",
            where=digest,
            hint=f"./yard verify --id {lock.id} --level static",
        )
    components = [*_packages(lock, contents), *_distributions(lock, contents)]
    ordered = sorted({each.purl + each.place: each for each in components}.values(), key=lambda c: (c.purl, c.place))
    return Bill(image=lock.id, digest=digest, epoch=lock.epoch, version=version, components=tuple(ordered))


def package_url(os: str, name: str, version: str, architecture: str) -> str:
    """The purl of a package of the distribution."""
    family = os.partition("-")[0]
    return f"pkg:deb/{family}/{quote(name, safe='')}@{quote(version, safe=':')}?arch={architecture}&distro={os}"


def distribution_url(name: str, version: str) -> str:
    """The purl of a Python distribution."""
    return f"pkg:pypi/{normal(name)}@{quote(version, safe=':')}"


def normal(name: str) -> str:
    """The normalised name of a Python distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _site(lock: LockedImage) -> str:
    return f"/opt/venv/lib/python{lock.image.python}/site-packages"


def _runtime(lock: LockedImage) -> dict[str, Any]:
    return {pin.name: pin for pin in lock.os if pin.group in ("base", "os", "user")}


def _packages_differ(lock: LockedImage, contents: Contents) -> list[str]:
    pinned = {name: pin.version for name, pin in _runtime(lock).items()}
    seen = {each.name: each.version for each in contents.packages}
    told = [f"{n} is {seen.get(n, 'missing')}, locked {v}" for n, v in sorted(pinned.items()) if seen.get(n) != v]
    if lock.base.kind is BaseKind.ARCHIVE:  # a registry image brings packages of its own
        told += [f"{name} {seen[name]} is not locked" for name in sorted(set(seen) - set(pinned))]
    return told


def _distributions_differ(lock: LockedImage, contents: Contents) -> list[str]:
    pinned = {wheel.name: wheel.version for wheel in lock.wheels}
    seen = {normal(each.name): each.version for each in contents.distributions if each.place == _site(lock)}
    told = [f"{n} is {seen.get(n, 'missing')}, locked {v}" for n, v in sorted(pinned.items()) if seen.get(n) != v]
    ours = {"torch"} if lock.source else set()
    bootstrap = {"pip", "setuptools", "uv", "wheel"}
    return told + [f"{n} {seen[n]} is not locked" for n in sorted(set(seen) - set(pinned) - ours - bootstrap)]


def _packages(lock: LockedImage, contents: Contents) -> Iterable[Component]:
    pins = _runtime(lock)
    for each in contents.packages:
        pin = pins.get(each.name)
        yield Component(
            purl=package_url(lock.image.base.os, each.name, each.version, each.architecture),
            name=each.name,
            version=each.version,
            licence=each.licence,
            sha256=pin.sha256 if pin is not None and pin.version == each.version else "",
        )


def _distributions(lock: LockedImage, contents: Contents) -> Iterable[Component]:
    pins = {wheel.name: wheel for wheel in (*lock.wheels, lock.tools.uv)}
    for each in contents.distributions:
        pin = pins.get(normal(each.name)) if each.place == _site(lock) else None
        if pin is not None and pin.version != each.version:
            pin = None
        yield Component(
            purl=distribution_url(each.name, each.version),
            name=each.name,
            version=each.version,
            licence=each.licence,
            sha256=pin.sha256 if pin else "",
            place=each.place,
            requires=tuple(distribution_url(n, pins[n].version) for n in pin.requires if n in pins) if pin else (),
        )


def spdx(made: Bill) -> bytes:
    """The bill as SPDX 2.3 JSON; the same bill gives the same bytes."""
    ids = {each.purl + each.place: _spdx_id(each, number) for number, each in enumerate(made.components)}
    by_purl = {each.purl: ids[each.purl + each.place] for each in reversed(made.components)}
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")]
    for each in made.components:
        relations.append(_relation("SPDXRef-image", "CONTAINS", ids[each.purl + each.place]))
        relations += [
            _relation(ids[each.purl + each.place], "DEPENDS_ON", by_purl[purl])
            for purl in each.requires
            if purl in by_purl
        ]
    image = {
        "SPDXID": "SPDXRef-image",
        "name": made.image,
        "versionInfo": made.digest,
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": made.digest.removeprefix("sha256:")}],
    }
    return _json(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": made.image,
            "documentNamespace": f"urn:{_PRODUCER}:sbom:{made.digest}",
            "creationInfo": {"created": _time(made.epoch), "creators": [f"Tool: {_PRODUCER}-{made.version}"]},
            "packages": [
                {**image, **_UNKNOWN},
                *(_spdx(each, ids[each.purl + each.place]) for each in made.components),
            ],
            "hasExtractedLicensingInfos": [
                {"licenseId": name, "name": name.removeprefix("LicenseRef-"), "extractedText": _WHERE}
                for name in sorted({ref for each in made.components for ref in licences.references(each.licence)})
            ],
            "relationships": relations,
        }
    )


_UNKNOWN = {"downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"}
_WHERE = (
    "In the image: /usr/share/doc/PACKAGE/copyright for packages of the distribution, the folder NAME.dist-info for"
    " Python distributions."
)


def _spdx(each: Component, identifier: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SPDXID": identifier,
        "name": each.name,
        "versionInfo": each.version,
        "licenseDeclared": each.licence,
        **_UNKNOWN,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": each.purl}
        ],
    }
    if each.sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": each.sha256}]
    if each.place:
        found["sourceInfo"] = f"installed in {each.place}"
    return found


def _spdx_id(each: Component, number: int) -> str:
    kind = each.purl.removeprefix("pkg:").partition("/")[0]
    return f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]+', '-', each.name)}-{number}"


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def cyclonedx(made: Bill) -> bytes:
    """The bill as CycloneDX 1.5 JSON; the same bill gives the same bytes."""
    refs = {each.purl: _ref(each) for each in reversed(made.components)}
    return _json(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, made.digest)}",
            "version": 1,
            "metadata": {
                "timestamp": _time(made.epoch),
                "tools": {"components": [{"type": "application", "name": _PRODUCER, "version": made.version}]},
                "component": {"type": "container", "bom-ref": made.digest, "name": made.image, "version": made.digest},
            },
            "components": [_cyclonedx(each) for each in made.components],
            "dependencies": [
                {"ref": made.digest, "dependsOn": [_ref(each) for each in made.components]},
                *(
                    {"ref": _ref(each), "dependsOn": sorted(refs[purl] for purl in each.requires if purl in refs)}
                    for each in made.components
                    if any(purl in refs for purl in each.requires)
                ),
            ],
        }
    )


def _cyclonedx(each: Component) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(each),
        "name": each.name,
        "version": each.version,
        "purl": each.purl,
    }
    if each.licence != licences.NONE:
        found["licenses"] = [{"expression": each.licence}]
    if each.sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": each.sha256}]
    if each.place:
        found["properties"] = [{"name": f"{_PRODUCER}:place", "value": each.place}]
    return found


def _ref(each: Component) -> str:
    return each.purl + (f"#{quote(each.place)}" if each.place else "")


def _time(epoch: int) -> str:
    return datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"
