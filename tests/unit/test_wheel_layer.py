"""A layer of wheels holds what installing them makes, byte for byte, whatever is in them that a wheel may hold."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import posixpath
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from wheel_samples import File, make, patch

from torchyard.errors import Surroundings
from torchyard.oci import Layer
from torchyard.unpacking import INSTALLER, Prefix
from torchyard.world import wheel_layer
from torchyard.world.store import Store
from torchyard.world.wheel_layer import Source

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
UV = Path(sysconfig.get_path("scripts")) / "uv"
LONG = "/".join(["a" * 60] * 4) + "/" + "b" * 100 + ".py"  # more than 256 characters
SCRIPTS = (
    "[console_scripts]\nmain = pack.cli:main\nmain-extra = pack.cli:app.run [extra]\n[gui_scripts]\nwindow = pack:w\n"
)
PACK = {
    "pack/__init__.py": File(data=b"import os\n" * 300),
    "pack/cli.py": File(data=b"def main(): print('x')\n"),
    "pack/empty.py": File(),
    "pack/stored.bin": File(data=bytes(range(256)) * 700, method=zipfile.ZIP_STORED),
    "pack/large.bin": File(data=b"0123456789" * 900_000),
    "pack/zip64.bin": File(data=b"x" * 5000, zip64=True),
    "pack/tool": File(data=b"#!/bin/sh\n", mode=0o755),
    f"pack/{LONG}": File(data=b"long"),
    f"pack/{'c' * 101}": File(data=b"over a hundred"),
    "pack/größe/\U0001f525.txt": File(data="größe".encode()),
    'pack/with, comma "and" quotes.txt': File(data=b"q"),
    "pack-1.0.data/scripts/plain": File(data=b"#!python\nprint(1)\n"),
    "pack-1.0.data/scripts/windowed": File(data=b"#!pythonw -x\r\nprint(1)\n"),
    "pack-1.0.data/scripts/shell": File(data=b"#!/bin/sh\necho\n"),
    "pack-1.0.data/scripts/binary": File(data=b"\x7fELF\0\xff"),
    "pack-1.0.data/data/share/man/man1/pack.1": File(data=b".TH\n"),
    "pack-1.0.data/headers/pack.h": File(data=b"#define X\n"),
    "pack-1.0.data/purelib/pack_more/__init__.py": File(data=b"y = 1\n"),
    "pack-1.0.data/platlib/pack_plat.py": File(data=b"z = 1\n"),
}


def written(wheels: Sequence[Path], folder: Path, root: str = "opt/venv") -> tuple[Layer, bytes]:
    """The layer of these wheels, and the bytes of its blob."""
    store = Store(folder)
    sources = [Source(name=path.name, path=path) for path in wheels]
    layer = wheel_layer.write(sources, Prefix(root=root, python=PYTHON), store, progress=lambda _: None)
    return layer, store.path(layer.digest.removeprefix("sha256:")).read_bytes()


def unpacked(blob: bytes, folder: Path) -> None:
    """Unpack a layer with the programs that everyone has."""
    folder.mkdir()
    plain = subprocess.run(["gzip", "-dc"], input=blob, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xpf", "-", "-C", folder], input=plain, check=True)


def tree(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Every file below a folder: its bytes, and whether it can be run."""
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o111))
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def rows(record: bytes) -> list[list[str]]:
    """The rows of a RECORD, sorted; `./x` and `x` are one path."""
    found = csv.reader(io.StringIO(record.decode()))
    return sorted([posixpath.normpath(name), digest, size] for name, digest, size in found)


