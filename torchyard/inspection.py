"""What a wheel says of itself, as rows for the catalogue and as findings against it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from torchyard.catalog import Catalog, line_of, tag_of
from torchyard.finding import Finding
from torchyard.versions import newest, numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The device code of one library of a wheel: how many compiled units have each target."""

    library: str
    sass: tuple[tuple[str, int], ...]
    ptx: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inside:
    """The facts of one wheel, as they were read."""

    file: str
    name: str
    version: str  # with its local part, where it has one
    requires_python: str
    requires: tuple[str, ...]  # Requires-Dist
    tags: tuple[str, ...]  # cp311-cp311-manylinux_2_28_x86_64
    cuda: str | None  # of torch/version.py, or the major of the CUDA runtime that an extension links
    built: str  # the newest date inside
    code: tuple[Code, ...] = ()
    glibc: str = ""  # the newest symbol version that a library asks for
    sha256: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)


_EXACT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:\(?)==\s*(?P<version>[0-9][0-9A-Za-z.!]*)\)?")
_PLATFORM = re.compile(
    r"manylinux_(?P<major>\d+)_(?P<minor>\d+)_(?P<arch>\w+)|manylinux(?P<old>1|2010|2014)_(?P<cpu>\w+)"
)
_VENDORED = re.compile(r"lib(nv|cu|npp)")  # NVIDIA's own libraries, which some wheels carry along
_OLD_GLIBC = {"1": "2.5", "2010": "2.12", "2014": "2.17"}


def pins_of(requires: tuple[str, ...]) -> dict[str, str]:
    """The exact pins among requirements, by name."""
    found = (_EXACT.match(requirement.partition(";")[0].strip()) for requirement in requires)
    return {m["name"].lower().replace("_", "-"): m["version"] for m in found if m}


def python_of(tags: tuple[str, ...]) -> str:
    """The Python of a wheel: 3.11, 3.14t, or `any` for one without an interpreter of its own."""
    for tag in tags:
        python, abi, _ = tag.split("-", 2)
        if match := re.fullmatch(r"cp(\d)(\d+)", python):
            free = "t" if abi.endswith("t") and abi.startswith("cp") else ""
            return f"{match[1]}.{match[2]}{free}"
    return "any"


def arch_of(tags: tuple[str, ...]) -> str:
    """The CPU architecture of a wheel, or `any`."""
    for tag in tags:
        for arch in ("x86_64", "aarch64"):
            if tag.endswith(f"_{arch}"):
                return arch
    return "any"


def glibc_of(tags: tuple[str, ...]) -> str:
    """The glibc that the file's tag promises; empty where it names none."""
    found = [m for tag in tags if (m := _PLATFORM.search(tag))]
    versions = [f"{m['major']}.{m['minor']}" if m["major"] else _OLD_GLIBC[m["old"]] for m in found]
    return min(versions, key=numbers, default="")


