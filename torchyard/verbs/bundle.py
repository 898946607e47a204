"""bundle: one archive from which a machine without a network builds the same image, or the finished image itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, bundle, publish, receipt, render, report
from ..errors import CheckFailed, InputError
from ..lock import LockedImage
from ..plan import BaseKind, Image
from ..world import bundle_file, bundle_tool, catalog_files, engine, env_file, image_deliver, offline, registry_taking
from ..world.registry_read import plain_hex
from ..world.store import sha256_of
from ..world.workspace import Workspace
from . import fetch as fetching
from . import project as projects
from . import tiers
from .project import Project

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The archive, its size in bytes and its sha256."""

    path: Path
    size: int
    sha256: str
    images: tuple[str, ...]


def pack(project: Project, images: Sequence[Image], output: str, *, say: Say) -> Written:
    """An archive with all that these images are made of, and torchyard: no layer of theirs is in it."""
    locks = [projects.fresh_lock(project.work, image) for image in images]
    if any(offline.absent(lock, project.work.store) for lock in locks):
        fetching.fetch(project, locks, say=say)
    offline.require(locks, project.work.store)
    made = bundle.Made(
        images=tuple(lock.id for lock in locks),
        torchyard=__version__,
        python=bundle_tool.python_version(),
        machine=bundle_tool.machine(),
    )
    epoch = max(lock.epoch for lock in locks)
    top = bundle.name(made.images, epoch)
    with project.work.alone(say):
        files = _files(project, locks, made, say)
        return _written(Path(output or f"{top}.tar"), top, files, made, epoch, say)


def finish(project: Project, image: Image, output: str, *, say: Say) -> Written:
    """An OCI archive with the finished image, as it was built here, and its receipt."""
    lock = projects.fresh_lock(project.work, image)
    told = publish.check(lock, tiers.lock_hash(project.work, lock.id), tiers.read_receipt(project.work, lock.id), "")
    tag = render.tag(project.plan.project, lock.id)
    top = bundle.name((lock.id,), lock.epoch, finished=True)
    target = Path(output or f"{top}.tar").absolute()
    with project.work.alone(say):
        result = registry_taking.take(lambda: engine.ensure(say), lock.id, tag, told.digest, project.work, say)
        piece = {bundle.PIECE: receipt.to_text(told).encode()}
        size = sum(blob.size for blob in result.blobs)
        bar = report.Bar(target.name, size)
        pieces = image_deliver.archive(result, tag, project.work.store, mtime=lock.epoch, more=piece)
        bundle_file.write_pieces(target, pieces, size, progress=bar.add)
        bar.end()
    return _measured(target, (lock.id,))


def _files(project: Project, locks: Sequence[LockedImage], made: bundle.Made, say: Say) -> dict[str, Path | bytes]:
    """Every file of the archive, by its path below the archive's folder."""
    work = project.work
    files: dict[str, Path | bytes] = dict(bundle_tool.files())
    files |= {f"{bundle.WHEELS}/{name}": path for name, path in bundle_tool.wheels(work, say).items()}
    files |= {name: text.encode() for name, text in _project(work, locks).items()}
    files[bundle.START] = bundle.start_script(made).encode()
    files[bundle.DOCUMENT] = bundle.document(made, bundle_file.measured(files)).encode()
    stored = bundle.stored(locks, _base_blobs(work, locks))
    return files | {bundle.store_path(sha256): work.store.path(sha256) for sha256 in stored}


def _project(work: Workspace, locks: Sequence[LockedImage]) -> dict[str, str]:
    """The project's files that these images follow from, by path from its top."""
    env = env_file.read(work.root)
    found = {env_file.NAME: env.text} | {name: text for name, text in env.files.items() if text is not None}
    found |= dict(catalog_files.texts(work.root))
    names = ["env.lock.yaml", "images/docker-bake.json", "images/index.yaml"]
    for lock in locks:
        names += [f"images/{lock.id}/{name}" for name in ("Dockerfile", "lock.yaml", "requirements.txt")]
    names += [
        path.relative_to(work.root).as_posix()
        for path in sorted((work.root / "templates").rglob("*"))
        if path.is_file()
    ]
    for name in names:
        text = work.read(name)
        if text is None:
            raise CheckFailed(f"{name} is missing", where=name, hint="./yard render")
        found[name] = text
    return found


def _base_blobs(work: Workspace, locks: Sequence[LockedImage]) -> dict[str, int]:
    """Manifest, configuration and layers of the registry images that these images start from."""
    found: dict[str, int] = {}
    for lock in locks:
        if lock.base.kind is BaseKind.IMAGE:
            result = registry_taking.stored(lock.base.digest, work.store)
            assert result is not None  # offline.require has seen it
            found[plain_hex(result.digest)] = len(result.manifest)
            found |= {plain_hex(blob.digest): blob.size for blob in result.blobs}
    return found


def _written(
    target: Path, top: str, files: dict[str, Path | bytes], made: bundle.Made, epoch: int, say: Say
) -> Written:
    target = target.absolute()
    size = sum(len(c) if isinstance(c, bytes) else c.stat().st_size for c in files.values())
    say(f"bundling {', '.join(made.images)}: {len(files)} files, {report.size(size)}")
    bar = report.Bar(target.name, size)
    bundle_file.write(target, top, files, mtime=epoch, progress=bar.add)
    bar.end()
    return _measured(target, made.images)


def _measured(target: Path, images: tuple[str, ...]) -> Written:
    return Written(path=target, size=target.stat().st_size, sha256=sha256_of(target), images=images)


def run(project: Project, images: Sequence[Image], *, finished: bool, output: str, say: Say) -> None:
    """Make what the command line asks for, and say how to use it."""
    if finished and len(images) != 1:
        raise InputError("a finished image goes into an archive of its own", hint="give --gpu or --id")
    written = finish(project, images[0], output, say=say) if finished else pack(project, images, output, say=say)
    report.table(("archive", "size", "sha256"), [(str(written.path), report.size(written.size), written.sha256)])
    if finished:
        return report.lines([f"where it is to run:  ./yard load {written.path.name}"])
    folder = bundle.name(written.images, max(projects.fresh_lock(project.work, i).epoch for i in images))
    which = f" --id {written.images[0]}" if len(written.images) == 1 else ""
    return report.lines(
        [
            f"on a machine without a network:  tar xf {written.path.name} && ./{folder}/{bundle.START}",
            f"in a checkout of this project:   ./yard load {written.path.name} && ./yard build --offline{which}",
        ]
    )
