"""Where named indexes of wheels are: the shipped table, and a user's mirrors file over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from torchyard.errors import InputError

PYPI = "pypi"  # the index that the user's pip is configured with
SCHEMES = ("http", "https", "file")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The shipped prefixes by kind of index, and the distributions that must all be of torch's build."""

    prefixes: Mapping[str, str]
    bound: frozenset[str]


def shipped() -> Table:
    """What torchyard/data/indexes.yaml says."""
    raw = yaml.safe_load(resources.files("torchyard.data").joinpath("indexes.yaml").read_text("utf-8"))
    return Table(
        prefixes={name: row["prefix"] for name, row in raw["indexes"].items()},
        bound=frozenset(raw["bound"]),
    )


def read(files: Sequence[Path]) -> dict[str, str]:
    """The addresses that these mirrors files give, by kind of index; an earlier file wins."""
    found: dict[str, str] = {}
    for file in files:
        if file.is_file():
            found = parse(file.read_text(encoding="utf-8"), str(file)) | found
    return found


def parse(text: str, where: str) -> dict[str, str]:
    """The addresses of indexes in the text of a mirrors file; what it says of distributions is read elsewhere."""
    try:
        raw = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InputError(f"the mirrors file is not YAML: {error}", where=where, hint="mend it, or remove it") from error
    table = raw.get("mirrors") if isinstance(raw, dict) else None
    if not isinstance(table, dict):
        raise InputError("the mirrors file has no table 'mirrors'", where=where, hint="write mirrors: {pypi: ADDRESS}")
    found: dict[str, str] = {}
    for name in (PYPI, *shipped().prefixes):
        if name not in table:
            continue
        value = table[name]
        if not isinstance(value, str) or urlsplit(value).scheme not in SCHEMES:
            raise InputError(
                f"{value!r} is not an address",
                where=f"{where}  mirrors.{name}",
                hint=f"addresses begin with {', '.join(f'{each}:' for each in SCHEMES)}",
            )
        found[name] = value.rstrip("/")
    return found


def address(index: str, pypi: str, mirrors: Mapping[str, str], table: Table) -> str:
    """Where a named index is: `pypi`, which is `pypi` unless mirrored, or `KIND-BUILD` under the prefix of its kind."""
    if index == PYPI:
        return mirrors.get(PYPI) or pypi
    kind, _, build = index.partition("-")
    prefix = mirrors.get(kind) or table.prefixes.get(kind, "")
    if not prefix or not build:
        known = ", ".join([PYPI, *(f"{name}-BUILD" for name in sorted(table.prefixes))])
        raise InputError(f"there is no index of wheels named {index!r}", hint=f"the names are: {known}")
    return f"{prefix.rstrip('/')}/{build}"
