"""verify --attest: look at a published image on this machine, and put what was found beside it in its registries."""

from __future__ import annotations

from collections.abc import Callable

from .. import provenance, publish
from ..errors import CheckFailed, InputError
from ..plan import Image
from ..publish import Published
from ..world import registry_names, registry_ref, registry_referrers, registry_taking, registry_upload
from ..world.registry_session import Registry
from . import pull as pulling
from . import push as pushing
from . import tiers
from . import verify as verifying
from .project import Project
from .verify import Options, Verified

Say = Callable[[str], None]


def attest(project: Project, digest: str, options: Options, *, say: Say) -> Verified:
    """What was found of the image of this digest; where nothing failed, its registries have the findings too."""
    image, record = _published(project, digest)
    pulling.pull(project, image, pulling.Options(to="docker"), say=say)
    (found,) = verifying.verify(project, [image], options, say=say)
    if not found.good:
        say(f"nothing goes up: a finding on {image.id} failed")
        return found
    told = tiers.read_receipt(project.work, image.id)
    result = registry_taking.stored(digest, project.work.store)
    if told is None or result is None or told.layers != record.layers or told.lock != record.lock:
        raise CheckFailed(
            f"what was found is not of {digest}: {image.id} was locked or built anew since it was pushed",
            where=str(publish.path(image.id)),
            hint="check out the commit that has its lock, then run it again",
        )
    findings = pushing.findings(told, digest, record.override)
    known = pushing.known_places(project)
    for name, place in registry_names.chosen(known, (), record.registries).items():
        registry = Registry(pushing.reference(place, record.repository, digest), hint=registry_upload.AGAIN)
        registry_referrers.attach(registry, result.manifest, [findings], project.work.store)
        say(f"{name} has the findings on {digest}: proven to the level {dict(findings.annotations)[provenance.PROVEN]}")
    return found


def _published(project: Project, digest: str) -> tuple[Image, Published]:
    """The image of this project that was pushed with this digest, and its record."""
    if not registry_ref.is_digest(digest):
        raise InputError(
            f"{digest!r} is not a digest", where="--attest", hint="write sha256: and 64 hexadecimal digits"
        )
    for image in project.plan.images:
        record = pushing.published(project.work, image.id)
        if record is not None and record.digest == digest:
            return image, record
    raise CheckFailed(
        f"no image of this project was pushed with the digest {digest}",
        where="images/*/published.yaml",
        hint="the records are committed: get the commit that was made after the push",
    )
