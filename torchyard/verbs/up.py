"""up and down: the stack of a hardware entry with this machine's devices; .env is written, nothing is left behind."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import receipt, render, stack, stack_lines
from ..errors import CheckFailed, InputError, Surroundings, YardError
from ..finding import Finding, State
from ..plan import Cell
from ..receipt import Receipt
from ..stack import Settings, Wish
from ..world import compose, containers, engine, stack_env
from ..world.compose import Ended, Stack
from ..world.engine import Engine
from . import tiers
from .project import Project, chosen_cell

Say = Callable[[str], None]
PROFILES = {
    "train": ("train",),
    "rehearse": ("node0", "node1"),
    "jupyter": ("jupyter",),
    "tensorboard": ("tensorboard",),
    "monitor": ("dcgm", "prometheus", "grafana"),
}
JOBS = ("train", "rehearse")  # these end by themselves; the others serve until they are ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """profiles: what to start; devices: GPUs as the engine names them; processes: ranks, 0 for one a GPU."""

    profiles: tuple[str, ...] = ("train",)
    devices: tuple[str, ...] = ()
    processes: int = 0


def up(project: Project, gpu: str, words: Sequence[str], options: Options, *, say: Say) -> int:
    """Start the stack of this entry, show what it prints, and take it down; answers the exit code of the job."""
    services, jobs = _services(options.profiles)
    found = engine.ensure(say)
    cell = chosen_cell(project.plan, gpu or remembered(project))
    image = verified(project, cell, found)
    compose.require(found)
    _check_script(project, words)
    with compose.turn(project.work.local / "up.lock") as held:
        busy = compose.running(_any_stack(project, found))
        if held is None or busy:
            raise Surroundings(
                f"a stack of this clone is running: {', '.join(busy) or 'it is being taken down'}",
                hint="./yard down ends it; or wait until it is done",
            )
        made = stack_env.write(
            project.work, stack.entry(cell, project.plan, project.matrix), image, found, _wish(options)
        )
        _tell(made.findings, say)
        if not stack_env.is_ignored(project.work):
            say(".env holds a token, and git does not ignore it: add /.env, /.torchyard/, /data/, /runs/ to .gitignore")
        stack_env.check_folders(project.work, {**_values(project), **os.environ})
        ports = stack.free_ports(_values(project), services, stack_env.port_is_free)
        stack_env.save(project.work, {**made.variables, **ports})
        here = _stack(project, found, made, {**ports, **_given(options, words)})
        with compose.guarded(here, held):
            compose.start(here, services)
            _addresses(made, ports, say)
            ended = compose.follow(here, services, jobs or services, say)
    return _code(ended, say)


def down(project: Project, *, say: Say) -> None:
    """Remove what runs of this clone's stacks."""
    found = engine.ensure(say)
    compose.require(found)
    compose.down(_any_stack(project, found))


def _any_stack(project: Project, found: Engine) -> Stack:
    """This clone's stack, whatever it was started with: by its name alone."""
    project.work.local.mkdir(exist_ok=True)
    name = _values(project).get("COMPOSE_PROJECT_NAME")
    name = name or f"{project.plan.project}-{stack_env.place(project.work.root)}"
    return Stack(engine=found, root=project.work.local, name=name, files=(), variables={})


def _values(project: Project) -> dict[str, str]:
    """What .env says, the user's own lines over torchyard's."""
    return stack_lines.values(project.work.read(stack_env.ENV) or "")


def _wish(options: Options) -> Wish:
    return Wish(devices=options.devices, processes=options.processes)


def _given(options: Options, words: Sequence[str]) -> dict[str, str]:
    """What the command line says, which wins over every line of .env."""
    script = {"TORCHYARD_TRAIN": shlex.join(words)} if words else {}
    return {**script, **({"TORCHYARD_PROCESSES": str(options.processes)} if options.processes else {})}


def remember(
    project: Project, made: Sequence[Receipt], *, gpu: str = "", say: Say, found: Engine | None = None
) -> None:
    """Write .env for what was built or pulled, so that plain `docker compose up` runs it; found: the engine with it."""
    images = {each.image: each for each in made}
    names = [gpu, *_names(project), *(cell.hardware for cell in project.plan.cells)]
    cells = [cell for name in names if name and (cell := project.plan.cell(name)) is not None and cell.image in images]
    if not cells:
        return
    try:
        found = found or engine.ensure(say)
        image = verified(project, cells[0], found)
        stack_env.write(project.work, stack.entry(cells[0], project.plan, project.matrix), image, found)
    except YardError as problem:  # what was built is good all the same; `up` says it again
        say(f".env was not written for {cells[0].hardware}: {problem.what}")


