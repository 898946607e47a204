"""Two small images side by side: what differs is named by layer, path, kind and cause; nothing else is."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import marshal
import os
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from difference_samples import EPOCH, STATUS, Item, config, layer, layout, saved

from torchyard.differ.values import Cause, Compared, Kind
from torchyard.errors import InputError, Surroundings
from torchyard.verbs import comparison, differences_shown

HOUR = 3600


def pyc(source: str, *, timed: int = 0, path: str = "/m.py") -> bytes:
    """Bytecode with the hash of its source, or with a time."""
    told = (
        bytes(4) + timed.to_bytes(4, "little") + len(source).to_bytes(4, "little")
        if timed
        else (1).to_bytes(4, "little") + importlib.util.source_hash(source.encode())
    )
    return importlib.util.MAGIC_NUMBER + told + marshal.dumps(compile(source, path, "exec"))


def zipped(data: bytes, year: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt", (year, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


def elf(words: bytes) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(57) + bytes(range(256)) + words + bytes(200)


BASE = (
    Item(path="etc/", folder=True, mode=0o755),
    Item(path="etc/hostname", data=b"yard\n"),
    Item(path="etc/machine-id", data=b""),
    Item(path="usr/bin/tool", data=b"#!/bin/sh\n", mode=0o755),
    Item(path="usr/lib/libfoo.so.1", data=elf(b"")),
    Item(path="usr/lib/python3/m.pyc", data=pyc("x = 1")),
    Item(path="var/lib/dpkg/info/libfoo.list", data=b"/.\n/usr\n/usr/lib\n/usr/lib/libfoo.so.1\n"),
    Item(path="var/lib/dpkg/status", data=STATUS.encode()),
)


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Two states of a layer that are put on the base, and what has to be said of one path."""

    was: tuple[Item, ...]
    now: tuple[Item, ...]
    path: str
    kind: Kind
    cause: Cause
    words: str = ""
    also: frozenset[Kind] = frozenset()  # kinds that may be told beside it


def content(path: str, was: bytes, now: bytes, cause: Cause, words: str = "") -> Seed:
    return Seed(
        was=(Item(path=path.strip("/"), data=was),),
        now=(Item(path=path.strip("/"), data=now),),
        path=path,
        kind=Kind.CONTENT,
        cause=cause,
        words=words,
    )


def header(path: str, kind: Kind, cause: Cause, words: str = "", **changed: object) -> Seed:
    item = Item(path=path.strip("/"), data=b"same")
    return Seed(was=(item,), now=(replace(item, **changed),), path=path, kind=kind, cause=cause, words=words)  # type: ignore[arg-type]  # any field


