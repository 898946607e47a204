"""The named contexts of an image, laid out from the store: what a build gets, and nothing else."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from .. import json_text, layering, oci, render, source_recipe
from ..errors import Surroundings
from ..layering import WheelLayer
from ..lock import LockedImage, requirements_text
from ..oci import Layer
from ..ospin import OsPin
from ..plain import from_plain
from ..plan import Compression
from ..unpacking import Prefix
from ..wheelpin import WheelPin
from . import unfinished, wheel_layer, workspace, zstd_layer
from .store import Store
from .wheel_layer import Source
from .workspace import Workspace, write_whole


def lay_out(lock: LockedImage, base: oci.Start, work: Workspace, *, say: Callable[[str], None]) -> None:
    """Fill every named context of this image from the store; what is there already is left alone.

    base is what the image starts from, with its layers in the store. All that the lock pins must be in the store.
    """
    steps(work, lock.tools.uv)
    layers = _framework(lock, work, say)
    kind = oci.LAYER_GZIP
    if lock.image.compression is Compression.ZSTD:
        kind = oci.LAYER_ZSTD
        base, layers = _zstd(base, layers, work, say)
    documents = oci.documents(base, layers, arch=lock.image.arch, epoch=lock.epoch, kind=kind)
    blobs = [*base.layers, *(layer for layer, _ in layers)]
    installed = {each.context: each.wheels for each in layering.installed(lock.wheels)}
    not_own = [pin for pin in lock.wheels if pin not in installed.get(layering.OWN, ())]
    for name, path in render.contexts(lock).items():
        target = work.root / path
        match name:
            case "steps":
                continue
            case "base":
                _layout(target, documents, blobs, work.store)
            case "wheels-dev":
                _wheels(target, lock, lock.dev_wheels, work.store)
            case "wheels-build":
                _wheels(target, lock, lock.build_wheels, work.store)
            case layering.OWN:
                _wheels(target, lock, installed[name], work.store)
            case _ if name in installed:
                _wheels(target, lock, installed[name], work.store, held=not_own)
            case "source":
                assert lock.source is not None
                _links(target, {source_recipe.FILE: lock.source.sha256}, {}, work.store)
            case _:
                _debs(target, lock.group(name.removeprefix("debs-")), work.store)


def steps(work: Workspace, uv: WheelPin) -> None:
    """The scripts of the build steps, and the locked uv that installs wheels."""
    target = work.root / render.contexts_root() / "steps"
    names = workspace.step_names()
    for name in names:
        text = work.template(str(PurePosixPath("steps") / name))
        assert text is not None
        if not (target / name).is_file() or (target / name).read_text(encoding="utf-8") != text:
            write_whole(target / name, text.encode())
    _tool(work.store, uv, target)
    for stray in {path.name for path in target.iterdir()} - {*names, "uv", "uv.from"}:
        (target / stray).unlink()


def _tool(store: Store, uv: WheelPin, target: Path) -> None:
    """uv's program out of its wheel; `uv.from` says which wheel it came from."""
    note = target / "uv.from"
    if note.is_file() and note.read_text() == uv.sha256 and (target / "uv").is_file():
        return
    with zipfile.ZipFile(store.path(uv.sha256)) as wheel:
        member = f"uv-{uv.version}.data/scripts/uv"
        write_whole(target / "uv", wheel.read(member), mode=0o755)
    write_whole(note, uv.sha256.encode())


def constraints_of(wheels: Sequence[WheelPin]) -> str:
    """The constraints that keep torch, what is bound to it and CUDA as they are locked."""
    bound = {"torchvision", "torchaudio"}
    kept = [w for w in wheels if layering.kind(w.name) is not layering.Kind.REST or w.name in bound]
    return "".join(f"{w.name}=={w.version}\n" for w in sorted(kept, key=lambda w: w.name))


def _framework(lock: LockedImage, work: Workspace, say: Callable[[str], None]) -> list[tuple[Layer, str]]:
    """The framework's layers, made of the wheels where they are not there yet, two at a time."""
    prefix = Prefix(root=render.ENVIRONMENT, python=lock.image.python)
    wanted = layering.framework(lock.wheels)
    with ThreadPoolExecutor(2) as pool:
        try:
            made = list(pool.map(lambda layer: _layer(layer, prefix, work, say), wanted))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [
        (layer, "wheels: " + " ".join(f"{w.name}=={w.version}" for w in want.wheels))
        for want, layer in zip(wanted, made)
    ]


def _zstd(
    base: oci.Start, layers: Sequence[tuple[Layer, str]], work: Workspace, say: Callable[[str], None]
) -> tuple[oci.Start, list[tuple[Layer, str]]]:
    """Base and framework with their layers in zstd, made two at a time where they are not there yet."""
    with ThreadPoolExecutor(2) as pool:
        plain = [*base.layers, *(layer for layer, _ in layers)]
        packed = list(pool.map(lambda layer: zstd_layer.of(layer, work, say), plain))
    count = len(base.layers)
    pairs = [(layer, words) for layer, (_, words) in zip(packed[count:], layers, strict=True)]
    return replace(base, layers=tuple(packed[:count])), pairs


