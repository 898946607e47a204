"""The values that each open key of a request may take: newest first, or nearest first where an asked one is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchyard.catalog import ARCHES, Catalog, tag_of
from torchyard.rules import cudnn, host
from torchyard.rules.request import Asked
from torchyard.versions import descending, names, numbers

Value = object
Values = dict[str, Value]

# The keys that may be open, in the order in which they are decided.
OPEN = ("arch", "build", "torch", "python", "cuda", "cudnn", "blas", "os", "python_from", "gcc")

# The keys that the nearest cell may change, cheapest first.
CHANGEABLE = ("compression", "cuda", "cudnn", "torch", "python", "os", "build", "driver")

# The same in the order of the search: dearest first, so that its step is the smallest. cudnn keeps its place behind
# torch and cuda, on which its values depend.
_CHANGE_ORDER = ("driver", "build", "os", "python", "torch", "cuda", "compression")

# The keys on which the values of an open key depend, beside the request.
LEANS: Mapping[str, tuple[str, ...]] = {
    "python": ("torch", "arch"),
    "cuda": ("torch", "arch", "build"),
    "cudnn": ("torch", "arch", "build", "cuda"),
    "blas": ("torch", "arch", "build", "cuda"),
    "gcc": ("os", "build"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One search: what is asked, and which of the asked keys may take another value (for the nearest cell)."""

    asked: Asked
    catalog: Catalog
    order: tuple[str, ...]
    fixed: tuple[str, ...]
    changed: tuple[str, ...] = ()

    def domain(self, key: str, values: Values) -> Sequence[Value]:
        """The values of a key, the preferred one first, given those decided before it.

        A changed key ends with its asked values: a search that fails then stands for every smaller change too.
        """
        if key not in self.changed:
            return self._unchanged(key, values)
        steps, own = _STEPS[key](self, values), self._unchanged(key, values)
        return (*own, *steps) if key == "cuda" and self.asked.toolkit else (*steps, *own)

    def _unchanged(self, key: str, values: Values) -> Sequence[Value]:
        known = key in self.changed and _fixed(key, self.asked, self.catalog)
        if key in ("driver", "compression") or key in self.fixed or known:
            value = getattr(self.asked, key)
            return (None if value == "cpu" else value,)
        if key == "cuda" and key in self.changed:  # before torch is decided: any line that the request names
            return tuple(line for line in self.catalog.lines() if names(self.asked.cuda or "", line))
        return _DOMAINS[key](self, values)

    def bound(self, key: str) -> bool:
        """Whether the request itself narrows the values of a key."""
        return key not in self.changed and (key == "build" or getattr(self.asked, key) is not None)


def problem(asked: Asked, catalog: Catalog, changed: tuple[str, ...] = ()) -> Problem:
    """The search for what is asked: fixed keys first, then the changed ones, then the open ones."""
    fixed = tuple(key for key in OPEN if key not in changed and _fixed(key, asked, catalog))
    if "build" in changed:
        fixed = tuple(key for key in fixed if key != "gcc")
    moved = tuple(key for key in _CHANGE_ORDER if key in changed)
    rest = tuple(key for key in OPEN if key not in fixed and key not in moved)
    return Problem(asked=asked, catalog=catalog, order=(*fixed, *moved, *rest), fixed=fixed, changed=changed)


def _fixed(key: str, asked: Asked, catalog: Catalog) -> bool:
    match key:
        case "build":
            return True
        case "torch":
            return bool(asked.torch and catalog.exact_release(asked.torch))
        case "cuda":
            return asked.cuda is not None and (asked.cuda == "cpu" or "." in asked.cuda)
        case "cudnn":
            return False  # what is asked may be the beginning of what the wheel fixes
        case "gcc":
            return asked.gcc is not None and asked.build == "source"
        case _:
            return getattr(asked, key) is not None


def _line(cuda: Value) -> str | None:
    return None if cuda is None else str(cuda)


def _arch(p: Problem, values: Values) -> Sequence[Value]:
    return ARCHES


def _torch(p: Problem, values: Values) -> Sequence[Value]:
    return _releases(p.asked.torch, p.catalog)


@lru_cache(maxsize=512)
def _releases(wanted: str | None, catalog: Catalog) -> tuple[str, ...]:
    versions = tuple(r.version for r in catalog.releases)
    return versions if wanted is None else tuple(v for v in versions if names(wanted, v)) or (wanted,)


def _python(p: Problem, values: Values) -> Sequence[Value]:
    release = p.catalog.exact_release(str(values["torch"]))
    has = release.python.get(str(values["arch"]), ()) if release else ()
    return _newest_plain_first(has or p.catalog.pythons())


@lru_cache(maxsize=256)
def _newest_plain_first(pythons: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(pythons, key=lambda v: (not v.endswith("t"), numbers(v)), reverse=True))


