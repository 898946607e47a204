"""Reports of real failures in the choice of wheels, as far as no index is asked, each with its right outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import static_cases as cases
from lock_samples import image, lock, wheel
from reported_env import ask, entry, planned, recipes, refused, told

from torchyard import requirements
from torchyard.errors import Exit, Incompatible, InputError, YardError
from torchyard.finding import Finding, State
from torchyard.judge import identity, static
from torchyard.verbs import lock as locking
from torchyard.verbs import project as projects

HARDWARE = 'software: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\n'


def fails(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings if finding.state is State.FAIL}


def test_b025_a_cpu_build_in_a_gpu_image_fails_verify() -> None:
    torch = {"version": "2.14.1+cpu", "cuda": None, "cudnn": None, "arch_flags": None, "file": "x", "sum": 512.0}
    names = {each.name: each.version for each in lock().wheels}
    built = fails(identity.judge(lock(), {"python": "3.11.2", "torch": torch, "distributions": names}))
    assert {"torch.version", "torch.cuda"} <= built.keys() and built["torch.version"].seen == "2.14.1+cpu"
    good = cases.facts("static-good-a100")
    found = fails(static.judge(cases.reference("static-good-a100"), replace(good, torch_cuda="")))
    assert "a CPU torch in a CUDA image" in found["torch.build"].what


def test_b027_an_image_without_a_gpu_has_the_cpu_build_and_nothing_of_cuda() -> None:
    plan = planned('software: {torch: "2.6.0"}\nhardware: {a: {}, b: {gpu: a100}}\n')
    cpu = next(each for each in plan.images if each.cuda is None)
    assert (cpu.torch_requirement, cpu.index, cpu.cuda_tag) == ("2.6.0+cpu", "pytorch-cpu", "cpu")
    text = next(text for text in recipes(plan) if cpu.id in text)
    assert "NVIDIA_" not in text


def test_b027_what_brings_cuda_into_a_cpu_image_is_named_with_its_size() -> None:
    cpu = image(cuda=None, cuda_tag="cpu", torch="2.6.0")
    pins = (
        wheel("nvidia-nccl-cu12", "2.28", size=300_000_000),
        wheel("torch", "2.6.0+cpu"),
        wheel("xgboost", "3.0", requires=("nvidia-nccl-cu12",)),
    )
    said: list[str] = []
    locking.foreign(cpu, pins, said.append)
    (line,) = said
    assert "CPU image" in line and "nvidia-nccl-cu12 (for xgboost) 300 MB" in line
    locking.foreign(cpu, pins[1:2], said.append)
    locking.foreign(image(), (wheel("nvidia-cublas", "13.1"), wheel("nvidia-cudnn-cu13", "9.24")), said.append)
    assert said == [line]


def test_b029_a_requirement_that_names_another_torch_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text(
        f'schema: 1\nproject: a\n{HARDWARE}packages: {{pip: ["torch==2.0.1", "cupy-cuda12x", numpy]}}\n'
    )
    project = projects.load(tmp_path)
    with pytest.raises(YardError) as caught:
        locking.lock(project, project.plan.images, say=lambda _: None)
    torch, cupy = sorted(caught.value.problems(), key=lambda each: each.what, reverse=True)
    for error in (torch, cupy):
        assert error.code is Exit.INPUT and "packages.pip" in error.where and error.hint
    assert "torch==2.0.1" in torch.what and "2.14.1" in torch.what
    assert "cupy-cuda12x is made for CUDA 12" in cupy.what and "CUDA 13.0" in cupy.what
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize(
    "option",
    [
        "--index-url https://me:secret@there.example.com/simple",
        "-i https://there.example.com/simple",
        "--extra-index-url=https://there.example.com/simple",
        "--find-links https://there.example.com/whl",
    ],
)
def test_b032_an_index_in_a_requirements_file_is_refused_with_file_line_and_what_to_use(option: str) -> None:
    error = told("packages: {pip: requirements.txt}\n" + HARDWARE, requirements__txt=f"# ours\n{option}\nnumpy\n")
    assert error.where == "requirements.txt:2" and option.split("=")[0].split()[0] in error.what
    assert "secret" not in error.what + error.hint
    assert "pip config" in error.hint and "software.cuda" in error.hint
    plan = planned("packages: {pip: requirements.txt}\n" + HARDWARE, requirements__txt="numpy\n")
    assert all("index-url" not in text and "find-links" not in text for text in recipes(plan))


def test_b034_two_cudas_are_refused_wherever_the_second_is_said() -> None:
    local = told('software: {torch: "2.14.1+cu126", cuda: "13.0"}\nhardware: {a: {gpu: a100}}\n')
    assert "2.14.1+cu126" in local.what and "its own key" in local.hint
    with pytest.raises(InputError, match="torch 2.14.1\\+cu126 says cu126, cuda says 13.0"):
        ask(torch="2.14.1+cu126", cuda="13.0")
    conda = told("packages: {conda: [pytorch=1.12.1, cudatoolkit=10.2]}\n" + HARDWARE)
    assert "conda" in conda.what and "pip" in conda.hint
    for asked, other in (("nvidia-cuda-runtime-cu12", "12"), ("cupy-cuda12x>=13", "12"), ("nvidia-nccl-cu11", "11")):
        (error,) = requirements.against([asked], torch="2.14.1", cuda="13.0", where="env.yaml")
        assert f"CUDA {other};" in error.what and "CUDA 13.0" in error.what
    assert requirements.against(["cupy-cuda13x", "torch", "x-cu"], torch="2.14.1", cuda="13.0", where="x") == []
    cell = refused(entry("gpu: a100", "2.14.1", cuda='"12.8"'))
    assert "12.8" in cell.what and "12.6" in cell.hint


def test_b034_a_requirement_that_brings_another_cuda_is_refused_and_named() -> None:
    pins = (
        wheel("nvidia-nccl-cu12", "2.28"),
        wheel("nvidia-nccl-cu13", "2.30"),
        wheel("xgboost", "3.0", requires=("nvidia-nccl-cu12",)),
    )
    with pytest.raises(Incompatible) as caught:
        locking.foreign(image(), pins, lambda _: None)
    assert "nvidia-nccl-cu12 2.28 (for xgboost) is of CUDA 12" in caught.value.what
    assert "xgboost" in caught.value.hint and "packages.pip" in caught.value.where


def test_b034_no_gpu_entry_ever_selects_a_cpu_build() -> None:
    plan = planned('software: {torch: "2.14.1"}\nhardware: {a: {gpu: v100}, b: {gpu: rtx-5090}, c: {gpu: a100}}\n')
    assert plan.images and all(each.cuda and "+cpu" not in each.torch_requirement for each in plan.images)
