"""What is asked of the rules: a request with open keys, and a cell in which every key is decided."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from torchyard.catalog import ARCHES, Catalog, Gpu, line_of
from torchyard.errors import InputError

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
_PRECISION_ALIASES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
BLAS = ("mkl", "openblas", "nvpl", "eigen")
FEATURES = ("compile",)
COMPRESSIONS = ("gzip", "zstd")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What somebody asks for; every key may be left open (None or empty)."""

    gpu: str | None = None
    gpus: tuple[str, ...] = ()
    memory_gb: int | None = None
    mig: str | None = None
    torch: str | None = None
    cuda: str | None = None  # "13.0", "cu130", "13" (any 13.x), "cpu"; "auto" is None
    cudnn: str | None = None
    python: str | None = None
    python_from: str | None = None  # distribution | standalone
    blas: str | None = None
    build: str | None = None  # wheel | source
    os: str | None = None
    arch: str | None = None
    driver: str | None = None
    gcc: str | None = None
    arch_list: str | None = None
    index: str | None = None  # pypi, pytorch-cu126
    packages: tuple[tuple[str, str], ...] = ()
    features: tuple[str, ...] = ()
    precision: str | None = None
    cuda_compat: bool | None = None
    compression: str | None = None  # of layers: gzip | zstd
    consumers: tuple[str, ...] = ()  # what reads the image where it runs: "docker", "enroot 4.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A request with every key decided: what the rules judge.

    cuda is the line, None for a CPU build; cudnn None where it is not known or there is none; gcc is None for a
    wheel; driver and arch_list stay None where the request left them open.
    """

    gpus: tuple[Gpu, ...]
    torch: str
    cuda: str | None
    cudnn: str | None
    python: str
    python_from: str
    blas: str
    build: str
    os: str
    arch: str
    memory_gb: int | None = None
    mig: str | None = None
    driver: str | None = None
    gcc: str | None = None
    arch_list: str | None = None
    index: str | None = None
    packages: tuple[tuple[str, str], ...] = ()
    features: tuple[str, ...] = ()
    precision: str | None = None
    cuda_compat: bool = False
    toolkit: str | None = None  # the patch of CUDA, where the request names one
    compression: str | None = None
    consumers: tuple[str, ...] = ()


def _text(key: str, value: object) -> str | None:
    if value is None or value == "auto":
        return None
    if key == "arch_list" and value == "":
        return ""  # a rule has something to say of it
    if not isinstance(value, str) or not value.strip():
        kind = "a text" if isinstance(value, str) else f"a text, not {value!r}"
        raise InputError(f"`{key}` is {kind} that is not empty", where=key, hint=f'write "{key}": "…" in quotes')
    return value.strip()


def _texts(key: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InputError(f"`{key}` is a list of texts, not {value!r}", where=key, hint=f'write "{key}": ["…"]')
    return tuple(t for v in value if (t := _text(key, v)) is not None)


def _whole(key: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InputError(f"`{key}` is a whole number above 0, not {value!r}", where=key, hint=f'write "{key}": 80')
    return value


def _flag(key: str, value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InputError(f"`{key}` is true or false, not {value!r}", where=key, hint=f'write "{key}": true')
    return value


def _pairs(key: str, value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InputError(f"`{key}` is a mapping of name to version", where=key, hint='write {"torchvision": "0.29.1"}')
    read = [(_text(key, name), _text(f"{key}.{name}", version)) for name, version in value.items()]
    return tuple(sorted((name.lower(), version) for name, version in read if name and version))


_READERS: Mapping[str, Callable[[str, object], object]] = {
    "gpus": _texts,
    "memory_gb": _whole,
    "features": _texts,
    "consumers": _texts,
    "packages": _pairs,
    "cuda_compat": _flag,
}
KEYS = tuple(f.name for f in fields(Request))


def parse_request(data: Mapping[str, object]) -> Request:
    """The request that a JSON object is (InputError for unknown keys and wrong types)."""
    values: dict[str, object] = {}
    for key, value in data.items():
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=2) or KEYS
            raise InputError(f"unknown key {key!r}", where=str(key), hint=f"known: {', '.join(close)}")
        values[key] = _READERS.get(key, _text)(key, value)
    return Request(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request whose names are looked up and whose spellings are one: what the search starts from."""

    gpus: tuple[Gpu, ...]
    torch: str | None  # a version or the beginning of one
    cuda: str | None  # a line, the beginning of one, or "cpu"
    toolkit: str | None
    cudnn: str | None
    python: str | None
    python_from: str | None
    blas: str | None
    build: str
    build_given: bool
    os: str | None
    arch: str | None
    driver: str | None
    gcc: str | None
    arch_list: str | None
    index: str | None
    memory_gb: int | None
    mig: str | None
    packages: tuple[tuple[str, str], ...]
    features: tuple[str, ...]
    precision: str | None
    cuda_compat: bool
    compression: str | None
    consumers: tuple[str, ...]


