"""The commands of the small project, each run through once: what a faulty run is measured by."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import kill_points
import yaml
from small_project import Small

from torchyard import lock, receipt
from torchyard.finding import Finding, State
from torchyard.receipt import Level, Receipt, Tier
from torchyard.world import engine, registry_taking
from torchyard.world.store import Store

RUNNER = Path(kill_points.__file__)
NUMBERS = itertools.count(1)
PASSING = (".torchyard/context/", "out.oci/")  # folders that are made anew beside the old one, which then goes


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command, and the state of the project that it begins with and that it ends with."""

    arguments: tuple[str, ...]
    begins: Small
    ends: Small
    before: dict[str, str]
    after: dict[str, str]
    sites: list[str]


def prepare_render(at: Small) -> None:
    """What a change of a template leaves to do: other bytes in the one file, another file is missing."""
    image = at.image()
    (at.root / "images" / image / "Dockerfile").write_text("# an older one\n")
    (at.root / "images" / "docker-bake.json").unlink()


def prepare_push(at: Small) -> None:
    """What a build leaves: an image of the base and the framework in the store, and its receipt."""
    image = at.image()
    layout = at.local / "context" / image / "base"
    index = json.loads((layout / "index.json").read_text())
    for blob in (layout / "blobs" / "sha256").iterdir():
        registry_taking.keep(blob.read_bytes(), Store(at.store))
    digest = index["manifests"][0]["digest"]
    result = registry_taking.stored(digest, Store(at.store))
    assert result is not None
    text = (at.root / "images" / image / "lock.yaml").read_text()
    good = Finding(rule="torch.import", state=State.PASS, what="torch loads", expected="no error", seen="/torch")
    made = Receipt(
        image=image,
        tag=f"small:{image}",
        digest=digest,
        layers=registry_taking.layer_ids(result, Store(at.store)),
        lock=sha256(text.encode()).hexdigest(),
        fingerprint=lock.from_text(text, name="lock.yaml").fingerprint,
        buildkit="0.12",
        tiers=(Tier(level=Level.IDENTITY, checks="1", findings=(good,)),),
        size=0,
    )
    (at.local / "receipts").mkdir()
    (at.local / "receipts" / f"{image}.json").write_text(receipt.to_text(made))


def prepare_pull(at: Small) -> None:
    """A machine that has the record alone, and an older layout in the place of the new one."""
    shutil.rmtree(at.store)
    (at.root / "out.oci").mkdir()
    for name in ("oci-layout", "index.json"):
        (at.root / "out.oci" / name).write_text("{}")


def prepare_bundle(at: Small) -> None:
    """An older archive in the place of the new one."""
    (at.root / "out.tar").write_bytes(b"an older one")


def prepare_load(at: Small) -> None:
    """A checkout that has the archive and nothing else."""
    shutil.rmtree(at.store)
    shutil.rmtree(at.local / "receipts")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, the command that has run before it, and what else there is to be done."""

    arguments: tuple[str, ...]
    after: str = ""
    prepare: Callable[[Small], None] = lambda _: None


COMMANDS = {
    "lock": Command(arguments=("lock", "--gpu", "cpu")),
    "fetch": Command(arguments=("fetch", "--gpu", "cpu"), after="lock"),
    "render": Command(arguments=("render",), after="lock", prepare=prepare_render),
    "build": Command(arguments=("build", "--gpu", "cpu", "--level", "identity", "--no-cache"), after="fetch"),
    "push": Command(arguments=("push", "--gpu", "cpu", "--registry", "one"), after="fetch", prepare=prepare_push),
    "pull": Command(
        arguments=("pull", "--gpu", "cpu", "--to", "oci", "--output", "out.oci"), after="push", prepare=prepare_pull
    ),
}


# More that is tried with full disks.
MORE = {
    "bundle": Command(
        arguments=("bundle", "--gpu", "cpu", "--finished", "--output", "out.tar"), after="push", prepare=prepare_bundle
    ),
    "load": Command(arguments=("load", "out.tar"), after="bundle", prepare=prepare_load),
}
ON_ENGINE = ("build", "load")


class Cases(dict[str, Case]):
    """Every command, run through once when it is asked for; only those of ON_ENGINE need an engine."""

    def __init__(self, small: Small) -> None:
        super().__init__()
        self.small = small

    def __missing__(self, name: str) -> Case:
        command = {**COMMANDS, **MORE}[name]
        start = self[command.after].ends if command.after else self.small
        if name in ON_ENGINE:
            engine.ensure(print)
        begins = start.copy(f"before-{name}")
        command.prepare(begins)
        ends = begins.copy(f"after-{name}")
        code, log, err = run(ends, "-", "-", command.arguments)
        assert code == 0, err
        self[name] = Case(
            arguments=command.arguments,
            begins=begins,
            ends=ends,
            before=begins.files(),
            after=ends.files(),
            sites=kill_points.sites(log),
        )
        return self[name]


def run(at: Small, where: str, how: str, arguments: tuple[str, ...]) -> tuple[int, Path, str]:
    """Exit code, log and error output of a command under watch."""
    log = at.root.parent / f"log-{next(NUMBERS)}"
    child = at.start(str(log), where, how, *arguments, program=[str(RUNNER)])
    _, err = child.communicate()
    return child.returncode, log, err


def own_registry(at: Small) -> Small:
    """The checkout with a repository of its own, where nothing was pushed yet."""
    mirrors = yaml.safe_load((at.home / "mirrors.yaml").read_text())
    host = mirrors["mirrors"]["registry"]["one"].partition("/")[0]
    mirrors["mirrors"]["registry"]["one"] = f"{host}/{at.root.name}"
    path = at.root.parent / f"{at.root.name}.yaml"
    path.write_text(yaml.safe_dump(mirrors))
    return replace(at, env={**at.env, "TORCHYARD_MIRRORS": str(path)})


def wrong(at: Small, case: Case) -> list[str]:
    """Files that are neither absent, nor as they were before, nor as the whole command leaves them."""
    told = []
    for name, seen in at.files().items():
        path = Path(name)
        if unfinished(path):
            continue
        if path.parts[:2] == (".torchyard", "store"):
            right = seen == path.name
        else:
            right = seen in (case.before.get(name), case.after.get(name))
        told += [] if right else [name]
    kept = [name for name in case.before if name in case.after and not name.startswith(PASSING)]
    return told + [f"{name} is gone" for name in kept if not (at.root / name).is_file()]


def unfinished(path: Path) -> bool:
    """Whether a name says that the file is on its way; the next command removes it."""
    return any(part == "incoming" or ".unfinished-" in part for part in path.parts)


def difference(seen: dict[str, str], expected: dict[str, str]) -> list[str]:
    """The files that two states have otherwise."""
    return sorted(name for name in {*seen, *expected} if seen.get(name) != expected.get(name))
