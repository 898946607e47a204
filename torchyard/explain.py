"""Requests in, answers out: what fits together, why not, and the nearest thing that does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchyard import json_text, rules
from torchyard.catalog import Build, Catalog, tag_of
from torchyard.errors import InputError
from torchyard.plan import CellState, Verdict
from torchyard.rules import Asked, Cell, Request, asked, code, drivers, state_of, torch
from torchyard.rules.search import Solver, solver


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Every key decided, in the words of a request; driver is None where it was left open."""

    gpus: tuple[str, ...]
    compute_capability: tuple[str, ...]
    torch: str
    cuda: str | None  # None for a CPU build
    cuda_tag: str
    cudnn: str | None
    python: str
    python_from: str
    blas: str
    build: str
    os: str
    arch: str
    driver: str | None
    gcc: str | None  # None for a wheel
    arch_list: tuple[str, ...]  # of a source build
    compression: str | None = None  # as asked, or as the nearest cell has it
    asked: tuple[tuple[str, object], ...] = ()  # what else the request said, as it said it

    def request(self) -> dict[str, object]:
        """The choice as a request that asks for exactly this."""
        gpus = {"gpu": self.gpus[0]} if len(self.gpus) == 1 else {"gpus": list(self.gpus)} if self.gpus else {}
        return {
            **gpus,
            "torch": self.torch,
            "cuda": self.cuda or "cpu",
            "cudnn": self.cudnn,
            "python": self.python,
            "python_from": self.python_from,
            "blas": self.blas,
            "build": self.build,
            "os": self.os,
            "arch": self.arch,
            "driver": self.driver,
            **({"gcc": self.gcc} if self.gcc else {}),
            **({"arch_list": ";".join(self.arch_list)} if self.arch_list else {}),
            **({"compression": self.compression} if self.compression else {}),
            **dict(self.asked),
        }

    def words(self) -> str:
        """The choice in one line for a person."""
        what = f"torch {self.torch} {self.cuda_tag}" + (" from source" if self.build == "source" else "")
        parts = [what, f"Python {self.python} ({self.python_from})", self.os, self.arch]
        parts += [f"cuDNN {self.cudnn}"] if self.cudnn else []
        parts += [self.blas]
        parts += [f"gcc {self.gcc}"] if self.gcc else []
        parts += [f"arch list {';'.join(self.arch_list)}"] if self.arch_list else []
        parts += [f"driver {self.driver}"] if self.driver else []
        parts += [f"{self.compression} layers"] if self.compression else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerUp:
    """Another build of the same torch for the same CPU: whether it would do, and who serves it."""

    tag: str
    cuda: str | None
    index: str
    state: CellState
    why: str  # the first broken rule; empty when it would do


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """The nearest cell that works: which keys change, from what to what."""

    changes: tuple[tuple[str, str, str], ...]
    choice: Choice

    def words(self) -> str:
        """The change in one line: `cuda 11.7 → 11.8 (torch 2.7.1 cu118, …)`."""
        changed = ", ".join(f"{key} {old or '(open)'} → {new}" for key, old, new in self.changes)
        return f"{changed} ({self.choice.words()})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A request completed: the best cell, or the closest one with the rules that refuse it."""

    state: CellState
    choice: Choice
    verdicts: tuple[Verdict, ...]
    build: Build | None
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    index: str
    requirement: str
    pairs: tuple[tuple[str, str], ...]
    driver_min: str
    driver_max: str
    driver_require: str
    notes: tuple[str, ...]
    runners_up: tuple[RunnerUp, ...] = ()
    nearest: Nearest | None = None

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The rules that stand against the cell and are not allowed."""
        return tuple(v for v in self.verdicts if not v.ok and not v.allowed)


def complete(
    request: Request,
    catalog: Catalog,
    *,
    allow: Mapping[str, str] | None = None,
    nearest: bool = True,
    runners_up: bool = True,
) -> Completion:
    """The request with every key decided (InputError for an unknown name).

    allow: rule id to reason; such a rule is still told when it is broken, with the reason, but does not refuse.
    """
    allowed = dict(allow or {})
    if unknown := sorted(allowed.keys() - {rule.id for rule in rules.RULES}):
        ids = ", ".join(rule.id for rule in rules.RULES)
        raise InputError(f"unknown rule {unknown[0]!r}", where="allow", hint=f"known: {ids}")
    search = solver(catalog, frozenset(allowed))
    wanted = asked(request, catalog)
    done = _completion(search.closest(wanted), wanted, search, allowed)
    if runners_up and done.choice.build == "wheel":
        done = replace(done, runners_up=_runners_up(done.choice, wanted, search))
    if nearest and done.state is not CellState.OK:
        done = replace(done, nearest=_nearest(wanted, search))
    return done


def check(request: Request, catalog: Catalog) -> tuple[Verdict, ...]:
    """What every rule says of the completed request, the passed ones too."""
    return complete(request, catalog, nearest=False, runners_up=False).verdicts


def _completion(cell: Cell, wanted: Asked, search: Solver, allowed: Mapping[str, str]) -> Completion:
    catalog = search.catalog
    verdicts = tuple(
        replace(v, allowed=allowed[v.rule]) if not v.ok and v.rule in allowed else v for v in search.verdicts(cell)
    )
    inside = code.code_of(cell, catalog)
    build = code.build_of(cell, catalog)
    apart = torch.index_only(cell, catalog)
    pair = catalog.pair(cell.torch)
    return Completion(
        state=state_of(verdicts),
        choice=_choice(cell, wanted, catalog),
        verdicts=verdicts,
        build=build,
        sass=inside.sass if inside else (),
        ptx=inside.ptx if inside else (),
        index=f"pytorch-{build.tag}" if build and apart else build.index if build else "",
        requirement=f"{cell.torch}+{build.tag}" if build and apart else build.requirement if build else cell.torch,
        pairs=(("torchvision", pair.torchvision), ("torchaudio", pair.torchaudio[0])) if pair else (),
        driver_min=drivers.driver_min(cell, catalog),
        driver_max=drivers.driver_max(cell.gpus, catalog) if cell.cuda else "",
        driver_require=drivers.driver_require(cell.cuda, catalog),
        notes=_notes(cell, build, catalog),
    )


def _choice(cell: Cell, wanted: Asked, catalog: Catalog) -> Choice:
    source = cell.build == "source"
    rest: dict[str, object] = {
        "memory_gb": wanted.memory_gb,
        "mig": wanted.mig,
        "index": wanted.index,
        "packages": dict(wanted.packages),
        "features": list(wanted.features),
        "precision": wanted.precision,
        "cuda_compat": wanted.cuda_compat,
        "arch_list": wanted.arch_list,
        "consumers": list(wanted.consumers),
    }
    entries = code.arch_entries(cell, catalog) if source and cell.cuda else ()
    return Choice(
        gpus=tuple(g.id for g in cell.gpus),
        compute_capability=tuple(g.cc for g in cell.gpus),
        torch=cell.torch,
        cuda=cell.cuda,
        cuda_tag=tag_of(cell.cuda),
        cudnn=cell.cudnn,
        python=cell.python,
        python_from=cell.python_from,
        blas=cell.blas,
        build=cell.build,
        os=cell.os,
        arch=cell.arch,
        driver=cell.driver,
        gcc=cell.gcc,
        arch_list=entries,
        compression=cell.compression,
        asked=tuple((key, value) for key, value in rest.items() if value or value == ""),
    )


def _runners_up(chosen: Choice, wanted: Asked, search: Solver) -> tuple[RunnerUp, ...]:
    found: list[RunnerUp] = []
    for build in search.catalog.builds_of(chosen.torch, chosen.arch):
        if build.cuda == chosen.cuda or (build.cuda is None and wanted.gpus):
            continue
        other = replace(
            wanted, torch=build.torch, arch=build.arch, cuda=build.cuda or "cpu", toolkit=None, build="wheel"
        )
        verdicts = search.verdicts(search.closest(other))
        against = next((v.what for v in verdicts if not v.ok), "")
        found.append(RunnerUp(tag=build.tag, cuda=build.cuda, index=build.index, state=state_of(verdicts), why=against))
    return tuple(found)


def _nearest(wanted: Asked, search: Solver) -> Nearest | None:
    found = search.nearest(wanted)
    if found is None:
        return None
    cell, changed = found
    choice = _choice(cell, wanted, search.catalog)
    told = choice.request()
    old = {key: getattr(wanted, key) if key != "build" or wanted.build_given else "" for key in changed}
    return Nearest(changes=tuple((key, old[key] or "", str(told[key])) for key in changed), choice=choice)


def _notes(cell: Cell, build: Build | None, catalog: Catalog) -> tuple[str, ...]:
    """What a person should know although no rule refuses it."""
    told: list[str] = []
    if split := drivers.split_modules(cell.gpus, catalog):
        told.append(split)
    if driver := drivers.driver_note(cell, catalog):
        told.append(driver)
    told += code.last_wheels(cell, catalog)
    major = (cell.cuda or "").split(".")[0]
    for gap in catalog.library_gaps():
        who = [g.id for g in cell.gpus if g.cc == gap.cc]
        if who and gap.cuda_major == major and cell.build == "wheel":
            told.append(f"{', '.join(who)}: {gap.library} of CUDA {major} wheels has {gap.what}")
    for serves in catalog.serves():
        who = [g.id for g in cell.gpus if g.cc == serves.gpu]
        if who and cell.cuda and build and not set(build.sass) & {serves.gpu}:
            told.append(f"{', '.join(who)} needs CUDA {serves.cuda_min} on its host: {serves.note}")
    if build is not None and cell.cuda and not build.row.proven("sass", "cudnn"):
        unread = ", ".join(build.row.unverified) if build.row.verified else "whole row"
        told.append(f"of torch {build.torch} {build.tag} for {build.arch} not everything was read: {unread}")
    return tuple(told)


def answer(line: str, catalog: Catalog) -> dict[str, object]:
    """The verdict on one JSON request, as plain data; an input error is the verdict `invalid` with its message."""
    try:
        data = json_text.loads(line)
        if not isinstance(data, dict):
            raise InputError("a request is a JSON object", hint='write {"gpu": "a100"}')
        done = complete(rules.parse_request(data), catalog, runners_up=False)
    except InputError as error:
        return _invalid(error.what, error.where, error.hint)
    except (ValueError, RecursionError) as error:
        return _invalid(f"not JSON: {str(error)[:200]}", "", 'write {"gpu": "a100"}')
    return as_data(done)


def _invalid(what: str, where: str, hint: str) -> dict[str, object]:
    return {
        "verdict": "invalid",
        "message": what,
        "where": where,
        "hint": hint,
        "cell": None,
        "rules": [],
        "nearest": None,
    }


def as_data(done: Completion) -> dict[str, object]:
    """A completion as plain data for JSON: `cell` and `nearest` are requests that may be asked again."""
    return {
        "verdict": str(done.state),
        "cell": done.choice.request(),
        "rules": [_verdict_data(v) for v in done.verdicts],
        "nearest": done.nearest.choice.request() if done.nearest else None,
        "changes": {key: [old or None, new] for key, old, new in done.nearest.changes} if done.nearest else {},
        "index": done.index,
        "driver_min": done.driver_min,
        "driver_max": done.driver_max,
        "notes": list(done.notes),
        **({"runners_up": [_runner_data(r) for r in done.runners_up]} if done.runners_up else {}),
    }


def _verdict_data(verdict: Verdict) -> dict[str, object]:
    return {
        "rule": verdict.rule,
        "ok": verdict.ok,
        "what": verdict.what,
        "source": verdict.source,
        **({"unproven": True} if verdict.unproven else {}),
        **({"allowed": verdict.allowed} if verdict.allowed else {}),
    }


def _runner_data(runner: RunnerUp) -> dict[str, object]:
    return {"build": runner.tag, "index": runner.index, "verdict": str(runner.state), "why": runner.why}


def told(done: Completion, catalog: Catalog) -> str:
    """A completion as text for a person: verdict, both sides of each broken rule with its source, nearest, the rest."""
    lines = [f"{done.state}: {', '.join(done.choice.gpus) or 'no GPU'}: {done.choice.words()}"]
    lines += [f"  {'unproven' if v.unproven else 'broken  '}  {v.rule}: {v.what}  [{v.source}]" for v in done.broken]
    lines += [f"  allowed   {v.rule}: {v.what} (allowed: {v.allowed})" for v in done.verdicts if v.allowed]
    if done.nearest is not None:
        lines.append(f"  nearest   {done.nearest.words()}")
    elif done.state is not CellState.OK:
        lines.append("  nearest   nothing near works: what stands against it cannot be changed")
    if done.index:
        lines.append(f"  index     {done.index} serves {done.requirement}")
    for runner in done.runners_up:
        lines.append(
            f"  other     {runner.tag} at {runner.index}: {runner.state}{' - ' + runner.why if runner.why else ''}"
        )
    if done.driver_min:
        last = f", branch {done.driver_max} at most" if done.driver_max else ""
        lines.append(f"  driver    {done.driver_min} or newer{last}; NVIDIA_REQUIRE_CUDA={done.driver_require}")
    if done.pairs:
        lines.append(f"  pairs     {', '.join(f'{name} {version}' for name, version in done.pairs)}")
    lines += [f"  note      {note}" for note in done.notes]
    lines += [f"  passed    {v.rule}: {v.what}" for v in done.verdicts if v.ok]
    cited = dict.fromkeys(s for v in done.broken for s in v.source.split(", ") if s)
    lines += [f"  [{source}] {catalog.sources[source]}" for source in cited if source in catalog.sources]
    return "\n".join(lines)
