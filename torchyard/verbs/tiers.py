"""The tiers of checks, one function each: gather facts of an image, judge them, and say what to keep of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path

from .. import receipt
from ..errors import InputError
from ..finding import Finding, State
from ..judge import cpu, gpu, identity, static, static_causes, static_facts
from ..judge.cpu_facts import Facts
from ..judge.static_case import Reference, step
from ..lock import LockedImage
from ..plan import Cell
from ..receipt import Computed, Level, Receipt, Sized, Tier
from ..world import conditions, containers, host_gpu, image_files, probing
from ..world.engine import Engine
from ..world.workspace import Workspace
from . import project as projects
from .project import Project

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One image to look at: the engine that has it, by which reference, and the lock that it is measured by.

    hardware: the entry on whose GPUs it is to run (empty: any that selects it); require_gpu: not without one; told:
    what is known of this very image.
    """

    engine: Engine
    tag: str
    lock: LockedImage
    project: Project
    hardware: str = ""
    require_gpu: bool = False
    told: Receipt | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """What a tier gave: its findings, the layers where it saw them, and what the image computed where it ran."""

    tier: Tier
    layers: tuple[Sized, ...] = ()
    computed: Computed | None = None

    def within(self, known: Receipt) -> Receipt:
        """The receipt with this in it; that a GPU was required where there is none says nothing of the image."""
        if not self.tier.looked and any(each.state is State.FAIL for each in self.tier.findings):
            return known
        if self.layers:
            sizes = tuple(layer.size for layer in self.layers)
            known = dataclasses.replace(
                known, layer_sizes=sizes, layer_steps=tuple(layer.step for layer in self.layers)
            )
        return (known.with_computed(self.computed) if self.computed else known).with_tier(self.tier)


def level_of(name: str, allowed: tuple[Level, ...]) -> Level:
    """The level of this name; raises InputError for another word."""
    if name not in {level.value for level in allowed}:
        raise InputError(
            f"there is no level {name!r} here",
            where="--level",
            hint=f"one of {', '.join(each.value for each in allowed)}",
        )
    return Level(name)


def look(case: Case, level: Level, say: Say) -> Looked:
    """What there is to say of an image at one level."""
    match level:
        case Level.IDENTITY:
            return _identity(case)
        case Level.STATIC:
            return _static(case, say)
        case Level.CPU:
            return _cpu(case, say)
        case Level.GPU:
            return _gpu(case, say)
        case Level.NONE:
            raise AssertionError(level)


def checks(case: Case, level: Level) -> str:
    """A hash of all that findings of this level follow from, the image and the machine excepted."""
    words = ""
    if level is Level.STATIC:
        ref = _reference(case)
        words = repr((ref.gpus, ref.budget, ref.image_budget))
    elif level is Level.GPU and (cell := _cell(case)) is not None:
        words = repr(_expected(case.project, cell))
    return conditions.checks(case.project.work.root, words)


def _identity(case: Case) -> Looked:
    """Torch loads as a user without a name, and is the locked one."""
    probe = resources.files("torchyard.inside").joinpath("probe.py").read_text(encoding="utf-8")
    facts = containers.probe(case.engine, case.tag, probe, user="12345:12345", read_only=True, tmpfs={"/tmp": "exec"})
    found = identity.judge(case.lock, facts)
    return Looked(tier=Tier(level=Level.IDENTITY, checks=checks(case, Level.IDENTITY), findings=tuple(found)))


def _static(case: Case, say: Say) -> Looked:
    """Tier 1: the files and the configuration, nothing is started."""
    facts = image_files.gather(case.engine, case.tag, case.lock, case.project.work, say)
    found = static.judge(_reference(case), facts)
    return Looked(
        tier=Tier(level=Level.STATIC, checks=checks(case, Level.STATIC), findings=tuple(found)), layers=_sized(facts)
    )


def _sized(facts: static_facts.ImageFacts) -> tuple[Sized, ...]:
    return tuple(Sized(diff_id=each.diff_id, step=step(each.words), size=each.size) for each in facts.layers)


def _reference(case: Case) -> Reference:
    budget = case.project.matrix.budget_of(case.project.plan.sharers(case.lock.id))
    return Reference(
        lock=case.lock,
        gpus=gpus(case.project, case.lock.id),
        catalog=case.project.catalog,
        budget=budget.layer or static.BUDGET,
        image_budget=budget.image or static.IMAGE_BUDGET,
        former=case.told.former if case.told else (),
    )