def unmade(lock: LockedImage, work: Workspace) -> int:
    """About how many bytes the framework's layers take that are not made yet: a layer is as large as its wheels."""
    prefix = Prefix(root=render.ENVIRONMENT, python=lock.image.python)
    plain = {want: _made(want, prefix, work) for want in layering.framework(lock.wheels)}
    wanted = [want for want, layer in plain.items() if layer is None]
    if lock.image.compression is Compression.ZSTD:
        wanted += [want for want, layer in plain.items() if layer is None or zstd_layer.made(layer, work) is None]
    return sum(wheel.size for want in wanted for wheel in want.wheels)


def _note(want: WheelLayer, prefix: Prefix, work: Workspace) -> Path:
    """The file that says which layer these wheels make."""
    key = sha256(
        json.dumps([wheel_layer.FORMAT, prefix.root, prefix.python, [[w.file, w.sha256] for w in want.wheels]]).encode()
    ).hexdigest()
    return work.local / "layers" / f"{key}.json"


def _made(want: WheelLayer, prefix: Prefix, work: Workspace) -> Layer | None:
    """The layer of these wheels, where it is in the store."""
    note = _note(want, prefix, work)
    if not note.is_file():
        return None
    try:
        known = from_plain(Layer, json_text.loads(note.read_text()))
    except (ValueError, TypeError):  # not what we wrote: it is made again
        return None
    return known if work.store.has(known.digest.removeprefix("sha256:"), known.size) else None


def _layer(want: WheelLayer, prefix: Prefix, work: Workspace, say: Callable[[str], None]) -> Layer:
    if known := _made(want, prefix, work):
        return known
    say(f"layer of {want.title}")
    sources = [Source(name=w.file, path=work.store.path(w.sha256)) for w in want.wheels]
    made = wheel_layer.write(sources, prefix, work.store, progress=lambda _: None)
    write_whole(_note(want, prefix, work), json.dumps(asdict(made)).encode())
    return made


def _layout(target: Path, documents: oci.Documents, layers: Sequence[Layer], store: Store) -> None:
    index = target / "index.json"
    if index.is_file() and index.read_bytes() == documents.index:
        return
    with _fresh(target) as folder:
        for layer in layers:
            hexadecimal = layer.digest.removeprefix("sha256:")
            store.link(hexadecimal, folder / "blobs" / "sha256" / hexadecimal)
        for document in (documents.config, documents.manifest):
            write_whole(folder / "blobs" / "sha256" / oci.digest_of(document).removeprefix("sha256:"), document)
        write_whole(folder / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        write_whole(folder / "index.json", documents.index)


def _wheels(
    target: Path,
    lock: LockedImage,
    wheels: Sequence[WheelPin],
    store: Store,
    *,
    held: Sequence[WheelPin] | None = None,
) -> None:
    """The wheels of one step; held are those that its constraints keep, all of them unless said otherwise."""
    text = requirements_text(wheels, "The wheels of one step")  # of no image: several share the step
    constraints = constraints_of(lock.wheels if held is None else held) + (
        f"torch=={source_recipe.version(lock.image)}\n" if lock.source else ""
    )
    files = {w.file: w.sha256 for w in wheels}
    _links(target, files, {"requirements.txt": text, "held.txt": constraints}, store)


def _debs(target: Path, pins: Sequence[OsPin], store: Store) -> None:
    _links(target, {PurePosixPath(pin.path).name: pin.sha256 for pin in pins}, {}, store)


def _links(target: Path, files: dict[str, str], texts: dict[str, str], store: Store) -> None:
    """A folder with just these stored files, by name, and these texts."""
    wanted = json.dumps([sorted(files.items()), sorted(texts.items())]).encode()
    stamp = target.with_name(target.name + ".from")
    if target.is_dir() and stamp.is_file() and stamp.read_bytes() == wanted:
        return
    stamp.unlink(missing_ok=True)
    with _fresh(target) as folder:
        for name, sha in files.items():
            store.link(sha, folder / name)
        for name, text in texts.items():
            write_whole(folder / name, text.encode())
    write_whole(stamp, wanted)


@contextlib.contextmanager
def _fresh(target: Path) -> Iterator[Path]:
    """A new folder that takes the target's place when all of it is there."""
    try:
        with unfinished.directory(target.parent, unfinished.beside(target)) as folder:
            yield folder
            unfinished.put(folder, target)
    except OSError as error:
        raise Surroundings(f"{target} cannot be laid out: {error}", where=str(target), hint="check the disk") from error
