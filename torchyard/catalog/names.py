"""GPU names: which row a name means, in whatever way people, shops and nvidia-smi write it."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torchyard.catalog.rows import Gpu
from torchyard.errors import InputError

_BRANDS = ("nvidia", "geforce", "tesla", "quadro", "titan", "jetson", "rtx", "gtx")
_GPU_NAME = re.compile(r"[\w .+()/-]{1,80}", re.ASCII)


def squeezed(name: str) -> str:
    """A name without case, blanks and dashes: `RTX 3080 Ti` and `rtx-3080ti` are one."""
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def _words(name: str) -> list[str]:
    return re.split(r"[^a-z0-9+]+", re.sub(r"\(.*?\)", "", name.lower()).strip())


def _short_forms(name: str) -> Iterable[str]:
    """What is left of a name when the maker's words in front are dropped one by one."""
    words = _words(name)
    for start in range(len(words)):
        rest = squeezed("".join(words[start:]))
        if rest and len(rest) > 1 and rest not in _BRANDS:
            yield rest
        if words[start] not in _BRANDS:
            return


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The index of GPU names: written ones win over those derived from ids and nvidia-smi names."""

    written: dict[str, str]  # squeezed id, alias or name -> id
    derived: dict[str, tuple[str, ...]]  # squeezed short form -> ids
    short: frozenset[str]  # squeezed aliases: a memory size beside one may choose a sibling

    def find(self, name: str) -> str:
        """The id that a name means; InputError where it is unknown or ambiguous, with the nearest names."""
        key = squeezed(name) if _GPU_NAME.fullmatch(name) else ""
        if key in self.written:
            return self.written[key]
        found = self.derived.get(key, ())
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"GPU name {name!r} is ambiguous", hint=f"write one of {', '.join(found)}")
        raise InputError(f"unknown GPU {name[:80]!r}", hint=f"did you mean {', '.join(self._near(key))}?")

    def _near(self, key: str) -> tuple[str, ...]:
        every = {**{k: i[0] for k, i in self.derived.items() if len(i) == 1}, **self.written}
        begins = sorted(
            i for k, i in every.items() if key and (k.startswith(key) or (key.startswith(k) and len(k) > 2))
        )
        close = difflib.get_close_matches(key, list(every), n=6, cutoff=0.0)
        return tuple(dict.fromkeys([*begins[:3], *(every[k] for k in close)]))[:4]


def index(gpus: Iterable[Gpu]) -> Names:
    """The index of the names of these GPUs."""
    gpus = tuple(gpus)
    ids = {squeezed(g.id): g.id for g in gpus}
    aliases = {squeezed(a): g.id for g in gpus for a in g.aliases}
    names: dict[str, set[str]] = defaultdict(set)
    derived: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        names[squeezed(gpu.name)].add(gpu.id)
        for whole in (gpu.id, gpu.name, *gpu.aliases):
            for form in _short_forms(whole):
                derived[form].add(gpu.id)
    unique = {key: next(iter(found)) for key, found in names.items() if len(found) == 1}
    for key, found in names.items():
        if len(found) > 1:
            derived[key] |= found
    return Names(
        written=unique | aliases | ids,
        derived={key: tuple(sorted(found)) for key, found in derived.items()},
        short=frozenset(aliases),
    )
