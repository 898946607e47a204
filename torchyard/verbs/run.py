"""run and shell: a command in the image of a hardware entry, with the entry's devices, shared memory and limits."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import receipt, render
from ..errors import CheckFailed, Surroundings
from ..launch import limits
from ..plan import Cell
from ..world import containers, devices, engine, gpu_access, process
from ..world.engine import Engine
from ..world.workspace import Workspace, write_whole
from . import tiers
from .project import Project, chosen_cell

WORKSPACE = "/workspace"


def run(project: Project, gpu: str, argv: Sequence[str], *, say: Callable[[str], None]) -> int:
    """Run a command in the image that this entry selects; answers its exit code. The current folder is mounted."""
    cell = chosen_cell(project.plan, gpu)
    found = engine.ensure(say)
    image = _reference(project, cell, found)
    containers.sweep(found, say)
    name = f"torchyard-run-{containers.owner()}"
    options = _options(project.work, cell, found, name, say)
    try:
        return process.attached([*found.docker, "run", *options, image, *argv], env=found.env)
    finally:
        containers.remove(found, name)


def shell(project: Project, gpu: str, *, say: Callable[[str], None]) -> int:
    """An interactive shell in the image, in an environment on top of the locked one in which pip installs freely."""
    overlay = f"{WORKSPACE}/.torchyard/overlay/{chosen_cell(project.plan, gpu).image}"
    script = f'overlay {overlay} && . {overlay}/bin/activate && exec bash "$@"'
    return run(project, gpu, ["bash", "-c", script, "bash"], say=say)


def _reference(project: Project, cell: Cell, found: Engine) -> str:
    """The image to run, by digest where a receipt has one; raises where it is not built."""
    tag = render.tag(project.plan.project, cell.image)
    known = containers.describe(found, tag)
    if known is None:
        raise CheckFailed(f"{cell.image} is not built here", hint=f"./yard build --gpu {cell.hardware}")
    path = tiers.receipt_path(project.work, cell.image)
    if path.is_file():
        told = _receipt(path, cell)
        if told.digest and told.digest != known["Id"]:
            raise CheckFailed(
                f"{tag} is {known['Id']}, the receipt says {told.digest}",
                where=str(path),
                hint=f"./yard build --gpu {cell.hardware}",
            )
    return str(known["Id"])


def _receipt(path: Path, cell: Cell) -> receipt.Receipt:
    try:
        return receipt.from_text(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckFailed(
            f"the receipt of {cell.image} cannot be read: {error}",
            where=str(path),
            hint=f"./yard build --gpu {cell.hardware}",
        ) from error


def mount(source: Path, target: str, *more: str) -> list[str]:
    """The option of `docker run` that binds a file or folder, whatever its path holds: --volume splits it at colons."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}", *more])
    return ["--mount", stream.getvalue()]


def _options(work: Workspace, cell: Cell, found: Engine, name: str, say: Callable[[str], None]) -> list[str]:
    if not found.docker:
        raise Surroundings("no docker client is on this machine", hint=engine.INSTALL)
    uid, gid = os.getuid(), os.getgid()
    passwd, group = _accounts(work, uid, gid)
    here = Path.cwd()
    inside = WORKSPACE if here == work.root else f"{WORKSPACE}/{here.relative_to(work.root).as_posix()}"
    options = [
        "--rm",
        "--name",
        name,
        "--label",
        f"{containers.LABEL}={containers.owner()}",
        "--user",
        f"{uid}:{gid}",
        "--init",
    ]
    options += [*mount(work.root, WORKSPACE), "--workdir", inside]
    options += [*mount(passwd, "/etc/passwd", "readonly"), *mount(group, "/etc/group", "readonly")]
    options += ["--shm-size", str(limits.shared_memory(devices.memory(), max(cell.count, 1)))]
    options += [part for limit in limits.ulimits(may_raise=devices.may_raise_limits()) for part in ("--ulimit", limit)]
    if cell.gpus:
        options += gpu_access.options(found, cell.count, say)
    if sys.stdin.isatty() and sys.stdout.isatty():
        options += ["--interactive", "--tty"]
    elif not sys.stdin.isatty():
        options += ["--interactive"]
    return options


def _accounts(work: Workspace, uid: int, gid: int) -> tuple[Path, Path]:
    """passwd and group files in which the caller has a name."""
    folder = work.local / "run"
    users = {0: "root:x:0:0:root:/root:/bin/bash", 65534: "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"}
    groups = {0: "root:x:0:", 65534: "nogroup:x:65534:"}
    users.setdefault(uid, f"user:x:{uid}:{gid}:user:/home/user:/bin/bash")
    groups.setdefault(gid, f"user:x:{gid}:")
    write_whole(folder / "passwd", "".join(f"{line}\n" for line in users.values()).encode())
    write_whole(folder / "group", "".join(f"{line}\n" for line in groups.values()).encode())
    return folder / "passwd", folder / "group"
