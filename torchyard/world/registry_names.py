"""Which registry a name means here: a site of env.yaml, moved by a mirrors file where it is elsewhere for this user."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ..errors import InputError
from ..matrix import words

MIRROR = "registry"  # the row of a mirrors file


def places(sites: Mapping[str, str], files: Sequence[Path]) -> dict[str, str]:
    """Host and path of every named registry: those of the sites that have one, and of the mirrors files over them."""
    return {**{name: place for name, place in sites.items() if place}, **read_mirrors(files)}


def read_mirrors(files: Sequence[Path]) -> dict[str, str]:
    """The registries that these mirrors files name; an earlier file wins."""
    found: dict[str, str] = {}
    for file in files:
        try:
            raw = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except yaml.YAMLError as error:
            raise InputError(
                f"the mirrors file is not YAML: {error}", where=str(file), hint="mend it, or remove it"
            ) from error
        mirrors = raw.get("mirrors") if isinstance(raw, dict) else None
        table = mirrors.get(MIRROR, {}) if isinstance(mirrors, dict) else {}
        where = f"{file}  mirrors.{MIRROR}"
        if not isinstance(table, dict):
            raise InputError("a table from name to registry is needed", where=where, hint=f"write {{lab: {_EXAMPLE}}}")
        for name, place in table.items():
            if not isinstance(place, str) or not re.fullmatch(words.REGISTRY.pattern, place):
                raise InputError(
                    f"{place!r} is not {words.REGISTRY.what}", where=f"{where}.{name}", hint=f"write {_EXAMPLE}"
                )
        found = {str(name): place for name, place in table.items()} | found
    return found


def chosen(known: Mapping[str, str], names: Sequence[str], default: Sequence[str]) -> dict[str, str]:
    """The registries of these names, or those of `default` where none is given."""
    wanted = list(names) or [name for name in default if name in known]
    if not wanted:
        raise InputError(
            f"nothing here says where the registry {', '.join(default)} is"
            if default
            else "there is no registry to use: no site of this image has one",
            where="env.yaml  sites",
            hint=f"write sites: {{lab: {{registry: {_EXAMPLE}}}}} and site: lab in the hardware entry, or"
            f" mirrors: {{registry: {{lab: {_EXAMPLE}}}}} in the mirrors file, or name another one: --registry",
        )
    if unknown := [name for name in wanted if name not in known]:
        near = difflib.get_close_matches(unknown[0], list(known), n=3, cutoff=0.4)
        raise InputError(
            f"no registry is called {unknown[0]!r}",
            where="--registry",
            hint=f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    return {name: known[name] for name in wanted}


_EXAMPLE = words.REGISTRY.example
