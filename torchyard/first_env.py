"""A first env.yaml for a host: what it has, with comments that a stranger understands."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from torchyard import explain, rules
from torchyard.catalog import Catalog, Gpu
from torchyard.errors import InputError
from torchyard.plan import CellState

OS = "debian-12"

TASKS = '''\
"""The tasks of torchyard in this repository; `invoke --list` shows them."""

from torchyard.tasks import ns

__all__ = ["ns"]
'''

_FILE = """\
# yaml-language-server: $schema=schema/env.schema.json
#
# What you own and what you want installed: the only file that has to be edited. `torchyard matrix` shows which image
# each entry selects, `torchyard build --gpu NAME` builds it. Every key is in the schema above, with its meaning.

schema: 1
project: <project>

<sites># What you own. The names are yours: they are what --gpu takes.
hardware:
<hardware>

# What every image has, unless its entry says otherwise. Version numbers are always in quotes.
software:
  base: {from: archive, os: <os>}        # or {from: image, ref: "debian:12-slim"}
  python: "<python>"                              # the distribution's; or {version: "3.12", from: standalone}
  torch: "<torch>"
  cuda: auto                                  # the release's default build where GPU and driver allow it
  build: wheel

# Axes over the entries, for example {build: [wheel, source]}: one image for each entry and value.
matrix: {}

# What is in every image beside torch.
packages:
  apt: []                                     # names of distribution packages: [git, tmux]
  pip: []                                     # requirements, or a file that has them: requirements.txt
env: {}                                       # environment variables of the image
"""
_SITES = """\
# Where things run; the driver is what nvidia-smi prints there.
sites:
  here: {driver: "<driver>"}

"""
_NO_GPU = """
  # No NVIDIA GPU was seen on the machine where this file was written. An entry for each kind that you own:
  # rtx4090: {gpu: rtx-4090, count: 2}        # any name that nvidia-smi or the catalogue has for it
  # a100: {gpu: a100-sxm4-80gb, count: 8}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a host has: its CPU, its driver (empty for none) and the GPUs as name and memory in MiB."""

    arch: str = "x86_64"
    driver: str = ""
    gpus: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    gpu: str
    count: int
    torch: str
    cuda: str | None
    python: str


def text(seen: Seen, catalog: Catalog, project: str) -> str:
    """The file for this host; a GPU that no image serves, or that nobody knows, is in it as a comment."""
    driver = seen.driver if re.fullmatch(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,2})?", seen.driver) else ""
    known, unknown = _count(seen, catalog)
    served = {gpu.id: _entry(gpu, count, seen.arch, driver, catalog) for gpu, count in known.items()}
    entries = [entry for entry in served.values() if entry is not None]
    request = rules.Request(cuda="cpu", os=OS, python_from="distribution", arch=seen.arch)
    cpu = explain.complete(request, catalog).choice
    torch, python = (entries[0].torch, entries[0].python) if entries else (cpu.torch, cpu.python)
    lines = [f"  cpu: {{{_arch(seen.arch)}}}  # no gpu: a CPU image"]
    lines += [_line(entry, torch, seen.arch, bool(driver)) for entry in entries]
    lines += [
        f"  # {gpu} is here, and no image serves it: torchyard explain --gpu {gpu}"
        for gpu, e in served.items()
        if not e
    ]
    lines += [f"  # {_plain(name)} is here, and not in the catalogue: describe it in catalog.d" for name in unknown]
    values = {
        "project": slug(project),
        "sites": _SITES.replace("<driver>", driver) if driver else "",
        "hardware": "\n".join(lines) + ("" if seen.gpus else _NO_GPU),
        "os": OS,
        "python": python,
        "torch": torch,
    }
    return re.sub(r"<([a-z]+)>", lambda match: values[match[1]], _FILE)


def slug(name: str) -> str:
    """A name as a project can have it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "training"


def _plain(name: str) -> str:
    return "".join(c for c in name if c.isascii() and c.isprintable())[:80]


def _count(seen: Seen, catalog: Catalog) -> tuple[dict[Gpu, int], list[str]]:
    """The catalogue's GPUs with how many there are, and the names that it does not know."""
    known: dict[Gpu, int] = {}
    unknown: list[str] = []
    for (name, memory), count in Counter(seen.gpus).items():
        try:
            gpu = _gpu(name, memory, catalog)
        except InputError:
            unknown.append(name)
        else:
            known[gpu] = known.get(gpu, 0) + count
    return known, unknown


def _gpu(name: str, memory_mib: int, catalog: Catalog) -> Gpu:
    try:
        return catalog.gpu(name)
    except InputError:
        sizes = range(round(memory_mib / 1024), round(memory_mib / 1024) + 3)  # a driver reports a little less
        for size in sizes if memory_mib else ():
            try:
                return catalog.gpu(name, memory_gb=size)
            except InputError:
                continue
        raise


def _entry(gpu: Gpu, count: int, arch: str, driver: str, catalog: Catalog) -> _Entry | None:
    """The entry for this GPU with the newest torch that serves it here; None if none does."""
    request = rules.Request(gpus=(gpu.id,), os=OS, python_from="distribution", arch=arch, driver=driver or None)
    done = explain.complete(request, catalog)
    if done.state is CellState.REFUSED:
        return None
    default = catalog.builds_of(done.choice.torch, arch)
    cuda = done.choice.cuda if default and default[0].cuda != done.choice.cuda else None
    return _Entry(gpu=gpu.id, count=count, torch=done.choice.torch, cuda=cuda, python=done.choice.python)


def _line(entry: _Entry, torch: str, arch: str, site: bool) -> str:
    parts = [f"gpu: {entry.gpu}", f"count: {entry.count}", _arch(arch), "site: here" if site else ""]
    parts += [f'torch: "{entry.torch}"' if entry.torch != torch else "", f'cuda: "{entry.cuda}"' if entry.cuda else ""]
    return f"  {entry.gpu}: {{{', '.join(part for part in parts if part)}}}"


def _arch(arch: str) -> str:
    return "" if arch == "x86_64" else f"arch: {arch}"
