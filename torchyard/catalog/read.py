"""From the text of a catalogue file to rows; a row that says no source, or anything unknown, is refused."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields

import yaml

from torchyard.catalog import rows
from torchyard.catalog.rows import Row
from torchyard.errors import InputError

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Data = dict[str, dict[tuple[str, ...], dict[str, object]]]  # section -> key of the row -> the row


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One kind of row: its type and the fields that tell one row from another."""

    type: type[Row]
    key: tuple[str, ...]


SECTIONS: Mapping[str, Section] = {
    name: Section(type=kind, key=tuple(key.split()))
    for name, kind, key in (
        ("gpus", rows.Gpu, "id"),
        ("driver_floors", rows.DriverFloor, "major"),
        ("driver_branches", rows.Branch, "branch"),
        ("driver_gpus", rows.DriverGpu, "arch"),
        ("kernel_modules", rows.KernelModules, "arch gpu"),
        ("forward_compatibility", rows.ForwardKind, "kind"),
        ("forward_bases", rows.ForwardBase, "major"),
        ("code_exclusive", rows.Exclusive, "cc"),
        ("code_serves", rows.Serves, "gpu"),
        ("code_same", rows.SameDevice, "names"),
        ("arch_entries", rows.ArchEntries, "entries"),
        ("arch_names", rows.ArchName, "name"),
        ("compile_floors", rows.CompileFloor, "feature"),
        ("triton_wheels", rows.TritonWheels, "arch"),
        ("library_gaps", rows.LibraryGap, "library cuda_major cc"),
        ("toolkits", rows.Toolkit, "version"),
        ("wheel_only", rows.WheelLine, "version"),
        ("no_toolkits", rows.NoToolkit, "version"),
        ("cudnn_lines", rows.CudnnLine, "first"),
        ("cudnn_packages", rows.CudnnPackage, "package"),
        ("torch_releases", rows.Release, "version"),
        ("torch_index_pythons", rows.IndexPythons, "torch"),
        ("torch_ends", rows.NoBuilds, "first"),
        ("torch_builds", rows.BuildRow, "torch tag arch"),
        ("torch_pins", rows.Pins, "torch"),
        ("pairs", rows.Pair, "torch"),
        ("pair_exact", rows.PairExact, "package"),
        ("pair_withdrawn", rows.PairWithdrawn, "package version"),
        ("pair_python", rows.PairPython, "package python"),
        ("extensions", rows.Extension, "package version arch python"),
        ("distributions", rows.Distribution, "os"),
        ("blas_wheels", rows.BlasWheel, "arch kinds torch_from"),
        ("blas_libraries", rows.BlasLibrary, "blas"),
        ("consumers", rows.Consumer, "consumer"),
        ("rules", rows.RuleRow, "id"),
        ("switches", rows.Switch, "name"),
        ("notes", rows.Note, "fact"),
        ("disagreements", rows.Disagreement, "says"),
    )
}


def sources(text: str, *, where: str) -> dict[str, str]:
    """The documents that rows cite, by id."""
    listed = _mapping(text, where=where).get("sources", {})
    if not isinstance(listed, dict):
        raise InputError("`sources` is a mapping of id to text", where=where, hint="write  my-id: 'what was read'")
    return {str(name): str(told) for name, told in listed.items()}


def merge(into: Data, text: str, *, where: str, known_sources: Mapping[str, str] | None) -> None:
    """Add the rows of one file; a row of a known key corrects, and verifies, the fields that it names.

    known_sources: where given, each `source` must be one of them (the packaged files); else any text will do.
    """
    for key, listed in _mapping(text, where=where).items():
        section = str(key)
        if section == "sources":
            continue
        if section not in SECTIONS:
            raise InputError(f"unknown section {section!r}", where=where, hint=_nearest(section, SECTIONS))
        if not isinstance(listed, list):
            raise InputError(f"`{section}` is a list of rows", where=where, hint="start each row with `- `")
        for number, row in enumerate(listed, 1):
            place = f"{where}  {section}[{number}]"
            for one in _single(section, row, where=place):
                _add(into, section, one, where=place, known_sources=known_sources)


def _mapping(text: str, *, where: str) -> dict[object, object]:
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {error}".replace("\n", " "), where=where, hint="see docs/adding.md") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError("a catalogue file is a mapping of sections", where=where, hint=", ".join(SECTIONS))
    return data


