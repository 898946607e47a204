"""How layers are read: tar streams, machine code, links, what a later layer hides, what a secret looks like."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tarfile
import threading
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest
import zstandard

from torchyard import junit
from torchyard.errors import CheckFailed
from torchyard.finding import Finding, State
from torchyard.judge import static_patterns as patterns
from torchyard.world import image_elf, image_layer, image_receiver
from torchyard.world.image_layer import Seen
from torchyard.world.image_tar import Tar
from torchyard.world.image_tree import Tree

KEY = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"A" * 64 + b"\n-----END RSA PRIVATE KEY-----\n"
STAMPED, HASHED = bytes(16), b"\xa7\r\r\n\x01\0\0\0" + bytes(8)


def tar(files: dict[str, bytes | str], **more: int) -> bytes:
    """A tar: bytes are files, a text is a link, a name that ends in / a folder."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mtime = more.get("mtime", 0)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            elif isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
            else:
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return made.getvalue()


def seen(files: dict[str, bytes | str]) -> Seen:
    """What is seen of a layer with these files."""
    return image_layer.scan(io.BytesIO(tar(files)), "test")


def test_entries_come_with_long_names_times_and_data() -> None:
    name = "a/" * 120 + "file"
    archive = Tar(io.BytesIO(tar({name: b"hello", "b": b""}, mtime=1795913593)))
    entries = iter(archive)
    first = next(entries)
    assert (first.path, first.size, first.mtime) == (f"/{name}", 5, 1795913593)
    assert archive.data() == b"hello"
    assert [entry.path for entry in entries] == ["/b"]


@pytest.mark.parametrize("cut", [100, 700, 1500])
def test_a_layer_that_ends_early_is_refused(cut: int) -> None:
    whole = tar({"one": b"x" * 2000, "two": b"y"})
    with pytest.raises(CheckFailed, match="cannot be read"):
        image_layer.scan(io.BytesIO(whole[:cut]), "test")


@pytest.mark.parametrize("packed", [gzip.compress, zstandard.compress, bytes], ids=["gzip", "zstd", "plain"])
def test_a_layer_is_read_however_it_is_compressed(packed: object) -> None:
    data = packed(tar({"etc/os-release": b"ID=debian\n"}))  # type: ignore[operator]
    stream = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    inner = image_layer.opened(stream, stream.peek(512)[:512])
    assert inner is not None
    assert image_layer.scan(inner, "test").texts == {"/etc/os-release": "ID=debian\n"}


def test_a_document_is_no_layer() -> None:
    assert image_layer.opened(io.BytesIO(b'{"a": 1}'), b'{"a": 1}') is None


def test_what_was_seen_of_a_layer_is_kept_and_read_again() -> None:
    layer = seen(
        {"root/.netrc": b"machine a login b password c", "x.pyc": STAMPED, "bin/py": Path(sys.executable).read_bytes()}
    )
    assert Seen.from_json(layer.to_json()) == layer
    assert Seen.from_json(b'{"format": 0}') is None
    assert Seen.from_json(b"no json") is None


def test_bytecode_with_a_time_is_told_from_one_with_a_hash() -> None:
    assert seen({"a.pyc": STAMPED, "b.pyc": HASHED}).timed == ["/a.pyc"]


def test_this_python_is_machine_code_that_needs_a_c_library() -> None:
    elf = image_elf.read(Path(sys.executable).resolve().read_bytes())
    assert elf is not None
    assert "libc.so.6" in elf.needed


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_what_only_begins_like_machine_code_is_none(data: bytes) -> None:
    assert image_elf.read(data) is None


def test_machine_code_of_32_bits_is_told_by_its_machine() -> None:
    header = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HH", 2, 3) + bytes(60)
    assert image_elf.read(header) == image_elf.Elf(machine="i386")


def test_a_later_layer_hides_replaces_and_empties() -> None:
    first = seen({"a/": b"", "a/one": b"1", "a/two": b"2", "b/": b"", "b/three": b"3", "c/": b"", "c/four": b"4"})
    second = seen({"a/.wh.one": b"", "b/.wh..wh..opq": b"", "b/new": b"n", ".wh.c": b""})
    tree = Tree([first, second])
    assert sorted(path for path, _ in tree.files()) == ["/a/two", "/b/new"]
    assert [tree.lost(path) for path in ("/a/one", "/b/three", "/c/four", "/a/two")] == [1, 1, 1, -1]


def test_links_are_followed_through_folders_and_a_loop_leads_nowhere() -> None:
    tree = Tree(
        [
            seen(
                {
                    "usr/lib/": b"",
                    "usr/lib/x.so.1": b"x",
                    "lib": "usr/lib",
                    "usr/lib/x.so": "x.so.1",
                    "up": "../lib/./x.so",
                    "loop": "loop",
                }
            )
        ]
    )
    assert tree.resolve("/lib/x.so") == "/usr/lib/x.so.1"
    assert tree.resolve("/up") == "/usr/lib/x.so.1"
    assert tree.resolve("/loop") is None
    assert tree.resolve("/lib/nothing") is None