def _cuda(p: Problem, values: Values) -> Sequence[Value]:
    # A CPU build is taken by itself only where it is the default of a CPU that was asked for.
    cpu = p.asked.arch is not None and not p.asked.gpus and p.asked.cudnn is None
    return _lines(p.asked.cuda, str(values["torch"]), str(values["arch"]), str(values["build"]), cpu, p.catalog)


@lru_cache(maxsize=8192)
def _lines(
    wanted: str | None, torch: str, arch: str, build: str, cpu: bool, catalog: Catalog
) -> tuple[str | None, ...]:
    """The CUDA lines of a release: its default build's, then the newest first; from source then every toolkit."""
    lines = tuple(b.cuda for b in catalog.builds_of(torch, arch) if b.cuda or (b.default and cpu))
    if build == "source":
        own = [line for line in lines if line and catalog.toolkit(line)]
        lines = tuple(dict.fromkeys([*own, *(t.version for t in catalog.toolkits)]))
    if wanted is None:
        return lines or catalog.lines()[:1]
    named = tuple(line for line in lines if line and names(wanted, line))
    return named or tuple(line for line in catalog.lines() if names(wanted, line)) or (wanted,)


def _cudnn(p: Problem, values: Values) -> Sequence[Value]:
    wanted, cuda = p.asked.cudnn, values["cuda"]
    build = p.catalog.build(str(values["torch"]), tag_of(_line(cuda)), str(values["arch"]))
    own = build.cudnn if build else None
    if wanted is not None:
        if own is not None and names(wanted, own):
            return (own,)
        return _cudnn_named(wanted, _major(cuda), p.catalog) if values["build"] == "source" else (wanted,)
    if cuda is None:
        return (None,)
    if values["build"] == "wheel":
        return (own,)
    return _cudnn_candidates(own, _major(cuda), p.catalog)


def _major(cuda: Value) -> str:
    return str(cuda).split(".")[0]


@lru_cache(maxsize=512)
def _cudnn_named(wanted: str, major: str, catalog: Catalog) -> tuple[str, ...]:
    package = catalog.cudnn_package(major)
    found = descending([v for v in package.all if names(wanted, v)]) if package else ()
    return found or ((wanted,) if wanted else ())


@lru_cache(maxsize=512)
def _cudnn_candidates(own: str | None, major: str, catalog: Catalog) -> tuple[str, ...]:
    """The release's own cuDNN, then the newest of each range that rules tell apart."""
    published = _cudnn_named("", major, catalog)
    newest_of = {line.first: v for v in reversed(published) if (line := cudnn.line_of(v, catalog))}
    newest = descending(list(newest_of.values()))
    return tuple(dict.fromkeys([own, *newest])) if own in published and own else newest


def _blas(p: Problem, values: Values) -> Sequence[Value]:
    arch = str(values["arch"])
    row = host.carried(str(values["torch"]), _line(values["cuda"]), arch, p.catalog)
    if values["build"] == "wheel" and row is not None:
        return (row.blas,)
    return ("mkl" if arch == "x86_64" else "openblas",)


def _os(p: Problem, values: Values) -> Sequence[Value]:
    return _systems(p.catalog)


@lru_cache(maxsize=8)
def _systems(catalog: Catalog) -> tuple[str, ...]:
    return tuple(d.os for d in catalog.distributions)


def _python_from(p: Problem, values: Values) -> Sequence[Value]:
    return ("distribution", "standalone")


def _gcc(p: Problem, values: Values) -> Sequence[Value]:
    if values["build"] != "source":
        return (None,)
    return (p.asked.gcc,) if p.asked.gcc else _compilers(str(values["os"]), p.catalog)


@lru_cache(maxsize=256)
def _compilers(system: str, catalog: Catalog) -> tuple[str, ...]:
    base = catalog.distribution(system)
    return tuple(dict.fromkeys((base.gcc, *descending(base.more_gcc))))


Domain = Callable[[Problem, Values], Sequence[Value]]

_DOMAINS: Mapping[str, Domain] = {
    "arch": _arch,
    "torch": _torch,
    "python": _python,
    "cuda": _cuda,
    "cudnn": _cudnn,
    "blas": _blas,
    "os": _os,
    "python_from": _python_from,
    "gcc": _gcc,
}


def _closest_first(values: Iterable[str], asked: str, position: Callable[[str], float]) -> tuple[str, ...]:
    """The values by their distance from the asked one, which is left out; of equally near ones the newer first."""
    here = position(asked)
    newest = sorted((v for v in values if not names(asked, v)), key=numbers, reverse=True)
    return tuple(sorted(newest, key=lambda v: abs(position(v) - here)))


