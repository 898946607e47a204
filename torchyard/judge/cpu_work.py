"""Judging what torch does on the CPU: libraries, numbers, learning, compiling, loading, ranks, tracing, fingerprint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ..finding import Finding, State
from ..lock import LockedImage
from .cpu_ends import by, compare, named

BLAS = {
    "mkl": "mkl",
    "open": "openblas",
    "openblas": "openblas",
    "nvpl": "nvpl",
    "flexi": "flexiblas",
    "eigen": "eigen",
}
OPENMP = {"libgomp": "GNU", "libiomp": "Intel", "libomp": "LLVM"}
NUMBERS = {"float32": 2e-5, "float64": 1e-12}
COMPILED = {"forward": 1e-4, "backward": 1e-4}
LEARNT = 0.3  # of the first loss: what the last one is at most
RANKS = {"ddp": 1e-5, "statistics": 1e-4, "sync_batch_norm": 1e-4}
CLOSE = {"gemm.bfloat16": 2e-2}  # how far results may be on another CPU or with other threads; else CLOSE_ELSE
CLOSE_ELSE = 1e-4


def libraries(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """The BLAS of the lock, one OpenMP runtime, no more threads than CPUs."""
    info = str(seen["config"].get("BLAS_INFO", "")).lower()
    blas = BLAS.get(info, info or "unknown")
    return [
        Finding.same(
            "blas",
            what="the BLAS that torch was linked with",
            expected=lock.image.blas,
            seen="openblas" if blas == "unknown" and _has(seen["torch"], "openblas") else blas,
            fix=f"./yard build --id {lock.id} --no-cache",
        )
        if lock.image.blas
        else Finding.skipped("blas", because="the lock names none"),
        openmp(
            "openmp", seen["mapped"], "after torch and numpy computed", str(seen["environment"].get("LD_PRELOAD", ""))
        ),
        _threads(seen),
    ]


def _has(paths: list[str], word: str) -> bool:
    return any(word in path.rpartition("/")[2] for path in paths)


def openmp(rule: str, mapped: list[str], when: str, preload: str = "") -> Finding:
    """One OpenMP runtime is loaded: two in one process fight over threads, and can hang or compute wrongly."""
    found = [(path, kind) for path in mapped if (kind := _runtime(path))]
    several = len(found) > 1
    return Finding(
        rule=rule,
        state=State.FAIL if several else State.PASS,
        what=f"the OpenMP runtimes loaded {when}",
        expected="one",
        seen=", ".join(f"{path} ({kind})" for path, kind in found) or "none",
        fix=("take LD_PRELOAD out of the image" if preload else "remove the package that brought the second one")
        if several
        else "",
    )


def _runtime(path: str) -> str | None:
    name = PurePosixPath(path).name
    return next((kind for start, kind in OPENMP.items() if name.startswith(start)), None)


def _threads(seen: Mapping[str, Any]) -> Finding:
    quota = seen["quota"]
    allowed = seen["affinity"] if quota is None else min(seen["affinity"], max(1, math.ceil(quota)))
    good = 1 <= seen["threads"] <= allowed
    told = f"a quota of {quota:g} CPUs" if quota is not None else "no quota"
    return Finding(
        rule="threads",
        state=State.PASS if good else State.FAIL,
        what="the threads that torch computes with",
        expected=f"1 to {allowed} ({seen['affinity']} CPUs, {told}, control groups version {seen['cgroup']})",
        seen=str(seen["threads"]),
        fix="" if good else f"set OMP_NUM_THREADS={allowed} where the quota is set",
    )


def numerics(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """Products, factorisations, transforms and convolutions are what float64 by hand says."""
    kinds = {"gemm": ("gemm",), "lapack": ("solve", "eigen", "svd"), "fft": ("fft",), "convolution": ("convolution",)}
    errors: Mapping[str, Any] = seen["errors"]
    limits = {name: NUMBERS[name.rpartition(".")[2]] for name in errors}
    return [
        compare(
            f"numerics.{rule}",
            what=f"{', '.join(names)} against float64 by hand",
            errors={name: value for name, value in errors.items() if name.partition(".")[0] in names},
            limits=limits,
            fix="the library behind it computes wrongly here: compare on another machine, then build with another BLAS",
        )
        for rule, names in kinds.items()
    ]


def learns(lock: LockedImage, setting: str, seen: Mapping[str, Any]) -> list[Finding]:
    """A network learns under autocast, in bf16 and in fp16 with a scaler."""
    return [_learns(name, setting, seen[name], seen["steps"]) for name in ("bfloat16", "float16")]


def _learns(dtype: str, setting: str, seen: Mapping[str, Any], steps: int) -> Finding:
    good = seen["last"] <= LEARNT * seen["first"] and seen["computed_in"] == dtype
    scaled = " with a gradient scaler" if dtype == "float16" else ""
    return Finding(
        rule=named(f"learns.{dtype}", setting),
        state=State.PASS if good else State.FAIL,
        what=f"{steps} training steps under autocast in {dtype}{scaled}{by(setting)}",
        expected=f"computed in {dtype}, the loss below {LEARNT:g} of the first",
        seen=f"computed in {seen['computed_in']}, the loss {seen['first']:.3g} at first, {seen['last']:.3g} at last",
        fix="" if good else "mixed precision does not work with this build on this machine",
    )


def compiled(lock: LockedImage, setting: str, seen: Mapping[str, Any]) -> list[Finding]:
    """There is a C++ compiler, and torch.compile computes what eager code does."""
    named_one = seen["CXX"] or next(
        (seen["compilers"][n] for n in ("g++", "c++", "clang++") if n in seen["compilers"]), ""
    )
    compiler = Finding(
        rule=named("compile.compiler", setting),
        state=State.PASS if named_one else State.FAIL,
        what=f"a C++ compiler, which torch.compile calls{by(setting)}",
        expected="g++, c++ or clang++ on PATH, or CXX",
        seen=named_one or "none",
        fix="" if named_one else "the package g++ is gone: build the image anew, or keep what removes it from doing so",
    )
    rule, what = named("compile", setting), f"torch.compile computes what eager code does{by(setting)}"
    if "error" in seen:
        failed = Finding(
            rule=rule, state=State.FAIL, what=what, expected="no error", seen=seen["error"], fix="see what it says"
        )
        return [compiler, failed]
    same = compare(
        rule, what=what, errors={n: seen[n] for n in COMPILED}, limits=COMPILED, fix="the compiled code is wrong here"
    )
    graphs = Finding.same(
        named("compile.graphs", setting),
        what=f"graphs that were made, and breaks in them{by(setting)}",
        expected="1 and 0",
        seen=f"{seen['graphs']} and {seen['breaks']}",
        fix="torch.compile fell back to eager code",
    )
    return [compiler, same, graphs, openmp(named("compile.openmp", setting), seen["mapped"], "with compiled code")]


def loader(lock: LockedImage, setting: str, seen: Mapping[str, Any]) -> list[Finding]:
    """Shared memory is enough for what workers have in flight, and batches come whole."""
    enough = seen["free"] >= seen["needed"]
    what = f"batches of {_mib(seen['batch'])} that {seen['workers']} workers prefetch{by(setting)}"
    size = Finding(
        rule=named("shm", setting),
        state=State.PASS if enough else State.FAIL,
        what=f"/dev/shm for {what}",
        expected=f"{_mib(seen['needed'])} free",
        seen=f"{_mib(seen['free'])} free of {_mib(seen['shm'])}",
        fix=""
        if enough
        else "give the container more: shm of the hardware entry in env.yaml; docker run --shm-size; "
        "shm_size in compose; a memory emptyDir on /dev/shm in Kubernetes",
    )
    rule, what = named("loader", setting), f"a DataLoader hands over {what}"
    good = "error" not in seen and seen["whole"] and seen["ordered"]
    told = (
        _ends(seen["error"])
        if "error" in seen
        else f"{seen['batches']} batches, " + ("whole and in order" if good else "not what was sent")
    )
    return [
        size,
        Finding(
            rule=rule,
            state=State.PASS if good else State.FAIL,
            what=what,
            expected="every batch whole and in order",
            seen=told,
            fix="" if good else "see /dev/shm",
        ),
    ]


def _ends(text: str) -> str:
    """The first and the last line of an error, between which its traceback is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "an error without words"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def ranks(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """Several ranks reduce, train and normalise as one process does."""
    what = f"{seen['world']} ranks over {seen.get('backend', 'gloo')}"
    if seen["errors"] or any(seen["codes"]):
        told = "; ".join(seen["errors"]) or f"exit codes {', '.join(str(code) for code in seen['codes'])}"
        return [
            Finding(
                rule="ranks", state=State.FAIL, what=what, expected="all end well", seen=told, fix="see what it says"
            )
        ]
    total = seen["world"] * (seen["world"] + 1) / 2
    found = [
        Finding.same(
            "ranks.all-reduce",
            what=f"the sum over {what}",
            expected=f"{total:g}",
            seen=" to ".join(f"{value:g}" for value in sorted(set(seen["sum"]))),
            fix="the ranks do not reduce as they should",
        ),
        compare(
            "ranks.ddp",
            what=f"the weights after a step of DDP ({what}) against one process",
            errors={"ddp": seen["ddp"]},
            limits=RANKS,
            fix="DDP does not average the gradients as it should",
        ),
        compare(
            "ranks.statistics",
            what=f"batch statistics reduced over {what} against one process",
            errors={"statistics": seen["statistics"]},
            limits=RANKS,
            fix="the ranks do not reduce as they should",
        ),
    ]
    synced = seen["sync_batch_norm"]
    if "refused" in synced:
        refused = Finding.skipped(
            "ranks.sync-batch-norm",
            what="torch's SyncBatchNorm against one process",
            because=f"torch has it for GPUs only: {synced['refused']}",
        )
        return [*found, refused]
    return [
        *found,
        compare(
            "ranks.sync-batch-norm",
            what=f"SyncBatchNorm ({what}) against one process",
            errors={"sync_batch_norm": synced["far"]},
            limits=RANKS,
            fix="the ranks do not reduce as they should",
        ),
    ]


def profiled(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """The profiler's trace has the work."""
    good = "aten::mm" in seen["operations"]
    return [
        Finding(
            rule="profiler",
            state=State.PASS if good else State.FAIL,
            what="a trace of the profiler",
            expected="aten::mm in it",
            seen=f"{seen['events']} events, {len(seen['operations'])} operations, {seen['kernels']} kernels",
            fix="" if good else "this build of torch has no Kineto",
        )
    ]


def twice(first: Mapping[str, Any], second: Mapping[str, Any]) -> Finding:
    """Two processes of this run compute the same bits."""
    return _fingerprint("fingerprint.twice", "what two processes of this run compute", first, second)


def since(reference: Mapping[str, Any], seen: Mapping[str, Any]) -> Finding:
    """This run computes what an earlier one of the same image did."""
    return _fingerprint("fingerprint", "what was computed when this image was verified before", reference, seen)


def _fingerprint(rule: str, what: str, reference: Mapping[str, Any], seen: Mapping[str, Any]) -> Finding:
    fix = "the same image computes otherwise: look for a library from outside, or for faulty memory or CPU"
    names = sorted(reference["hashes"])
    if reference["key"] == seen["key"]:
        other = [name for name in names if reference["hashes"][name] != seen["hashes"].get(name)]
        return Finding(
            rule=rule,
            state=State.FAIL if other else State.PASS,
            what=what,
            expected=f"the same bits ({_key(seen['key'])} both times)",
            seen=f"other bits of {', '.join(other)}" if other else f"the same bits of {len(names)} results",
            fix=fix if other else "",
        )
    errors = {name: _apart(reference["values"][name], seen["values"].get(name, [])) for name in names}
    return compare(
        rule,
        what=f"{what}, on {_key(reference['key'])} then and {_key(seen['key'])} now: close, not bit for bit",
        errors=errors,
        limits={name: CLOSE.get(name, CLOSE_ELSE) for name in names},
        fix=fix,
    )


def _key(key: Mapping[str, Any]) -> str:
    return f"{key['device']}, {key['threads']} threads"


def _apart(reference: list[float], seen: list[float]) -> float:
    """The largest difference of figures against the largest figure, without the norm that is first."""
    if len(reference) != len(seen):
        return math.inf
    scale = max((abs(value) for value in reference[1:]), default=1.0) or 1.0
    elements = max((abs(a - b) for a, b in zip(reference[1:], seen[1:])), default=0.0) / scale
    return max(elements, abs(reference[0] - seen[0]) / (abs(reference[0]) or 1.0))
