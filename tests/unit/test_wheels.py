"""The deciding parts of locking wheels: pages, tags, requirements, and what the resolver printed."""

from __future__ import annotations

import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from packaging.tags import Tag
from packaging.version import Version

from torchyard.errors import CheckFailed, Incompatible, InputError, Problems
from torchyard.requirements import parse_requirements
from torchyard.wheelpin import WheelPin, carries_nvcc, dev_requirements
from torchyard.world import wheel_errors, wheel_metadata, wheel_mirrors, wheel_pages, wheel_resolver, wheel_tags


def pin(name: str, version: str) -> WheelPin:
    return WheelPin(name=name, version=version, file=f"{name}.whl", sha256="0" * 64, size=1, index="pypi")


def test_a_json_page_gives_wheels_with_all_that_it_says_and_the_versions_of_sources() -> None:
    body = b"""{"files": [
      {"filename": "Torch_Thing-1.0-py3-none-any.whl", "url": "../../f/Torch_Thing-1.0-py3-none-any.whl",
       "hashes": {"sha256": "ab"}, "size": 7, "requires-python": ">=3.9", "upload-time": "2026-01-02T03:04:05.6Z",
       "yanked": "broken", "core-metadata": {"sha256": "cd"}},
      {"filename": "torch_thing-0.9.tar.gz", "url": "x"},
      {"filename": "torch_thing-0.1.exe", "url": "x"},
      {"filename": "not-a-wheel.whl", "url": "x"},
      {"filename": "other-1.0-py3-none-any.whl", "url": "x"}]}"""
    page = wheel_pages.parse(body, "application/vnd.pypi.simple.v1+json", "https://h/s/torch-thing/", "torch-thing")
    (wheel,) = page.wheels
    assert page.sources == (Version("0.9"),)
    assert wheel.url == "https://h/f/Torch_Thing-1.0-py3-none-any.whl"
    assert (wheel.sha256, wheel.size, wheel.requires_python, wheel.yanked) == ("ab", 7, ">=3.9", "broken")
    assert wheel.uploaded == datetime(2026, 1, 2, 3, 4, 5, 600000, UTC)
    assert wheel.metadata == wheel.url + ".metadata"


def test_an_html_page_gives_the_same_as_far_as_it_says_it() -> None:
    sha = "a" * 64
    body = f"""<base href="https://files/d/"><a href="x%2Bcpu-1.0%2Bcpu-py3-none-any.whl#sha256={sha}">
      <a href="thing-1.0%2Bcpu-py3-none-any.whl#sha256={sha}" data-requires-python="&gt;=3.9" data-yanked=""
         data-core-metadata="true">t</a><a name="here">no link</a>""".encode()
    (wheel,) = wheel_pages.parse(body, "text/html; charset=utf-8", "https://h/s/thing/", "thing").wheels
    assert (wheel.file, wheel.version) == ("thing-1.0+cpu-py3-none-any.whl", Version("1.0+cpu"))
    assert (wheel.sha256, wheel.size, wheel.requires_python, wheel.yanked) == (sha, None, ">=3.9", "")
    assert wheel.metadata.endswith(".metadata")


def test_a_login_in_the_address_of_an_index_is_used_for_files_of_the_same_host_only() -> None:
    inherit = wheel_pages.inherit_credentials
    assert inherit("https://h/f.whl", "https://me:pw@h/s/") == "https://me:pw@h/f.whl"
    assert inherit("https://other/f.whl", "https://me:pw@h/s/") == "https://other/f.whl"
    assert inherit("http://h/f.whl", "https://me:pw@h/s/") == "http://h/f.whl"
    assert inherit("https://you@h/f.whl", "https://me:pw@h/s/") == "https://you@h/f.whl"


def test_tags_fit_up_to_the_glibc_of_the_target_and_the_newest_is_best() -> None:
    ranks = wheel_tags.ranked("3.11", "x86_64", "2.36")
    order = [
        ranks[Tag("cp311", "cp311", "manylinux_2_36_x86_64")],
        ranks[Tag("cp311", "cp311", "manylinux_2_28_x86_64")],
        ranks[Tag("cp311", "cp311", "manylinux2014_x86_64")],
        ranks[Tag("cp311", "abi3", "manylinux_2_28_x86_64")],
        ranks[Tag("cp38", "abi3", "manylinux_2_28_x86_64")],
        ranks[Tag("py3", "none", "manylinux1_x86_64")],
        ranks[Tag("py3", "none", "any")],
    ]
    assert order == sorted(order)
    for tag in (
        Tag("cp311", "cp311", "manylinux_2_39_x86_64"),
        Tag("cp312", "cp312", "manylinux_2_28_x86_64"),
        Tag("cp311", "cp311", "manylinux_2_28_aarch64"),
        Tag("cp311", "cp311", "musllinux_1_2_x86_64"),
        Tag("cp312", "abi3", "manylinux_2_28_x86_64"),
    ):
        assert tag not in ranks