def targets(code: tuple[Code, ...]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """SASS and PTX targets that the main library has throughout, and the extra ones of a few kernels.

    The main library is the one with the most compiled units; a target belongs to it throughout when at least half
    as many units have it as have the commonest one.
    """
    own = [c for c in code if not _VENDORED.match(c.library)]
    main = max(own, key=lambda c: sum(n for _, n in c.sass + c.ptx), default=None)
    if main is None:
        return (), (), ()
    most = max((n for _, n in main.sass + main.ptx), default=0)
    sass = tuple(t for t, n in main.sass if n * 2 >= most)
    ptx = tuple(t for t, n in main.ptx if n * 2 >= most)
    extra = tuple(dict.fromkeys(t for t, n in main.sass + main.ptx if n * 2 < most))
    return sass, ptx, extra


def gaps(code: tuple[Code, ...]) -> tuple[str, ...]:
    """Libraries that lack a target of the main one, in words."""
    sass, _, _ = targets(code)
    told: list[str] = []
    for each in code:
        units = max((n for _, n in each.sass), default=0)
        has = {t for t, n in each.sass if n * 2 >= units}
        if units > 8 and (lacks := [t for t in sass if not any(_serves(h, t) for h in has)]):
            told.append(
                f"{each.library} has no code for {', '.join(lacks)} (it has {', '.join(sorted(has, key=numbers))})"
            )
    return tuple(told)


def _serves(code: str, target: str) -> bool:
    return numbers(code)[0] == numbers(target)[0] and numbers(code) <= numbers(target)


def tag_in(inside: Inside) -> str:
    """The tag of a torch build: the local part of its version, else its CUDA."""
    _, _, local = inside.version.partition("+")
    return local or tag_of(inside.cuda)


def rows(inside: Inside, catalog: Catalog, *, checked: str) -> dict[str, list[dict[str, object]]]:
    """The catalogue rows that the wheel proves, by section; fields that one wheel cannot tell are marked unverified."""
    base: dict[str, object] = {"source": [f"wheel {inside.file}"], "checked": checked}
    if inside.name != "torch":
        return {"extensions": [_extension(inside) | base]}
    version = inside.version.partition("+")[0]
    found: dict[str, list[dict[str, object]]] = {}
    if catalog.exact_release(version) is None:
        found["torch_releases"] = [_release(inside, version) | base]
    tag = tag_in(inside)
    if line_of(tag):
        found["torch_builds"] = [_build(inside, version, tag) | base]
        if catalog.pins(version) is None:
            pins = dict(sorted(inside.pins.items()))
            found["torch_pins"] = [{"torch": version, "arch": [arch_of(inside.tags)], "pins": pins} | base]
    return found


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def as_yaml(found: Mapping[str, list[dict[str, object]]]) -> str:
    """Rows as the text of a catalogue file, one row a line or two."""
    text = ""
    for section, listed in found.items():
        text += f"{section}:\n"
        for row in listed:
            dumped = yaml.dump(row, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=150)
            text += "- " + dumped.rstrip().replace("\n", "\n  ") + "\n"
    return text


def _build(inside: Inside, version: str, tag: str) -> dict[str, object]:
    sass, ptx, extra = targets(inside.code)
    return {
        "torch": version,
        "tag": tag,
        "arch": arch_of(inside.tags),
        "toolkit": toolkit_of(inside),
        "cudnn": cudnn_of(inside.pins),
        "nccl": nccl_of(inside.pins),
        "sass": list(sass),
        "ptx": list(ptx),
        "glibc_min": inside.glibc or glibc_of(inside.tags),
        **({"note": f"a few kernels also for {', '.join(extra)}"} if extra else {}),
    }


def _release(inside: Inside, version: str) -> dict[str, object]:
    arch, tag = arch_of(inside.tags), tag_in(inside)
    triton = next((r for r in inside.requires if r.startswith("triton")), "")
    number = re.search(r"[0-9][0-9.]*", triton)
    return {
        "version": version,
        "released": inside.built,
        "requires_python": inside.requires_python,
        "python": {arch: [python_of(inside.tags)]},
        "glibc_min": {arch: inside.glibc or glibc_of(inside.tags)},
        "pypi": {arch: tag},
        "cuda": {arch: [tag] if line_of(tag) else []},
        "triton": number[0] if number else None,
        "source_build": {"cxx": None, "gcc_min": None, "cuda_min": None, "backend": None},
        "cxx11_abi": True,
        "unverified": ["released", "python", "pypi", "cuda", "gcc_min", "cuda_min"],
    }


def _extension(inside: Inside) -> dict[str, object]:
    sass, ptx, _ = targets(inside.code)
    torch = next((r for r in inside.requires if re.match(r"torch(?![a-z-])", r)), "")
    return {
        "package": inside.name,
        "version": inside.version,
        "torch": torch.removeprefix("torch").partition(";")[0].strip(" ()"),
        "cuda": inside.cuda or "",
        "arch": arch_of(inside.tags),
        "python": python_of(inside.tags),
        "glibc_min": inside.glibc or glibc_of(inside.tags),
        "sass": list(sass),
        "ptx": list(ptx),
    }


def cudnn_of(pins: Mapping[str, str]) -> str | None:
    """The cuDNN among pins."""
    return next((v for name, v in pins.items() if name.startswith("nvidia-cudnn-")), None)


def nccl_of(pins: Mapping[str, str]) -> str:
    """The NCCL among pins; empty where there is none."""
    return next((v for name, v in pins.items() if name.startswith("nvidia-nccl-")), "")


def toolkit_of(inside: Inside) -> str:
    """The CUDA version of a torch wheel, as far as the wheel tells it."""
    pinned = inside.pins.get("cuda-toolkit", "")
    patch = ".".join(pinned.split(".")[:3])
    return patch if inside.cuda and patch.startswith(f"{inside.cuda}.") else inside.cuda or ""


def against(inside: Inside, catalog: Catalog) -> tuple[Finding, ...]:
    """Whether the catalogue says what the wheel says: CUDA, cuDNN, NCCL, device code, glibc and Python."""
    version = inside.version.partition("+")[0]
    arch, tag = arch_of(inside.tags), tag_in(inside)
    build = catalog.build(version, tag, arch)
    if inside.name != "torch" or build is None:
        return (
            Finding.skipped("catalog.build", because=f"the catalogue has no {inside.name} {inside.version} ({tag})"),
        )
    fix = "correct the row: the lines below, in catalog.d/, do"
    sass, ptx, _ = targets(inside.code)
    pins = catalog.pins(version)
    claimed = {
        "python": (python_of(inside.tags) if python_of(inside.tags) in build.python else "-", python_of(inside.tags)),
        "cuda": (build.cuda or "none", inside.cuda or "none"),
        "cudnn": (build.cudnn or "none", cudnn_of(inside.pins) or "none"),
        "sass": (" ".join(build.sass), " ".join(sass)),
        "ptx": (" ".join(build.ptx), " ".join(ptx)),
        "glibc": (build.glibc_min, glibc_of(inside.tags)),
    }
    if pins is not None and build.default and arch in pins.arch:
        claimed["nccl"] = (nccl_of(pins.pins) or "none", nccl_of(inside.pins) or "none")
    found = [
        Finding.same(f"catalog.{name}", what=f"{name} of torch {inside.version}", expected=said, seen=seen, fix=fix)
        for name, (said, seen) in claimed.items()
    ]
    return tuple(found)


def glibc_needed(versions: list[str]) -> str:
    """The newest of some glibc symbol versions; empty for none."""
    return newest([v for v in versions if v]) if any(versions) else ""
