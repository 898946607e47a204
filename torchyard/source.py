"""The switches of a PyTorch build: which there are, what each may be, and what does not fit together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchyard.catalog.rows import Switch
from torchyard.versions import numbers
from torchyard.yaml_source import nearest, quote

Complaint = tuple[str, str, str]  # the switch, what is wrong, what helps
_TRUE = ("1", "ON", "YES", "TRUE", "Y")
_FALSE = ("0", "OFF", "NO", "FALSE", "N")
_ADD = "one that the catalogue lacks is added in catalog.d, under switches"

# What env.yaml says elsewhere, or what the recipe has to settle so that the rest holds.
_OURS = {
    "BLAS": "it is blas: of software",
    "WITH_BLAS": "it is blas: of software",
    "TORCH_CUDA_ARCH_LIST": "it is arch_list: of source",
    "CMAKE_CUDA_ARCHITECTURES": "it follows arch_list: of source",
    "MAX_JOBS": "it is jobs: of source",
    "CMAKE_BUILD_PARALLEL_LEVEL": "it is jobs: of source",
    "CC": "it is gcc: of source",
    "CXX": "it is gcc: of source",
    "CUDAHOSTCXX": "it is gcc: of source",
    "CUDA_HOST_COMPILER": "it is gcc: of source",
    "CMAKE_CUDA_HOST_COMPILER": "it is gcc: of source",
    "PYTORCH_BUILD_VERSION": "it is torch: of software, with the name of the build",
    "PYTORCH_BUILD_NUMBER": "it is the recipe's own",
    "USE_CCACHE": "the recipe has a compiler cache; it changes no byte of the image",
    "CMAKE_PREFIX_PATH": "paths inside the builder are the recipe's own",
    "CMAKE_GENERATOR": "the recipe builds with Ninja",
    "CMAKE_CUDA_COMPILER": "paths inside the builder are the recipe's own",
    "CUDACXX": "paths inside the builder are the recipe's own",
    "MKLROOT": "the build does not read it; the recipe names MKL's place itself",
    "MKL_ROOT": "the build does not read it; the recipe names MKL's place itself",
}
# (switch, value, what is wrong): never right in an image of ours.
_NEVER = (
    ("USE_NATIVE_ARCH", "1", "-march=native depends on the machine that builds", "name the CPU with cpu: of source"),
    ("USE_ROCM", "1", "ROCm excludes CUDA, and no entry has an AMD GPU", "leave it out"),
    ("USE_SYSTEM_LIBS", "1", "the builder has no libraries in place of those in third_party", "leave it out"),
    ("USE_SYSTEM_NCCL", "0", "the bundled NCCL is fetched while it builds, and build steps have no network",
     "leave it out: NVIDIA's wheel of NCCL is taken"),
    ("USE_STATIC_NCCL", "1", "NVIDIA's wheel of NCCL has no static library", "leave it out"),
    ("USE_MAGMA", "1", "no wheel carries MAGMA", "leave it out"),
    ("USE_MPI", "1", "the builder has no MPI", "leave it out: NCCL and Gloo are there"),
    ("USE_UCC", "1", "the builder has no UCC", "leave it out: NCCL and Gloo are there"),
    ("USE_CUDSS", "1", "the builder has no cuDSS", "leave it out"),
    ("USE_MKLDNN_ACL", "1", "the builder has no Arm Compute Library", "leave it out"),
    ("BUILD_PYTHON_ONLY", "1", "the wheel would lack libtorch", "leave it out"),
    ("BUILD_LIBTORCH_WHL", "1", "the wheel would lack the Python part", "leave it out"),
)  # fmt: skip
_NEEDS_CUDA = (
    "USE_CUDNN", "USE_CUSPARSELT", "USE_CUDSS", "USE_CUFILE", "USE_NCCL", "USE_SYSTEM_NCCL", "USE_NVSHMEM",
    "USE_FLASH_ATTENTION", "USE_MEM_EFF_ATTENTION", "FLASH_ATTENTION_MAX_JOBS", "TORCH_NVCC_FLAGS",
)  # fmt: skip
# (a switch and value, the one that it does not go with): both as they count, given or by default.
_CLASHES = (
    *(((name, "1"), ("USE_DISTRIBUTED", "0"), "it is a part of USE_DISTRIBUTED")
      for name in ("USE_NCCL", "USE_GLOO", "USE_TENSORPIPE", "USE_NVSHMEM")),
    (("USE_SYSTEM_NCCL", "1"), ("USE_NCCL", "0"), "it chooses which NCCL is taken"),
    (("MKLDNN_CPU_RUNTIME", "*"), ("USE_MKLDNN", "0"), "it is the threading of oneDNN"),
    (("MKLDNN_CPU_RUNTIME", "OMP"), ("USE_OPENMP", "0"), "OMP is OpenMP"),
    (("ATEN_THREADING", "OMP"), ("USE_OPENMP", "0"), "OMP is OpenMP"),
    (("MKL_THREADING", "OMP"), ("USE_OPENMP", "0"), "OMP is OpenMP"),
    (("FLASH_ATTENTION_MAX_JOBS", "*"), ("USE_FLASH_ATTENTION", "0"), "there is nothing to limit"),
    (("REL_WITH_DEB_INFO", "1"), ("DEBUG", "1"), "one is optimised, the other is not"),
)  # fmt: skip
_MKL_ONLY = ("MKL_THREADING", "USE_STATIC_MKL", "INTEL_MKL_DIR", "INTEL_OMP_DIR")
_ONLY_ON = {"USE_KLEIDIAI": "aarch64", "USE_ITT": "x86_64", "ATEN_AVX512_256": "x86_64"}
_COMPILER_FLAGS = (
    (re.compile(r"(^|\s)-(march|mcpu|mtune)="), "the CPU is cpu: of source"),
    (re.compile(r"allow-unsupported-compiler"), "choose a gcc that this nvcc takes with gcc: of source"),
    (re.compile(r"(^|\s)--?(gpu-architecture|gencode|generate-code|arch|code)\b"), "the GPUs are arch_list: of source"),
    (re.compile(r"prefix-map|-fdebug-prefix"), "the recipe maps the build's paths itself"),
    (re.compile(r"[^ -~]|[`$\"';&|<>\\]"), "compiler options are words without quotes or signs of the shell"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """One switch by its own name: the row that documents it, and its type."""

    name: str
    type: str  # bool | integer | path | string | choice | any
    choices: tuple[str, ...]
    meaning: str
    since: str  # the first release that reads it, where that is known


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """What the switches have to fit: a source build as it was resolved."""

    torch: str
    arch: str
    blas: str
    cuda: str | None
    name: str = "this build"  # how a message calls it


def known(rows: Sequence[Switch]) -> Mapping[str, Known]:
    """Every switch by name; a row may document several, and name more in its meaning."""
    return _known(tuple((row.name, row.type, row.meaning) for row in rows))


@lru_cache(maxsize=4)
def _known(rows: tuple[tuple[str, str, str], ...]) -> Mapping[str, Known]:
    found: dict[str, Known] = {}
    for names, type_, meaning in rows:
        since = re.search(r"from (\d+\.\d+) on", meaning)
        kind, choices = _kind(type_)
        for name in names.split(", "):
            if "*" not in name:
                found[name] = Known(
                    name=name,
                    type=kind,
                    choices=choices,
                    meaning=meaning,
                    since=since[1] if since and "becomes" not in meaning and "in front" not in meaning else "",
                )
    for names, _, meaning in rows:
        for name in re.findall(r"\b(?:CUDACXX|MKLROOT|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b(?!\*)", meaning):
            said = f"with {names}: {meaning}"
            found.setdefault(name, Known(name=name, type=_guess(name), choices=(), meaning=said, since=""))
    return found


def _kind(text: str) -> tuple[str, tuple[str, ...]]:
    words = re.sub(r"\(.*\)", "", text)
    if "|" in words:
        return "choice", tuple(each.strip() for each in words.split("|"))
    first = words.split()[0]
    return (first if first in ("bool", "integer", "path", "any") else "string"), ()


def _guess(name: str) -> str:
    if re.match(r"(USE|BUILD)_", name) or name == "REL_WITH_DEB_INFO":
        return "bool"
    return "path" if re.search(r"_(DIR|ROOT|HOME|LIBRARY|PATH|ROOT_DIR)$", name) else "string"


def said_by(name: str) -> str:
    """How env.yaml says a switch, in words for a page."""
    first = name.split(", ")[0]
    if first in _OURS:
        return f"not set: {_OURS[first]}"
    if first.startswith("CMAKE_"):
        return "not set: no recipe needs it"
    if "*" in name:
        return "those in this table"
    paths = first.endswith(("_HOME", "_DIR", "_ROOT", "_EXECUTABLE"))
    return "not set: a path inside the builder" if paths else "`source.flags`"


def complaint(name: str, rows: Sequence[Switch]) -> tuple[str, str] | None:
    """What is wrong with the name of a switch, if anything, and what helps."""
    names = known(rows)
    if name in names:
        return None
    return f"the PyTorch build has no switch {quote(name)}", " ".join(filter(None, (nearest(name, names), _ADD)))


def normal(flags: Sequence[tuple[str, str]], rows: Sequence[Switch]) -> tuple[tuple[str, str], ...]:
    """The switches in one spelling, sorted: what is true is 1 and what is false 0, so that ON and 1 are one image."""
    names = known(rows)
    return tuple(sorted((name, _plain(names.get(name), value)) for name, value in flags))


def _plain(switch: Known | None, value: str) -> str:
    if switch is not None and switch.type == "bool":
        return "1" if value.upper() in _TRUE else "0" if value.upper() in _FALSE else value
    return value


def problems(flags: Sequence[tuple[str, str]], build: Build, rows: Sequence[Switch]) -> Iterator[Complaint]:
    """Each switch that is misspelt, has a value of another type, is not the file's to set, or contradicts another."""
    names = known(rows)
    given = dict(normal(flags, rows))
    for name, value in given.items():
        wrong = complaint(name, rows) or _value(names[name], value) or _own(names[name], value, build)
        if wrong is not None:
            yield name, *wrong
    yield from _clashes(given, build)