TWO = (Item(path="opt/a", data=b"same"), Item(path="opt/b", data=b"same"))
FRESH = b"glibc-ld.so.cache1.1" + bytes(28)
SEEDS = {
    "bytecode with a time": content(
        "/opt/m.pyc", pyc("x = 1"), pyc("x = 1", timed=EPOCH), Cause.BYTECODE, "the time of its source"
    ),
    "bytecode with another time": content(
        "/opt/m.pyc", pyc("x = 1", timed=EPOCH), pyc("x = 1", timed=EPOCH + 1), Cause.BYTECODE, "time of the source"
    ),
    "bytecode compiled elsewhere": content(
        "/opt/m.pyc", pyc("x = 1"), pyc("x = 1", path="/tmp/m.py"), Cause.BYTECODE, "co_filename"
    ),
    "bytecode of another constant": content(
        "/opt/m.pyc", pyc("def f():\n  return 1000"), pyc("def f():\n  return 2000"), Cause.BYTECODE, "co_consts"
    ),
    "a log of dpkg": content("/var/log/dpkg.log", b"a\n", b"b\n", Cause.LOG),
    "a log in another place": content(
        "/opt/made/output",
        b"2024-01-01 10:00:00 start\n2024-01-01 10:00:01 7 files\n",
        b"2025-02-02 11:00:00 start\n2025-02-02 11:00:04 9 files\n",
        Cause.LOG,
    ),
    "the loader's cache": content("/etc/ld.so.cache", FRESH + b"a", FRESH + b"b", Cause.LDCONFIG),
    "the loader's auxiliary cache": content(
        "/var/cache/ldconfig/aux-cache", b"glibc-ld.so.auxcache-1.0a", b"glibc-ld.so.auxcache-1.0b", Cause.LDCONFIG
    ),
    "a build time as text": content(
        "/opt/info",
        b"built: Mon Nov 30 20:46:17 UTC 2026\nby: me\n",
        b"built: Tue Dec  1 08:01:02 UTC 2026\nby: me\n",
        Cause.TIME,
        "line 1",
    ),
    "a build time as a number": content("/opt/t.json", b'{"t": 1790000000}', b'{"t": 1790001234}', Cause.TIME),
    "a build time in ISO 8601": content(
        "/opt/v.py", b"T = '2026-11-30T20:46:17Z'\n", b"T = '2026-11-30T20:47:00Z'\n", Cause.TIME
    ),
    "a time in machine code": content(
        "/usr/lib/x.so", elf(b"\0Nov 30 2026\0" + b"20:46:17\0"), elf(b"\0Dec  1 2026\0" + b"08:01:02\0"), Cause.TIME
    ),
    "a time as a binary number": content(
        "/opt/x.bin",
        b"\0\1\2\3" * 9 + (EPOCH).to_bytes(4, "little") + b"\0" * 9,
        b"\0\1\2\3" * 9 + (EPOCH + HOUR).to_bytes(4, "little") + b"\0" * 9,
        Cause.TIME,
    ),
    "a time in a gzip header": content(
        "/usr/share/doc/x.gz", gzip.compress(b"x", mtime=1), gzip.compress(b"x", mtime=EPOCH), Cause.TIME, "gzip header"
    ),
    "a date in a zip": content("/opt/x.jar", zipped(b"x", 2024), zipped(b"x", 2025), Cause.TIME, "zip"),
    "the machine's id": content("/etc/machine", b"0" * 32 + b"\n", b"9f" * 16 + b"\n", Cause.RANDOM),
    "a UUID": content(
        "/opt/conf",
        b"id = 3f2504e0-4f89-41d3-9a0c-0305e82c3301\n",
        b"id = 7d444840-9dc0-41d1-b245-5ffdce74fad2\n",
        Cause.RANDOM,
    ),
    "a drawn name in a text": content(
        "/opt/conf", b"folder = /tmp/tmpab1c_d3x\n", b"folder = /tmp/tmp0qz1mm8_\n", Cause.RANDOM
    ),
    "a host's key": content("/etc/ssh/ssh_host_rsa_key.pub", b"ssh-rsa AAAA", b"ssh-rsa AAAB", Cause.RANDOM),
    "the day of a password": content(
        "/etc/shadow", b"root:*:19000:0:99999:7:::\n", b"root:*:19999:0:99999:7:::\n", Cause.TIME
    ),
    "lines in another order": content("/opt/list", b"b\na\nc\n", b"a\nb\nc\n", Cause.ORDER),
    "another version of a word": content("/opt/v", b"version 1.2.3\n", b"version 1.2.4\n", Cause.UNKNOWN),
    "other words": content("/opt/w", b"hello\n", b"goodbye\n", Cause.UNKNOWN),
    "other machine code": content("/opt/x.so", elf(b"abc"), elf(b"xyz"), Cause.UNKNOWN),
    "the order of files": Seed(was=TWO, now=TWO[::-1], path="/opt/a", kind=Kind.ORDER, cause=Cause.ORDER),
    "a time after the epoch": header("/opt/f", Kind.MTIME, Cause.CLOCK, "later than the epoch", mtime=EPOCH + 1),
    "a part of a second": header("/opt/f", Kind.MTIME, Cause.CLOCK, mtime=EPOCH - 0.5),
    "rights": header("/opt/f", Kind.MODE, Cause.RIGHTS, mode=0o600),
    "set-uid": header("/opt/f", Kind.MODE, Cause.RIGHTS, "setuid", mode=0o4644),
    "an owner": header("/opt/f", Kind.OWNER, Cause.OWNER, uid=1000),
    "a group": header("/opt/f", Kind.OWNER, Cause.OWNER, gid=5),
    "a capability": header(
        "/opt/f", Kind.XATTR, Cause.CAPABILITY, xattrs={"security.capability": "\1\0\0\2\0\x04" + "\0" * 14}
    ),
    "an attribute": header("/opt/f", Kind.XATTR, Cause.ATTRIBUTE, xattrs={"user.note": "x"}),
    "a copy instead of a hard link": Seed(
        was=TWO,
        now=(TWO[0], Item(path="opt/b", hard="opt/a")),
        path="/opt/b",
        kind=Kind.LINK,
        cause=Cause.HARDLINK,
        words="a copy",
    ),
    "a hard link instead of another file": Seed(
        was=(Item(path="opt/a", data=b"one"), Item(path="opt/b", data=b"other")),
        now=(Item(path="opt/a", data=b"other"), Item(path="opt/b", hard="opt/a")),
        path="/opt/a",
        kind=Kind.CONTENT,
        cause=Cause.HARDLINK,
        words="/opt/b",
        also=frozenset({Kind.LINK}),
    ),
    "a link to another place": Seed(
        was=(Item(path="opt/l", link="a"),),
        now=(Item(path="opt/l", link="b"),),
        path="/opt/l",
        kind=Kind.LINK,
        cause=Cause.SYMLINK,
    ),
    "another version of a package": Seed(
        was=(Item(path="var/lib/dpkg/status", data=STATUS.encode()), BASE[4], BASE[6]),
        now=(
            Item(path="var/lib/dpkg/status", data=STATUS.replace("1.0-1", "1.0-2").encode()),
            replace(BASE[4], data=elf(b"new")),
            BASE[6],
        ),
        path="/usr/lib/libfoo.so.1",
        kind=Kind.CONTENT,
        cause=Cause.ARCHIVE,
        words="libfoo 1.0-1 and 1.0-2",
    ),
    "a record of a moved package": content(
        "/var/lib/dpkg/status", STATUS.encode(), STATUS.replace("2.0", "2.1").encode(), Cause.ARCHIVE, "bar 2.0 and 2.1"
    ),
    "a file taken away": Seed(
        was=TWO[:1],
        now=(*TWO[:1], Item(path="etc/.wh.hostname")),
        path="/etc/hostname",
        kind=Kind.WHITEOUT,
        cause=Cause.UNKNOWN,
    ),
    "a drawn file name": Seed(
        was=(Item(path="tmp/tmpab1c_d3x", data=b"x"),),
        now=(Item(path="tmp/tmp0qz1mm8_", data=b"x"),),
        path="/tmp/tmp0qz1mm8_",
        kind=Kind.ADDED,
        cause=Cause.RANDOM,
        also=frozenset({Kind.REMOVED}),
    ),
    "a log that one has": Seed(
        was=TWO, now=(*TWO, Item(path="var/log/x", data=b"x")), path="/var/log/x", kind=Kind.ADDED, cause=Cause.LOG
    ),
}


