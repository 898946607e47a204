"""pull: an image by digest out of a registry, every blob checked, to where it is to run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import consumers, proven, publish, receipt, render, report
from ..errors import CheckFailed, InputError, Surroundings, YardError
from ..plan import Image
from ..publish import Published
from ..receipt import Receipt
from ..world import engine, image_deliver, registry_names, registry_pull, registry_ref, registry_taking, signing
from ..world.registry_ref import Reference
from ..world.registry_session import Registry
from ..world.registry_taking import Result
from ..world.signing import Trust
from ..world.workspace import write_whole
from . import project as projects
from . import push as pushing
from . import tiers
from .project import Project

Say = Callable[[str], None]
WAYS = ("docker", "podman", "oci", "sif", "sqsh")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """to: one of WAYS, empty for what is there; output: the file or folder that is made; registries: names to ask.

    require: the least level to which findings in the registry have to prove the image; verify: a public key, or
    the word keyless; signed_by: then whose signature, by the names of the options (identity, issuer_like, ...).
    """

    to: str = ""
    output: str = ""
    registries: tuple[str, ...] = ()
    require: str = ""
    verify: str = ""
    signed_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """What came, and where it is now: a name of an engine, or a file or folder."""

    digest: str
    way: str
    place: str
    level: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """An image to pull: a name for it, its digest, where it is, and the layer ids that it has to have."""

    name: str
    digest: str
    refs: tuple[Reference, ...]
    layers: tuple[str, ...] = ()


def run(project: Project, gpu: str, image_id: str, digest: str, options: Options, *, say: Say) -> Pulled:
    """The image that the command line names, where it is to be."""
    if options.require and options.require not in proven.LEVELS[1:]:
        raise InputError(
            f"there is no level {options.require!r}", where="--require", hint=f"one of {', '.join(proven.LEVELS[1:])}"
        )
    if sum(map(bool, (gpu, image_id, digest))) != 1:
        raise InputError("one image has to be named", hint="give one of --gpu, --id and --digest")
    if digest:
        return pull_digest(project, digest, options, say=say)
    (image,) = projects.select(project, gpu=gpu, image_id=image_id)
    return pull(project, image, options, say=say)


def show(pulled: Pulled) -> None:
    """Where the image is now, and by which digest it came."""
    report.table(("digest", "to", "where"), [(pulled.digest, pulled.way, pulled.place)])
    if pulled.level:
        report.lines([f"proven to the level {pulled.level}"])


def pull(project: Project, image: Image, options: Options, *, say: Say) -> Pulled:
    """The published image of this id."""
    record = pushing.published(project.work, image.id)
    if record is None:
        raise CheckFailed(
            f"{image.id} was not pushed: there is no record of it",
            where=str(publish.path(image.id)),
            hint=f"./yard push --id {image.id}, and commit the record; or name a digest: --digest",
        )
    known = pushing.known_places(project)
    places = registry_names.chosen(known, options.registries, record.registries)
    refs = tuple(pushing.reference(place, record.repository, record.digest) for place in places.values())
    name = render.tag(project.plan.project, image.id)
    done = _pulled(project, _Wanted(name=name, digest=record.digest, refs=refs, layers=record.layers), options, say)
    if done.way == "docker":
        _keep_receipt(project, record, name)
    return done


def _keep_receipt(project: Project, record: Published, tag: str) -> None:
    """Have a receipt of the image that is here now, so that it can be verified here and its findings pushed."""
    known = tiers.read_receipt(project.work, record.image)
    if tiers.lock_hash(project.work, record.image) != record.lock or (
        known is not None and known.digest == record.digest
    ):
        return
    made = Receipt(
        image=record.image,
        tag=tag,
        digest=record.digest,
        layers=record.layers,
        lock=record.lock,
        fingerprint=record.fingerprint,
        buildkit=record.buildkit,
        size=0,
    )
    write_whole(tiers.receipt_path(project.work, record.image), receipt.to_text(made).encode())


def pull_digest(project: Project, digest: str, options: Options, *, say: Say) -> Pulled:
    """An image of this project by its digest, from the registries that are named, or any that has a name."""
    if not registry_ref.is_digest(digest):
        raise InputError(
            f"{digest!r} is not a digest", where="--digest", hint="write sha256: and 64 hexadecimal digits"
        )
    known = pushing.known_places(project)
    places = registry_names.chosen(known, options.registries, list(known))
    refs = tuple(pushing.reference(place, project.plan.project, digest) for place in places.values())
    name = f"{project.plan.project}:pulled-{digest.removeprefix('sha256:')[:12]}"
    return _pulled(project, _Wanted(name=name, digest=digest, refs=refs), options, say)


def _pulled(project: Project, wanted: _Wanted, options: Options, say: Say) -> Pulled:
    trust = None
    if options.verify or any(options.signed_by.values()):
        trust = signing.trust(options.verify, options.signed_by, project.work.mirrors)
    way = _way(options.to, say)
    level, result = _from_any(project, wanted, options, trust, say)
    store = project.work.store
    seen = registry_taking.layer_ids(result, store)
    if wanted.layers and seen != wanted.layers:
        raise CheckFailed(
            f"the image of {wanted.digest} has other layer ids than its record says",
            where=wanted.name,
            hint="the record was changed by hand: restore it from git",
        )
    return Pulled(
        digest=wanted.digest, way=way, place=_delivered(project, way, result, wanted.name, options, say), level=level
    )


def _from_any(project: Project, wanted: _Wanted, options: Options, trust: Trust | None, say: Say) -> tuple[str, Result]:
    """The image from the first registry that has it; raises what the last one said where none has."""
    last: YardError | None = None
    for ref in wanted.refs:
        registry = Registry(ref, hint="what came is kept: run the command again")
        try:
            level = registry_pull.check_level(registry, wanted.digest, options.require) if options.require else ""
            if trust is not None:
                for name in signing.verify(registry, wanted.digest, trust):
                    say(f"signed by {name}")
            with project.work.alone(say):
                return level, registry_pull.take(registry, wanted.digest, project.work.store, say)
        except YardError as error:
            if ref is not wanted.refs[-1]:
                say(f"{error.what}; trying the next registry")
            last = error
    assert last is not None
    raise last


def _way(asked: str, say: Say) -> str:
    """Where it goes: as asked, else into an engine that is there, else into Podman, else an OCI layout."""
    if asked in WAYS:
        return asked
    if asked:
        raise InputError(f"--to cannot be {asked!r}", where="--to", hint=f"one of {', '.join(WAYS)}")
    try:
        engine.ensure(say)
        return "docker"
    except Surroundings:
        return "podman" if shutil.which("podman") else "oci"


def _delivered(project: Project, way: str, result: Result, name: str, options: Options, say: Say) -> str:
    store = project.work.store
    say(f"{name} to {way}")
    kinds = [layer.kind for layer in result.layers]
    if way == "sif":
        consumers.check(kinds, *image_deliver.sif_maker(), project.catalog, where="--to sif")
    if way == "docker":
        consumers.check(kinds, "docker", engine.ensure(say).version, project.catalog, where="--to docker")
        image_deliver.to_docker(engine.ensure(say), result, name, store)
        return name
    if way == "podman":
        consumers.check(kinds, "podman", image_deliver.podman_version(), project.catalog, where="--to podman")
        image_deliver.to_podman(result, name, store)
        return f"localhost/{name}"
    target = Path(options.output or f"{name.rpartition(':')[2]}.{way}").absolute()
    match way:
        case "oci":
            image_deliver.layout(result, name, store, target)
        case "sif":
            image_deliver.to_sif(result, name, store, target)
        case _:
            from ..world import image_squash

            image_squash.write(result, store, target)
    return str(target)