def _value(switch: Known, value: str) -> tuple[str, str] | None:
    if switch.type == "bool" and value not in ("0", "1"):
        return f"{quote(value)} is not a value of {switch.name}, which is on or off", "write 1 or 0"
    if switch.type == "integer" and not re.fullmatch(r"[1-9][0-9]{0,3}", value):
        return f"{quote(value)} is not a value of {switch.name}, which is a whole number", "for example 4"
    if switch.type == "choice" and value not in switch.choices:
        hint = nearest(value, switch.choices) or f"one of {', '.join(switch.choices)}"
        return f"{quote(value)} is not a value of {switch.name}", hint
    return None


def _own(switch: Known, value: str, build: Build) -> tuple[str, str] | None:
    name = switch.name
    if name in _OURS:
        return f"{name} is not set here", _OURS[name]
    if name in ("CMAKE_FRESH", "CMAKE_ONLY", "USE_NINJA"):
        return f"{name} went away with torch 2.14, and no recipe needs it before", "leave it out"
    if switch.since and numbers(build.torch) < numbers(switch.since):
        return f"torch {build.torch} does not read {name}, which came with {switch.since}", "leave it out"
    if switch.type == "path":
        return f"{name} is a path inside the builder, which the recipe lays out itself", "leave it out"
    if name in ("CFLAGS", "CXXFLAGS", "TORCH_NVCC_FLAGS"):
        return next(
            ((f"{quote(value)} cannot stand in {name}", hint) for form, hint in _COMPILER_FLAGS if form.search(value)),
            None,
        )
    for never, bad, what, hint in _NEVER:
        if (name, value) == (never, bad):
            return f"{name}={value}: {what}", hint
    return None