def compared(folder: Path, was: tuple[Item, ...], now: tuple[Item, ...]) -> Compared:
    """Two images of two layers, of which the upper one differs."""
    base = layer(BASE)
    first = layout(folder / "first", [base, layer(was)])
    second = layout(folder / "second", [base, layer(now)])
    return comparison.compare(first, second, epoch=EPOCH, say=lambda _: None)


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_is_named_by_layer_path_kind_and_cause(tmp_path: Path, name: str) -> None:
    seed = SEEDS[name]
    found = compared(tmp_path, seed.was, seed.now)
    assert not found.equal
    told = [each for each in found.differences if each.path == seed.path]
    assert [(each.layer, each.kind, each.cause) for each in told] == [(2, seed.kind, seed.cause)]
    assert seed.words in told[0].detail
    if seed.cause is not Cause.ARCHIVE:
        assert {each.kind for each in found.differences} <= {seed.kind, *seed.also}
        assert {each.path for each in found.differences if each.kind not in seed.also} == {seed.path}


# The order of entries in one layer, or the names in another, cannot be seen from a layer on top.
ON_TOP = [name for name, seed in SEEDS.items() if seed.kind is not Kind.ORDER and name != "a drawn file name"]


@pytest.mark.parametrize("name", ON_TOP)
def test_a_seed_on_top_of_a_good_image_is_named_too(tmp_path: Path, name: str) -> None:
    seed = SEEDS[name]
    lower = [layer(BASE), layer(seed.was)]
    first, second = layout(tmp_path / "a", lower), layout(tmp_path / "b", [*lower, layer(seed.now)])
    found = comparison.compare(first, second, epoch=EPOCH, say=lambda _: None)
    told = [each for each in found.differences if each.path == seed.path]
    expected = Cause.STEP if seed.kind is Kind.WHITEOUT else seed.cause
    assert [(each.layer, each.kind, each.cause) for each in told] == [(3, seed.kind, expected)]


