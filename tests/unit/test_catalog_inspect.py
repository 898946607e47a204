"""Wheels read into rows: device code from fat binaries, pins from metadata, and whether the catalogue agrees."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from torchyard import catalog, inspection
from torchyard.catalog import Catalog
from torchyard.errors import CheckFailed, InputError
from torchyard.finding import State
from torchyard.inspection import Code, Inside
from torchyard.verbs import catalog as verb
from torchyard.world import elf_fatbin, pipconf, wheel_inside
from torchyard.world.download import local_path
from torchyard.world.wheel_index import WheelIndex

C = catalog.load()
READ = Path(__file__).parents[1] / "facts" / "wheels"


def recorded(file: Path) -> Inside:
    """What `catalog inspect` read in a real wheel, as it was stored."""
    data: dict[str, Any] = json.loads(file.read_text())
    code = tuple(
        Code(
            library=each["library"],
            sass=tuple((t, n) for t, n in each["sass"]),
            ptx=tuple((t, n) for t, n in each["ptx"]),
        )
        for each in data.pop("code")
    )
    lists = {key: tuple(data.pop(key)) for key in ("requires", "tags")}
    return Inside(code=code, **lists, **data)


TORCHES = sorted(READ.glob("torch-*.json"))


@pytest.mark.parametrize("file", TORCHES, ids=lambda f: f.stem)
def test_the_catalogue_says_what_the_real_wheels_say(file: Path) -> None:
    findings = inspection.against(recorded(file), C)
    assert {f.rule for f in findings} >= {
        "catalog.cuda",
        "catalog.cudnn",
        "catalog.sass",
        "catalog.ptx",
        "catalog.glibc",
    }
    assert [f for f in findings if f.state is not State.PASS] == []


def test_five_real_torch_wheels_were_read() -> None:
    read = {(i.version, inspection.arch_of(i.tags)) for i in map(recorded, TORCHES)}
    assert read == {
        ("2.10.0+cu128", "x86_64"),
        ("2.13.0+cpu", "x86_64"),
        ("2.14.1+cu130", "x86_64"),
        ("2.15.0+cu132", "x86_64"),
        ("2.15.0+cu132", "aarch64"),
    }


def test_a_library_without_a_generations_code_is_told() -> None:
    inside = recorded(READ / "torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.json")
    assert any("libtorch_cuda_linalg.so has no code for 7.5" in gap for gap in inspection.gaps(inside.code))
    volta = recorded(READ / "torch-2.10.0-3-cp311-cp311-manylinux_2_28_x86_64.json")
    assert inspection.gaps(volta.code) == ()  # there 7.0 serves 7.5


def test_a_few_extra_kernels_are_not_the_wheels_targets() -> None:
    sass, ptx, extra = inspection.targets(recorded(READ / "torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.json").code)
    assert (sass, ptx) == (("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), ())
    assert {"8.9", "9.0a", "10.3f"} <= set(extra)


def local_wheels() -> list[Path]:
    """The wheels of torch and torchvision that lie on this machine, in the places that pip is configured with."""
    index = WheelIndex(pipconf.read())
    wheels = [wheel for project in ("torch", "torchvision") for wheel in index.here(project)]
    return [path for wheel in wheels if (path := local_path(wheel.url)) is not None]


def test_the_wheels_on_this_machine_say_what_the_catalogue_says(tmp_path: Path) -> None:
    """Reads the real files here, whichever there are; on a machine without any, the recorded ones stand."""
    for path in local_wheels():
        seen = verb.inspect(tmp_path, str(path), today=date(2026, 11, 30))
        assert seen.agrees, verb.told(seen)
        if seen.rows:
            catalog.load([("catalog.d/read.yaml", seen.rows)])


# --- rows


def new_wheel(**changes: Any) -> Inside:
    """A torch that the catalogue has not."""
    values: dict[str, Any] = {
        "file": "torch-2.16.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "name": "torch",
        "version": "2.16.0+cu134",
        "requires_python": ">=3.11",
        "requires": (
            'cuda-toolkit[cublas]==13.4.1; platform_system == "Linux"',
            'nvidia-cudnn-cu13==9.28.0.42; platform_system == "Linux"',
            "nvidia-nccl-cu13==2.31.1",
            'triton~=4.0.0; python_version < "3.16"',
        ),
        "tags": ("cp312-cp312-manylinux_2_28_x86_64",),
        "cuda": "13.4",
        "built": "2027-01-20",
        "code": (Code(library="libtorch_cuda.so", sass=(("8.0", 480), ("8.9", 1), ("9.0", 480)), ptx=(("9.0", 480),)),),
        "glibc": "2.28",
        **changes,
    }
    return Inside(pins=inspection.pins_of(values["requires"]), **values)


def with_rows(inside: Inside) -> Catalog:
    """The catalogue with the rows of this wheel in catalog.d."""
    text = inspection.as_yaml(inspection.rows(inside, C, checked="2027-01-21"))
    return catalog.load([("catalog.d/read.yaml", text)])


def test_a_new_torch_becomes_rows_that_the_catalogue_takes() -> None:
    mine = with_rows(new_wheel())
    build = mine.builds_of("2.16.0", "x86_64")[0]
    assert (build.tag, build.toolkit, build.cudnn) == ("cu134", "13.4.1", "9.28.0.42")
    assert (build.sass, build.ptx, build.glibc_min) == (("8.0", "9.0"), ("9.0",), "2.28")
    release = mine.release("2.16.0")
    assert release.triton == "4.0.0" and not release.proven("python")
    assert inspection.against(new_wheel(), mine)[0].state is State.PASS


def test_an_extension_becomes_a_row_that_the_pair_rule_reads() -> None:
    from torchyard import explain, rules

    inside = new_wheel(
        file="attn-1.2-cp311-cp311-linux_x86_64.whl", name="attn", version="1.2", cuda="12",
        requires=("torch==2.10.0",),
        tags=("cp311-cp311-linux_x86_64",),
    )  # fmt: skip
    mine = with_rows(inside)
    good = {"torch": "2.10.0", "cuda": "12.8", "python": "3.11", "packages": {"attn": "1.2"}}
    for change, ok in ({}, True), ({"torch": "2.11.0"}, False), ({"cuda": "13.0"}, False), ({"python": "3.12"}, False):
        request = rules.parse_request({**good, **change})
        pair = next(v for v in explain.check(request, mine) if v.rule == "pair")
        assert pair.ok is ok, (change, pair.what)


def test_a_difference_is_told_with_both_sides() -> None:
    inside = new_wheel(version="2.14.1+cu130", cuda="13.0")
    failed = {f.rule: (f.expected, f.seen) for f in inspection.against(inside, C) if f.state is State.FAIL}
    assert failed["catalog.sass"] == ("7.5 8.0 8.6 9.0 10.0 12.0", "8.0 9.0")
    assert failed["catalog.cudnn"] == ("9.24.0.43", "9.28.0.42")


@pytest.mark.parametrize(
    ("tag", "python", "arch", "glibc"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "3.11", "x86_64", "2.28"),
        ("cp314-cp314t-manylinux_2_28_aarch64", "3.14t", "aarch64", "2.28"),
        ("cp38-cp38-manylinux1_x86_64", "3.8", "x86_64", "2.5"),
        ("cp310-cp310-manylinux2014_aarch64", "3.10", "aarch64", "2.17"),
        ("py3-none-any", "any", "any", ""),
    ],
)
def test_a_files_tag_is_read(tag: str, python: str, arch: str, glibc: str) -> None:
    tags = (tag,)
    assert (inspection.python_of(tags), inspection.arch_of(tags), inspection.glibc_of(tags)) == (python, arch, glibc)


# --- fat binaries


def entry(kind: int, arch: int, flags: int, payload: bytes) -> bytes:
    """One entry of a container."""
    fields = (kind, 0x101, 64, len(payload), 0, 0, 8, 1, arch, 0, 0, flags, 0, 0)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + payload


def container(*entries: bytes) -> bytes:
    """What nvcc makes of one compiled unit."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_targets_are_counted_by_compiled_unit() -> None:
    unit = container(entry(2, 80, 0x8011, b"x" * 999), entry(2, 90, 0x108011, b"y"), entry(1, 120, 0x8011, b"z" * 7))
    data = (
        b"\x7fELF"
        + b"\0" * 100
        + unit
        + b"\0" * 5
        + unit
        + container(entry(2, 103, 0x1208011, b"q" * 3_000_000))
        + b"end"
    )
    library = elf_fatbin.scan(io.BytesIO(data))
    assert library.sass == (("8.0", 2), ("9.0a", 2), ("10.3f", 1))
    assert library.ptx == (("12.0", 2),)