def _single(section: str, row: object, *, where: str) -> Iterable[dict[str, object]]:
    """The rows that one written row stands for: a build row may name several releases."""
    if not isinstance(row, dict):
        raise InputError("a row is a mapping", where=where, hint="write  - {key: value, ...}")
    if section == "torch_builds" and isinstance(row.get("torch"), list):
        return [{**row, "torch": version} for version in row["torch"]]
    return [row]


def _add(
    into: Data, section: str, row: dict[str, object], *, where: str, known_sources: Mapping[str, str] | None
) -> None:
    source = row.get("source")
    cited = [source] if isinstance(source, str) else source
    if not isinstance(cited, list) or not all(isinstance(s, str) and s.strip() for s in cited) or not cited:
        raise InputError("the row has no source", where=where, hint="add  source: [where you read it]")
    if known_sources is not None and (strange := [s for s in cited if s not in known_sources]):
        raise InputError(f"unknown source {strange[0]!r}", where=where, hint=_nearest(strange[0], known_sources))
    if not isinstance(row.get("checked"), str):
        raise InputError(
            "the row has no date", where=where, hint="add  checked: '2026-11-30'  (in quotes), the day you read it"
        )
    key = tuple(_text(row.get(name, "")) for name in SECTIONS[section].key)
    known = into.setdefault(section, {})
    if key in known:
        known[key] = _corrected(known[key], {**row, "source": cited})
    else:
        known[key] = {**row, "source": cited}


def _corrected(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """A row with the fields that a later one restates: those are verified unless it says otherwise, the rest stays."""
    doubted, cited, before = old.get("unverified"), new["source"], old["source"]
    assert isinstance(cited, list) and isinstance(before, list)
    row = {**old, **new, "source": [*cited, *(s for s in before if s not in cited)]}
    if isinstance(doubted, list) and "unverified" not in new:
        row["unverified"] = [name for name in doubted if name not in new]
    return row


def _text(value: object) -> str:
    return " ".join(str(v) for v in value) if isinstance(value, list) else str(value)


def build(section: str, data: Data) -> tuple[Row, ...]:
    """The rows of a section as values."""
    kind = SECTIONS[section].type
    known = _readers(kind)
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    rows_here = data.get(section, {}).items()
    return tuple(_value(kind, row, known, required, where=f"{section} {' '.join(key)}") for key, row in rows_here)


def _value(
    kind: type[Row],
    row: Mapping[str, object],
    known: Mapping[str, Callable[[object], object]],
    required: set[str],
    *,
    where: str,
) -> Row:
    values: dict[str, object] = {}
    for name, value in row.items():
        if name not in known:
            raise InputError(f"unknown field {name!r}", where=where, hint=_nearest(str(name), known))
        try:
            values[name] = known[name](value)
        except TypeError as error:
            raise InputError(f"`{name}` is {error}, not {value!r}", where=where, hint="versions are quoted") from None
    if missing := sorted(required - values.keys()):
        raise InputError(
            f"the row lacks {', '.join(missing)}", where=where, hint=f"a row of {where.split()[0]} has them"
        )
    return kind(**values)  # type: ignore[arg-type]


def _readers(kind: type[Row]) -> dict[str, Callable[[object], object]]:
    return {f.name: _READERS[str(f.type)] for f in fields(kind)}


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false")
    return value


def _strs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("a list of texts")
    return tuple([_str(v) for v in value])


def _ints(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or any(not isinstance(v, int) for v in value):
        raise TypeError("a list of whole numbers")
    return tuple(value)


def _optional(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


def _map(read: Callable[[object], object]) -> Callable[[object], object]:
    def reader(value: object) -> object:
        if not isinstance(value, dict):
            raise TypeError("a mapping")
        return {_str(k): read(v) for k, v in value.items()}

    return reader


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number")
    return value


_READERS: Mapping[str, Callable[[object], object]] = {
    "str": _str,
    "str | None": _optional(_str),
    "bool": _bool,
    "tuple[str, ...]": _strs,
    "tuple[str, ...] | None": _optional(_strs),
    "tuple[int, ...]": _ints,
    "Mapping[str, str]": _map(_str),
    "Mapping[str, str | None]": _map(_optional(_str)),
    "Mapping[str, float]": _map(_number),
    "Mapping[str, tuple[str, ...]]": _map(_strs),
}


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(list(known)[:12])}"
