"""Layers laid over each other as one stream: what is hidden is not in it, what is left is as it was."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

from torchyard import oci
from torchyard.world import image_squash, registry_taking
from torchyard.world.registry_taking import Blob, Result
from torchyard.world.store import Store

Members = list[tuple[str, bytes, bytes | str]]  # (path, kind, data or link)


def layer(members: Members, *, mode: int = 0o640) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, kind, content in members:
            member = tarfile.TarInfo(path)
            member.type, member.mode, member.uid, member.mtime = kind, mode, 7, 5
            if isinstance(content, str):
                member.linkname, content = content, b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), mtime=0)


def flat(tmp_path: Path, *layers: Members) -> dict[str, tuple[str, bytes | str]]:
    """What is seen of these layers: kind and data or link by path; the files for enroot excepted."""
    store = Store(tmp_path / "store")
    config = json.dumps({"config": {"Env": ["A=b c"]}, "created": "2026-11-29T00:53:13Z"}).encode()
    blobs = [registry_taking.keep(data, store) for data in (config, *(layer(members) for members in layers))]
    kinds = [Blob(digest=digest, size=100, kind=oci.LAYER_GZIP) for digest in blobs]
    result = Result(manifest=b"{}", config=kinds[0], layers=tuple(kinds[1:]))
    whole = io.BytesIO(b"".join(image_squash.flattened(result, store, 9)))
    found: dict[str, tuple[str, bytes | str]] = {}
    with tarfile.open(fileobj=whole) as tar:
        for member in tar:
            data = tar.extractfile(member) if member.isreg() else None
            assert member.name not in found or member.isdir()
            if member.isreg() and not member.name.startswith("etc/"):
                assert (member.mode, member.uid, member.mtime) == (0o640, 7, 5)
            found[member.name] = (member.type.decode(), data.read() if data else member.linkname)
    assert found.pop("etc/environment") == ("0", b"A=b c\n")
    assert found.pop("etc/rc")[0] == "0" and found.pop("etc/fstab") == ("0", b"")
    return found


def test_a_higher_layer_wins_and_what_it_removes_is_gone(tmp_path: Path) -> None:
    below: Members = [("d", b"5", b""), ("d/a", b"0", b"1"), ("d/b", b"0", b"2"), ("e", b"5", b""), ("e/x", b"0", b"x")]
    above: Members = [("d/.wh.a", b"0", b""), ("d/b", b"0", b"3"), ("e/.wh..wh..opq", b"0", b""), ("e/y", b"0", b"y")]
    assert flat(tmp_path, below, above) == {
        "d": ("5", ""), "e": ("5", ""), "d/b": ("0", b"3"), "e/y": ("0", b"y"),
    }  # fmt: skip


def test_a_file_in_the_place_of_a_folder_takes_away_what_was_in_it(tmp_path: Path) -> None:
    assert flat(tmp_path, [("d", b"5", b""), ("d/a", b"0", b"1")], [("d", b"2", "elsewhere")]) == {
        "d": ("2", "elsewhere")
    }


def test_hard_links_stay_links(tmp_path: Path) -> None:
    assert flat(tmp_path, [("a", b"0", b"1"), ("b", b"1", "a")]) == {"a": ("0", b"1"), "b": ("1", "a")}


def test_links_to_a_file_that_is_gone_keep_its_content(tmp_path: Path) -> None:
    links: Members = [("a", b"0", b"1"), ("b", b"1", "a"), ("c", b"1", "a")]
    assert flat(tmp_path, links, [(".wh.a", b"0", b"")]) == {"b": ("0", b"1"), "c": ("1", "b")}
    assert flat(tmp_path, links, [("a", b"0", b"new")]) == {"a": ("0", b"new"), "b": ("0", b"1"), "c": ("1", "b")}


def test_names_that_are_long_or_not_ascii_stay_as_they_are(tmp_path: Path) -> None:
    name = "ö" * 90 + "/" + "n" * 150
    assert flat(tmp_path, [(name, b"0", b"1")], [("x", b"2", "l" * 200)]) == {name: ("0", b"1"), "x": ("2", "l" * 200)}