@pytest.mark.parametrize(
    ("glibc", "name"),
    [("2.36", "2_36"), ("2.39", "2_39"), ("2.43", "2_40"), ("2.30", "2_28"), ("2.27", "2_17"), ("2.12", "2_17")],
)
def test_the_resolver_is_told_the_platform_or_the_next_older_one_that_it_knows(glibc: str, name: str) -> None:
    assert wheel_resolver.platform("aarch64", glibc) == f"aarch64-manylinux_{name}"


def test_what_the_resolver_printed_is_read_with_dependencies_the_right_way_round() -> None:
    text = """\
filelock==4.3.1  # via torch
Jinja2==3.1.6
mpmath==1.3.0           # via sympy
sympy==1.14.0           # via -r requirements.in, torch, thing[extra]
torch==2.13.0+cpu       # via -c constraints.txt, -r requirements.in
"""
    assert wheel_resolver.compiled(text) == {
        "filelock": (Version("4.3.1"), []),
        "jinja2": (Version("3.1.6"), []),
        "mpmath": (Version("1.3.0"), []),
        "sympy": (Version("1.14.0"), ["mpmath"]),
        "torch": (Version("2.13.0+cpu"), ["filelock", "sympy"]),
    }


def test_the_nearest_versions_are_those_around_the_one_that_was_asked_for() -> None:
    there = [Version(each) for each in ("1.0", "1.1", "1.2", "1.3", "1.4rc1", "2.0", "2.1", "2.2", "2.3")]
    assert wheel_errors.nearest("==1.9", there) == ("1.1", "1.2", "1.3", "2.0", "2.1", "2.2")
    assert wheel_errors.nearest(">=9", there) == ("2.1", "2.2", "2.3")
    assert wheel_errors.nearest("", there) == ("1.2", "1.3", "2.0", "2.1", "2.2", "2.3")


