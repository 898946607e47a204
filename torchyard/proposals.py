"""Rows that release metadata proposes for the catalogue, as a diff that a person reviews. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchyard import inspection
from torchyard.catalog import Catalog, tag_of
from torchyard.versions import numbers

_OLDEST = "1.13.0"
_MARKER = re.compile(r'python_version\s*<\s*"(\d+)\.(\d+)"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """One wheel that an index offers; requires is filled only where its metadata was asked for."""

    project: str
    version: str
    arch: str  # x86_64, aarch64, any
    python: str  # 3.11, 3.14t, any
    glibc: str
    uploaded: str = ""  # a date
    requires_python: str = ""
    megabytes: int = 0
    withdrawn: bool = False
    requires: tuple[str, ...] = ()


Rows = dict[str, list[dict[str, object]]]


def unknown(offered: Iterable[Offered], catalog: Catalog) -> tuple[str, ...]:
    """The torch versions that the catalogue has not, oldest first: those whose metadata is worth asking for."""
    found = {o.version for o in offered if o.project == "torch" and _wanted(o.version) and not o.withdrawn}
    return tuple(sorted((v for v in found if catalog.exact_release(v) is None), key=numbers))


def propose(offered: Sequence[Offered], catalog: Catalog, *, checked: str, source: str) -> Rows:
    """The rows that would make the catalogue say what the indexes offer."""
    base: dict[str, object] = {"source": [source], "checked": checked}
    found: Rows = {}
    new = unknown(offered, catalog)
    for version in new:
        wheels = _of(offered, "torch", version)
        found.setdefault("torch_releases", []).append(_release(version, wheels) | base)
        found.setdefault("torch_pins", []).extend(_pins(version, wheels, base))
    for release in catalog.releases:
        pythons = _pythons(_of(offered, "torch", release.version))
        changed = {arch: has for arch, has in pythons.items() if set(has) != set(release.python.get(arch, ()))}
        if changed:
            told = {arch: list(has) for arch, has in release.python.items()} | changed
            found.setdefault("torch_releases", []).append({"version": release.version, "python": told} | base)
    for version in new:
        found.setdefault("pairs", []).extend(_pairs(version, offered, base))
    for major in ("11", "12", "13"):
        found.setdefault("cudnn_packages", []).extend(_cudnn(major, offered, catalog, base))
    return {section: rows for section, rows in found.items() if rows}


def diff(old: str, new: Rows, *, name: str) -> str:
    """The change of a catalogue file from its text to these rows, as a unified diff; empty where nothing is new."""
    text = inspection.as_yaml(new)
    if not text or text == old:
        return ""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), text.splitlines(keepends=True), fromfile=f"a/{name}", tofile=f"b/{name}"
    )
    return "".join(lines)


def _wanted(version: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)+", version) is not None and numbers(version) >= numbers(_OLDEST)


def _of(offered: Iterable[Offered], project: str, version: str) -> list[Offered]:
    return [o for o in offered if o.project == project and o.version == version]


def _pythons(wheels: Iterable[Offered]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for wheel in wheels:
        if wheel.arch != "any" and not wheel.withdrawn:
            found.setdefault(wheel.arch, set()).add(wheel.python)
    return {arch: sorted(has, key=lambda p: (numbers(p), p)) for arch, has in sorted(found.items())}


def _tag(requires: Sequence[str]) -> str:
    """The CUDA tag that a wheel's requirements name."""
    pins = inspection.pins_of(tuple(requires))
    for name, version in pins.items():
        if name == "cuda-toolkit" or name.startswith("nvidia-cuda-runtime"):
            return tag_of(".".join(version.split(".")[:2]))
    return "cpu"