def _clashes(given: Mapping[str, str], build: Build) -> Iterator[Complaint]:
    if "USE_CUDA" in given and given["USE_CUDA"] != ("1" if build.cuda else "0"):
        side = "has a GPU" if build.cuda else "has no GPU"
        yield (
            "USE_CUDA",
            f"USE_CUDA={given['USE_CUDA']}, and {build.name} {side}",
            "leave it out: it follows the entry's gpu",
        )
    for name, value in given.items():
        if build.cuda is None and name in _NEEDS_CUDA and value != "0":
            yield (
                name,
                f"{name}={value} needs CUDA, and {build.name} has no GPU",
                "leave it out, or give the entry a gpu",
            )
        if build.blas != "mkl" and name in _MKL_ONLY and value != "0":
            yield (
                name,
                f"{name} is a switch of MKL, and {build.name} has {build.blas}",
                "leave it out, or write blas: mkl",
            )
        if (only := _ONLY_ON.get(name)) and value == "1" and build.arch != only:
            yield name, f"{name}=1 is for {only}, and {build.name} is for {build.arch}", "leave it out"
    for (name, value), (other, off), why in _CLASHES:
        if given.get(other) == off and name in given and value in ("*", given[name]):
            yield name, f"{name}={given[name]} with {other}={off}: {why}", f"take one of them out, or write {other}: 1"


def settings(flags: Sequence[tuple[str, str]], build: Build) -> tuple[tuple[str, str], ...]:
    """Every switch that the build is given, sorted by name: the recipe's own, and the file's over the recipe's."""
    on = "1" if build.cuda else "0"
    made = {
        "BLAS": {"mkl": "MKL", "openblas": "OpenBLAS"}[build.blas],
        "BUILD_TEST": "0",
        "USE_CUDA": on,
        "USE_MAGMA": "0",
        "USE_MPI": "0",
        "USE_NATIVE_ARCH": "0",
        "USE_ROCM": "0",
    }
    if build.blas == "mkl":
        made |= {"USE_STATIC_MKL": "1"}
    if build.cuda:
        made |= {"USE_CUDNN": "1", "USE_SYSTEM_NCCL": "1", "TORCH_NVCC_FLAGS": _nvcc_flags(build.cuda)}
    if dict(flags).get("USE_NCCL") == "0" or dict(flags).get("USE_DISTRIBUTED") == "0":
        made.pop("USE_SYSTEM_NCCL", None)
    kept = {name: value for name, value in flags if name not in ("CFLAGS", "CXXFLAGS")}
    return tuple(sorted({**made, **kept}.items()))


def _nvcc_flags(cuda: str) -> str:
    """What the release's wheels are compiled with: fatbins compressed, for size where nvcc can."""
    return "-Xfatbin -compress-all" + (" -compress-mode=size" if numbers(cuda) >= (13,) else "")
