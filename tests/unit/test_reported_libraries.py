"""Reports of real failures with CUDA's libraries, and with libcuda at build time, each with its right outcome."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import static_cases as cases
from lock_samples import lock, wheel
from reported_env import ROOT, entry, planned, recipes, refused, told

from torchyard import requirements, wheelpin
from torchyard.errors import Incompatible
from torchyard.finding import Finding, State
from torchyard.judge import cpu, cpu_facts, identity, static
from torchyard.judge.static_facts import Library

sys.path.insert(0, str(ROOT / "torchyard" / "inside"))

from probes import versions  # type: ignore

SITE = "/opt/venv/lib/python3.11/site-packages"
HARDWARE = 'software: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\n'
IMAGES = planned(
    'software: {torch: "2.14.1"}\nhardware:\n  a: {gpu: a100}\n  b: {gpu: h100, build: source, cuda: "13.0"}\n'
    '  c: {torch: "2.6.0"}\n  d: {gpu: v100, torch: "2.10.0", cuda: "12.8"}\n'
)
A100 = cases.reference("static-good-a100")
GOOD = cases.facts("static-good-a100")


def fails(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state is State.FAIL]


def test_b015_the_cudnn_of_a_wheel_is_fixed_and_there_is_one_in_the_image() -> None:
    error = refused(entry("gpu: a100", "1.13.0", cuda='"11.7"', cudnn='"8.4"'))
    assert "cuDNN 8.4" in error.what and "fixes cuDNN 8.5.0.96" in error.what
    assert error.hint.startswith("cudnn 8.4 → 8.5.0.96")
    assert [pin.name for pin in A100.lock.wheels if "cudnn" in pin.name] == ["nvidia-cudnn-cu13"]
    assert not [pin.name for pin in A100.lock.os if "cudnn" in pin.name or "cuda" in pin.name]
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib"):
        second = Library(path=f"{folder}/libcudnn.so.9", soname="libcudnn.so.9", machine="x86_64", layer=99)
        facts = replace(GOOD, libraries=(*GOOD.libraries, second), loader_conf=(*GOOD.loader_conf, folder))
        (finding,) = fails(static.judge(A100, facts))
        assert finding.rule == "libraries.copies" and second.path in finding.seen and SITE in finding.seen


NVJITLINK = (
    f"ImportError: {SITE}/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
    "__nvJitLinkComplete_12_4, version libnvJitLink.so.12"
)
TOOLKIT = "/usr/local/cuda-12.1/lib64"


def test_b017_no_recipe_puts_a_toolkit_before_the_wheels_libraries_and_no_user_can() -> None:
    for text in recipes(IMAGES):
        assert "LD_LIBRARY_PATH" not in text and "/usr/local/cuda" not in text
    error = told(f"env: {{LD_LIBRARY_PATH: {TOOLKIT}}}\n" + HARDWARE)
    assert "env.LD_LIBRARY_PATH" in error.where and "takes the place of the wheel's own" in error.what
    assert planned("env: {LD_LIBRARY_PATH: /opt/mine/lib}\n" + HARDWARE).images


@pytest.mark.parametrize(
    "line",
    [
        f"ENV LD_LIBRARY_PATH={TOOLKIT}:$LD_LIBRARY_PATH",
        f"ENV LD_LIBRARY_PATH {TOOLKIT}",
        f'ENV A=1 \\\n    LD_LIBRARY_PATH="{TOOLKIT}"',
        f"env ld_library_path={TOOLKIT} LD_LIBRARY_PATH={TOOLKIT}",
    ],
)
def test_b017_nor_can_extend(line: str) -> None:
    error = told("extend: x.Dockerfile\n" + HARDWARE, x__Dockerfile=f"RUN true\n{line}\n")
    assert error.where == "x.Dockerfile:2" and "takes the place of the wheel's own" in error.what


def test_b017_a_toolkit_on_the_path_is_named_with_the_folder_and_both_versions() -> None:
    library = Library(path=f"{TOOLKIT}/libnvJitLink.so.12.1.105", machine="x86_64", layer=99)
    facts = replace(GOOD, libraries=(*GOOD.libraries, library), env=(*GOOD.env, ("LD_LIBRARY_PATH", TOOLKIT)))
    finding = next(each for each in fails(static.judge(A100, facts)) if each.rule == "loader.toolkit")
    assert TOOLKIT in finding.seen and "12.1.105" in finding.seen and "CUDA 13.0" in finding.seen


def test_b017_a_missing_symbol_is_told_as_the_older_library_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "libnvJitLink.so.12.1.105").touch()
    (tmp_path / "libnvJitLink.so.12").symlink_to("libnvJitLink.so.12.1.105")
    found = versions.searched("libnvJitLink.so", f"/nowhere:{tmp_path}")
    assert found == [str(tmp_path / "libnvJitLink.so.12.1.105")]
    seen = cpu_facts.from_text((ROOT / "tests" / "facts" / "cpu-good" / "facts.json").read_text())
    values = json.loads(json.dumps(seen.done("versions")))
    values["modules"]["torch"] = {"error": NVJITLINK, "nvjitlink": found}
    seen = replace(
        seen, seen=tuple(replace(each, facts=values) if each.probe == "versions" else each for each in seen.seen)
    )
    (finding,) = [each for each in cpu.judge(lock(), seen) if each.rule == "load.torch"]
    assert f"the nvJitLink of {tmp_path} (12.1.105, older than CUDA 12.4)" in finding.seen
    built = identity.judge(lock(), {"python": "3.11.2", "torch": {"error": NVJITLINK}, "distributions": {}})
    assert any("older than CUDA 12.4" in each.seen for each in built if each.rule == "torch.import")
    other = identity.judge(lock(), {"python": "3.11.2", "torch": {"error": "OSError: libx.so"}, "distributions": {}})
    assert [each.seen for each in other if each.rule == "torch.import"] == ["OSError: libx.so"]


@pytest.mark.parametrize(("asked", "right"), [("torch>=2.0", True), ("torch>=2.11", False), ("torch<2", False)])
def test_b019_a_bound_on_torch_never_moves_it_and_one_that_it_is_not_in_is_refused(asked: str, right: bool) -> None:
    text = (
        'software: {torch: "2.7.1", cuda: "11.8"}\nhardware: {a: {gpu: a100}}\n'
        f'packages: {{pip: ["{asked}", some-extension]}}\n'
    )
    (image,) = planned(text).images
    assert image.torch_requirement == "2.7.1+cu118"
    found = requirements.against(image.packages.pip, torch=image.torch_requirement, cuda=image.cuda, where="env.yaml")
    assert len(found) == (not right)
    assert all(isinstance(each, Incompatible) and asked in each.what and "2.7.1" in each.what for each in found)


def test_b019_the_compiler_of_extensions_is_of_torchs_own_cuda() -> None:
    by_toolkit = (wheel("cuda-toolkit", "13.0.2"), wheel("torch", "2.14.1"))
    assert wheelpin.dev_requirements(by_toolkit) == ("cuda-toolkit[cccl,nvcc]==13.0.2",)
    by_runtime = (wheel("nvidia-cuda-runtime-cu11", "11.8.89"), wheel("torch", "2.7.1+cu118"))
    assert wheelpin.dev_requirements(by_runtime) == ("nvidia-cuda-nvcc-cu11==11.8.*",)


@pytest.mark.parametrize(
    "step",
    [
        "RUN python -c 'import torch; torch.zeros(1).cuda()'",
        "RUN python -c 'import torch; torch.zeros(1).cuda(0)'",
        "RUN python -c 'import torch; torch.zeros(1).to(\"cuda:0\")'",
        'RUN python -c "import torch; torch.zeros(1, device=\\"cuda\\")"',
        "RUN python - <<EOF\nimport torch\ntorch.set_default_device('cuda')\nEOF",
        "RUN python -c 'import torch; print(torch.cuda.get_device_name())'",
        "RUN true && \\\n    nvidia-smi",
    ],
)
def test_b021_a_build_step_that_uses_a_gpu_is_refused_with_where_to_do_it(step: str) -> None:
    error = told("extend: x.Dockerfile\n" + HARDWARE, x__Dockerfile=f"RUN true\n{step}\n")
    assert error.where == "x.Dockerfile:2" and "no GPU" in error.what
    assert "verified or run" in error.hint and "libcuda.so.1" in error.hint


@pytest.mark.parametrize(
    "step",
    ["RUN python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)'", "RUN nvcc x.cu -lcuda"],
)
def test_b021_linking_and_asking_are_no_use_of_a_gpu(step: str) -> None:
    assert planned("extend: x.Dockerfile\n" + HARDWARE, x__Dockerfile=f"{step}\n").images


def test_b021_no_step_of_ours_runs_device_code() -> None:
    scripts = [path.read_text() for path in (ROOT / "templates" / "steps").iterdir()]
    for text in (*recipes(IMAGES), *scripts):
        assert not re.search(r"\.cuda\(|nvidia-smi|device=.?cuda|--gpus|--device", text)


STUBS = "/usr/local/cuda/lib64/stubs"


def test_b023_stubs_before_the_drivers_library_are_refused_and_on_the_linkers_path_they_are_not() -> None:
    error = told(f"env: {{LD_LIBRARY_PATH: {STUBS}}}\n" + HARDWARE)
    assert "env.LD_LIBRARY_PATH" in error.where and "driver's own library" in error.what
    assert "LIBRARY_PATH" in error.hint
    error = told("extend: x.Dockerfile\n" + HARDWARE, x__Dockerfile=f"ENV LD_LIBRARY_PATH={STUBS}\n")
    assert error.where == "x.Dockerfile:1" and "driver's own library" in error.what
    assert planned(f"env: {{LIBRARY_PATH: {STUBS}}}\n" + HARDWARE).images
    for text in recipes(IMAGES):
        builder, _, final = text.rpartition("FROM system AS locked")
        assert "stubs" not in final and "/opt/cuda" not in final and ("/opt/cuda" in builder) == bool(builder)


@pytest.mark.parametrize("place", ["env", "loader_conf", "loader_cache"])
def test_b023_stubs_where_a_loader_looks_fail_verify(place: str) -> None:
    more = ("LD_LIBRARY_PATH", STUBS) if place == "env" else STUBS
    (finding,) = fails(static.judge(A100, replace(GOOD, **{place: (*getattr(GOOD, place), more)})))
    assert finding.rule == "loader.stubs" and finding.seen == STUBS and "shadows the real driver" in finding.fix