@pytest.mark.parametrize("size", [1, 3, 7, 64, 1 << 20])
def test_the_size_of_what_a_read_gives_changes_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (
        b"\0GLIBC_2.28\0\0GLIBC_2.9\0libcudart.so.13\0"
        + container(entry(2, 75, 0x11, b"p" * 200)) * 3
        + b"\0GLIBC_2.34\0"
    )
    monkeypatch.setattr(elf_fatbin, "_BLOCK", size)
    library = elf_fatbin.scan(io.BytesIO(data))
    assert (library.sass, library.glibc, library.cudart) == ((("7.5", 3),), "2.34", "13")


@pytest.mark.parametrize("cut", [9, 17, 30, 79, 81, 120])
def test_a_library_that_is_cut_off_is_read_as_far_as_it_goes(cut: int) -> None:
    elf_fatbin.scan(io.BytesIO(container(entry(2, 75, 0x11, b"p" * 200))[:cut]))


def test_bytes_that_only_look_like_a_container_count_for_nothing() -> None:
    assert elf_fatbin.scan(io.BytesIO(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40) + b"\xff" * 500)).sass == ()


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    """A wheel of these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_wheel_is_read_from_its_members(tmp_path: Path) -> None:
    library = b"\x7fELF" + b"\0" * 70_000 + b"\0GLIBC_2.27\0" + container(entry(2, 86, 0x11, b"c" * 50)) * 4
    path = wheel(
        tmp_path / "torch-9.9.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        {
            "torch/version.py": b"__version__ = '9.9.0+cu134'\ncuda: str = '13.4'\ngit_version = 'abc'\n",
            "torch/lib/libtorch_cuda.so": library,
            "torch/lib/small.so": b"\x7fELF",
            "torch/lib/notes.so.txt": b"n" * 70_000,
            "torch-9.9.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 9.9.0\n"
            b"Requires-Python: >=3.12\n"
            b"Requires-Dist: nvidia-cudnn-cu13 (==9.28.0.42)\n\n",
            "torch-9.9.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n",
        },
    )
    inside = wheel_inside.read(path)
    assert (inside.version, inside.cuda, inside.glibc) == ("9.9.0+cu134", "13.4", "2.27")
    assert inside.code == (Code(library="libtorch_cuda.so", sass=(("8.6", 4),), ptx=()),)
    assert inside.pins == {"nvidia-cudnn-cu13": "9.28.0.42"}
    assert "torch_builds" in inspection.rows(inside, C, checked="2026-11-30")


def test_what_is_no_wheel_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        wheel_inside.read(tmp_path / "absent.whl")
    (tmp_path / "x.whl").write_bytes(b"no zip")
    with pytest.raises(CheckFailed):
        wheel_inside.read(tmp_path / "x.whl")


def test_rows_are_written_where_later_commands_read_them(tmp_path: Path) -> None:
    text = inspection.as_yaml(inspection.rows(new_wheel(), C, checked="2027-01-21"))
    verb.write(tmp_path, "torch-2.16.0", text)
    from torchyard.world import catalog_files

    assert catalog.load(catalog_files.texts(tmp_path)).release("2.16.0").released == "2027-01-20"
