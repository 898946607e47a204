"""What is judged of recorded facts: each cpu-* of tests/facts is a situation, and what is said of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lock_samples import image, lock, wheel

from torchyard.finding import Finding, State
from torchyard.judge import cpu, cpu_ends, cpu_facts
from torchyard.judge.cpu_facts import End, Facts, Seen
from torchyard.lock import LockedImage

FACTS = Path(__file__).resolve().parents[1] / "facts"
CPU = sorted(FACTS.glob("cpu-*"))
IDS = {"ids": lambda folder: folder.name}


def cpu_lock() -> LockedImage:
    """The lock of what the recorded images were made from, as far as it is judged."""
    torch = image(
        torch="2.13.0", torch_requirement="2.13.0+cpu", cuda_tag="cpu", cuda=None, cudnn=None, sass=(), ptx=()
    )
    return replace(lock(), image=torch, wheels=(wheel("numpy", "2.4.6"), wheel("torch", "2.13.0+cpu")))


def facts(folder: Path) -> Facts:
    return cpu_facts.from_text((folder / "facts.json").read_text())


def judged(folder: Path) -> list[Finding]:
    return cpu.judge(cpu_lock(), facts(folder))


def told(finding: Finding) -> str:
    """A finding as one line."""
    parts = (finding.state.value, finding.rule, finding.expected, finding.seen, finding.fix, finding.because)
    return " | ".join(part.replace("\n", " / ") for part in parts)


def failed(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.state is State.FAIL]


def name_of(folder: str) -> Path:
    return FACTS / folder


@pytest.mark.parametrize("folder", CPU, **IDS)
def test_a_situation_is_judged_as_promised(folder: Path) -> None:
    said = "".join(told(finding) + "\n" for finding in judged(folder))
    if os.environ.get("ACCEPT"):
        (folder / "expected.txt").write_text(said)
    assert said == (folder / "expected.txt").read_text()


@pytest.mark.parametrize("folder", CPU, **IDS)
def test_facts_come_back_from_their_text(folder: Path) -> None:
    found = facts(folder)
    assert cpu_facts.from_text(cpu_facts.to_text(found)) == found


@pytest.mark.parametrize(
    ("folder", "cause", "rules"),
    [
        ("cpu-good", "", []),
        ("cpu-no-compiler", "compile.compiler", ["compile.compiler", "compile"]),
        ("cpu-old-numpy", "version.numpy", ["version.numpy"]),
        ("cpu-openmp-twice", "python.host-variables", ["python.host-variables", "openmp"]),
        ("cpu-shadowed", "python.host-variables", ["python.host-variables", "python.shadowed", "version.numpy"]),
        ("cpu-open-home", "python.user-site", ["python.user-site"]),
        ("cpu-small-shm", "shm", ["shm", "loader"]),
        ("cpu-no-python", "container", ["container"]),
    ],
)
def test_the_cause_is_first_and_what_follows_from_it_says_so(folder: str, cause: str, rules: list[str]) -> None:
    findings = judged(name_of(folder))
    assert failed(findings) == rules
    for finding in findings:
        if finding.state is State.FAIL and finding.rule != cause:
            assert finding.because.startswith("follows from ")


def test_the_message_at_64_mb_names_the_size_the_need_and_the_key() -> None:
    """B060: what verify says of a container with the 64 MB that an engine gives."""
    (finding,) = [f for f in judged(name_of("cpu-small-shm")) if f.rule == "shm"]
    assert "64 MiB free of 64 MiB" in finding.seen
    assert "74 MiB" in finding.expected
    assert "shm of the hardware entry in env.yaml" in finding.fix and "shm_size" in finding.fix


def test_probes_that_die_or_hang_are_named_with_signal_and_last_lines() -> None:
    seen = {f.rule: f.seen for f in judged(name_of("cpu-dying-and-hanging-probes")) if f.state is State.FAIL}
    assert "SIGSEGV" in seen["probe.arrays"] and "breaking.py" in seen["probe.arrays"]
    assert "SIGBUS" in seen["probe.caches"]
    assert "still running after 12 s" in seen["probe.numerics"]


def test_a_probe_that_the_kernel_killed_for_memory_says_so() -> None:
    seen = Seen(setting="user", probe="loader", end=End.DIED, signal="SIGKILL", oom=True, lines=("last",), limit=60)
    finding = cpu_ends.ended(seen)
    assert "OOM" in finding.seen and "last" in finding.seen
    assert "memory" in finding.fix


GOOD = facts(FACTS / "cpu-good")


def changed(probe: str, **values: Any) -> Facts:
    """The good facts with some of one probe's changed."""
    seen = tuple(
        replace(each, facts={**each.facts, **values}) if (each.probe, each.setting) == (probe, "user") else each
        for each in GOOD.seen
    )
    return replace(GOOD, seen=seen)


