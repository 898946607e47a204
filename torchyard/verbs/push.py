"""push: the very bytes that BuildKit made into registries, with what is known of them, and a record of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import __version__, consumers, json_text, oci, proven, provenance, publish, render, report, sbom
from ..errors import CheckFailed, InputError
from ..lock import LockedImage
from ..plan import BaseKind, Image
from ..publish import Published
from ..receipt import Receipt
from ..world import (
    engine,
    registry_names,
    registry_ref,
    registry_referrers,
    registry_taking,
    registry_upload,
    sbom_contents,
    signing,
)
from ..world.registry_ref import MANIFESTS, Reference
from ..world.registry_referrers import Artifact
from ..world.registry_session import Registry
from ..world.registry_taking import Result
from ..world.registry_upload import How, Sent
from ..world.signing import Signer
from ..world.workspace import Workspace
from . import project as projects
from . import tiers
from .project import Project

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """registries: names, none for those of the image's sites; override: why an image goes that should not.

    sign: a private key for cosign, the word keyless, or none to sign nothing; identity_token: a file, for keyless.
    """

    registries: tuple[str, ...] = ()
    override: str = ""
    sign: str = ""
    identity_token: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """One image in one registry: its address by digest, and what went over the wire."""

    record: Published
    name: str
    address: str
    sent: tuple[Sent, ...]
    attached: int

    def bytes(self, how: How) -> int:
        """The bytes of the blobs that came this way."""
        return sum(each.blob.size for each in self.sent if each.how is how)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ready:
    """An image that may go: its lock, its receipt, and the places where it goes, by name."""

    lock: LockedImage
    receipt: Receipt
    places: dict[str, str]


def push(project: Project, images: Sequence[Image], options: Options, *, say: Say) -> list[Pushed]:
    """Put these images into registries; nothing is sent before each of them may go."""
    signer = _signer(project, options, say)
    ready = [_ready(project, image, options) for image in images]
    done = []
    for each in ready:
        with project.work.alone(say):
            result = _taken(project, each, say)
            _check_sites(project, each, result)
            artifacts = _artifacts(project, each, result, options, say)
        for name, place in each.places.items():
            done.append(_one(project, each, result, artifacts, name, place, options, signer, say))
    return done


def _signer(project: Project, options: Options, say: Say) -> Signer | None:
    if not (options.sign or options.identity_token):
        return None
    return signing.signer(options.sign, options.identity_token, project.work.mirrors, say)


def known_places(project: Project) -> dict[str, str]:
    """Host and path of every registry that has a name here."""
    sites = {site.name: site.registry for site in project.matrix.sites}
    return registry_names.places(sites, project.work.mirrors)


def default_names(project: Project, image_id: str) -> list[str]:
    """The registries of an image where none is named: those of the sites that run it, or the only one there is."""
    known = known_places(project)
    sites = [cell.site for cell in project.plan.cells if cell.image == image_id and cell.site in known]
    return list(dict.fromkeys(sites)) or (list(known) if len(known) == 1 else [])


def reference(place: str, project_name: str, asked: str) -> Reference:
    """What is called `asked` (a tag or digest) of this project's repository in a registry."""
    joint = "@" if registry_ref.is_digest(asked) else ":"
    return registry_ref.parse(f"{place}/{project_name}{joint}{asked}")


def published(work: Workspace, image_id: str) -> Published | None:
    """The record of an image, or None where it was not pushed yet."""
    path = publish.path(image_id)
    text = work.read(path)
    return None if text is None else publish.from_text(text, name=str(path))


def _ready(project: Project, image: Image, options: Options) -> _Ready:
    lock = projects.fresh_lock(project.work, image)
    told = tiers.read_receipt(project.work, lock.id)
    found = publish.check(lock, tiers.lock_hash(project.work, lock.id), told, options.override.strip())
    places = registry_names.chosen(known_places(project), options.registries, default_names(project, lock.id))
    return _Ready(lock=lock, receipt=found, places=places)


def _taken(project: Project, each: _Ready, say: Say) -> Result:
    tag = render.tag(project.plan.project, each.lock.id)
    found = registry_taking.take(lambda: engine.ensure(say), each.lock.id, tag, each.receipt.digest, project.work, say)
    seen = registry_taking.layer_ids(found, project.work.store)
    if seen != each.receipt.layers:
        raise CheckFailed(
            f"the engine's {tag} has other layers than the receipt of {each.lock.id} says: it is another build",
            where=found.digest,
            hint=f"./yard build --id {each.lock.id}",
        )
    return found


def _check_sites(project: Project, each: _Ready, result: Result) -> None:
    """Raise Incompatible where what runs images at a site that pulls from these registries cannot read the layers.

    env.yaml may overrule that for the image, as it does when it is resolved.
    """
    if any(rule == consumers.RULE for rule, _ in each.lock.image.allowed):
        return
    for site in project.matrix.sites:
        if site.name in each.places:
            words = consumers.of_site(site.runs, site.consumer)
            where = f"env.yaml  sites.{site.name}.{'consumer' if site.consumer else 'runs'}"
            consumers.check_site([b.kind for b in result.layers], words, project.catalog, where=where)


