"""A root file system as an OCI image layout on disk: one layer, and a config without a trace of its making."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deflate

from torchyard import json_text, oci
from torchyard.world.store import sha256_of

# libdeflate: one version gives the same bytes on every CPU and system, which zlib and its variants do not promise. It
# is pinned in requirements/; bootstrap.RECIPE goes up when a newer one packs otherwise.
LEVEL = 6
PIECE = 16 << 20  # bytes of one gzip member


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """An OCI layout with one image of one layer."""

    path: Path
    layer: oci.Layer
    manifest: str  # digest

    @property
    def tar_sha256(self) -> str:
        """The hash of the plain tar: what the lock has."""
        return self.layer.diff_id.removeprefix("sha256:")

    @property
    def blob(self) -> Path:
        """The file of the compressed layer."""
        return _blob(self.path, self.layer.digest)

    @property
    def context(self) -> str:
        """The value of a named build context that means this image."""
        return f"oci-layout://{self.path.absolute()}@{self.manifest}"


def write(tar: Path, folder: Path, *, epoch: int, arch: str, words: str) -> Layout:
    """Write the layout of an image whose only layer is this tar into a new folder; `words` are for its history."""
    packed = _blob(folder, "sha256:layer")
    packed.parent.mkdir(parents=True)
    with tar.open("rb") as source, packed.open("wb") as stream:
        while piece := source.read(PIECE):
            stream.write(deflate.gzip_compress(piece, LEVEL))
    layer = oci.Layer(
        digest=f"sha256:{sha256_of(packed)}",
        size=packed.stat().st_size,
        diff_id=f"sha256:{sha256_of(tar)}",
        unpacked=tar.stat().st_size,
    )
    packed.rename(_blob(folder, layer.digest))
    documents = oci.documents(oci.Start(layers=(layer,), words=words), [], arch=arch, epoch=epoch)
    for document in (documents.config, documents.manifest):
        _blob(folder, oci.digest_of(document)).write_bytes(document)
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")
    (folder / "layer.json").write_text(json.dumps({"unpacked": layer.unpacked}), encoding="utf-8")
    (folder / "index.json").write_bytes(documents.index)
    return Layout(path=folder, layer=layer, manifest=documents.digest)


def read(folder: Path) -> Layout | None:
    """The layout in this folder, or None where there is none."""
    if not (folder / "index.json").is_file():
        return None
    manifest = _json(folder / "index.json")["manifests"][0]["digest"]
    content = _json(_blob(folder, manifest))
    config = _json(_blob(folder, content["config"]["digest"]))
    layer = oci.Layer(
        digest=content["layers"][0]["digest"],
        size=content["layers"][0]["size"],
        diff_id=config["rootfs"]["diff_ids"][0],
        unpacked=_json(folder / "layer.json")["unpacked"],
    )
    return Layout(path=folder, layer=layer, manifest=manifest)


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _json(file: Path) -> Any:
    return json_text.loads(file.read_text(encoding="utf-8"))