def remembered(project: Project) -> str:
    """The hardware entry that .env names, else the only one there is; raises where that leaves a choice."""
    names = list(dict.fromkeys([*_names(project), *(cell.hardware for cell in project.plan.cells)]))
    if not _names(project) and len(names) != 1:
        raise InputError("nothing says which hardware", where="--gpu", hint=f"there are: {', '.join(names)}")
    return names[0]


def _names(project: Project) -> list[str]:
    """The hardware entry of .env, where it is one of env.yaml."""
    name = _values(project).get("TORCHYARD_HARDWARE", "")
    return [name] if name and project.plan.cell(name) is not None else []


def verified(project: Project, cell: Cell, found: Engine) -> str:
    """The digest of the entry's image; raises where it is not here, was not checked, or is not what was checked."""
    tag = render.tag(project.plan.project, cell.image)
    known = containers.describe(found, tag)
    mend = f"./yard build --gpu {cell.hardware}"
    if known is None:
        raise CheckFailed(f"{cell.image} is not built here", hint=mend)
    path = tiers.receipt_path(project.work, cell.image)
    told = _receipt(path, cell.image, mend)
    if not told.good:
        bad = [each for each in told.findings if each.state is State.FAIL]
        why = f"{bad[0].what}: expected {bad[0].expected}, seen {bad[0].seen}" if bad else "nothing in it was checked"
        raise CheckFailed(f"{cell.image} is not verified: {why}", where=str(path), hint=f"{mend}, then ./yard verify")
    if tuple(known["RootFS"]["Layers"]) != told.layers or (told.digest and told.digest != known["Id"]):
        raise CheckFailed(
            f"{tag} is {known['Id']}, and what was verified is {told.digest or told.layers[-1]}",
            where=str(path),
            hint=mend,
        )
    return str(known["Id"])


def _receipt(path: Path, image: str, mend: str) -> Receipt:
    if not path.is_file():
        raise CheckFailed(f"{image} is not verified: it has no receipt", where=str(path), hint=mend)
    try:
        return receipt.from_text(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckFailed(f"the receipt of {image} cannot be read: {error}", where=str(path), hint=mend) from error


def _services(profiles: Sequence[str]) -> tuple[list[str], list[str]]:
    """The services of these profiles, and those of them that end by themselves."""
    unknown = [name for name in profiles if name not in PROFILES]
    if unknown or not profiles:
        raise InputError(
            f"there is no profile {', '.join(unknown) or 'given'}", where="--profile", hint=f"of: {', '.join(PROFILES)}"
        )
    if set(JOBS) <= set(profiles):
        raise InputError("train and rehearse at once", where="--profile", hint="one after the other")
    services = [service for name in profiles for service in PROFILES[name]]
    return services, [service for name in profiles if name in JOBS for service in PROFILES[name]]


def _check_script(project: Project, words: Sequence[str]) -> None:
    if words and words[0] not in ("-m", "--module") and not (project.work.root / words[0]).is_file():
        raise InputError(
            f"there is no script {words[0]} in {project.work.root}",
            where="command line",
            hint="give its path from the repository's top: ./yard up -- train.py --lr 1e-3",
        )


def _stack(project: Project, found: Engine, made: Settings, given: dict[str, str]) -> Stack:
    values = _values(project)
    files = (
        f"compose/{made.entry.hardware}.yaml",
        f"compose/devices-{values['TORCHYARD_DEVICES']}.yaml",
        f"compose/limits-{values['TORCHYARD_LIMITS']}.yaml",
    )
    for file in files:
        if project.work.read(file) is None:
            raise CheckFailed(f"{file} is not there", where=file, hint="./yard render")
    return Stack(
        engine=found, root=project.work.root, name=values["COMPOSE_PROJECT_NAME"], files=files, variables=given
    )


def _tell(findings: Sequence[Finding], say: Say) -> None:
    for each in findings:
        match each.state:
            case State.FAIL:
                say(f"finding {each.rule}: {each.what}: {each.expected} is wanted, it is {each.seen}. {each.fix}")
            case State.SKIPPED:
                say(f"finding {each.rule}: {each.what}: {each.because}")
            case State.PASS:
                pass


def _addresses(made: Settings, ports: dict[str, str], say: Say) -> None:
    for service, name, default in stack.PORTS:
        if name not in ports:
            continue
        moved = "" if ports[name] == str(default) else f" (port {default} is in use)"
        query = f"/?token={made.variables['TORCHYARD_TOKEN']}" if service == "jupyter" else ""
        say(f"{service}: http://127.0.0.1:{ports[name]}{query}{moved}")


def _code(ended: Sequence[Ended], say: Say) -> int:
    """The exit code of the service that failed first, else 0."""
    bad = next((each for each in ended if each.code), None)
    if bad is None:
        return 0
    if bad.error:
        say(f"{bad.service}: {bad.error}")
    return bad.code