def _artifacts(project: Project, each: _Ready, result: Result, options: Options, say: Say) -> list[Artifact]:
    """What goes up beside the image: findings, SBOM in two forms, provenance."""
    say(f"reading what {each.lock.id} has installed")
    contents = sbom_contents.gather(result, project.work)
    made = sbom.bill(each.lock, contents, digest=result.digest, version=__version__)
    statement = provenance.statement(each.lock, each.receipt, digest=result.digest, version=__version__)
    return [
        findings(each.receipt, result.digest, options.override.strip()),
        Artifact(kind=sbom.SPDX, name="sbom.spdx.json", data=sbom.spdx(made)),
        Artifact(kind=sbom.CYCLONEDX, name="sbom.cdx.json", data=sbom.cyclonedx(made)),
        Artifact(kind=provenance.IN_TOTO, name="provenance.intoto.json", data=statement),
    ]


def findings(receipt: Receipt, digest: str, override: str) -> Artifact:
    """What was found of an image, with the level that it is proven to, as it goes up."""
    return Artifact(
        kind=provenance.FINDINGS,
        name="findings.json",
        data=provenance.findings(receipt, digest, override),
        annotations=((provenance.PROVEN, proven.level(receipt)),),
    )


def _one(
    project: Project,
    each: _Ready,
    result: Result,
    artifacts: Sequence[Artifact],
    name: str,
    place: str,
    options: Options,
    signer: Signer | None,
    say: Say,
) -> Pushed:
    """One image into one registry: blobs, manifest, what belongs to it, then the tags; the record at the end."""
    record = publish.record(
        each.receipt,
        digest=result.digest,
        epoch=each.lock.epoch,
        repository=project.plan.project,
        registries=[name],
        override=options.override.strip(),
    )
    ref = reference(place, project.plan.project, result.digest)
    registry = Registry(ref, hint=registry_upload.AGAIN)
    say(f"pushing {each.lock.id} to {name}: {report.size(sum(blob.size for blob in result.blobs))} in all")
    _check_tag(registry, record)
    bar = report.Bar(f"{each.lock.id} to {name}", sum(blob.size for blob in result.blobs))
    sent = registry_upload.blobs(
        registry, result.blobs, project.work.store, mounts=_mounts(each.lock, ref), progress=bar.add
    )
    bar.end()
    registry_upload.manifest(registry, result.digest, result.manifest, oci.MANIFEST)
    registry_referrers.attach(registry, result.manifest, artifacts, project.work.store)
    _escrow(registry, each.lock, project.work)
    if signer is not None:
        signing.sign(registry, result.digest, signer)
    for tag in (record.tag, *publish.aliases(project.plan, each.lock.id)):
        registry_upload.manifest(registry, tag, result.manifest, oci.MANIFEST)
    with project.work.alone(say):
        whole = publish.joined(record, _former(project.work, each.lock.id))
        project.work.write_tree({publish.path(each.lock.id): publish.to_text(whole)})
    return Pushed(
        record=whole, name=name, address=f"{ref.host}/{ref.repository}", sent=tuple(sent), attached=len(artifacts)
    )


def _escrow(registry: Registry, lock: LockedImage, work: Workspace) -> None:
    """Keep the registry image that this one starts from beside it, by digest; a tag saves it from being cleaned up."""
    if lock.base.kind is not BaseKind.IMAGE or (base := registry_taking.stored(lock.base.digest, work.store)) is None:
        return
    registry_upload.blobs(registry, base.blobs, work.store)
    kind = str(json_text.loads(base.manifest).get("mediaType") or oci.MANIFEST)
    registry_upload.manifest(registry, publish.base_tag(base.digest), base.manifest, kind)


def _check_tag(registry: Registry, record: Published) -> None:
    """Raise CheckFailed where the tag that never moves means another image already."""
    seen = registry_upload.digest_at(registry, record.tag, MANIFESTS)
    if seen not in ("", record.digest):
        raise CheckFailed(
            f"the tag {record.tag} never moves, and it is {seen} there; this image is {record.digest}",
            where=f"{registry.ref.host}/{registry.ref.repository}",
            hint="somebody wrote it by hand: remove the tag there, then push again",
        )


def _mounts(lock: LockedImage, ref: Reference) -> list[str]:
    """Repositories of the same registry that have blobs of this image: that of the base it starts from."""
    if lock.base.kind is not BaseKind.IMAGE:
        return []
    base = registry_ref.parse(lock.image.base.ref)
    return [base.repository] if base.host == ref.host and base.repository != ref.repository else []


def _former(work: Workspace, image_id: str) -> Published | None:
    try:
        return published(work, image_id)
    except InputError:  # not ours any more: it is written anew
        return None


def show(done: Sequence[Pushed]) -> None:
    """One row an image and registry, and how to pull it."""
    rows = [
        (
            each.record.image,
            each.name,
            report.size(each.bytes(How.SENT)),
            report.size(each.bytes(How.THERE) + each.bytes(How.MOUNTED)),
            str(each.attached),
            f"{each.address}@{each.record.digest}",
        )
        for each in done
    ]
    report.table(("image", "registry", "sent", "was there", "attached", "by digest"), rows)
    report.lines(
        f"overridden: {each.record.image} went although its findings do not let it: {each.record.override}"
        for each in done
        if each.record.override
    )
    images = list(dict.fromkeys(each.record.image for each in done))
    report.lines(f"wrote {publish.path(image)}" for image in images)
    report.lines(f"pull it anywhere:  ./yard pull --id {image}" for image in images)