def test_requirements_come_in_one_spelling_sorted_without_comments() -> None:
    text = (
        "\ufeffnumpy \\\n  >= 2  # why\n\n# a comment \\\nuv\nFoo[b,a]>1 ; python_version < '3.12'\n torch == 2.13.0 \n"
    )
    assert parse_requirements(text, "requirements.txt", torch="2.13.0+cpu") == (
        'Foo[a,b]>1; python_version < "3.12"',
        "numpy>=2",
        "torch==2.13.0",
        "uv",
    )


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("--index-url https://me:pw@h/simple", "an index or a directory of wheels is not set", "index-url"),
        ("--extra-index-url=https://h/simple", "an index or a directory of wheels is not set", "extra-index-url"),
        ("-fwheels", "an index or a directory of wheels is not set", "find-links"),
        ("-r other.txt", "another file is not read", "write the requirements"),
        ("-e .", "an editable requirement cannot be locked", "overlay"),
        ("--pre", "an option is not taken here", "remove it"),
        ("https://h/x-1.0-py3-none-any.whl", "as an address or a path", "NAME==VERSION"),
        ("git+https://h/x", "as an address or a path", "NAME==VERSION"),
        ("./x", "as an address or a path", "NAME==VERSION"),
        ("x-1.0-py3-none-any.whl", "as an address or a path", "NAME==VERSION"),
        ("torch @ file:x.whl", "as an address or a path", "NAME==VERSION"),
        ("torch @ https://h/x.whl", "as an address or a path", "NAME==VERSION"),
        ("torch==", "this is not a requirement", "NAME==VERSION"),
        ("torch===2.6", "asks for another torch than the locked 2.13.0+cpu", "software.torch"),
        ("Torch<2", "asks for another torch than the locked 2.13.0+cpu", "software.torch"),
        ("torch==2.13.0+cu130", "asks for another torch than the locked 2.13.0+cpu", "software.torch"),
        ("x --hash=sha256:00", "a hash beside a requirement is not taken", "the lock holds the hashes"),
        ("${X}", "a variable in a requirement is not replaced", "value"),
    ],
)
def test_a_line_that_cannot_be_taken_is_told_with_its_place_and_what_to_write(line: str, says: str, hint: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        parse_requirements(f"numpy\n{line}\n", "requirements.txt", torch="2.13.0+cpu")
    assert caught.value.where == "requirements.txt:2"
    assert hint in caught.value.hint
    assert "pw" not in caught.value.what


@pytest.mark.parametrize("line", ["torch", "torch>=2", "torch==2.13.0", "torch==2.13.0+cpu", "torch~=2.13"])
def test_a_torch_that_the_locked_one_satisfies_may_be_named(line: str) -> None:
    assert len(parse_requirements(line, "requirements.txt", torch="2.13.0+cpu")) == 1


def test_every_wrong_line_is_told_in_one_go() -> None:
    with pytest.raises(Problems) as caught:
        parse_requirements("torch==\n-e .\nnumpy\ntorch<1\n", "r.txt", torch="2.13.0")
    assert [problem.where for problem in caught.value.problems()] == ["r.txt:1", "r.txt:2", "r.txt:4"]
    assert isinstance(caught.value.problems()[2], Incompatible)


@given(some.text(alphabet="torch numpy[a]<>=~!.12+;@#\\-\n\"':/${}", max_size=40))
def test_no_text_of_requirements_ends_in_anything_but_names_or_an_error(text: str) -> None:
    try:
        found = parse_requirements(text, "r.txt", torch="2.13.0")
    except (InputError, Problems):
        return
    assert parse_requirements("\n".join(found), "r.txt", torch="2.13.0") == found


def test_the_compiler_is_that_of_the_toolkit_and_what_is_locked_stays() -> None:
    assert dev_requirements([pin("torch", "2.13.0+cpu")]) == ()
    assert dev_requirements([pin("cuda-toolkit", "13.0.3.0")]) == ("cuda-toolkit[cccl,nvcc]==13.0.3.0",)
    with_cccl = [pin("cuda-toolkit", "13.2.2"), pin("nvidia-cuda-cccl", "13.3.5.0.6")]
    assert dev_requirements(with_cccl) == ("cuda-toolkit[nvcc]==13.2.2",)
    assert dev_requirements([pin("nvidia-cuda-runtime", "13.0.96")]) == (
        "nvidia-cuda-cccl==13.0.*",
        "nvidia-cuda-crt==13.0.*",
        "nvidia-cuda-nvcc==13.0.*",
        "nvidia-nvvm==13.0.*",
    )
    assert dev_requirements([pin("nvidia-cuda-runtime-cu12", "12.8.90")]) == (
        "nvidia-cuda-cccl-cu12==12.8.*",
        "nvidia-cuda-nvcc-cu12==12.8.*",
    )


def test_wheels_of_cuda_12_carry_no_nvcc() -> None:
    assert carries_nvcc([pin("nvidia-cuda-nvcc", "13.0.88")])
    assert not carries_nvcc([pin("nvidia-cuda-nvcc-cu12", "12.8.93")])


def test_the_build_of_torch_is_read_from_its_version_file() -> None:
    cuda = "__version__ = '2.14.1+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'abc'\n"
    cpu = "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\ngit_version = 'def'\n"
    assert wheel_metadata.torch_facts(cuda) == wheel_metadata.TorchFacts(
        version="2.14.1+cu130", cuda="13.0", git_commit="abc"
    )
    assert wheel_metadata.torch_facts(cpu) == wheel_metadata.TorchFacts(
        version="2.13.0+cpu", cuda=None, git_commit="def"
    )


def test_a_wheel_on_disk_says_what_it_is_whatever_the_file_is_called(tmp_path: Path) -> None:
    stored = tmp_path / ("a" * 64)
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("torch/version.py", "__version__ = '2.0+cpu'\ncuda = None\ngit_version = 'abc'\n")
        archive.writestr("torch/_vendor/packaging-1.dist-info/METADATA", "Name: packaging\nVersion: 1\n")
        archive.writestr("torch-2.0+cpu.dist-info/METADATA", "Name: torch\nVersion: 2.0+cpu\nRequires-Dist: sympy>1\n")
        archive.writestr("torch-2.0+cpu.dist-info/WHEEL", "Tag: cp311-cp311-linux_x86_64\nTag: py3-none-any\n")
    assert wheel_metadata.read(stored) == wheel_metadata.WheelFacts(
        name="torch",
        version="2.0+cpu",
        requires_dist=("sympy>1",),
        tags=("cp311-cp311-linux_x86_64", "py3-none-any"),
        torch=wheel_metadata.TorchFacts(version="2.0+cpu", cuda=None, git_commit="abc"),
    )
    stored.write_bytes(stored.read_bytes()[:50])
    with pytest.raises(CheckFailed, match="not a whole wheel"):
        wheel_metadata.read(stored)


def test_a_mirrors_file_moves_an_index_and_keeps_its_name() -> None:
    table = wheel_mirrors.Table(prefixes={"pytorch": "https://upstream/whl"}, bound=frozenset())
    mirrors = wheel_mirrors.parse(
        "mirrors: {pypi: https://m/simple/, pytorch: https://m/pt, debian: {release: x}}", "mirrors.yaml"
    )
    assert mirrors == {"pypi": "https://m/simple", "pytorch": "https://m/pt"}
    assert wheel_mirrors.address("pypi", "https://mine/simple", mirrors, table) == "https://m/simple"
    assert wheel_mirrors.address("pypi", "https://mine/simple", {}, table) == "https://mine/simple"
    assert wheel_mirrors.address("pytorch-cu126", "", mirrors, table) == "https://m/pt/cu126"
    assert wheel_mirrors.address("pytorch-cpu", "", {}, table) == "https://upstream/whl/cpu"
    for name in ("nowhere-cpu", "pytorch", ""):
        with pytest.raises(InputError, match="there is no index of wheels named") as caught:
            wheel_mirrors.address(name, "", mirrors, table)
        assert "pytorch-BUILD" in caught.value.hint


@pytest.mark.parametrize("text", ["[]", "mirrors: {pypi: 3}", "mirrors: {pytorch: somewhere}", "mirrors: {"])
def test_a_mirrors_file_that_is_wrong_is_told_with_its_name(text: str) -> None:
    with pytest.raises(InputError) as caught:
        wheel_mirrors.parse(text, "mirrors.yaml")
    assert caught.value.where.startswith("mirrors.yaml")
    assert caught.value.hint
