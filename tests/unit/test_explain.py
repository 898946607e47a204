"""What explain says: the issue's own list, the traps in the facts, and what each answer carries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchyard import catalog, explain, rules
from torchyard.errors import InputError
from torchyard.explain import Completion
from torchyard.plan import CellState
from torchyard.versions import numbers

C = catalog.load()


def ask(**request: Any) -> Completion:
    """The completion of a request in its JSON form."""
    return explain.complete(rules.parse_request(request), C)


def broken(done: Completion) -> set[str]:
    """The ids of the rules that stand against it."""
    return {v.rule for v in done.broken}


# --- the list of the issue


@pytest.mark.parametrize("torch", [None, "2.0.1", "1.13.1"])
def test_h100_with_cuda_11_7_is_refused_and_11_8_is_near(torch: str | None) -> None:
    done = ask(gpu="h100", cuda="11.7", **({"torch": torch} if torch else {}))
    assert done.state is CellState.REFUSED
    assert {"gpu-code", "toolkit-emits"} <= broken(done)
    assert done.nearest is not None
    assert done.nearest.choice.cuda == "11.8"
    assert numbers(done.nearest.choice.torch) >= (2, 0, 1)


def test_rtx_4090_on_torch_2_0_1_with_cuda_11_7_runs_through_sm_86() -> None:
    done = ask(gpu="rtx-4090", torch="2.0.1", cuda="11.7")
    assert done.state is CellState.OK
    assert "sm_86" in next(v.what for v in done.verdicts if v.rule == "gpu-code")


@pytest.mark.parametrize("cuda", ["13", "13.0", "13.1", "13.2", "13.3", "13.4", "13.5", "cu130"])
@pytest.mark.parametrize("build", ["wheel", "source"])
def test_v100_with_any_cuda_13_is_refused(cuda: str, build: str) -> None:
    assert ask(gpu="v100", cuda=cuda, build=build).state is CellState.REFUSED


@pytest.mark.parametrize("release", [r.version for r in C.releases])
def test_v100_and_b200_share_an_image_only_from_torch_2_8_to_2_10(release: str) -> None:
    done = ask(gpus=["v100", "b200"], torch=release)
    assert (done.state is CellState.OK) == ((2, 8) <= numbers(release)[:2] <= (2, 10))
    assert any("no one host can drive both" in note and "open kernel modules" in note for note in done.notes)


def test_b200_with_cuda_12_6_is_refused() -> None:
    done = ask(gpu="b200", cuda="12.6")
    assert done.state is CellState.REFUSED and "gpu-code" in broken(done)
    assert done.nearest is not None and done.nearest.choice.cuda == "12.8"


@pytest.mark.parametrize("driver", ["550", "550.54.14", "550.163.01", "575.57.08", "580.65.05"])
def test_a_driver_before_580_65_06_with_cuda_13_is_refused(driver: str) -> None:
    done = ask(driver=driver, cuda="13.0")
    assert done.state is CellState.REFUSED and broken(done) == {"driver-cuda"}


@pytest.mark.parametrize("torch", ["2.6", "2.6.0"])
def test_rtx_5090_with_torch_2_6_is_refused_and_2_7_is_near(torch: str) -> None:
    done = ask(gpu="rtx-5090", torch=torch)
    assert done.state is CellState.REFUSED
    assert done.nearest is not None and done.nearest.choice.torch == "2.7.1" and done.nearest.choice.cuda == "12.8"


def test_a100_with_torch_1_13_1_and_cuda_11_7_is_ok() -> None:
    assert ask(gpu="a100", torch="1.13.1", cuda="11.7").state is CellState.OK


def test_gh200_gets_an_aarch64_image() -> None:
    done = ask(gpu="gh200")
    assert (done.state, done.choice.arch, done.index) == (CellState.OK, "aarch64", "pypi")
    assert broken(ask(gpu="gh200", arch="x86_64")) == {"gpu-host-arch"}


@pytest.mark.parametrize("torch", [None, "2.14.1", "2.13.0", "2.12.1", "2.11.0", "2.10.0", "2.5.1", "2.4.0", "2.3.0"])
def test_t4_in_an_arm_server_is_refused(torch: str | None) -> None:
    done = ask(gpu="t4", arch="aarch64", **({"torch": torch} if torch else {}))
    assert done.state is CellState.REFUSED


@pytest.mark.parametrize("torch", ["2.5", "2.5.0", "2.5.1"])
def test_python_3_14_with_torch_2_5_is_refused(torch: str) -> None:
    done = ask(python="3.14", torch=torch)
    assert done.state is CellState.REFUSED and broken(done) == {"torch-python"}
    assert done.nearest is not None and numbers(done.nearest.choice.torch) >= (2, 9)


def test_debian_13_under_a_cuda_12_8_toolkit_is_refused_for_a_source_build() -> None:
    done = ask(os="debian-13", cuda="12.8", build="source", gpu="a100", torch="2.10.0")
    assert done.state is CellState.REFUSED and broken(done) == {"nvcc-glibc"}
    assert ask(os="debian-13", cuda="12.8", gpu="a100", torch="2.10.0").state is CellState.OK


@pytest.mark.parametrize("build", ["wheel", "source"])
@pytest.mark.parametrize("cuda", [None, "13.0", "cpu"])
def test_mkl_on_aarch64_is_refused(build: str, cuda: str | None) -> None:
    done = ask(blas="mkl", arch="aarch64", build=build, cuda=cuda)
    assert done.state is CellState.REFUSED and "blas" in broken(done)


def test_a_wheel_with_another_cudnn_than_its_pin_is_refused() -> None:
    done = ask(torch="2.14.1", cuda="13.0", cudnn="9.20.0.48")
    assert done.state is CellState.REFUSED and broken(done) == {"cudnn-pin"}
    assert done.nearest is not None and done.nearest.changes[0][0] == "cudnn"
    assert done.nearest.choice.cudnn == "9.24.0.43"


# --- completion


def test_cuda_auto_is_the_default_build_where_gpu_and_driver_allow_it() -> None:
    assert ask(gpu="a100", torch="2.14.1", cuda="auto").choice.cuda_tag == "cu130"
    assert ask(gpu="a100", torch="2.10.0").choice.cuda_tag == "cu128"


def test_cuda_auto_is_else_the_newest_line_that_fits() -> None:
    assert ask(gpu="a100", torch="2.14.1", driver="550.54.14").choice.cuda_tag == "cu126"
    assert ask(gpu="v100", torch="2.14.1").choice.cuda_tag == "cu126"


def test_the_runners_up_say_who_serves_them_and_why_they_would_not_do() -> None:
    done = ask(gpu="v100", torch="2.10.0")
    told = {r.tag: (r.index, r.state) for r in done.runners_up}
    assert told == {
        "cu130": ("pytorch-cu130", CellState.REFUSED),
        "cu129": ("pytorch-cu129", CellState.OK),
        "cu126": ("pytorch-cu126", CellState.OK),
    }
    assert all(bool(r.why) == (r.state is not CellState.OK) for r in done.runners_up)


def test_a_free_key_takes_the_newest_that_fits() -> None:
    assert ask().choice.torch == "2.15.0"
    assert ask(gpu="v100").choice.torch == "2.14.1"
    assert ask(python="3.10").choice.torch == "2.14.1"
    assert ask(python="3.9").choice.torch == "2.8.0"


def test_without_a_gpu_cuda_auto_never_hides_a_broken_cuda_behind_a_cpu_build() -> None:
    assert ask(torch="2.5.1", python="3.13", features=["compile"]).state is CellState.REFUSED


def test_a_cpu_image_is_asked_for_by_name() -> None:
    done = ask(cuda="cpu", torch="2.13.0", python="3.11", os="debian-12")
    assert (done.state, done.index, done.requirement) == (CellState.OK, "pytorch-cpu", "2.13.0+cpu")
    assert (done.driver_min, done.driver_require, done.choice.cudnn) == ("", "", None)


def test_a_cpu_build_on_a_gpu_is_refused() -> None:
    assert broken(ask(gpu="a100", cuda="cpu")) == {"gpu-code"}


def test_the_shipped_entries_resolve_as_the_issue_says() -> None:
    common = {"os": "debian-12", "python": "3.11", "python_from": "distribution"}
    for gpu in ("rtx-3080-ti", "rtx-4090", "a100-sxm4-40gb", "h100-sxm5-80gb"):
        done = ask(gpu=gpu, torch="2.14.1", **common)
        assert (done.state, done.choice.cuda, done.index) == (CellState.OK, "13.0", "pypi")
        assert (done.driver_min, done.driver_require) == ("580.65.06", "cuda>=13.0")
    done = ask(gpu="v100-sxm2-16gb", torch="2.10.0", cuda="12.8", **common)
    assert (done.state, done.index, done.driver_require, done.driver_max) == (CellState.OK, "pypi", "cuda>=12.0", "580")
    done = ask(gpu="rtx-5090", torch="2.15.0", os="ubuntu-24.04", python="3.12", python_from="distribution")
    assert (done.state, done.choice.cuda, done.requirement) == (CellState.OK, "13.2", "2.15.0")


def test_the_least_driver_comes_from_cuda_and_gpu_but_the_image_names_no_gpu() -> None:
    done = ask(gpu="b200", torch="2.10.0", cuda="12.8")
    assert (done.driver_min, done.driver_require) == ("570.26", "cuda>=12.0")


def test_the_driver_rule_and_the_label_agree() -> None:
    """A driver passes the rule exactly when the CUDA that its branch reports satisfies NVIDIA_REQUIRE_CUDA."""
    for cuda in ("11.8", "12.4", "12.9", "13.2"):
        label = ask(cuda=cuda).driver_require.removeprefix("cuda>=")
        for branch in C.branches:
            passes = "driver-cuda" not in broken(ask(cuda=cuda, driver=branch.number))
            assert passes == (numbers(branch.max_cuda) >= numbers(label)), (cuda, branch.branch)


def test_pypi_only_keeps_to_the_build_that_pypi_serves() -> None:
    assert ask(gpu="v100", index="pypi").choice.torch == "2.10.0"
    assert broken(ask(torch="2.14.1", cuda="12.6", index="pypi")) == {"torch-cuda-build"}
    assert ask(torch="2.14.1", cuda="12.6", index="pytorch-cu126").state is CellState.OK


def test_a_gcc_or_an_arch_list_means_a_source_build() -> None:
    assert ask(gpu="a100", gcc="12").choice.build == "source"
    assert ask(gpu="a100", arch_list="8.0").choice.build == "source"
    assert ask(gpu="a100").choice.build == "wheel"


def test_a_source_build_takes_its_arch_list_from_the_gpus() -> None:
    done = ask(gpus=["a100", "rtx-4090"], build="source", torch="2.14.1", cuda="13.0", os="debian-12")
    assert (done.state, done.choice.arch_list, done.index) == (CellState.OK, ("8.0", "8.9"), "")
    old = ask(gpu="rtx-4090", build="source", torch="2.0.1", cuda="11.7", os="ubuntu-22.04")
    assert old.choice.arch_list == ("8.6",)


def test_a_source_build_takes_a_compiler_that_the_toolkit_takes() -> None:
    done = ask(gpu="a100", build="source", torch="2.10.0", cuda="12.6", os="ubuntu-24.04")
    assert (done.state, done.choice.gcc) == (CellState.OK, "13.2")
    assert ask(gpu="a100", build="source", torch="2.5.1", cuda="12.1", os="ubuntu-24.04").choice.gcc == "12"


# --- nearest


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        ({"gpu": "v100", "torch": "2.14.1", "cuda": "13.0"}, {"cuda": "12.6"}),
        ({"gpu": "v100", "torch": "2.10.0", "cuda": "13.0"}, {"cuda": "12.9"}),
        ({"gpu": "gtx-1080", "torch": "2.8.0", "cuda": "12.8"}, {"cuda": "12.6"}),
        ({"gpu": "rtx-5090", "torch": "2.6.0", "cuda": "12.4"}, {"torch": "2.7.1", "cuda": "12.8"}),
        ({"torch": "2.5.1", "cuda": "12.4", "python": "3.14"}, {"python": "3.13"}),
        ({"torch": "2.14.1", "cuda": "12.8"}, {"cuda": "12.6"}),
        ({"torch": "2.99.0"}, {"torch": "2.15.0"}),
        ({"cuda": "12.7"}, {"cuda": "12.8"}),
        ({"os": "ubuntu-18.04", "torch": "2.14.1"}, {"torch": "2.6.0"}),
        ({"os": "alpine-3", "torch": "2.14.1"}, {"os": "ubuntu-26.04"}),
        ({"os": "debian-12", "python": "3.12", "python_from": "distribution"}, {"python": "3.11"}),
        ({"gpu": "p100", "driver": "595.45.04"}, {"driver": "580.65.06"}),
        ({"gpu": "rtx-5090", "driver": "565.57.01"}, {"driver": "570.26"}),
        ({"gpu": "t4", "arch": "aarch64"}, {"build": "source"}),
        ({"torch": "2.14.1", "cuda": "13.0", "cudnn": "9.10.2.21"}, {"cuda": "12.6"}),
    ],
)
def test_the_nearest_cell_changes_the_fewest_keys_the_cheapest_first(
    request_: dict[str, Any], changes: dict[str, str]
) -> None:
    done = ask(**request_)
    assert done.state is not CellState.OK
    assert done.nearest is not None
    assert {key: new for key, _, new in done.nearest.changes} == changes


def test_the_nearest_cell_never_changes_the_gpu() -> None:
    assert ask(gpu="t4", precision="bf16").nearest is None


# --- allow


def test_an_allowed_rule_is_told_and_does_not_refuse() -> None:
    request = rules.parse_request({"gpu": "a100", "driver": "550.54.14", "torch": "2.14.1", "cuda": "13.0"})
    done = explain.complete(request, C, allow={"driver-cuda": "drivers move on Monday"})
    assert done.state is CellState.OK
    verdict = next(v for v in done.verdicts if v.rule == "driver-cuda")
    assert (verdict.ok, verdict.allowed) == (False, "drivers move on Monday")
    assert "drivers move on Monday" in explain.told(done, C)


def test_an_allowed_rule_leaves_the_others_in_force() -> None:
    request = rules.parse_request({"gpu": "v100", "driver": "550.54.14", "torch": "2.14.1", "cuda": "13.0"})
    done = explain.complete(request, C, allow={"driver-cuda": "soon"})
    assert done.state is CellState.REFUSED and "driver-cuda" not in broken(done)


def test_an_unknown_rule_cannot_be_allowed() -> None:
    with pytest.raises(InputError, match="unknown rule"):
        explain.complete(rules.Request(), C, allow={"driver": "x"})


# --- answers


def test_an_answer_has_the_promised_shape_and_may_be_asked_again() -> None:
    answer = explain.answer('{"gpu": "h100", "cuda": "11.7"}', C)
    assert answer["verdict"] == "refused"
    rule_rows = answer["rules"]
    assert isinstance(rule_rows, list) and {"rule", "ok", "what", "source"} <= rule_rows[0].keys()
    assert [r["rule"] for r in rule_rows] == [r.id for r in rules.RULES]
    again = explain.answer(json.dumps(answer["cell"]), C)
    assert again["verdict"] == "refused" and again["cell"] == answer["cell"]
    assert explain.answer(json.dumps(answer["nearest"]), C)["verdict"] == "ok"


@pytest.mark.parametrize(
    "line",
    ["", "[]", "17", "nonsense", '{"gpu": "a1000"}', '{"gpus": "a100"}', '{"torch": 2.14}', '{"kuda": "12.8"}',
     '{"cuda_compat": "yes"}', '{"memory_gb": "80"}', '{"os": "debian-99"}', '{"arch": "riscv64"}', '{"python": "x"}',
     '{"cuda": "abc"}', '{"driver": "new"}', '{"packages": ["torchvision"]}', '{"features": ["fly"]}',
     '{"precision": "fp3"}', '{"index": "corp"}', '{"blas": "atlas9"}', '{"torch": "2.14.1+cu130", "cuda": "12.6"}',
     "[" * 20000, '{"memory_gb": 1' + "0" * 5000 + "}", '{"gcc": ""}', '{"build": "conda"}',
     '{"python_from": "conda"}', '{"compression": "xz"}', '{"consumers": "docker"}'],
)  # fmt: skip
def test_an_input_error_is_an_answer_with_a_message(line: str) -> None:
    answer = explain.answer(line, C)
    assert answer["verdict"] == "invalid" and answer["message"]


def test_a_person_sees_both_numbers_the_source_and_the_way_out() -> None:
    text = explain.told(ask(gpu="b200", cuda="12.6"), C)
    assert text.startswith("refused")
    for part in (
        "NVIDIA B200 is 10.0",
        "5.0 to 9.0",
        "nvcc-wheels",
        "cuda 12.6 → 12.8",
        "[nvcc-wheels] NVIDIA nvcc and crt",
    ):
        assert part in text


def test_a_torch_newer_than_the_catalogue_points_to_inspect() -> None:
    done = ask(torch="2.16.0")
    assert done.state is CellState.REFUSED
    assert "catalog inspect" in done.broken[0].what and C.date in done.broken[0].what
