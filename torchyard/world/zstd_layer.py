"""The ready layers of an image once more, compressed with zstd.

BuildKit could do that while it exports (`force-compression`). But it looks into a gzip layer for the footer of
eStargz, and where a member of ours begins just there, the whole engine ends with it (seen with Docker 26.1.5). And it
takes from its cache what has the same layer ids, whatever it is compressed with. So the layers are made here as they
shall be, with ids that no other compressor's layers have: each tar ends with more zeros.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import zstandard

from .. import json_text, oci
from ..errors import CheckFailed
from ..oci import Layer
from ..plain import from_plain
from . import image_layer
from .registry_read import plain_hex
from .store import CHUNK, Store
from .workspace import Workspace, write_whole

DAMAGED = "the disk or the memory is faulty: remove the file, then ./yard fetch"
VERSION = ".".join(map(str, zstandard.ZSTD_VERSION))
KIND = f"zstd {VERSION}, level {oci.ZSTD_LEVEL}, format {oci.ZSTD_FORMAT}"
# Zeros behind the mark at which readers stop: as many as give the layers of each kind ids of their own.
MORE = bytes(tarfile.BLOCKSIZE * (1 + zlib.crc32(KIND.encode()) % 997))


def made(layer: Layer, work: Workspace) -> Layer | None:
    """The zstd layer of a stored gzip layer, where it is in the store too."""
    note = _note(layer, work)
    try:
        known = from_plain(Layer, json_text.loads(note.read_text()))
    except (OSError, ValueError, TypeError):  # not there, or not what we wrote: it is made again
        return None
    return known if work.store.has(plain_hex(known.digest), known.size) else None


def of(layer: Layer, work: Workspace, say: Callable[[str], None]) -> Layer:
    """What a stored gzip layer holds, as one frame of zstd in the store; by one thread, so always the same bytes."""
    if known := made(layer, work):
        return known
    say(f"zstd of layer {plain_hex(layer.digest)[:12]}")
    packed = _packed(layer, work.store)
    write_whole(_note(layer, work), json.dumps(asdict(packed)).encode())
    return packed


def _packed(layer: Layer, store: Store) -> Layer:
    source = store.path(plain_hex(layer.digest))
    pack = zstandard.ZstdCompressor(level=oci.ZSTD_LEVEL, write_checksum=True).compressobj()
    seen = hashlib.sha256()
    with store.incoming() as stream:
        for block in _blocks(layer, source):
            seen.update(block)
            stream.write(pack.compress(block))
        _check(layer, seen.hexdigest(), source)
        seen.update(MORE)
        stream.write(pack.compress(MORE) + pack.flush())
        stream.flush()
        size = stream.tell()
        digest = store.keep(Path(stream.name))
    return Layer(
        digest=f"sha256:{digest}",
        size=size,
        diff_id=f"sha256:{seen.hexdigest()}",
        unpacked=layer.unpacked + len(MORE),
    )


def _blocks(layer: Layer, source: Path) -> Iterator[bytes]:
    """The tar of a stored layer."""
    with source.open("rb") as file:
        try:
            stream = io.BufferedReader(file, CHUNK)
            inner = image_layer.opened(stream, stream.peek(512)[:512])
            while block := inner.read(CHUNK) if inner is not None else b"":
                yield block
        except image_layer.BROKEN as error:
            raise CheckFailed(
                f"the layer {layer.digest} cannot be read: {error}", where=str(source), hint=DAMAGED
            ) from error


def _check(layer: Layer, seen: str, source: Path) -> None:
    if f"sha256:{seen}" != layer.diff_id:
        raise CheckFailed(
            f"the layer {layer.digest} unpacks to sha256:{seen}, it should to {layer.diff_id}",
            where=str(source),
            hint=DAMAGED,
        )


def _note(layer: Layer, work: Workspace) -> Path:
    """The file that says which zstd layer a layer makes, with this libzstd."""
    key = hashlib.sha256(json.dumps([KIND, layer.diff_id]).encode()).hexdigest()
    return work.local / "layers" / f"{key}.json"