@pytest.mark.parametrize(
    ("path", "data", "what"),
    [
        ("/root/.ssh/id_rsa", KEY, "a private key"),
        ("/x", b"aws = AKIA" + b"Q" * 16, "an AWS key"),
        ("/x", b"token: ghp_" + b"a" * 36, "a GitHub token"),
        ("/x", b"hf_" + b"a" * 34, "a Hugging Face token"),
        (
            "/etc/pip.conf",
            b"[global]\nindex-url = https://me:secretword@files.example.org/simple",
            "credentials in an address",
        ),
        ("/root/.netrc", b"machine a login b password c", "a .netrc with a password"),
        ("/home/u/.git-credentials", b"https://x@y", "git's stored credentials"),
        ("/root/.aws/credentials", b"aws_secret_access_key = x", "AWS credentials"),
        ("/root/.docker/config.json", b'{"auths": {"r": {"auth": "eDp5"}}}', "a registry login"),
        ("/root/.docker/config.json", b'{"auths": {}}', ""),
        ("/x", b"AKIAIOSFODNN7EXAMPLE", ""),
        ("/x", b"-----BEGIN PRIVATE KEY-----", ""),
        ("/x", b"https://user:password@example.org", ""),
        ("/etc/pip.conf", b"index-url = https://user:password@example.org/s", "credentials in an address"),
        ("/x", b"postgresql://{user}:{word}@{host}/x", ""),
        ("/x", b"git+ssh://git@github.com/x", ""),
    ],
)
def test_secrets_are_told_from_what_only_looks_like_one(path: str, data: bytes, what: str) -> None:
    assert patterns.secret_in(path, data) == what


@pytest.mark.parametrize(
    ("path", "data", "hosts"),
    [
        ("/etc/apt/sources.list", b"deb http://mirror.example.org/debian x main\n", ("mirror.example.org",)),
        (
            "/etc/apt/apt.conf.d/9",
            b'Acquire::http::Proxy "http://p.example.org:3128";',
            ("p.example.org:3128", "a proxy"),
        ),
        ("/etc/environment", b"# https_proxy=http://x\n", ()),
        ("/root/.config/pip/pip.conf", b"index-url=https://a:b@m.example.org/s", ("m.example.org",)),
    ],
)
def test_hosts_in_configuration_are_named_without_their_passwords(
    path: str, data: bytes, hosts: tuple[str, ...]
) -> None:
    assert patterns.is_config(path)
    assert patterns.hosts(data) == hosts


def test_a_build_argument_that_is_a_secret_by_its_name_is_seen() -> None:
    assert patterns.secret_step("RUN |1 DEPLOY_TOKEN=abcdef /bin/sh -c make") == "a secret by its name (DEPLOY_TOKEN)"
    assert patterns.secret_step("RUN |1 SOURCE_DATE_EPOCH=1 /bin/sh -c make") == ""


def test_steps_that_name_an_index_or_a_proxy_are_seen() -> None:
    assert patterns.address_step("RUN pip install --index-url https://a:b@m.example.org/simple x") == ("m.example.org",)
    assert patterns.address_step("ENV PIP_INDEX_URL=https://m.example.org/simple") == ("m.example.org",)
    assert patterns.address_step("ENV UV_CONSTRAINT=/opt/venv/held.txt UV_SYSTEM_CERTS=1") == ()
    assert patterns.proxy_step("RUN http_proxy=http://p:1 curl x") == ("http_proxy",)


def test_a_loaders_cache_says_which_folders_it_leads_to() -> None:
    texts = b"liba.so\0/usr/lib/liba.so\0libb.so\0/opt/stubs/libb.so\0"
    start = 48 + 2 * 24
    rows = b"".join(
        struct.pack("<iIIIQ", 1, start + texts.index(k), start + texts.index(v), 0, 0)
        for k, v in ((b"liba", b"/usr"), (b"libb", b"/opt"))
    )
    data = b"glibc-ld.so.cache1.1" + struct.pack("<II", 2, len(texts)) + bytes(20) + rows + texts
    assert image_layer.loader_folders(data) == ("/usr/lib", "/opt/stubs")
    assert image_layer.loader_folders(b"something else") == ()


def test_a_pushed_image_sends_only_the_layers_that_are_not_known() -> None:
    looked: list[str] = []
    known = "sha256:" + "a" * 64
    with image_receiver.receiving(lambda digest: digest == known, lambda stream, digest: looked.append(digest)) as (
        address,
        pushed,
    ):
        base = f"http://{address}/v2/reading"
        assert _status(f"{base}/blobs/{known}", "HEAD") == 200
        other = "sha256:" + "b" * 64
        assert _status(f"{base}/blobs/{other}", "HEAD") == 404
        assert _status(f"{base}/blobs/uploads/", "POST", b"") == 202
        assert _status(f"{base}/blobs/uploads/1?digest={other.replace(':', '%3A')}", "PUT", b"\x1f\x8b layer") == 201
        document = json.dumps({"rootfs": {}}).encode()
        assert _status(f"{base}/blobs/uploads/2?digest=sha256:{'c' * 64}", "PUT", document) == 201
        assert _status(f"{base}/manifests/one", "PUT", b"{}") == 201
    assert looked == [other]
    assert pushed.documents == {"sha256:" + "c" * 64: document}
    assert pushed.manifests == [b"{}"]
    assert not [t for t in threading.enumerate() if "serve_forever" in t.name]


def _status(url: str, method: str, data: bytes | None = None) -> int:
    request = urllib.request.Request(url, data=data, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_findings_become_junit_cases_with_their_cause() -> None:
    findings = [
        Finding(rule="a", state=State.PASS),
        Finding(
            rule="b", state=State.FAIL, what="w\x00", expected="e", seen="<s>", fix="f", because="consequence of c"
        ),
        Finding.skipped("d", because="no GPU"),
    ]
    suite = ElementTree.fromstring(junit.text({"image": findings}))[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    failure = suite[1][0]
    assert failure.get("message") == "w� (consequence of c)"
    assert "seen: <s>" in (failure.text or "")
    assert suite[2][0].get("message") == "no GPU"
