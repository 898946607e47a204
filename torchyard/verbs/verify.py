"""verify: what an image is, against its lock, tier by tier; findings at the end, and in the receipt of just this image.

A tier is one function of `tiers.py`: it gathers facts (world/) and judges them (judge/).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import junit, receipt, render, report
from ..errors import CheckFailed, Exit, InputError
from ..finding import Finding, State
from ..lock import LockedImage
from ..plan import Image
from ..receipt import Level, Receipt
from ..world import containers, engine
from ..world.workspace import write_whole
from . import project as projects
from . import tiers
from .project import Project
from .tiers import Case, Looked

Say = Callable[[str], None]
LABEL = "torchyard.id"
LEVELS = (Level.STATIC, Level.CPU, Level.GPU)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How far to look (empty: cpu, or gpu where one is required), on whose GPUs, and whether there must be some."""

    level: str = ""
    hardware: str = ""
    require_gpu: bool = False

    def wanted(self) -> tuple[Level, ...]:
        """The levels up to the one that is asked for; raises InputError where they do not fit."""
        top = tiers.level_of(self.level or (Level.GPU if self.require_gpu else Level.CPU), LEVELS)
        if self.require_gpu and top is not Level.GPU:
            raise InputError(
                f"--require-gpu with --level {top}: no GPU is used there", where="--level", hint="--level gpu"
            )
        return LEVELS[: LEVELS.index(top) + 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What was found of an image, and how far was looked."""

    image: str
    tag: str
    level: str
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return not any(finding.state is State.FAIL for finding in self.findings)


def verify(project: Project, images: Sequence[Image], options: Options, *, say: Say) -> list[Verified]:
    """What was found of these images as they are built here; the receipt of each says so too."""
    wanted = options.wanted()
    _check_gpu(project, [image.id for image in images], options)
    locks = [projects.fresh_lock(project.work, image) for image in images]
    found = engine.ensure(say)
    names = [render.tag(project.plan.project, lock.id) for lock in locks]
    for lock, tag in zip(locks, names):
        if containers.describe(found, tag) is None:
            raise CheckFailed(f"{lock.id} is not built here", hint=f"./yard build --id {lock.id}")
    return [
        _recorded(Case(engine=found, tag=tag, lock=lock, project=project), wanted, options, say)
        for lock, tag in zip(locks, names)
    ]


def verify_reference(project: Project, reference: str, image: Image | None, options: Options, *, say: Say) -> Verified:
    """What was found of any image that the engine has, against the lock that its label names, or that of `image`."""
    wanted = options.wanted()
    found = engine.ensure(say)
    known = containers.describe(found, reference)
    if known is None:
        raise InputError(f"the engine has no image {reference!r}", hint="pull it first, or name the one that is meant")
    label = str((known["Config"].get("Labels") or {}).get(LABEL, ""))
    lock = _lock_of(project, reference, label, image)
    _check_gpu(project, [lock.id], options)
    case = Case(engine=found, tag=reference, lock=lock, project=project)
    return _verified(case, _looked(case, wanted, options, say))


def check_alone(digest: str, image_id: str, image: str) -> None:
    """Raise InputError where beside a digest another image is named."""
    if image_id or image:
        raise InputError(
            f"--attest names the image by its digest: {digest}",
            where="--id" if image_id else "--image",
            hint="leave it out; --gpu says on whose GPUs to look",
        )


def _check_gpu(project: Project, ids: Sequence[str], options: Options) -> None:
    if options.require_gpu and not any(tiers.has_gpu(project, each) for each in ids):
        raise InputError(
            f"--require-gpu, and no hardware entry with a GPU selects {' or '.join(ids)}",
            where="--require-gpu",
            hint="name an entry that has one with --gpu",
        )


def _lock_of(project: Project, reference: str, label: str, image: Image | None) -> LockedImage:
    if image is not None:
        return projects.fresh_lock(project.work, image)
    if not label:
        raise InputError(
            f"{reference} was not made by torchyard: it has no label {LABEL}, so there is no lock to measure it by",
            hint="say which image it should be: --id, or --gpu with an entry of env.yaml",
        )
    lock = projects.read_lock(project.work, label) if "/" not in label else None
    if lock is None:
        raise InputError(
            f"{reference} says that it is {label}, which has no lock in this project",
            where=f"images/{label}/lock.yaml",
            hint="verify it in the project that made it, or say which image it should be: --id or --gpu",
        )
    return lock


def _looked(case: Case, wanted: Sequence[Level], options: Options, say: Say) -> list[Looked]:
    say(f"verifying {case.tag}")
    case = dataclasses.replace(case, hardware=options.hardware, require_gpu=options.require_gpu)
    return [tiers.look(case, level, say) for level in wanted]


def _verified(case: Case, looked: Sequence[Looked]) -> Verified:
    levels = [each.tier.level for each in looked if each.tier.looked]
    return Verified(
        image=case.lock.id,
        tag=case.tag,
        level=levels[-1] if levels else Level.NONE,
        findings=tuple(tiers.told(tuple(each.tier for each in looked))),
    )


def _recorded(case: Case, wanted: Sequence[Level], options: Options, say: Say) -> Verified:
    """Verify an image that is built here; what was found goes into its receipt, the newest of each level."""
    told = _own_receipt(case, say)
    case = dataclasses.replace(case, told=told)
    looked = _looked(case, wanted, options, say)
    if told is not None:
        for each in looked:
            told = each.within(told)
        write_whole(tiers.receipt_path(case.project.work, case.lock.id), receipt.to_text(told).encode())
    return _verified(case, looked)


def _own_receipt(case: Case, say: Say) -> Receipt | None:
    """The receipt of just this image and lock; None, and why, where there is none."""
    told = tiers.read_receipt(case.project.work, case.lock.id)
    known = containers.describe(case.engine, case.tag)
    if told is None:
        say(f"{case.tag} has no receipt here, so what is found is not kept: ./yard build --id {case.lock.id} makes one")
    elif known is None or tuple(known["RootFS"]["Layers"]) != told.layers:
        say(f"{case.tag} is not the image of its receipt, so what is found is not kept")
    elif told.lock != tiers.lock_hash(case.project.work, case.lock.id):
        say(f"{case.tag} was built from another lock, so what is found is not kept")
    else:
        return told
    return None


def document(found: Verified) -> dict[str, object]:
    """The JSON of one image's findings."""
    return {
        "image": found.image,
        "level": found.level,
        "findings": [dataclasses.asdict(finding) for finding in found.findings],
    }


def show(found: Sequence[Verified], *, as_json: bool, junit_file: str = "") -> Exit:
    """Print the findings and write the JUnit file; answers the exit code."""
    if junit_file:
        path = Path(junit_file)
        if path.is_dir():
            raise InputError(f"{junit_file} is a folder", where="--junit", hint="name a file")
        write_whole(path, junit.text({each.tag: each.findings for each in found}).encode())
    if as_json:
        documents = [document(each) for each in found]
        report.as_json(documents[0] if len(documents) == 1 else documents)
    else:
        for each in found:
            report.lines([f"{each.tag} ({each.level})"])
            findings(each.findings)
    return Exit.GOOD if all(each.good for each in found) else Exit.BAD


def findings(found: Sequence[Finding], *, whole: bool = True) -> None:
    """Print findings as a table, those that pass only where the whole is wanted, and how many there are of each."""
    rows = _rows([each for each in found if whole or each.state is not State.PASS])
    if rows:
        report.table(("state", "check", "expected", "seen", "what to do"), rows)
    states = [finding.state for finding in found]
    report.lines([", ".join(f"{states.count(state)} {state.value}" for state in State)])


def _rows(found: Sequence[Finding]) -> list[tuple[str, ...]]:
    return [
        (f.state.value, f.rule, _short(f.expected), f.seen if f.state is State.FAIL else _short(f.seen), _last(f))
        for f in found
    ]


def _last(finding: Finding) -> str:
    return f"({finding.because})" if finding.because and finding.state is State.FAIL else finding.fix or finding.because


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
