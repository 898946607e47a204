"""Which libraries a loader would take: what is needed and not there, what is there twice, and where it looks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .static_case import Judged, Reference, failed, passed, skipped, some
from .static_facts import ImageFacts, Library

# The driver's own libraries: they come from the host when the container starts.
DRIVER = re.compile(r"^lib(?:cuda|nvidia-[a-z-]+|nvcuvid|nvoptix|cudadebugger)\.so(?:\.\d+)*$")
_LINKER = re.compile(r"^(?:ld-linux.*|ld64|linux-vdso)\.so")
_EXTENSION = re.compile(r"\.(?:cpython-[^/]*|abi3)\.so$")
_PROGRAM = re.compile(r"^/(?:usr/(?:local/)?)?s?bin/|^/opt/venv/bin/")
_FAMILIES = {
    "cuDNN": re.compile(r"^libcudnn\.so"),
    "NCCL": re.compile(r"^libnccl\.so"),
    "cuBLAS": re.compile(r"^libcublas\.so"),
    "nvJitLink": re.compile(r"^libnvJitLink\.so"),
    "the CUDA runtime": re.compile(r"^libcudart\.so"),
}
_OPENMP = re.compile(r"^lib(gomp|iomp5|omp)(?:-[0-9a-f]{6,})?\.so")
_TOOLKIT = re.compile(r"^/usr/local/cuda[^/]*/|/cuda[^/]*/(?:targets/[^/]+/)?lib(?:64)?$|/nvidia/[^/]+/lib$")
_STUBS = re.compile(r"/stubs(?:/|$)")
_COMPAT = re.compile(r"/cuda[^/]*/compat(?:/|$)|/compat/?$")
# Libraries whose major version is CUDA's own.
_MAJOR = re.compile(r"^lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|nvblas)\.so\.(\d+)")
_FIXED = ("/usr/lib64", "/usr/lib", "/lib64", "/lib")
_WHEEL_MAJOR = re.compile(r"-(?:cu|cuda)(\d{2})x?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPath:
    """Where a loader finds libraries: by folder and name; system: the folders in which every process looks."""

    folders: Mapping[str, Mapping[str, Library]]
    paths: Mapping[str, Library]
    variable: tuple[str, ...]  # the folders of LD_LIBRARY_PATH
    system: tuple[str, ...]  # these and the others, in their order

    @classmethod
    def of(cls, facts: ImageFacts) -> SearchPath:
        """The search path of an image."""
        by_path = {lib.path: lib for lib in facts.libraries}
        found: dict[str, dict[str, Library]] = defaultdict(dict)
        for path, real in (*((path, path) for path in by_path), *facts.links):
            if real in by_path:
                folder, _, name = path.rpartition("/")
                found[folder][name] = by_path[real]
        machine = next((lib.machine for lib in facts.libraries if lib.soname == "libc.so.6"), "x86_64")
        variable = tuple(part.rstrip("/") for part in facts.variable("LD_LIBRARY_PATH").split(":") if part)
        fixed = (f"/usr/lib/{machine}-linux-gnu", f"/lib/{machine}-linux-gnu", *_FIXED)
        system = tuple(dict.fromkeys([*variable, *facts.loader_conf, *facts.loader_cache, *fixed]))
        return cls(folders=dict(found), paths=by_path, variable=variable, system=system)

    def find(self, name: str, folders: Iterable[str]) -> Library | None:
        """The first library of this name in these folders."""
        return next((lib for folder in folders if (lib := self.folders.get(folder, {}).get(name))), None)

    def needs(self, lib: Library, name: str) -> Library | None:
        """What a loader finds for a name that this library needs."""
        if "/" in name:
            return self.paths.get(name)
        own = lib.runpath or lib.rpath
        return self.find(name, (*(_place(folder, lib.path) for folder in own), *self.system))


def _place(folder: str, path: str) -> str:
    """A folder of a search path, with $ORIGIN and dots worked out."""
    origin = path.rpartition("/")[0]
    parts: list[str] = []
    for part in folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def needed(ref: Reference, facts: ImageFacts) -> Judged:
    """Every library that a program, an extension or another library needs is found, or loaded before it.

    A process that imports torch has loaded torch's and NVIDIA's libraries when an extension asks for them, so what
    lies in the same environment counts as found; so does, for a private library, what any folder of the image has.
    Plugins that nothing names (a transport for hardware that is not there) may lack what they need.
    """
    what = "the libraries that programs, extensions and libraries need"
    path = SearchPath.of(facts)
    anywhere: dict[str, list[str]] = defaultdict(list)
    for folder, names in path.folders.items():
        for name, lib in names.items():
            anywhere[name].append(folder)
            if lib.soname:
                anywhere[lib.soname].append(folder)
    named = {name for lib in facts.libraries for name in lib.needed}
    system = set(path.system)
    lacks: dict[str, list[Library]] = defaultdict(list)
    plugins: dict[str, list[Library]] = defaultdict(list)
    for lib in facts.libraries:
        if lib.machine != ref.lock.image.arch:
            continue
        for name in lib.needed:
            if DRIVER.match(name) or _LINKER.match(name) or path.needs(lib, name):
                continue
            private = lib.path.rpartition("/")[0] not in system and not _PROGRAM.match(lib.path)
            if private and any(_beside(folder, lib.path) for folder in anywhere[name]):
                continue
            asked = _EXTENSION.search(lib.path) or _PROGRAM.match(lib.path) or _names(lib) & named
            (lacks if asked else plugins)[name].append(lib)
    if not lacks:
        aside = f"; {len(plugins)} only for plugins that nothing names: {some(sorted(plugins), 3)}" if plugins else ""
        return passed("libraries.needed", what, expected="all found", seen=f"all found{aside}")
    told = [f"{name} (for {some([lib.path for lib in libs], 2)})" for name, libs in sorted(lacks.items())]
    about = [f"lib {name}" for name in lacks]
    major = {found[1] for name in lacks if (found := _MAJOR.match(name))}
    return failed(
        "libraries.needed",
        what,
        expected="all found",
        seen=some(told, 4),
        fix=f"find out what took it away or asks for it; {ref.rebuild}",
        about=[*about, *(f"cuda {each}" for each in major)],
        layers=[lib.layer for libs in lacks.values() for lib in libs],
    )


def _names(lib: Library) -> set[str]:
    return {lib.soname, lib.path.rpartition("/")[2]} - {""}


def _beside(folder: str, path: str) -> bool:
    """Whether a library in this folder may be loaded when the one at this path is: both are of one environment."""
    if "/site-packages/" in path:
        site = path.partition("/site-packages/")[0] + "/site-packages"
        return folder.startswith(site)
    return not folder.startswith("/opt/venv/")


def majors(ref: Reference, facts: ImageFacts) -> Judged:
    """Distributions and libraries are of one CUDA major version: the lock's."""
    what = "the CUDA major version of wheels and libraries"
    cuda = ref.lock.image.cuda
    if cuda is None:
        return skipped("libraries.cuda-major", what, "a CPU image")
    want = cuda.split(".")[0]
    wheels = [d for d in facts.distributions if (m := _WHEEL_MAJOR.search(d.name)) and m[1] != want]
    libs = [lib for lib in facts.libraries if (other := _other_major(lib, want)) and other]
    if not wheels and not libs:
        return passed("libraries.cuda-major", what, expected=f"CUDA {want}", seen=f"CUDA {want} throughout")
    told = [f"{d.name} {d.version}" for d in wheels]
    told += [f"{lib.path} ({_other_major(lib, want)})" for lib in libs]
    layers = [*(d.layer for d in wheels), *(lib.layer for lib in libs)]
    others = {m[1] for d in wheels if (m := _WHEEL_MAJOR.search(d.name))}
    others |= {m[1] for lib in libs for name in (lib.soname, *lib.needed) if (m := _MAJOR.match(name)) and m[1] != want}
    return failed(
        "libraries.cuda-major",
        what,
        expected=f"CUDA {want}",
        seen=some(told, 4),
        fix=f"install the build for CUDA {want}; then {ref.rebuild}",
        about=[
            *(f"python {d.name}" for d in wheels),
            *(lib.owner for lib in libs if lib.owner),
            *(f"cuda {each}" for each in others),
            *(f"lib {name}" for lib in libs for name in (lib.soname, *lib.needed)),
        ],
        layers=layers,
    )