def _release(version: str, wheels: Sequence[Offered]) -> dict[str, object]:
    arches = sorted({w.arch for w in wheels if w.arch != "any"})
    first = {arch: next(w for w in wheels if w.arch == arch) for arch in arches}
    told = {arch: next((w.requires for w in wheels if w.arch == arch and w.requires), ()) for arch in arches}
    tags = {arch: _tag(requires) for arch, requires in told.items()}
    triton, ceiling = _triton([r for requires in told.values() for r in requires])
    return {
        "version": version,
        "released": min((w.uploaded for w in wheels if w.uploaded), default=""),
        "requires_python": first[arches[0]].requires_python if arches else "",
        "python": _pythons(wheels),
        "glibc_min": {arch: first[arch].glibc for arch in arches},
        "wheel_mb": {arch: first[arch].megabytes for arch in arches},
        "pypi": tags,
        "cuda": {arch: [tag] if tag != "cpu" else [] for arch, tag in tags.items()},
        "triton": triton,
        **({"triton_python_max": ceiling} if ceiling else {}),
        "source_build": {"cxx": None, "gcc_min": None, "cuda_min": None, "backend": None},
        "cxx11_abi": True,
        "unverified": ["cuda", "gcc_min", "cuda_min"],
        "note": "the lines of the PyTorch index and the device code are not in metadata: `catalog inspect` a wheel",
    }


def _triton(requires: Sequence[str]) -> tuple[str | None, str]:
    """The triton that a wheel asks for, and the newest Python that it asks for it on."""
    for requirement in requires:
        name, _, marker = requirement.partition(";")
        if match := re.match(r"triton\s*\(?\s*[~=]=\s*([0-9.]+)", name):
            below = _MARKER.search(marker)
            return match[1], f"{below[1]}.{int(below[2]) - 1}" if below else ""
    return None, ""


def _pins(version: str, wheels: Sequence[Offered], base: dict[str, object]) -> list[dict[str, object]]:
    told = next((w.requires for w in wheels if w.requires), ())
    pins = {k: v for k, v in inspection.pins_of(told).items() if k.startswith(("nvidia", "cuda", "triton"))}
    if not pins:
        return []
    return [{"torch": version, "arch": sorted({w.arch for w in wheels if w.arch != "any"}), "pins": pins} | base]


def _pairs(version: str, offered: Sequence[Offered], base: dict[str, object]) -> list[dict[str, object]]:
    """torchvision and torchaudio of a new torch: those that pin it, else the newest ones (marked as not read)."""
    vision, exact = _mate("torchvision", version, offered)
    audio, _ = _mate("torchaudio", version, offered)
    if not vision or not audio:
        return []
    pythons = _pythons(_of(offered, "torchvision", vision)).get("x86_64")
    doubt = [] if exact else ["torchvision", "torchaudio"]
    row: dict[str, object] = {"torch": version, "torchvision": vision, "torchaudio": [audio]}
    row["torchvision_python"] = pythons
    if doubt:
        row["unverified"] = doubt
    return [row | base]


def _mate(project: str, torch: str, offered: Sequence[Offered]) -> tuple[str, bool]:
    mine = [o for o in offered if o.project == project and _wanted_mate(o) and not o.withdrawn]
    pinned = [o.version for o in mine if inspection.pins_of(o.requires).get("torch") == torch]
    if pinned:
        return max(pinned, key=numbers), True
    return max((o.version for o in mine), key=numbers, default=""), False


def _wanted_mate(offered: Offered) -> bool:
    return re.fullmatch(r"\d+(\.\d+)+", offered.version) is not None


def _cudnn(
    major: str, offered: Sequence[Offered], catalog: Catalog, base: dict[str, object]
) -> list[dict[str, object]]:
    package = f"nvidia-cudnn-cu{major}"
    known = catalog.cudnn_package(major)
    seen = {
        o.version: o.withdrawn
        for o in offered
        if o.project == package and re.fullmatch(r"[0-9.]+(post\d+)?", o.version)
    }
    good = [v for v, withdrawn in seen.items() if not withdrawn]
    gone = [v for v, withdrawn in seen.items() if withdrawn]
    if known is None or not seen or (set(good) <= set(known.all) and set(gone) <= set(known.withdrawn)):
        return []
    row: dict[str, object] = {
        "package": package,
        "all": sorted({*known.all, *good} - set(gone), key=numbers),
        "withdrawn": sorted({*known.withdrawn, *gone}, key=numbers),
    }
    return [row | base]