def _rank(ordered: Sequence[tuple[int, ...]]) -> Callable[[str], float]:
    """The place of a version among ascending ones; one that is not among them lies between two."""

    def position(version: str) -> float:
        key = numbers(version)[: len(ordered[0])] if ordered else ()
        below = sum(o < key for o in ordered)
        return float(below) if key in ordered else below - 0.5

    return position


def _cuda_steps(p: Problem, values: Values) -> Sequence[Value]:
    return _cuda_near(p.asked.cuda or "cpu", p.catalog)


@lru_cache(maxsize=256)
def _cuda_near(asked: str, catalog: Catalog) -> tuple[str, ...]:
    lines = catalog.lines()
    return lines if asked == "cpu" else _closest_first(lines, asked, _rank(sorted(numbers(line) for line in lines)))


def _torch_steps(p: Problem, values: Values) -> Sequence[Value]:
    return _torch_near(p.asked.torch or "", p.catalog)


@lru_cache(maxsize=256)
def _torch_near(asked: str, catalog: Catalog) -> tuple[str, ...]:
    """The releases by the distance of their lines (2.13 to 2.14 is one step), the newest patch of a line first."""
    versions = [r.version for r in catalog.releases]
    return _closest_first(versions, asked, _rank(sorted({numbers(v)[:2] for v in versions})))


def _python_steps(p: Problem, values: Values) -> Sequence[Value]:
    return _python_near(p.asked.python or "", p.catalog)


@lru_cache(maxsize=256)
def _python_near(asked: str, catalog: Catalog) -> tuple[str, ...]:
    free, pythons = asked.endswith("t"), catalog.pythons()
    position = _rank(sorted({numbers(v)[:2] for v in pythons}))
    here = position(asked)
    others = sorted((v for v in pythons if v != asked), key=numbers, reverse=True)
    return tuple(sorted(others, key=lambda v: (abs(position(v) - here), v.endswith("t") != free)))


def _os_steps(p: Problem, values: Values) -> Sequence[Value]:
    return _os_near(p.asked.os or "", p.catalog)


@lru_cache(maxsize=256)
def _os_near(asked: str, catalog: Catalog) -> tuple[str, ...]:
    """The distributions: the same one's other versions first, the nearest version first; then by glibc."""
    here = catalog.distribution(asked)
    family = here.os.partition("-")[0]

    def step(name: str) -> tuple[int, int, int]:
        other = catalog.distribution(name)
        if other.os.startswith(f"{family}-"):
            apart = numbers(other.os)[0] - numbers(here.os)[0]
            return (0, abs(apart), -apart)
        if not numbers(here.glibc) or not numbers(other.glibc):
            return (2, 0, 0)
        return (1, abs(numbers(other.glibc)[-1] - numbers(here.glibc)[-1]), 0)

    return tuple(sorted((d.os for d in catalog.distributions if d is not here), key=step))


def _build_steps(p: Problem, values: Values) -> Sequence[Value]:
    return ("source",) if p.asked.build == "wheel" else ("wheel",)


def _driver_steps(p: Problem, values: Values) -> Sequence[Value]:
    """The drivers that anything is known of, by the distance of their branches."""
    floors = [f.min_driver for major in ("11", "12", "13") if (f := p.catalog.driver_floor(major))]
    bounds = [b.min_driver for g in p.asked.gpus if (b := p.catalog.driver_gpu(g.arch)) and b.min_driver]
    known = [*floors, *bounds, *(b.number for b in p.catalog.branches)]
    here = numbers(p.asked.driver or "0")[0]
    return tuple(sorted(dict.fromkeys(known), key=lambda d: (abs(numbers(d)[0] - here), -len(numbers(d)))))


def _compression_steps(p: Problem, values: Values) -> Sequence[Value]:
    return ("gzip",)


def _cudnn_steps(p: Problem, values: Values) -> Sequence[Value]:
    build = p.catalog.build(str(values["torch"]), tag_of(_line(values["cuda"])), str(values["arch"]))
    if values["build"] == "wheel" or values["cuda"] is None:
        return (build.cudnn if build else None,)
    return _cudnn_near(p.asked.cudnn or "", _major(values["cuda"]), p.catalog)


@lru_cache(maxsize=256)
def _cudnn_near(asked: str, major: str, catalog: Catalog) -> tuple[str, ...]:
    published = _cudnn_named("", major, catalog)
    return _closest_first(published, asked, _rank(sorted(numbers(v) for v in published)))


_STEPS: Mapping[str, Domain] = {
    "cuda": _cuda_steps,
    "cudnn": _cudnn_steps,
    "torch": _torch_steps,
    "python": _python_steps,
    "os": _os_steps,
    "build": _build_steps,
    "driver": _driver_steps,
    "compression": _compression_steps,
}
