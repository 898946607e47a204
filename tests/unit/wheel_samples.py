"""Small real wheels, made for tests."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A member of a wheel: its bytes, its mode, and how it is packed."""

    data: bytes = b""
    mode: int = 0o644
    method: int = zipfile.ZIP_DEFLATED
    zip64: bool = False


def make(
    folder: Path, name: str, files: Mapping[str, File], *, version: str = "1.0", scripts: str = "", record: str = ""
) -> Path:
    """A wheel with these files, and what makes it one; `record` takes the place of a right RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    own = {
        f"{info}/METADATA": File(data=metadata.encode()),
        f"{info}/WHEEL": File(data=b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
    }
    if scripts:
        own[f"{info}/entry_points.txt"] = File(data=scripts.encode())
    everything = {**files, **own}
    text = record or _record(everything, f"{info}/RECORD")
    with zipfile.ZipFile(path, "w") as archive:
        for member, file in {**everything, f"{info}/RECORD": File(data=text.encode())}.items():
            about = zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0))
            about.external_attr = (stat.S_IFREG | file.mode) << 16
            about.compress_type = file.method
            with archive.open(about, "w", force_zip64=file.zip64) as stream:
                stream.write(file.data)
    return path


def patch(
    path: Path, member: str, *, crc: int | None = None, packed: int | None = None, size: int | None = None
) -> None:
    """Change what the wheel's directory says of a member: its CRC-32, its packed or its plain length."""
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    while not data[at + 46 :].startswith(member.encode()):
        at = data.index(b"PK\x01\x02", at + 4)
    for offset, value in ((16, crc), (20, packed), (24, size)):
        if value is not None:
            data[at + offset : at + offset + 4] = value.to_bytes(4, "little")
    path.write_bytes(data)


def _record(files: Mapping[str, File], own: str) -> str:
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    for name, file in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).decode().rstrip("=")
        rows.writerow([name, f"sha256={digest}", len(file.data)])
    rows.writerow([own, "", ""])
    return stream.getvalue()