def gpus(project: Project, image_id: str) -> tuple[tuple[str, str], ...]:
    """The GPUs of every cell that selects this image, as (catalogue's name, compute capability), each once."""
    pairs = [
        pair
        for cell in project.plan.cells
        if cell.image == image_id
        for pair in zip(cell.gpus, cell.compute_capability)
    ]
    return tuple(dict.fromkeys(pairs))


def _cpu(case: Case, say: Say) -> Looked:
    """Tier 2: probes in containers without a GPU."""
    facts = probing.run(case.engine, case.tag, case.lock, say)
    seen = _computed(facts)
    found = cpu.judge(case.lock, facts, _before(case, seen))
    tier = Tier(
        level=Level.CPU, checks=checks(case, Level.CPU), on=conditions.machine(case.engine), findings=tuple(found)
    )
    return Looked(tier=tier, computed=seen)


def _gpu(case: Case, say: Say) -> Looked:
    """Tier 3: probes in a container with the GPUs of a hardware entry."""
    digest = checks(case, Level.GPU)
    cell = _cell(case)
    if cell is None:
        because = "no hardware entry with a GPU selects this image"
        found = [Finding.skipped(rule, what=what, because=because) for rule, what in gpu.RULES]
        return Looked(tier=Tier(level=Level.GPU, checks=digest, findings=tuple(found)))
    want = _expected(case.project, cell)
    facts = probing.run(
        case.engine, case.tag, case.lock, say, device="cuda", count=cell.count, fabric=want.fabric != "none"
    )
    seen = _computed(facts)
    before = _before(case, seen)
    found = gpu.judge(case.lock, facts, want, require=case.require_gpu, reference=before)
    on = "" if facts.no_gpu is not None else gpu.seen_on(facts) or "GPUs that did not tell their names"
    return Looked(tier=Tier(level=Level.GPU, checks=digest, on=on, findings=tuple(found)), computed=seen)


def _computed(facts: Facts) -> Computed | None:
    seen = cpu.fingerprint(facts)
    return Computed.of(seen) if seen else None


def _before(case: Case, seen: Computed | None) -> dict[str, object] | None:
    """What this image computed before, on the same kind of CPU or GPU if it was verified there."""
    before = case.told.reference(seen) if case.told and seen else None
    return before.seen() if before else None


def _cell(case: Case) -> Cell | None:
    """The cell on whose GPUs the image is to run: of the entry that was named, else one whose GPUs this host has."""
    cells = [cell for cell in case.project.plan.cells if cell.image == case.lock.id and cell.gpus]
    named = [cell for cell in cells if cell.hardware == case.hardware]
    if named or not cells:
        return next(iter(named), None)
    here = {each.name for each in host_gpu.look().gpus}
    fit = [cell for cell in cells if here & set(_expected(case.project, cell).names)]
    return next(iter([*fit, *cells]))


def has_gpu(project: Project, image_id: str) -> bool:
    """Whether an entry with a GPU selects this image."""
    return any(cell.gpus for cell in project.plan.cells if cell.image == image_id)


def _expected(project: Project, cell: Cell) -> gpu.Expected:
    site = project.matrix.site(cell.site)
    entry = next((each for each in project.matrix.hardware if each.name == cell.hardware), None)
    return gpu.expected(cell, project.catalog, fabric=site.fabric if site else "none", mig=entry.mig if entry else "")


def told(tiers: tuple[Tier, ...]) -> list[Finding]:
    """The findings of these tiers: causes, what follows from them, the others."""
    found: list[Finding] = []
    for tier in tiers:
        found = static_causes.combined(found, tier.findings)
    return found


def receipt_path(work: Workspace, image_id: str) -> Path:
    """Where the receipt of an image is."""
    return work.local / "receipts" / f"{image_id}.json"


def read_receipt(work: Workspace, image_id: str) -> Receipt | None:
    """The receipt of an image; None where there is none that can be read."""
    path = receipt_path(work, image_id)
    try:
        return receipt.from_text(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        return None


def lock_hash(work: Workspace, image_id: str) -> str:
    """The hash of an image's lock as it is now, by which receipts name it."""
    return sha256((work.read(projects.lock_path(image_id)) or "").encode()).hexdigest()