def _other_major(lib: Library, want: str) -> str:
    """The name of another CUDA's library that this one is or needs."""
    for name in (lib.soname, *lib.needed):
        if (found := _MAJOR.match(name)) and found[1] != want:
            return name if name == lib.soname else f"needs {name}"
    return ""


def copies(ref: Reference, facts: ImageFacts) -> Judged:
    """Of cuDNN, NCCL, cuBLAS, nvJitLink and the CUDA runtime there is one copy that a loader can come to."""
    what = "one copy each of cuDNN, NCCL, cuBLAS, nvJitLink and the CUDA runtime"
    path = SearchPath.of(facts)
    system = set(path.system)
    told, about, layers = [], [], []
    for family, pattern in _FAMILIES.items():
        found = [lib for lib in facts.libraries if pattern.match(lib.path.rpartition("/")[2])]
        found = [lib for lib in found if not _STUBS.search(lib.path)]
        reached = [lib for lib in found if "/site-packages/" in lib.path or lib.path.rpartition("/")[0] in system]
        if len(reached) > 1:
            told.append(f"{family}: {' and '.join(lib.path for lib in reached)}")
            stray = [lib for lib in reached if not _locked(lib, ref)] or reached
            about += [*(lib.owner for lib in stray if lib.owner), *(f"copy {lib.path}" for lib in stray)]
            layers += [lib.layer for lib in stray]
    if not told:
        return passed("libraries.copies", what, expected="at most one each", seen="at most one each")
    return failed(
        "libraries.copies",
        what,
        expected="at most one each",
        seen="; ".join(told),
        fix=f"remove the copy that torch's wheels did not bring; {ref.rebuild}",
        about=about,
        layers=layers,
    )