def test_a_layer_that_only_the_first_image_has_is_told_the_other_way_round(tmp_path: Path) -> None:
    lower = [layer(BASE)]
    upper = [
        Item(path="opt/built", data=b"Mon Nov 30 20:46:17 UTC 2026\n"),
        replace(BASE[3], mtime=EPOCH + 1),
        Item(path="etc/.wh.hostname"),
    ]
    first, second = layout(tmp_path / "a", [*lower, layer(upper)]), layout(tmp_path / "b", lower)
    found = comparison.compare(first, second, epoch=EPOCH, say=lambda _: None)
    told = {each.path: (each.kind, each.cause, each.now) for each in found.differences if each.path[:1] == "/"}
    assert told == {
        "/opt/built": (Kind.REMOVED, Cause.TIME, "none"),
        "/usr/bin/tool": (Kind.MTIME, Cause.CLOCK, "2023-11-14T22:13:20Z"),
        "/etc/hostname": (Kind.WHITEOUT, Cause.STEP, "not taken away"),
    }
    assert "in the first image" in next(each.detail for each in found.differences if each.kind is Kind.MTIME)


def test_an_unseeded_pair_is_equal(tmp_path: Path) -> None:
    found = compared(tmp_path, TWO, TWO)
    assert found.equal and found.late == ()
    assert differences_shown.lines(found)[0] == f"equal: {found.first.digest}"


def test_an_image_equals_itself_in_every_form(tmp_path: Path) -> None:
    layers = [layer(BASE), layer(TWO)]
    folder, archive = layout(tmp_path / "a", layers), saved(tmp_path / "a.tar", layers)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    for other in (folder, archive, f"{archive}.gz", f"{archive}@a:b"):
        assert comparison.compare(folder, other, epoch=None, say=lambda _: None).equal


def test_another_compressor_alone_is_said_as_such(tmp_path: Path) -> None:
    layers = [layer(BASE), layer([Item(path="opt/long", data=b"abc" * 9000)])]
    first, second = layout(tmp_path / "a", layers, level=1), layout(tmp_path / "b", layers, level=9)
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    assert not found.equal and found.same_content
    assert {(each.kind, each.cause) for each in found.differences} == {(Kind.COMPRESSION, Cause.COMPRESSION)}


def test_headers_in_another_form_are_said_as_such(tmp_path: Path) -> None:
    first = layout(tmp_path / "a", [layer(TWO, form=tarfile.PAX_FORMAT)])
    second = layout(tmp_path / "b", [layer(TWO, form=tarfile.GNU_FORMAT)])
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    assert {(each.kind, each.cause) for each in found.differences} == {(Kind.HEADER, Cause.WRITER)}