_VERSION = re.compile(r"\d+(\.\d+){0,3}(\.?(post|rc|dev)\d+)?")
_TORCH = re.compile(r"v?(?P<version>\d+(\.\d+){0,2}((a|b|rc|\.dev)\d+)?)(\+(?P<local>cpu|cu\d{2,4}))?")
_PYTHON = re.compile(r"(?P<minor>[23]\.\d+)(?P<patch>\.\d+)?(?P<free>t)?")
_CUDA = re.compile(r"(cu(?P<tag>\d{2,4})|(?P<version>\d+(\.\d+){0,2}))")
_DRIVER = re.compile(r"[rR]?(?P<version>\d{2,4}(\.\d+){0,2})")


def asked(request: Request, catalog: Catalog) -> Asked:
    """The request with its names looked up (InputError with the nearest names)."""
    torch, local = _torch(request.torch)
    cuda, toolkit = _cuda(request.cuda)
    if local is not None:
        line = line_of(local) or "cpu"
        if cuda is not None and line != cuda and not line.startswith(f"{cuda}."):
            raise InputError(
                f"torch {request.torch} says {local}, cuda says {request.cuda}", where="torch", hint="say it once"
            )
        cuda = line
    compiles = request.gcc is not None or request.arch_list is not None
    return Asked(
        gpus=_gpus(request, catalog),
        torch=torch,
        cuda=cuda,
        toolkit=toolkit,
        cudnn=_matching("cudnn", request.cudnn, _VERSION),
        python=_python(request.python),
        python_from=_one_of("python_from", request.python_from, ("distribution", "standalone")),
        blas=_one_of("blas", request.blas and request.blas.lower(), BLAS),
        build=_one_of("build", request.build, ("wheel", "source")) or ("source" if compiles else "wheel"),
        build_given=request.build is not None,
        os=request.os and catalog.distribution(request.os).os,
        arch=_one_of("arch", _ARCH_ALIASES.get(request.arch or "", request.arch), ARCHES),
        driver=_driver(request.driver),
        gcc=_matching("gcc", request.gcc, _VERSION),
        arch_list=request.arch_list,
        index=_index(request.index),
        memory_gb=request.memory_gb,
        mig=request.mig,
        packages=request.packages,
        features=tuple(f for f in request.features if _one_of("features", f, FEATURES)),
        precision=_precision(request.precision),
        cuda_compat=bool(request.cuda_compat),
        compression=_one_of("compression", request.compression, COMPRESSIONS),
        consumers=request.consumers,
    )


_ARCH_ALIASES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


def _gpus(request: Request, catalog: Catalog) -> tuple[Gpu, ...]:
    names = ([request.gpu] if request.gpu else []) + list(request.gpus)
    found = [catalog.gpu(name, memory_gb=request.memory_gb) for name in names]
    return tuple({gpu.id: gpu for gpu in found}.values())


def _torch(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    match = _TORCH.fullmatch(text)
    if match is None:
        raise InputError(f"{text[:80]!r} is no torch version", where="torch", hint="write 2.14.1 or 2.14.1+cu130")
    return match["version"], match["local"]


def _cuda(text: str | None) -> tuple[str | None, str | None]:
    if text is None or text in ("cpu", "none"):
        return ("cpu" if text else None), None
    match = _CUDA.fullmatch(text)
    if match is None:
        raise InputError(f"{text[:80]!r} is no CUDA version", where="cuda", hint="write 13.0, cu130 or cpu")
    if match["tag"]:
        return line_of(match["tag"]), None
    parts = match["version"].split(".")
    return ".".join(parts[:2]), (match["version"] if len(parts) == 3 else None)


def _python(text: str | None) -> str | None:
    if text is not None and _PYTHON.fullmatch(text) is None:
        raise InputError(f"{text[:80]!r} is no Python version", where="python", hint="write 3.12, or 3.14t")
    return text


def _driver(text: str | None) -> str | None:
    if text is None:
        return None
    match = _DRIVER.fullmatch(text)
    if match is None:
        raise InputError(f"{text[:80]!r} is no driver version", where="driver", hint="write 580.65.06 or 580")
    return match["version"]


def _index(text: str | None) -> str | None:
    if text is None or text == "pypi" or re.fullmatch(r"pytorch-(cpu|cu\d{2,4})", text):
        return text
    raise InputError(f"unknown index {text[:80]!r}", where="index", hint="pypi, or pytorch-cu126")


def _matching(key: str, text: str | None, pattern: re.Pattern[str]) -> str | None:
    if text is not None and pattern.fullmatch(text) is None:
        raise InputError(f"{text[:80]!r} is no version", where=key, hint="write digits and dots, as in 9.24.0.43")
    return text


def _one_of(key: str, text: str | None, known: tuple[str, ...]) -> str | None:
    if text is not None and text not in known:
        raise InputError(f"unknown {key} {text[:80]!r}", where=key, hint=f"known: {', '.join(known)}")
    return text


def _precision(text: str | None) -> str | None:
    if text is None:
        return None
    return _one_of("precision", _PRECISION_ALIASES.get(text.lower(), text.lower()), PRECISIONS)