def part(probe: str, key: str, **values: Any) -> dict[str, Any]:
    return {**GOOD.done(probe)[key], **values}


TORCH = GOOD.done("versions")["modules"]["torch"]


@pytest.mark.parametrize(
    ("seen", "rule"),
    [
        (
            changed("versions", modules=part("versions", "modules", torch={**TORCH, "version": "2.13.1+cpu"})),
            "version.torch",
        ),
        (changed("versions", modules=part("versions", "modules", torch={**TORCH, "cuda": "13.0"})), "version.cuda"),
        (changed("versions", modules=part("versions", "modules", torch={"error": "ImportError: x"})), "load.torch"),
        (changed("versions", modules=part("versions", "modules", numpy={"absent": True})), "load.numpy"),
        (changed("arrays", warnings=["Failed to initialize NumPy: _ARRAY_API not found"]), "numpy.exchange"),
        (changed("arrays", there=9.0), "numpy.exchange"),
        (changed("libraries", config={"BLAS_INFO": "open"}), "blas"),
        (changed("libraries", mapped=["/a/libgomp.so.1", "/b/libiomp5.so"]), "openmp"),
        (changed("libraries", mapped=["/a/libgomp.so.1", "/b/libgomp-a34b3233.so.1.0.0"]), "openmp"),
        (changed("libraries", threads=64, affinity=64, quota=2.0), "threads"),
        (changed("libraries", threads=2, affinity=64, quota=1.0), "threads"),
        (changed("numerics", errors=part("numerics", "errors", **{"gemm.float32": 1e-3})), "numerics.gemm"),
        (changed("numerics", errors=part("numerics", "errors", **{"svd.float64": "nan"})), "numerics.lapack"),
        (changed("numerics", errors=part("numerics", "errors", **{"fft.float32": 0.5})), "numerics.fft"),
        (
            changed("numerics", errors=part("numerics", "errors", **{"convolution.float64": 1e-6})),
            "numerics.convolution",
        ),
        (changed("learns", bfloat16=part("learns", "bfloat16", last=1.1)), "learns.bfloat16"),
        (changed("learns", float16=part("learns", "float16", last=float("nan"))), "learns.float16"),
        (changed("learns", bfloat16=part("learns", "bfloat16", computed_in="float32")), "learns.bfloat16"),
        (changed("compiled", compilers={}), "compile.compiler"),
        (changed("compiled", error="InductorError: x"), "compile"),
        (changed("compiled", forward=0.1), "compile"),
        (changed("compiled", graphs=0), "compile.graphs"),
        (changed("compiled", mapped=["/a/libgomp.so.1", "/usr/lib/libgomp.so.1"]), "compile.openmp"),
        (changed("loader", free=1 << 20), "shm"),
        (changed("loader", whole=False), "loader"),
        (changed("loader", ordered=False), "loader"),
        (changed("loader", error="DataLoader worker (pid 7) is killed by signal: Bus error. "), "loader"),
        (changed("ranks", sum=[2.0, 3.0]), "ranks.all-reduce"),
        (changed("ranks", ddp=0.1), "ranks.ddp"),
        (changed("ranks", statistics=0.1), "ranks.statistics"),
        (changed("ranks", sync_batch_norm={"far": 0.1}), "ranks.sync-batch-norm"),
        (changed("ranks", codes=[0, -11]), "ranks"),
        (changed("profiled", operations=[]), "profiler"),
        (changed("caches", places={"TRITON_CACHE_DIR": ["/x", "Permission denied"]}), "caches"),
        (changed("isolation", variables={"CONDA_PREFIX": "/opt/conda"}), "python.host-variables"),
        (changed("isolation", user_site={"leaked": True, "enabled": True}), "python.user-site"),
        (changed("held", pip={"code": 0, "said": "Would install torch-0.0.1"}), "held.pip"),
        (changed("held", pip={"code": 0, "said": "torch==2.13.0 goes, torch-0.0.1 comes"}), "held.pip"),
        (changed("held", uv={"code": 2, "said": "error: unexpected argument"}), "held.uv"),
        (changed("fingerprint", hashes=part("fingerprint", "hashes", gemm="0")), "fingerprint.twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_fails_for_its_fault_alone(seen: Facts, rule: str) -> None:
    fails = [f for f in cpu.judge(cpu_lock(), seen) if f.state is State.FAIL]
    assert [f.rule for f in fails] == [rule]
    assert fails[0].fix and fails[0].expected and fails[0].seen


def test_a_variable_that_env_yaml_sets_is_no_fault() -> None:
    locked = cpu_lock()
    packages = replace(locked.image.packages, env=(("LD_LIBRARY_PATH", "/opt/x"),))
    locked = replace(locked, image=replace(locked.image, packages=packages))
    assert failed(cpu.judge(locked, changed("isolation", variables={"LD_LIBRARY_PATH": "/opt/x"}))) == []
    assert failed(cpu.judge(locked, changed("isolation", variables={"LD_LIBRARY_PATH": "/opt/y"}))) != []


def test_the_fingerprint_is_compared_bit_for_bit_on_an_equal_cpu_and_within_a_tolerance_on_another() -> None:
    kept = cpu.fingerprint(GOOD)
    assert kept is not None
    assert "fingerprint" not in failed(cpu.judge(cpu_lock(), GOOD, kept))
    assert state_of("fingerprint", GOOD, kept) is State.PASS
    one_bit = {**kept, "hashes": {**kept["hashes"], "gemm": "0"}}
    assert state_of("fingerprint", GOOD, one_bit) is State.FAIL
    elsewhere = {**one_bit, "key": {**kept["key"], "device": "AVX2"}}
    assert state_of("fingerprint", GOOD, elsewhere) is State.PASS
    far = {**elsewhere, "values": {**kept["values"], "gemm": [value * 1.01 for value in kept["values"]["gemm"]]}}
    assert state_of("fingerprint", GOOD, far) is State.FAIL
    assert state_of("fingerprint", GOOD, None) is State.SKIPPED


def state_of(rule: str, seen: Facts, reference: Any) -> State:
    return next(f.state for f in cpu.judge(cpu_lock(), seen, reference) if f.rule == rule)


def test_what_stops_torch_stands_before_all_that_needs_it() -> None:
    broken = changed("versions", modules=part("versions", "modules", torch={"error": "OSError: libmissing.so.1"}))
    raised = tuple(
        replace(each, end=End.RAISED, facts={}, error="OSError: libmissing.so.1") if each.probe == "numerics" else each
        for each in broken.seen
    )
    fails = [f for f in cpu.judge(cpu_lock(), replace(broken, seen=raised)) if f.state is State.FAIL]
    assert [(f.rule, f.because) for f in fails] == [("load.torch", ""), ("probe.numerics", "follows from load.torch")]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "device": "cpu", "seen": [{}]}'])
def test_a_text_that_is_no_facts_is_told_so(text: str) -> None:
    with pytest.raises(ValueError, match="not facts of probes"):
        cpu_facts.from_text(text)
