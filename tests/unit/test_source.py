"""Source builds: their switches, their recipes, and the scripts that compile; nothing is compiled here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from canned_locks import canned

from torchyard import catalog, compatibility, matrix, render, resolve, source, source_recipe
from torchyard import lock as locking
from torchyard.errors import YardError
from torchyard.lock import LockedImage
from torchyard.plan import BuildKind, Image, Plan
from torchyard.verbs import lock as lock_verb
from torchyard.verbs import project as projects
from torchyard.world import workspace

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = sorted((ROOT / "tests" / "golden").glob("source-*"))
STEPS = ROOT / "templates" / "steps"
HADOLINT = ROOT / ".venv" / "bin" / "hadolint"
CATALOG = catalog.load()
ROWS = CATALOG.switches()
GPU = source.Build(torch="2.14.1", arch="x86_64", blas="mkl", cuda="13.0")
CPU = source.Build(torch="2.14.1", arch="x86_64", blas="mkl", cuda=None)
ARM = source.Build(torch="2.14.1", arch="aarch64", blas="openblas", cuda="13.0")
HEAD = 'schema: 1\nproject: a\nsoftware: {torch: "2.14.1", cuda: "13.0", build: source}\n'


def planned(text: str) -> Plan:
    return resolve.plan(matrix.parse(text, known=resolve.names(CATALOG)), CATALOG)


def one(text: str) -> Image:
    (image,) = planned(text).images
    return image


def told(text: str) -> list[YardError]:
    with pytest.raises(YardError) as caught:
        planned(text)
    return list(caught.value.problems())


def recipe(lock: LockedImage) -> str:
    return render.image_files(lock, workspace.packaged_template)[PurePosixPath(f"images/{lock.id}/Dockerfile")]


def test_the_page_of_switches_has_every_one() -> None:
    page = compatibility.pages(CATALOG)[compatibility.SWITCHES]
    assert all(f"| `{row.name}` |" in page for row in ROWS)
    assert (ROOT / compatibility.SWITCHES).read_text() == page


def complaints(build: source.Build, **flags: str) -> dict[str, str]:
    return {name: f"{what} | {hint}" for name, what, hint in source.problems(tuple(flags.items()), build, ROWS)}


# -- switches ---------------------------------------------------------------------------------------------------------


def test_every_documented_switch_is_known_with_type_and_meaning() -> None:
    documented = {name for row in ROWS for name in row.name.split(", ") if "*" not in name}
    names = source.known(ROWS)
    assert documented <= names.keys() and len(documented) >= 63
    assert all(switch.meaning and switch.type for switch in names.values())
    assert {names[n].type for n in ("USE_CUDA", "MAX_JOBS", "MKL_THREADING", "CUDA_HOME")} == {
        "bool",
        "integer",
        "choice",
        "path",
    }


@pytest.mark.parametrize("name", sorted(source.known(ROWS)))
def test_a_switch_with_one_letter_too_many_is_refused_with_its_right_name(name: str) -> None:
    wrong = source.complaint(name + "X", ROWS)
    assert wrong is not None and repr(name) in wrong[1]


@pytest.mark.parametrize(
    ("build", "flags", "said"),
    [
        (GPU, {"USE_CUDA": "0"}, "follows the entry's gpu"),
        (CPU, {"USE_CUDA": "1"}, "follows the entry's gpu"),
        (CPU, {"USE_CUDNN": "1"}, "needs CUDA"),
        (CPU, {"USE_FLASH_ATTENTION": "on"}, "needs CUDA"),
        (GPU, {"USE_NCCL": "1", "USE_DISTRIBUTED": "0"}, "part of USE_DISTRIBUTED"),
        (GPU, {"USE_GLOO": "1", "USE_DISTRIBUTED": "OFF"}, "part of USE_DISTRIBUTED"),
        (GPU, {"USE_SYSTEM_NCCL": "1", "USE_NCCL": "0"}, "which NCCL is taken"),
        (GPU, {"USE_SYSTEM_NCCL": "0"}, "no network"),
        (GPU, {"USE_STATIC_NCCL": "1"}, "no static library"),
        (GPU, {"USE_ROCM": "1"}, "excludes CUDA"),
        (GPU, {"USE_NATIVE_ARCH": "1"}, "depends on the machine"),
        (CPU, {"MKLDNN_CPU_RUNTIME": "TBB", "USE_MKLDNN": "0"}, "threading of oneDNN"),
        (CPU, {"ATEN_THREADING": "OMP", "USE_OPENMP": "0"}, "OpenMP"),
        (CPU, {"ATEN_THREADING": "TBB"}, "OMP, NATIVE"),
        (CPU, {"MKL_THREADING": "omp"}, "'OMP'"),
        (ARM, {"USE_STATIC_MKL": "1"}, "has openblas"),
        (ARM, {"USE_ITT": "1"}, "for x86_64"),
        (CPU, {"USE_KLEIDIAI": "1"}, "for aarch64"),
        (CPU, {"USE_KINETO": "maybe"}, "on or off"),
        (GPU, {"FLASH_ATTENTION_MAX_JOBS": "many"}, "whole number"),
        (GPU, {"FLASH_ATTENTION_MAX_JOBS": "2", "USE_FLASH_ATTENTION": "0"}, "nothing to limit"),
        (CPU, {"DEBUG": "1", "REL_WITH_DEB_INFO": "1"}, "optimised"),
        (CPU, {"BLAS": "OpenBLAS"}, "blas: of software"),
        (GPU, {"TORCH_CUDA_ARCH_LIST": "8.0"}, "arch_list:"),
        (GPU, {"CMAKE_CUDA_COMPILER": "/x"}, "recipe's own"),
        (GPU, {"CUDA_HOME": "/usr/local/cuda"}, "lays out itself"),
        (CPU, {"MAX_JOBS": "4"}, "jobs: of source"),
        (CPU, {"CC": "gcc-9"}, "gcc: of source"),
        (CPU, {"CFLAGS": "-march=native"}, "cpu: of source"),
        (CPU, {"CXXFLAGS": "-O2 $(id)"}, "signs of the shell"),
        (GPU, {"TORCH_NVCC_FLAGS": "-allow-unsupported-compiler"}, "gcc: of source"),
        (GPU, {"TORCH_NVCC_FLAGS": "-gencode=arch=compute_80,code=sm_80"}, "arch_list: of source"),
        (CPU, {"CMAKE_ONLY": "1"}, "went away"),
        (CPU, {"MKLROOT": "/opt/mkl"}, "does not read it"),
        (CPU, {"USE_CUDDN": "1"}, "'USE_CUDNN'"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_way_on(build: source.Build, flags: dict[str, str], said: str) -> None:
    found = complaints(build, **flags)
    assert said in " ".join(found.values()), found


@pytest.mark.parametrize(
    ("build", "flags"),
    [
        (GPU, {"USE_CUDA": "1", "USE_DISTRIBUTED": "1", "USE_NCCL": "1", "USE_SYSTEM_NCCL": "1"}),
        (GPU, {"USE_DISTRIBUTED": "0", "USE_NCCL": "0", "USE_GLOO": "off"}),
        (CPU, {"USE_CUDA": "0", "USE_CUDNN": "0", "USE_MKLDNN": "1", "MKLDNN_CPU_RUNTIME": "OMP"}),
        (CPU, {"CFLAGS": "-O2 -g0", "BUILD_TEST": "1", "USE_MSLK": "0"}),
        (ARM, {"USE_KLEIDIAI": "1", "USE_STATIC_MKL": "0"}),
        (GPU, {"TORCH_NVCC_FLAGS": "-Xfatbin -compress-all --threads 2", "FLASH_ATTENTION_MAX_JOBS": "2"}),
    ],
)
def test_what_fits_is_taken(build: source.Build, flags: dict[str, str]) -> None:
    assert complaints(build, **flags) == {}


def test_a_switch_that_a_release_does_not_read_yet_is_refused() -> None:
    old = source.Build(torch="2.13.0", arch="x86_64", blas="mkl", cuda=None)
    assert "came with 2.14" in complaints(old, USE_MSLK="1")["USE_MSLK"]


def test_problems_of_switches_are_told_in_one_go_each_where_it_stands() -> None:
    text = HEAD + (
        "source:\n  flags:\n    USE_CUDA: 0\n    USE_ROCM: 1\n"
        "hardware:\n  a100: {gpu: a100}\n  h100:\n    gpu: h100\n    source: {flags: {USE_MPI: 1}}\n"
    )
    found = told(text)
    wheres = " ".join(each.where for each in found)
    assert "source.flags.USE_CUDA" in wheres and "hardware.h100.source.flags.USE_MPI" in wheres
    assert all(re.match(r"env\.yaml:\d+:\d+  ", each.where) and each.hint for each in found)


def test_a_misspelt_switch_is_told_although_nothing_is_compiled() -> None:
    (found,) = told(
        'schema: 1\nproject: a\nsoftware: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\n'
        "source: {flags: {USE_CUDNNN: 1}}\n"
    )
    assert found.where.startswith("env.yaml:5:") and "'USE_CUDNN'" in found.hint


def test_two_spellings_of_one_value_are_one_image() -> None:
    text = HEAD + "hardware: {a: {gpu: a100, source: {flags: {USE_KINETO: 0}}}}\n"
    assert one(text.replace("KINETO: 0", 'KINETO: "OFF"')) == one(text)


def test_jobs_change_no_image_and_reach_the_bake_file() -> None:
    text = HEAD + "hardware: {a: {gpu: a100, source: {jobs: 4}}, b: {gpu: a100, source: {jobs: 9}}, c: {gpu: a100}}\n"
    plan = planned(text)
    (image,) = plan.images
    assert plan.jobs == ((image.id, "4"),)
    assert '"JOBS": "4"' in render.bake([canned(image)], plan)


def test_every_part_of_a_source_is_in_the_id() -> None:
    parts = ["ref: v2.14.0", 'commit: "' + "a" * 40 + '"', 'archive: "' + "b" * 64 + '"', "cpu: x86-64-v4", "gcc: 11",
             'arch_list: ["8.0", "9.0"]', "flags: {USE_GLOO: 0}"]  # fmt: skip
    ids = {one(HEAD + f"hardware: {{a: {{gpu: a100, source: {{{part}}}}}}}\n").id for part in parts}
    assert len(ids | {one(HEAD + "hardware: {a: {gpu: a100}}\n").id}) == len(parts) + 1


# -- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_source_recipe_is_what_was_agreed(folder: Path) -> None:
    plan = planned((folder / "env.yaml").read_text())
    (made,) = (canned(image) for image in plan.images)
    written = {**render.image_files(made, workspace.packaged_template), **render.shared_files([made], plan)}
    seen = {path.name: text for path, text in written.items()} | {"lock.yaml": locking.to_text(made)}
    expected = folder / "expected"
    if os.environ.get("ACCEPT"):
        expected.mkdir(exist_ok=True)
        for path in expected.iterdir():
            path.unlink()
        for name, text in seen.items():
            (expected / name).write_text(text)
    assert seen == {path.name: path.read_text() for path in expected.iterdir()}


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_source_lock_comes_back_as_it_was(folder: Path) -> None:
    made = canned(one((folder / "env.yaml").read_text()))
    assert made.source is not None and made.build_wheels
    assert locking.from_text(locking.to_text(made), name="lock.yaml") == made


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_source_recipe_keeps_its_promises(folder: Path) -> None:
    made = canned(one((folder / "env.yaml").read_text()))
    text = recipe(made)
    final = text[text.index("FROM system AS locked") :]
    assert "native" not in text and "unsupported-compiler" not in text
    assert not re.search(r"CUDA_ARCH|CFLAGS|CCACHE|USE_\w+=", final)
    assert all("--network=none" in step for step in re.findall(r"^RUN .*", text, re.MULTILINE))
    caches = re.findall(r"type=cache\S*", text)
    assert caches and all("sharing=" in cache for cache in caches)
    assert "None" not in text and "undefined" not in text
    contexts = set(re.findall(r"from=([\w-]+)", text)) - {"builder"}
    assert contexts == render.contexts(made).keys() - {"base"}
    variables = dict(source_recipe.environment(made.image))
    assert f"-march={made.image.source.cpu}" in variables["CFLAGS"]  # type: ignore[union-attr]
    assert "-ffile-prefix-map=" in variables["CXXFLAGS"]
    assert variables["BLAS"] == {"mkl": "MKL", "openblas": "OpenBLAS"}[made.image.blas]
    assert variables["PYTORCH_BUILD_VERSION"] == f"{made.image.torch}+{made.image.cuda_tag}"


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_hadolint_has_nothing_to_say_of_a_source_recipe(folder: Path) -> None:
    made = canned(one((folder / "env.yaml").read_text()))
    done = subprocess.run([HADOLINT, "-"], input=recipe(made), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_both_forms_of_the_targets_come_from_one_field() -> None:
    variables = dict(source_recipe.environment(one(HEAD + "hardware: {a: {gpu: a100}}\n")))
    assert (variables["TORCH_CUDA_ARCH_LIST"], variables["CMAKE_CUDA_ARCHITECTURES"]) == ("8.0", "80")
    assert source_recipe.cmake_architectures(("8.6", "9.0a", "9.0+PTX", "9.0")) == ("86", "90a", "90")


def test_the_gcc_of_the_builder_is_one_that_nvcc_takes() -> None:
    made = canned(one(HEAD + "hardware: {a: {gpu: a100, source: {gcc: 11}}}\n"))
    assert {pin.name for pin in made.group("build")} >= {"gcc-11", "g++-11", "ccache"}
    variables = dict(source_recipe.environment(made.image))
    assert (variables["CC"], variables["CXX"], variables["CUDAHOSTCXX"]) == ("gcc-11", "g++-11", "g++-11")


def test_a_gcc_beyond_nvcc_refuses_the_cell() -> None:
    text = HEAD.replace('"13.0"', '"12.6", base: {from: archive, os: ubuntu-24.04}')
    (cell,) = planned(text + "hardware: {a: {gpu: a100, source: {gcc: 14}}}\n").cells
    assert not cell.image and "up to gcc 13" in resolve.refusal(cell).what
    (cell,) = planned(text + "hardware: {a: {gpu: a100}}\n").cells
    assert cell.image


def test_openblas_is_linked_from_the_distribution_and_stays_in_the_image() -> None:
    made = canned(one(HEAD + "hardware: {a: {gpu: a100, blas: openblas}}\n"))
    assert "libopenblas0-openmp" in {pin.name for pin in made.group("os")}
    assert "libopenblas-openmp-dev" in {pin.name for pin in made.group("build")}
    mkl = canned(one(HEAD + "hardware: {a: {gpu: a100, blas: mkl}}\n"))
    assert "mkl-static" in {pin.name for pin in mkl.build_wheels}
    assert not [pin for pin in mkl.os if "openblas" in pin.name]


def test_what_a_builder_has_is_in_the_fingerprint_of_source_builds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = one(HEAD + "hardware: {a: {gpu: a100}}\n")
    wheel = one('schema: 1\nproject: a\nsoftware: {torch: "2.14.1"}\nhardware: {a: {gpu: a100}}\n')
    before = locking.fingerprint(compiled), locking.fingerprint(wheel)
    monkeypatch.setattr("torchyard.groups.toolkit", lambda: ("nvcc",))
    after = locking.fingerprint(compiled), locking.fingerprint(wheel)
    assert before[0] != after[0] and before[1] == after[1]
    assert compiled.build is BuildKind.SOURCE


# -- steps ------------------------------------------------------------------------------------------------------------


def machine(root: Path, *, memory_mb: int, **limits: str) -> Path:
    """The files of a machine or container that say how much memory and processor there is."""
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text(f"MemTotal:       {memory_mb * 1024} kB\nMemFree: 1 kB\n")
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_max", ".max").replace("_in", "_in")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def jobs(root: Path, cores: int, need: int = 4000) -> int:
    done = subprocess.run(
        ["sh", STEPS / "jobs", str(need), root, str(cores)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_jobs_follow_memory_where_there_are_many_cores(tmp_path: Path) -> None:
    assert jobs(machine(tmp_path / "a", memory_mb=16384), cores=36) == 4
    assert jobs(machine(tmp_path / "b", memory_mb=512 * 1024), cores=36) == 36
    assert jobs(machine(tmp_path / "c", memory_mb=2000), cores=8) == 1


def test_jobs_follow_the_limits_of_the_cgroup(tmp_path: Path) -> None:
    big = 512 * 1024
    assert jobs(machine(tmp_path / "v2", memory_mb=big, memory_max=str(16 << 30)), cores=36) == 4
    assert jobs(machine(tmp_path / "none", memory_mb=big, memory_max="max"), cores=36) == 36
    v1 = machine(tmp_path / "v1", memory_mb=big)
    (v1 / "sys/fs/cgroup/memory").mkdir(parents=True)
    (v1 / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text(f"{8 << 30}\n")
    assert jobs(v1, cores=36) == 2
    (v1 / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert jobs(v1, cores=36) == 36
    assert jobs(machine(tmp_path / "cpu", memory_mb=big, cpu_max="150000 100000"), cores=36) == 2


def test_a_build_that_ran_out_of_memory_says_so_and_what_to_try(tmp_path: Path) -> None:
    log = tmp_path / "log"
    last = "FAILED: aten/flash_fwd.cu.o\nc++: fatal error: Killed signal terminated program cc1plus\n"
    log.write_text("[711/1460] Building CXX object a.o\n" + last)
    done = subprocess.run(["sh", STEPS / "explain-failure", log, "8"], capture_output=True, text=True, check=True)
    assert "out of memory with 8 jobs" in done.stdout and "aten/flash_fwd.cu.o" in done.stdout
    assert "jobs: 4" in done.stdout
    log.write_text("FAILED: x.o\nerror: no such file\n")
    done = subprocess.run(["sh", STEPS / "explain-failure", log, "8"], capture_output=True, text=True, check=True)
    assert done.stdout == ""


# -- locking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "torch", "said"),
    [("12.6", "2.14.1", "nvcc from CUDA 13.0 on"), ("12.6", "2.15.0", "was not released for")],
)
def test_what_cannot_be_compiled_is_refused_before_anything_is_asked(
    tmp_path: Path, cuda: str, torch: str, said: str
) -> None:
    (tmp_path / "env.yaml").write_text(
        f'schema: 1\nproject: a\nsoftware: {{torch: "{torch}", build: source}}\n'
        f'hardware: {{a: {{gpu: a100, cuda: "{cuda}"}}}}\n'
    )
    project = projects.load(tmp_path)
    with pytest.raises(YardError) as caught:
        lock_verb.lock(project, project.plan.images, say=lambda text: None)
    assert said in caught.value.what and caught.value.hint
    assert not (tmp_path / "images").exists()