def refused(wheels: Sequence[Path], folder: Path) -> Surroundings:
    with pytest.raises(Surroundings) as caught:
        written(wheels, folder)
    assert caught.value.hint
    assert not [path for path in folder.rglob("*") if path.is_file()], "something half-made was kept"
    return caught.value


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with all that a wheel may hold."""
    return make(tmp_path_factory.mktemp("wheels"), "pack", PACK, scripts=SCRIPTS)


def test_the_layer_is_what_the_installer_of_the_standard_makes(pack: Path, tmp_path: Path) -> None:
    venv = tmp_path / "by-installer" / "opt" / "venv"
    prefix = Prefix(root=str(venv).lstrip("/"), python=PYTHON)
    scheme = {key: f"/{path}" for key, path in prefix.scheme("pack").items()}
    destination = SchemeDictionaryDestination(scheme, interpreter=f"{venv}/bin/python", script_kind="posix")
    with WheelFile.open(pack) as source:
        install(source, destination, additional_metadata={"INSTALLER": f"{INSTALLER}\n".encode()})
    _, blob = written([pack], tmp_path / "store", prefix.root)
    unpacked(blob, tmp_path / "layer")
    theirs, ours = tree(venv), tree(tmp_path / "layer" / prefix.root)
    record = next(name for name in ours if name.endswith("RECORD"))
    assert rows(ours.pop(record)[0]) == rows(theirs.pop(record)[0])
    # A script can be run, whatever mode the wheel has for it: pip and uv see to that, installer leaves it to others.
    assert ours == {name: (data, can_run or name.startswith("bin/")) for name, (data, can_run) in theirs.items()}


def test_the_layer_is_what_uv_installs_but_for_its_notes_and_launchers(pack: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    before = tree(venv)
    command = [UV, "pip", "install", "--python", venv / "bin" / "python", "--no-config", "--offline", "--no-index"]
    subprocess.run([*command, "--no-cache", "--no-deps", "--quiet", pack], check=True)
    theirs = {name: file for name, file in tree(venv).items() if name not in before}
    _, blob = written([pack], tmp_path / "store", str(venv).lstrip("/"))
    unpacked(blob, tmp_path / "layer")
    ours = tree(Path(f"{tmp_path}/layer{venv}"))
    notes = {name for name in theirs if name.endswith(("/REQUESTED", "/direct_url.json", "/uv_cache.json", ".lock"))}
    assert theirs.keys() - notes == ours.keys()
    launchers = {"bin/main", "bin/main-extra", "bin/window"}
    differ = {name for name in ours if ours[name] != theirs[name] and name not in launchers}
    assert {name.rpartition("/")[2] for name in differ} <= {"INSTALLER", "RECORD"}
    assert all(theirs[name][1] and ours[name][1] for name in launchers)


def test_every_row_of_record_is_a_file_with_that_hash_and_length_and_every_file_has_a_row(
    pack: Path, tmp_path: Path
) -> None:
    _, blob = written([pack], tmp_path / "store")
    unpacked(blob, tmp_path / "layer")
    site = tmp_path / "layer" / Prefix(root="opt/venv", python=PYTHON).site_packages
    listed = rows((site / "pack-1.0.dist-info" / "RECORD").read_bytes())
    for name, digest, size in listed:
        data = (site / name).read_bytes()
        if digest:
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={expected}", str(len(data))), name
    assert [row[0] for row in listed if not row[1]] == ["pack-1.0.dist-info/RECORD"]
    files = sorted((site / name).resolve() for name, _, _ in listed)
    assert files == sorted(path.resolve() for path in (tmp_path / "layer").rglob("*") if path.is_file())


def test_digest_diff_id_and_lengths_are_those_of_the_bytes(pack: Path, tmp_path: Path) -> None:
    layer, blob = written([pack], tmp_path / "store")
    plain = gzip.decompress(blob)
    assert layer == Layer(
        digest="sha256:" + hashlib.sha256(blob).hexdigest(),
        size=len(blob),
        diff_id="sha256:" + hashlib.sha256(plain).hexdigest(),
        unpacked=len(plain),
    )


def test_writing_twice_gives_equal_bytes_also_from_another_place_and_in_another_order(
    pack: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "w", "other", {"other.py": File(data=b"1")})
    copy = tmp_path / "elsewhere" / pack.name
    copy.parent.mkdir()
    copy.write_bytes(pack.read_bytes())
    first = written([pack, other], tmp_path / "a")
    assert written([other, copy], tmp_path / "b") == first


def test_everything_is_of_root_at_one_time_with_two_modes(pack: Path, tmp_path: Path) -> None:
    _, blob = written([pack], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        members = layer.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", wheel_layer.MTIME)}
    assert {stat.S_IMODE(m.mode) for m in members if m.isfile()} == {0o644, 0o755}
    assert {stat.S_IMODE(m.mode) for m in members if m.isdir()} == {0o755}
    assert all(m.isfile() or m.isdir() for m in members)


def test_folders_come_before_what_is_in_them_and_each_name_comes_once(pack: Path, tmp_path: Path) -> None:
    _, blob = written([pack], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        names = layer.getnames()
    assert len(names) == len(set(names))
    seen = {""}
    for name in names:
        assert name.rpartition("/")[0] in seen
        seen.add(name)


def test_of_a_file_that_two_wheels_bring_the_later_wheels_is_kept(tmp_path: Path) -> None:
    one = make(tmp_path / "w", "aaa", {"shared/__init__.py": File(data=b"first")})
    two = make(tmp_path / "w", "bbb", {"shared/__init__.py": File(data=b"second")})
    _, blob = written([two, one], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        (name,) = [name for name in layer.getnames() if name.endswith("shared/__init__.py")]
        assert layer.extractfile(name).read() == b"second"  # type: ignore[union-attr]


def test_a_file_where_another_wheel_has_a_folder_is_refused(tmp_path: Path) -> None:
    one = make(tmp_path / "w", "aaa", {"shared": File(data=b"a file")})
    two = make(tmp_path / "w", "bbb", {"shared/__init__.py": File()})
    assert "aaa-1.0" in refused([one, two], tmp_path / "store").what


def test_a_wheel_without_files_of_its_own_is_a_layer_of_its_metadata(tmp_path: Path) -> None:
    _, blob = written([make(tmp_path / "w", "bare", {})], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        assert {name.rpartition("/")[2] for name in layer.getnames() if "dist-info/" in name} == {
            "INSTALLER", "METADATA", "RECORD", "WHEEL",
        }  # fmt: skip


def test_record_of_a_wheel_without_moved_files_keeps_its_own_bytes(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "plain", {"plain.py": File(data=b"1")})
    with zipfile.ZipFile(path) as archive:
        own = archive.read("plain-1.0.dist-info/RECORD")
    _, blob = written([path], tmp_path / "store")
    unpacked(blob, tmp_path / "layer")
    (record,) = (tmp_path / "layer").rglob("RECORD")
    assert record.read_bytes().startswith(own)


def test_a_launcher_takes_the_place_of_a_script_of_its_name(tmp_path: Path) -> None:
    files = {"odd-1.0.data/scripts/odd": File(data=b"#!python\n")}
    path = make(tmp_path / "w", "odd", files, scripts="[console_scripts]\nodd = odd:main\n")
    _, blob = written([path], tmp_path / "store")
    unpacked(blob, tmp_path / "layer")
    (record,) = (tmp_path / "layer").rglob("RECORD")
    assert record.read_text().count("bin/odd,") == 1
    assert b"from odd import main" in (tmp_path / "layer/opt/venv/bin/odd").read_bytes()


def test_an_installer_that_a_wheel_brings_is_ours_and_has_one_row(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "odd", {"odd-1.0.dist-info/INSTALLER": File(data=b"pip\n")})
    _, blob = written([path], tmp_path / "store")
    unpacked(blob, tmp_path / "layer")
    (record,) = (tmp_path / "layer").rglob("RECORD")
    assert record.read_text().count("INSTALLER") == 1
    assert record.with_name("INSTALLER").read_text() == f"{INSTALLER}\n"


def test_a_record_without_a_last_newline_gets_one(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "odd", {}, record="odd-1.0.dist-info/RECORD,,")
    _, blob = written([path], tmp_path / "store")
    unpacked(blob, tmp_path / "layer")
    (record,) = (tmp_path / "layer").rglob("RECORD")
    assert len(record.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../escape", "pack/../../escape", "pack\\..\\escape", "pack-1.0.data/scripts/../../x", ".", "a/.."],
)
def test_a_name_that_leads_out_of_the_environment_is_refused(tmp_path: Path, name: str) -> None:
    assert "outside" in refused([make(tmp_path / "w", "pack", {name: File(data=b"x")})], tmp_path / "store").what


def test_a_data_folder_of_an_unknown_scheme_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "pack", {"pack-1.0.data/stdlib/x": File()})
    assert "stdlib" in refused([path], tmp_path / "store").what


def test_a_folder_that_only_looks_like_a_data_folder_is_a_folder(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "pack", {"my.data/scripts/x": File(data=b"1")})
    _, blob = written([path], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        assert f"{Prefix(root='opt/venv', python=PYTHON).site_packages}/my.data/scripts/x" in layer.getnames()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize(
    "wrong",
    [
        {"crc": 1},
        {"size": 999},
        {"size": 1001},
        {"size": 0},
        {"packed": 5},
        {"packed": 1 << 30},
    ],
    ids=str,
)
def test_a_member_that_is_not_what_the_wheel_says_is_refused(
    tmp_path: Path, wrong: dict[str, int], method: int
) -> None:
    path = make(tmp_path / "w", "pack", {"pack.bin": File(data=bytes(range(250)) * 4, method=method)})
    patch(path, "pack.bin", **wrong)
    assert "pack.bin" in refused([path], tmp_path / "store").what


def test_an_empty_member_with_a_checksum_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "pack", {"pack.py": File()})
    patch(path, "pack.py", crc=7)
    assert "pack.py" in refused([path], tmp_path / "store").what


@pytest.mark.parametrize("member", ["pack-1.0.dist-info/RECORD", "pack-1.0.dist-info/entry_points.txt"])
def test_metadata_that_cannot_be_read_is_refused(tmp_path: Path, member: str) -> None:
    path = make(tmp_path / "w", "pack", {}, scripts=SCRIPTS)
    patch(path, member, crc=7)
    refused([path], tmp_path / "store")


def test_another_compression_than_wheels_have_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "w", "pack", {"pack.bin": File(data=b"x" * 100, method=zipfile.ZIP_BZIP2)})
    assert "method 12" in refused([path], tmp_path / "store").what


@pytest.mark.parametrize("text", ["[console_scripts\n", "[console_scripts]\nx = \n", "[console_scripts]\nx = a b c\n"])
def test_entry_points_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    refused([make(tmp_path / "w", "pack", {}, scripts=text)], tmp_path / "store")


@pytest.mark.parametrize("name", ["../x", "..", "a/b"])
def test_a_console_script_outside_bin_is_not_made(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / "w", "pack", {}, scripts=f"[console_scripts]\n{name} = pack:main\n")
    _, blob = written([path], tmp_path / "store")
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        assert not [member for member in layer.getnames() if "/bin/" in member]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not a zip"])
def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "pack-1.0-py3-none-any.whl"
    path.write_bytes(data)
    assert "pack-1.0" in refused([path], tmp_path / "store").what


def test_a_wheel_that_ends_early_is_refused(tmp_path: Path, pack: Path) -> None:
    path = tmp_path / pack.name
    path.write_bytes(pack.read_bytes()[:-40])
    refused([path], tmp_path / "store")


def test_a_wheel_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "No such file" in refused([tmp_path / "gone-1.0-py3-none-any.whl"], tmp_path / "store").what


def test_a_wheel_without_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pack.py", "1")
    assert "no RECORD" in refused([path], tmp_path / "store").what


names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=40
).filter(lambda name: name not in (".", ".."))
members = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(["p", *parts]) + ".x"),
    st.builds(
        File,
        data=st.binary(max_size=3000),
        mode=st.sampled_from([0o644, 0o755, 0o600]),
        method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    ),
    max_size=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(members)
def test_any_files_come_out_as_they_went_in(tmp_path_factory: pytest.TempPathFactory, files: dict[str, File]) -> None:
    folder = tmp_path_factory.mktemp("any")
    folders = {name.rsplit("/", n)[0] for name in files for n in range(1, name.count("/") + 1)}
    files = {name: file for name, file in files.items() if name not in folders}
    _, blob = written([make(folder, "p", files)], folder / "store")
    site = Prefix(root="opt/venv", python=PYTHON).site_packages
    with tarfile.open(fileobj=io.BytesIO(blob)) as layer:
        for name, file in files.items():
            member = layer.getmember(f"{site}/{name}")
            assert layer.extractfile(member).read() == file.data  # type: ignore[union-attr]
            assert bool(member.mode & 0o111) is bool(file.mode & 0o111)