def test_a_layer_written_by_another_program_is_one_difference_beside_the_real_ones(tmp_path: Path) -> None:
    many = [Item(path=f"opt/{number}", data=b"x") for number in range(50)]
    first = layout(tmp_path / "a", [layer(many, form=tarfile.GNU_FORMAT)])
    other = [replace(many[0], mode=0o600), *many[1:]]
    second = layout(tmp_path / "b", [layer(other, form=tarfile.PAX_FORMAT)])
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    told = [(each.path, each.kind, each.cause, each.was) for each in found.differences]
    assert told == [
        ("/opt/0", Kind.MODE, Cause.RIGHTS, "0644"),
        ("", Kind.HEADER, Cause.WRITER, "49 of 50 headers in one form"),
    ]


def test_bytes_behind_the_last_entry_are_said_as_such(tmp_path: Path) -> None:
    first, second = layout(tmp_path / "a", [layer(TWO)]), layout(tmp_path / "b", [layer(TWO) + bytes(10240)])
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    assert [(each.layer, each.path, each.kind) for each in found.differences] == [(1, "", Kind.HEADER)]


def test_times_in_configuration_and_history_are_named(tmp_path: Path) -> None:
    layers = [layer(TWO)]
    late = config(layers, created="2024-01-01T00:00:00.5Z")
    first, second = layout(tmp_path / "a", layers), layout(tmp_path / "b", layers, late)
    found = comparison.compare(first, second, epoch=EPOCH, say=lambda _: None)
    assert {(each.kind, each.path, each.cause) for each in found.differences} == {
        (Kind.CONFIG, "created", Cause.CLOCK),
        (Kind.HISTORY, "history[0].created", Cause.CLOCK),
    }
    assert [(each.count, each.where) for each in found.late] == [(2, f"{second}: configuration")]


def test_a_variable_with_a_random_id_is_named(tmp_path: Path) -> None:
    layers = [layer(TWO)]
    told = [config(layers), config(layers)]
    told[0]["config"]["Env"] = ["BUILD=3f2504e0-4f89-41d3-9a0c-0305e82c3301"]
    told[1]["config"]["Env"] = ["BUILD=7d444840-9dc0-41d1-b245-5ffdce74fad2"]
    first, second = (layout(tmp_path / str(number), layers, each) for number, each in enumerate(told))
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    assert [(each.path, each.cause) for each in found.differences] == [("config.Env[0]", Cause.RANDOM)]


def test_every_time_after_the_epoch_is_counted(tmp_path: Path) -> None:
    late = tuple(replace(item, mtime=EPOCH + 5) for item in TWO)
    found = compared(tmp_path, TWO, late)
    assert [(each.count, each.first) for each in found.late] == [(2, ("/opt/a", "/opt/b"))]


def test_files_without_the_same_rights_tell_a_umask(tmp_path: Path) -> None:
    was = tuple(Item(path=f"opt/{number}", data=b"x", mode=0o644) for number in range(4))
    found = compared(tmp_path, was, tuple(replace(item, mode=0o600) for item in was))
    assert {(each.kind, each.cause, each.detail[:3]) for each in found.differences} == {(Kind.MODE, Cause.UMASK, "077")}


def test_what_follows_from_another_difference_says_so(tmp_path: Path) -> None:
    folder = Item(path="opt/", folder=True, mode=0o755)
    record = "usr/lib/site-packages/m-1.dist-info/RECORD"
    was = (folder, Item(path="usr/lib/site-packages/m.py", data=b"a"), Item(path=record, data=b"m.py,sha256=a,1\n"))
    now = (
        replace(folder, mtime=EPOCH + 1),
        Item(path="opt/new", data=b"x"),
        Item(path="usr/lib/site-packages/m.py", data=b"b"),
        Item(path=record, data=b"m.py,sha256=b,1\n"),
    )
    found = {each.path: each.cause for each in compared(tmp_path, was, now).differences}
    assert found[f"/{record}"] is Cause.CONSEQUENCE and found["/opt"] is Cause.CONSEQUENCE
    assert found["/usr/lib/site-packages/m.py"] is Cause.UNKNOWN


