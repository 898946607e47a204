"""Gzip-compressed layers in the store: what is unpacked of them, and single files as the image shows them."""

from __future__ import annotations

import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import IO, cast

from isal import igzip, isal_zlib

from .. import json_text, oci
from ..errors import CheckFailed
from .store import Store
from .workspace import write_whole

CHUNK = 1 << 20
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError, cast(type[Exception], isal_zlib.error))


def checked(digest: str, size: int, diff_id: str, store: Store, *, where: str) -> oci.Layer:
    """The layer of a stored blob, unpacked once to see that it is what the image's configuration says."""
    note = store.root.parent / "layers" / f"{_hex(digest)}.json"  # beside the notes on the framework's layers
    if note.is_file():
        known = oci.Layer(**json_text.loads(note.read_text(encoding="utf-8")))
        if (known.size, known.diff_id) == (size, diff_id):
            return known
    sha256, length = hashlib.sha256(), 0
    try:
        with _opened(digest, store) as stream:
            while block := stream.read(CHUNK):
                sha256.update(block)
                length += len(block)
    except _BROKEN as error:
        raise _bad(f"the layer {digest} cannot be unpacked: {error}", where) from error
    seen = f"sha256:{sha256.hexdigest()}"
    if seen != diff_id:
        raise _bad(f"the layer {digest} unpacks to {seen}, the image's configuration says {diff_id}", where)
    layer = oci.Layer(digest=digest, size=size, diff_id=diff_id, unpacked=length)
    write_whole(note, json.dumps(asdict(layer)).encode())
    return layer


def read(layers: Sequence[oci.Layer], paths: Iterable[str], store: Store) -> dict[str, bytes]:
    """The files among these paths (`var/lib/dpkg/status`) that the image has, each from the topmost layer with it.

    A link is told as an empty file. What a higher layer removed is not there.
    """
    wanted = set(paths)
    found: dict[str, bytes] = {}
    for layer in reversed(layers):
        here, hidden = _read_one(layer, wanted, store)
        found |= here
        wanted -= {*here, *hidden}
        if not wanted:
            break
    return found


def _read_one(layer: oci.Layer, wanted: set[str], store: Store) -> tuple[dict[str, bytes], set[str]]:
    """Which of the wanted files one layer has, and which it hides in the layers below."""
    found: dict[str, bytes] = {}
    hidden: set[str] = set()
    try:
        with _opened(layer.digest, store) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                path = PurePosixPath(member.name.lstrip("/"))
                if path.name == OPAQUE:
                    hidden |= {each for each in wanted if path.parent in PurePosixPath(each).parents}
                elif path.name.startswith(WHITEOUT):
                    gone = path.with_name(path.name.removeprefix(WHITEOUT))
                    hidden |= {each for each in wanted if gone in (w := PurePosixPath(each), *w.parents)}
                elif (name := str(path)) in wanted and not member.isdir():
                    file = tar.extractfile(member) if member.isreg() else None
                    found[name] = file.read() if file else b""
    except _BROKEN as error:
        raise _bad(f"the layer {layer.digest} cannot be read: {error}", str(store.path(_hex(layer.digest)))) from error
    return found, hidden


def _opened(digest: str, store: Store) -> IO[bytes]:
    stream = igzip.IGzipFile(store.path(_hex(digest)), "rb")  # type: ignore[no-untyped-call]  # so is isal
    return cast(IO[bytes], stream)


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _bad(what: str, where: str) -> CheckFailed:
    return CheckFailed(what, where=where, hint="the image is broken in the registry: take another tag or digest")
