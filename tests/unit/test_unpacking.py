"""Where the files of a wheel go: names in, paths out."""

from __future__ import annotations

import zipfile

import pytest

from torchyard.errors import Surroundings
from torchyard.unpacking import Entry, Prefix, entries, wanted_texts

PREFIX = Prefix(root="opt/venv", python="3.11")
SITE = "opt/venv/lib/python3.11/site-packages"
RECORD = "my_pack-1.0.dist-info/RECORD"


def laid(*names: str, **texts: str) -> dict[str, Entry]:
    """The entries of a wheel with members of these names."""
    members = [zipfile.ZipInfo(name) for name in (*names, RECORD)]
    found = entries("my_pack-1.0-py3-none-any.whl", members, {RECORD: f"{RECORD},,\n", **texts}, PREFIX)
    assert [entry.path for entry in found] == sorted(entry.path for entry in found)
    return {entry.path: entry for entry in found}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("pack/x.py", f"{SITE}/pack/x.py"),
        ("my_pack-1.0.data/purelib/x.py", f"{SITE}/x.py"),
        ("my_pack-1.0.data/platlib/x.so", f"{SITE}/x.so"),
        ("my_pack-1.0.data/scripts/run", "opt/venv/bin/run"),
        ("my_pack-1.0.data/headers/x.h", "opt/venv/include/site/python3.11/my_pack/x.h"),
        ("my_pack-1.0.data/data/share/x", "opt/venv/share/x"),
        ("other-1.0.data/scripts/run", f"{SITE}/other-1.0.data/scripts/run"),
        ("pack//x.py", f"{SITE}/pack/x.py"),
        ("./pack/x.py", f"{SITE}/pack/x.py"),
    ],
)
def test_a_member_goes_where_the_venv_scheme_says(name: str, path: str) -> None:
    assert path in laid(name)


def test_folders_are_no_files() -> None:
    assert not [path for path in laid("pack/", "pack/sub/") if "pack/" in path.removeprefix(SITE + "/my_pack")]


def test_a_script_with_the_placeholder_runs_the_environments_python() -> None:
    name = "my_pack-1.0.data/scripts/run"
    made = laid(name, **{name: "#!python -u\nprint('\udcff')\n"})["opt/venv/bin/run"]
    assert made.tail == b"#!/opt/venv/bin/python\nprint('\xff')\n"
    assert made.executable and made.size == len(made.tail)


def test_a_wheel_with_two_records_is_refused() -> None:
    with pytest.raises(Surroundings, match="2 RECORD"):
        laid("other-1.0.dist-info/RECORD")


def test_a_record_of_a_distribution_inside_is_only_a_file() -> None:
    assert f"{SITE}/pack/_vendor/x-1.0.dist-info/RECORD" in laid("pack/_vendor/x-1.0.dist-info/RECORD")


def test_texts_are_read_of_metadata_and_scripts_alone() -> None:
    names = [RECORD, "a-1.dist-info/entry_points.txt", "a-1.data/scripts/x", "a-1.data/scripts/", "a/x.py", "RECORD"]
    assert wanted_texts(names) == names[:3]
