"""A squashfs file of an image's files, as enroot reads them; written from the layers as a stream, without root.

The layers are read twice: once to know which entry of each path is seen, once to hand these on, each as it is in its
layer. Nothing is unpacked on the way.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .. import framing, json_text
from ..errors import CheckFailed, Surroundings
from . import image_layer, process, unfinished
from .image_tar import Entry, Tar
from .registry_read import plain_hex
from .registry_taking import Result
from .store import Store

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK = 1 << 20
_TOLD = ("path", "linkpath", "size", "mtime")  # of a special entry: what the header itself says again
COMPRESSION = ("-comp", "zstd", "-Xcompression-level", "1")  # zstd's own default here, 15, takes minutes
RC = """#!/bin/sh
cd "${WORKDIR:-/}" 2>/dev/null || cd /
[ $# -gt 0 ] || set -- /bin/bash
exec "$@"
"""


@dataclass(slots=True)
class Shown:
    """Which layer's entry is seen at each path; and the names that files go on under whose own name is gone."""

    layer: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    links: dict[str, tuple[int, str]] = field(default_factory=dict)  # of a hard link: its layer, the path it names
    renamed: dict[tuple[int, str], str] = field(default_factory=dict)


def write(result: Result, store: Store, target: Path) -> None:
    """Have the image as a squashfs file; mksquashfs reads archives since squashfs-tools 4.5."""
    program = shutil.which("mksquashfs")
    if program is None:
        raise Surroundings(
            "there is no mksquashfs on this machine", hint="install squashfs-tools 4.5 or newer, or use --to oci"
        )
    with unfinished.directory(target.parent, unfinished.beside(target)) as folder:
        made = folder / target.name
        epoch = _epoch(result, store)
        words = [program, "-", str(made), "-tar", "-quiet", "-no-progress", *COMPRESSION, "-mkfs-time", str(epoch)]
        process.fed(
            words, flattened(result, store, epoch), hint="squashfs-tools 4.5 or newer is needed, and room for the file"
        )
        os.replace(made, target)


def flattened(result: Result, store: Store, epoch: int) -> Iterator[bytes]:
    """One tar of what the image shows, with the files that enroot puts beside."""
    extra = _extra(result, store)
    shown = _shown(result, store)
    for number, layer in enumerate(result.layers):
        with _opened(store.path(plain_hex(layer.digest)), layer.digest) as tar:
            for entry in tar if tar is not None else ():
                if entry.path not in extra:
                    yield from _handed_on(tar, entry, number, shown) if tar is not None else ()
    for path, (data, mode) in sorted(extra.items()):
        yield framing.tar_header(path.lstrip("/"), size=len(data), mode=mode, mtime=epoch)
        yield data + framing.padding(len(data))
    yield framing.END_OF_ARCHIVE


def _handed_on(tar: Tar, entry: Entry, number: int, shown: Shown) -> Iterator[bytes]:
    """One entry as it is, under another name where its own is gone, or not at all."""
    seen = shown.layer.get(entry.path) == number
    other = shown.renamed.get((number, entry.path), "")
    if entry.kind == "1" and seen:
        first = shown.renamed.get(shown.links[entry.path], "")
        if first != entry.path:
            yield _header(tar, entry, entry.path, link=first or _path(entry.link))
        return
    if not seen and not other:
        return
    yield _header(tar, entry, entry.path if seen else other)
    left = entry.size if entry.is_file else 0
    while left:
        block = tar.data(min(left, _CHUNK))
        left -= len(block)
        yield block
    yield framing.padding(entry.size if entry.is_file else 0)


def _header(tar: Tar, entry: Entry, path: str, *, link: str = "") -> bytes:
    """The header of an entry under this name; link is what a hard link names."""
    made = copy.copy(tar.info)
    made.name, made.size, made.mtime = path.lstrip("/"), entry.size, entry.mtime
    made.linkname = link.lstrip("/") if link else entry.link
    made.pax_headers = {key: value for key, value in tar.more.items() if key not in _TOLD}
    return made.tobuf(tarfile.PAX_FORMAT)


def _shown(result: Result, store: Store) -> Shown:
    shown = Shown()
    for number, layer in enumerate(result.layers):
        with _opened(store.path(plain_hex(layer.digest)), layer.digest) as tar:
            entries = [(each.path, each.kind, each.link) for each in tar] if tar is not None else []
        _take_away(shown, [path for path, _, _ in entries])
        for path, kind, link in entries:
            if not path.rpartition("/")[2].startswith(_WHITEOUT):
                _put(shown, number, path, kind, link)
    for path, (number, target) in sorted(shown.links.items()):
        if shown.layer.get(path) == number and shown.layer.get(target) != number:
            shown.renamed.setdefault((number, target), path)
    return shown


def _take_away(shown: Shown, paths: list[str]) -> None:
    """What a layer says is gone from those below it."""
    gone: set[str] = set()
    emptied: set[str] = set()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name == _OPAQUE:
            emptied.add(folder)
        elif name.startswith(_WHITEOUT):
            gone.add(f"{folder}/{name.removeprefix(_WHITEOUT)}")
    if gone or emptied:
        for path in [p for p in shown.layer if p in gone or _below(p, gone) or _below(p, emptied)]:
            _forget(shown, path)


def _put(shown: Shown, number: int, path: str, kind: str, link: str) -> None:
    if path in shown.folders and kind != "5":
        for each in [p for p in shown.layer if _below(p, {path})]:
            _forget(shown, each)
    shown.layer[path] = number
    shown.links.pop(path, None)
    (shown.folders.add if kind == "5" else shown.folders.discard)(path)
    if kind == "1":
        shown.links[path] = (number, _path(link))


def _forget(shown: Shown, path: str) -> None:
    shown.layer.pop(path)
    shown.links.pop(path, None)
    shown.folders.discard(path)


def _below(path: str, folders: set[str]) -> bool:
    while path:
        path = path.rpartition("/")[0]
        if path in folders:
            return True
    return False


def _path(link: str) -> str:
    return "/" + link.removeprefix("./").strip("/")


@contextlib.contextmanager
def _opened(path: Path, digest: str) -> Iterator[Tar | None]:
    with path.open("rb") as file:
        stream = io.BufferedReader(file, 1 << 20)
        start = stream.peek(512)[:512]
        inner = image_layer.opened(stream, start)
        if inner is None and path.stat().st_size > 64:  # an empty layer is nothing but the end of an archive
            raise CheckFailed(f"the layer {digest} is no tar archive", where=str(path), hint="pull the image again")
        yield None if inner is None else Tar(inner)


def _extra(result: Result, store: Store) -> dict[str, tuple[bytes, int]]:
    """The files that enroot's own import writes: environment, mounts, and what starts a command."""
    config = json_text.loads(store.path(plain_hex(result.config.digest)).read_bytes())
    env = (config.get("config") or {}).get("Env") or []
    return {
        "/etc/environment": ("".join(f"{each}\n" for each in env).encode(), 0o644),
        "/etc/fstab": (b"", 0o644),
        "/etc/rc": (RC.encode(), 0o755),
    }


def _epoch(result: Result, store: Store) -> int:
    config = json_text.loads(store.path(plain_hex(result.config.digest)).read_bytes())
    created = str(config.get("created") or "1970-01-01T00:00:00Z")[:19]
    return int(datetime.datetime.fromisoformat(f"{created}+00:00").timestamp())