def test_layers_that_are_not_what_they_are_called_are_found(tmp_path: Path) -> None:
    layers = [layer(BASE), layer(TWO)]
    first, second = layout(tmp_path / "a", layers), layout(tmp_path / "b", layers)
    blob = sorted((tmp_path / "b" / "blobs" / "sha256").iterdir(), key=lambda p: p.stat().st_size)[-1]
    blob.write_bytes(gzip.compress(layer([replace(BASE[1], data=b"evil")]), mtime=0))
    found = comparison.compare(first, second, epoch=None, say=lambda _: None)
    assert not found.equal
    assert [(each.layer, each.kind) for each in found.differences] == [(1, Kind.LAYER)]


def test_documents_with_other_bytes_than_their_digest_are_refused(tmp_path: Path) -> None:
    first, second = layout(tmp_path / "a", [layer(TWO)]), layout(tmp_path / "b", [layer(TWO)])
    for blob in (tmp_path / "b" / "blobs" / "sha256").iterdir():
        if b"rootfs" in blob.read_bytes():
            blob.write_bytes(blob.read_bytes().replace(b"amd64", b"arm64"))
    with pytest.raises(InputError, match="other bytes"):
        comparison.compare(first, second, epoch=None, say=lambda _: None)


@pytest.mark.parametrize("name", ["nothing", "a folder", "a text"])
def test_what_is_no_image_is_refused_with_a_hint(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = layout(tmp_path / "good", [layer(TWO)])
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a text").write_text("hello" * 200)
    if name == "nothing":
        (tmp_path / name).write_bytes(layer(TWO))
    with pytest.raises(InputError) as caught:
        comparison.compare(good, str(tmp_path / name), epoch=None, say=lambda _: None)
    assert caught.value.hint


def test_a_layer_cut_short_is_refused_without_a_traceback(tmp_path: Path) -> None:
    first = layout(tmp_path / "a", [layer(TWO)])
    second = layout(tmp_path / "b", [layer([*TWO, Item(path="opt/c", data=b"x" * 9000)])])
    blobs = sorted((tmp_path / "b" / "blobs" / "sha256").iterdir())
    for blob in blobs:
        data = blob.read_bytes()
        if data[:2] == b"\x1f\x8b":
            blob.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        comparison.compare(first, second, epoch=None, say=lambda _: None)


def test_the_json_has_every_difference(tmp_path: Path) -> None:
    found = compared(tmp_path, TWO, tuple(replace(item, uid=7, mode=0o600) for item in TWO))
    told = json.loads(json.dumps(differences_shown.document(found)))
    assert not told["equal"]
    assert {(each["path"], each["kind"], each["cause"]) for each in told["differences"]} == {
        ("/opt/a", "mode", "other rights"),
        ("/opt/a", "owner", "another user"),
        ("/opt/b", "mode", "other rights"),
        ("/opt/b", "owner", "another user"),
    }
    assert all(each["layer"] == 2 and each["step"] == "RUN step 1" for each in told["differences"])


def test_diffoscope_is_asked_for_and_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = layout(tmp_path / "a", [layer(TWO)]), layout(tmp_path / "b", [layer(TWO[:1])])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Surroundings, match="not installed"):
        comparison.compare(first, second, epoch=None, say=lambda _: None, look=True)


def test_the_program_called_diffoscope_is_given_the_files_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "diffoscope"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nshift 3\nexec diff -u "$@"\n')  # the real one takes the same words, and minutes
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    first = layout(tmp_path / "a", [layer([Item(path="opt/a", data=b"one\n"), TWO[1]])])
    second = layout(tmp_path / "b", [layer([Item(path="opt/a", data=b"two\n"), TWO[1]])])
    found = comparison.compare(first, second, epoch=None, say=lambda _: None, look=True)
    assert [(each.layer, each.path) for each in found.looked] == [(1, "/opt/a")]
    assert "-one" in found.looked[0].text and "+two" in found.looked[0].text
