"""What a stored image has installed: packages and Python distributions, as its layers show, with their licences."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import PurePosixPath

from .. import json_text, licences
from ..errors import CheckFailed
from ..sbom import Contents, Seen
from . import image_layer
from .image_tar import Tar
from .registry_read import plain_hex
from .registry_taking import Blob, Result
from .workspace import Workspace, write_whole

FORMAT = 1  # of what is kept of a layer: raise it where what is looked for changes
_STATUS = "/var/lib/dpkg/status"
_DOC = re.compile(r"^/usr/share/doc/([^/]+)(/copyright)?$")
_METADATA = re.compile(r"\.(?:dist-info/METADATA|egg-info/PKG-INFO)$")
_MOST = 4 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


def gather(result: Result, work: Workspace) -> Contents:
    """What the image shows; each layer is read once, what was seen of it is kept under its digest."""
    shown: dict[str, str] = {}
    for layer in result.layers:
        _lay_over(shown, _seen(layer, work))
    return Contents(packages=tuple(_packages(shown)), distributions=tuple(_distributions(shown)))


def _seen(layer: Blob, work: Workspace) -> dict[str, str]:
    """The texts and links of one layer that matter, and what it takes away, by path."""
    kept = work.local / "seen" / f"{plain_hex(layer.digest)}.sbom.{FORMAT}.json"
    if kept.is_file():
        found: dict[str, str] = json_text.loads(kept.read_bytes())
        return found
    found = {}
    with work.store.path(plain_hex(layer.digest)).open("rb") as file:
        stream = io.BufferedReader(file, 1 << 20)
        inner = image_layer.opened(stream, stream.peek(512)[:512])
        if inner is None:
            if layer.size > 64:  # an empty layer is nothing but the end of an archive
                raise CheckFailed(f"the layer {layer.digest} is no tar archive", hint="build the image again")
        else:
            found = _scan(Tar(inner))
    write_whole(kept, json.dumps(found).encode())
    return found


def _scan(tar: Tar) -> dict[str, str]:
    found = {}
    for entry in tar:
        path = entry.path
        if path.rpartition("/")[2].startswith(_WHITEOUT):
            found[path] = ""
        elif entry.kind == "2" and _DOC.match(path):
            found[path] = entry.link
        elif entry.is_file and (path == _STATUS or (entry.size <= _MOST and _text(path))):
            found[path] = tar.data().decode("utf-8", "replace")
    return found


def _text(path: str) -> bool:
    return bool(_DOC.match(path) or _METADATA.search(path))


def _lay_over(shown: dict[str, str], layer: dict[str, str]) -> None:
    """Lay one more layer over what is shown: first what it takes away, then what it brings."""
    for path in layer:
        folder, _, name = path.rpartition("/")
        if name.startswith(_WHITEOUT):
            gone = folder if name == _OPAQUE else f"{folder}/{name.removeprefix(_WHITEOUT)}"
            for each in [p for p in shown if p == gone or p.startswith(f"{gone}/")]:
                del shown[each]
    shown.update({p: text for p, text in layer.items() if not p.rpartition("/")[2].startswith(_WHITEOUT)})


def _packages(shown: dict[str, str]) -> Iterator[Seen]:
    for name, version, architecture in _status(shown.get(_STATUS, "")):
        yield Seen(
            name=name,
            version=version,
            architecture=architecture,
            licence=licences.debian(_copyright(shown, name), name),
        )


def _copyright(shown: dict[str, str], package: str) -> str:
    """The text of a package's copyright file; its folder may be a link to another package's."""
    for _ in range(4):
        text = shown.get(f"/usr/share/doc/{package}/copyright")
        if text is not None and not text.startswith(("../", "/usr/share/doc/")):
            return text
        link = text or shown.get(f"/usr/share/doc/{package}", "")
        parts = PurePosixPath(link).parts
        if not parts:
            return ""
        package = parts[-2] if parts[-1] == "copyright" and len(parts) > 1 else parts[-1]
    return ""


def _status(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and architecture of every installed package in the text of dpkg's status."""
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] not in " \t")
        if "Package" in fields and fields.get("Status", "").split()[-1:] == ["installed"]:
            yield fields["Package"], fields.get("Version", ""), fields.get("Architecture", "")


def _distributions(shown: dict[str, str]) -> Iterator[Seen]:
    for path, text in shown.items():
        if _METADATA.search(path):
            head = HeaderParser().parsestr(text)
            if head.get("Name") and head.get("Version"):
                yield Seen(
                    name=str(head["Name"]),
                    version=str(head["Version"]),
                    place=str(PurePosixPath(path).parent.parent),
                    licence=licences.python(text),
                )