def openmp(ref: Reference, facts: ImageFacts) -> Judged:
    """A process gets one OpenMP runtime: beside torch's own there is none that no locked package brought."""
    what = "one OpenMP runtime"
    found = [lib for lib in facts.libraries if _OPENMP.match(lib.path.rpartition("/")[2])]
    stray = [lib for lib in found if not _locked(lib, ref)]
    own = [lib for lib in found if lib not in stray]
    if not stray:
        seen = ", ".join(sorted(lib.path for lib in own)) or "none"
        return passed("libraries.openmp", what, expected="those of locked packages", seen=seen)
    return failed(
        "libraries.openmp",
        what,
        expected=f"those of locked packages: {some([lib.path for lib in own], 3) or 'none'}",
        seen=f"also {some([lib.path + (f' of {lib.owner}' if lib.owner else '') for lib in stray], 3)}",
        fix=f"remove it: two runtimes in one process deadlock or compute wrong; {ref.rebuild}",
        about=[*(lib.owner for lib in stray if lib.owner), *(f"copy {lib.path}" for lib in stray)],
        layers=[lib.layer for lib in stray],
    )


def _locked(lib: Library, ref: Reference) -> bool:
    kind, _, name = lib.owner.partition(" ")
    if kind == "python":
        return ref.lock.wheel(name) is not None
    return kind == "os" and any(pin.name == name for pin in ref.lock.os)


def folders(ref: Reference, facts: ImageFacts) -> list[Judged]:
    """No stubs, no compatibility driver and no toolkit on the path of the loader."""
    path = SearchPath.of(facts)
    dirs = tuple(dict.fromkeys([*path.variable, *facts.loader_conf, *facts.loader_cache]))
    return [
        _no_folder(
            "loader.stubs",
            "no stubs of the driver where a loader looks",
            [folder for folder in dirs if _STUBS.search(folder + "/")],
            "a stub shadows the real driver: stubs belong on the linker's path (LIBRARY_PATH) only",
            facts,
        ),
        _no_folder(
            "loader.compat",
            "no driver of the image's own where a loader looks",
            [folder for folder in dirs if _COMPAT.search(folder + "/") or _has_driver(folder, path)],
            "CUDA's compatibility libcuda works on data-centre cards only, others fail with error 804: drop the folder"
            " from the path, or take a newer driver on the host",
            facts,
        ),
        _no_folder(
            "loader.toolkit",
            "no CUDA toolkit on LD_LIBRARY_PATH",
            [folder for folder in path.variable if _TOOLKIT.search(folder) and not _named(folder)],
            "torch's wheels bring their CUDA: a toolkit on LD_LIBRARY_PATH gives them another's nvJitLink and cuBLAS;"
            " unset it",
            facts,
            ref,
        ),
    ]


def _named(folder: str) -> bool:
    """Whether one of the other two checks names this folder."""
    return bool(_STUBS.search(folder) or _COMPAT.search(folder))


def _has_driver(folder: str, path: SearchPath) -> bool:
    return any(name.startswith("libcuda.so") for name in path.folders.get(folder, {})) and not _STUBS.search(folder)


def _no_folder(
    rule: str, what: str, found: list[str], fix: str, facts: ImageFacts, ref: Reference | None = None
) -> Judged:
    if not found:
        return passed(rule, what, expected="none", seen="none")
    versions = ""
    if ref is not None:
        path = SearchPath.of(facts)
        names = sorted({n for f in found for n, lib in path.folders.get(f, {}).items() if lib.path.endswith(n)})
        versions = f" with {some(names, 4)}" if names else ""
        versions += f"; torch is for CUDA {facts.torch_cuda}" if facts.torch_cuda else ""
    copied = [f"copy {lib.path}" for f in found for lib in SearchPath.of(facts).folders.get(f, {}).values()]
    by_variable = any(f in facts.variable("LD_LIBRARY_PATH").split(":") for f in found)
    layers = [facts.set_in("LD_LIBRARY_PATH") if by_variable else facts.loader_layer]
    return failed(rule, what, expected="none", seen=", ".join(found) + versions, fix=fix, about=copied, layers=layers)
