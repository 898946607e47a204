"""The invoke tasks: parse, call one verb, show."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit as InvokeExit
from invoke.tasks import Task, task

from .errors import Exit, Surroundings, YardError

# What a disk or its rights answer: not a mistake of ours, wherever it comes from.
_DISK = {
    errno.ENOSPC: "",  # what frees some is said where the disks are looked at
    errno.EDQUOT: "free some of this user's quota",
    errno.EROFS: "work in a copy that can be written",
    errno.EACCES: "give this user the right, or work in a copy of your own",
    errno.EPERM: "give this user the right, or work in a copy of your own",
    errno.EIO: "look at the disk: the kernel's log tells more",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENAMETOOLONG: "work in a folder with a shorter path",
    errno.ELOOP: "look where its links lead",
}


def surroundings(error: OSError) -> Surroundings | None:
    """What a disk that is full or forbidden means to the user; None for every other error."""
    if error.errno not in _DISK or isinstance(error, BrokenPipeError):
        return None
    place = str(error.filename or "")
    rooms, free = _rooms(place) if error.errno == errno.ENOSPC else ("", "")
    return Surroundings(f"{place or 'a file'}: {error.strerror}{rooms}", where=place, hint=_DISK[error.errno] or free)


def _rooms(place: str) -> tuple[str, str]:
    """What is free where something was to be written and on each other disk that commands write to; what frees some."""
    from pathlib import Path

    from . import report
    from .world import disks

    near = next((each for each in (Path(place), *Path(place).parents) if each.is_dir()), Path())
    told = ", ".join(f"{report.size(free)} in {each}" for each, free in disks.rooms(near).items())
    return f" (free: {told})", disks.FREE


def verb(body: Callable[..., Any]) -> Callable[..., Any]:
    """A task body whose problems are printed in one place and become the exit code."""

    @functools.wraps(body)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        from . import report

        sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)  # invoke switches it off for every command
        try:
            return body(*args, **kwargs)
        except YardError as problem:
            report.error(problem)
            raise InvokeExit(code=int(problem.code)) from problem
        except KeyboardInterrupt as interrupt:
            report.say("\ninterrupted; nothing half-made was kept")
            raise InvokeExit(code=int(Exit.INTERRUPTED)) from interrupt
        except OSError as error:
            found = surroundings(error)
            if found is None:
                raise
            report.error(found)
            raise InvokeExit(code=int(found.code)) from error

    return guarded


def remainder(joined: str) -> list[str]:
    """The words after `--` as they were typed; invoke hands them on joined by spaces, without their quotes."""
    import shlex

    typed = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return typed if " ".join(typed) == joined else shlex.split(joined)


GPU = "a hardware entry of env.yaml, for example a100"
ID = "an image id, for example torch2.14.1-cu130-py311-debian12-amd64"
JSON = "print JSON for machines"


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "no-cache": "execute every step again",
        "frozen": "never lock",
        "offline": "never lock and never fetch: what is missing is said at once",
        "dev": "the dev target too",
        "level": "how far to look at what was built: identity, static or cpu",
    }
)
@verb
def build(
    c: Context,
    gpu: str = "",
    id: str = "",
    no_cache: bool = False,
    frozen: bool = False,
    dev: bool = False,
    offline: bool = False,
    level: str = "cpu",
) -> None:
    """Build and check images: lock if needed, fetch, build, verify, receipt. Example: build --gpu a100"""
    from .verbs import build as building
    from .verbs import show
    from .verbs import up as stacks
    from .verbs.project import load, select

    project = load()
    options = building.Options(no_cache=no_cache, frozen=frozen, dev=dev, offline=offline, level=level)
    made, found = building.build(project, select(project, gpu=gpu, image_id=id), options, say=show.say)
    stacks.remember(project, made, gpu=gpu, say=show.say, found=found)
    show.receipts(project, made)


@task(
    help={"gpu": GPU, "id": ID, "check": "only say what is stale", "upgrade": "`os`, or the name of one pinned package"}
)
@verb
def lock(c: Context, gpu: str = "", id: str = "", check: bool = False, upgrade: str = "") -> None:
    """Pin everything of every image. Example: lock --upgrade os"""
    from .verbs import lock as locking
    from .verbs import show
    from .verbs.project import load, select

    project = load()
    images = select(project, gpu=gpu, image_id=id)
    if check:
        locking.raise_if_stale(locking.check(project, images, say=show.say))
        return show.say("every lock is fresh, and the archives have all that it pins")
    return show.locked(locking.lock(project, images, upgrade=upgrade, say=show.say))


@task(help={"gpu": GPU, "id": ID})
@verb
def fetch(c: Context, gpu: str = "", id: str = "") -> None:
    """Have everything that the locks pin in the store, ready to build without a network. Example: fetch --gpu cpu"""
    from .verbs import fetch as fetching
    from .verbs import show
    from .verbs.project import fresh_lock, load, select

    project = load()
    locks = [fresh_lock(project.work, image) for image in select(project, gpu=gpu, image_id=id)]
    show.fetched(project, locks, fetching.fetch(project, locks, say=show.say))


@task(help={"check": "only say what differs; write nothing"})
@verb
def render(c: Context, check: bool = False) -> None:
    """Write the Dockerfiles and bake targets that follow from the locks. Example: render --check"""
    from .verbs import render as rendering
    from .verbs import show
    from .verbs.project import load

    project = load()
    if check:
        rendering.check(project)
        return show.say("every generated file is what its lock and templates make")
    return show.written(rendering.render(project))


@task(
    help={
        "up": "set up or start it",
        "down": "stop the private engine",
        "status": "how it is",
        "env": "lines for a shell",
        "purge": "with --down: remove it and its images",
        "json": JSON,
    }
)
@verb
def engine(
    c: Context,
    up: bool = False,
    down: bool = False,
    status: bool = False,
    env: bool = False,
    purge: bool = False,
    json: bool = False,
) -> None:
    """The container engine that builds use. Example: engine --status"""
    from .verbs import show

    show.engine(up=up, down=down, env=env, purge=purge, as_json=json)


@task(help={"gpu": GPU}, auto_shortflags=False)
@verb
def run(c: Context, gpu: str) -> None:
    """Run a command in an image, with the entry's devices and limits. Example: run --gpu a100 -- python train.py"""

    from .verbs import run as running
    from .verbs import show
    from .verbs.project import load

    sys.exit(running.run(load(), gpu, remainder(c.remainder) or ["bash"], say=show.say))


@task(help={"gpu": GPU}, auto_shortflags=False)
@verb
def shell(c: Context, gpu: str) -> None:
    """Open a shell in an image, where pip installs freely on top of what is locked. Example: shell --gpu a100"""

    from .verbs import run as running
    from .verbs import show
    from .verbs.project import load

    sys.exit(running.shell(load(), gpu, say=show.say))


@task(
    help={
        "gpu": f"{GPU}; else the one of .env",
        "devices": "these GPUs of the entry, for example 0,1 (a MIG slice: 0:0, or its UUID)",
        "processes": "ranks; else one a GPU, and 2 without GPUs",
        "profile": "train, rehearse (two nodes as containers), jupyter, tensorboard, monitor; several with commas",
    },
    auto_shortflags=False,
)
@verb
def up(c: Context, gpu: str = "", devices: str = "", processes: int = 0, profile: str = "train") -> None:
    """Train on all GPUs of an entry, with compose. Example: up --gpu rtx4090 -- my_train.py --lr 1e-3"""

    from .verbs import show
    from .verbs import up as stacks
    from .verbs.project import load

    options = stacks.Options(profiles=names(profile), devices=names(devices), processes=processes)
    sys.exit(stacks.up(load(), gpu, remainder(c.remainder), options, say=show.say))


@task
@verb
def down(c: Context) -> None:
    """End this clone's stack and remove its containers and networks. Example: down"""
    from .verbs import show
    from .verbs import up as stacks
    from .verbs.project import load

    stacks.down(load(), say=show.say)


@task(
    help={
        "json": JSON,
        "github": "a GitHub Actions matrix of images",
        "gitlab": "a GitLab CI matrix of images",
        "since": "with --github or --gitlab: only images whose lock changed since this commit",
        "storage": "what a registry and a node hold for all images together",
    }
)
@verb
def matrix(
    c: Context, json: bool = False, github: bool = False, gitlab: bool = False, since: str = "", storage: bool = False
) -> None:
    """Show which image each hardware entry selects, who shares it, and what is refused. Example: matrix --json"""
    from .verbs import show
    from .verbs.project import load

    if storage:
        from .verbs import storage as storing

        return storing.show(load(), as_json=json)
    if github or gitlab:
        return show.ci_matrix(load(), style="github" if github else "gitlab", since=since)
    return show.matrix(load(), as_json=json)


@task(help={"gpu": GPU, "id": ID, "json": JSON})
@verb
def plan(c: Context, gpu: str = "", id: str = "", json: bool = False) -> None:
    """Say which images a change would rebuild, how much is fetched, roughly how long; change nothing. Example: plan"""
    from .verbs import show
    from .verbs.project import load, select

    project = load()
    show.planned(project, select(project, gpu=gpu, image_id=id), as_json=json)


@task
@verb
def init(c: Context) -> None:
    """Write a first env.yaml for this host, and what goes beside it. Example: init"""
    from pathlib import Path

    from .verbs import show

    show.started(Path.cwd())


@task(
    help={
        "gpu": "any name of the catalogue, or several with commas",
        "torch": "for example 2.14.1",
        "cuda": "for example 13.0, cu130 or cpu",
        "cudnn": "for example 9.24.0.43",
        "python": "for example 3.11",
        "blas": "mkl or openblas",
        "build": "wheel or source",
        "os": "for example debian-12",
        "arch": "x86_64 or aarch64",
        "driver": "for example 580.65.06",
        "compression": "of layers: gzip or zstd, with --entry NAME for what reads them at its site",
        "entry": "take what is not given from this hardware entry of env.yaml",
        "requests": "a file with one JSON request a line (- for standard input); one verdict a line",
        "json": JSON,
    },
    auto_shortflags=False,
)
@verb
def explain(
    c: Context,
    gpu: str = "",
    torch: str = "",
    cuda: str = "",
    cudnn: str = "",
    python: str = "",
    blas: str = "",
    build: str = "",
    os: str = "",
    arch: str = "",
    driver: str = "",
    compression: str = "",
    entry: str = "",
    requests: str = "",
    json: bool = False,
) -> None:
    """Say whether a combination works, and what does instead. Example: explain --gpu h100 --cuda 11.7"""

    from . import report
    from .verbs import explain as explaining

    root = explaining.root()
    if requests:
        return report.lines(explaining.run_requests(root, requests))
    asked = {"torch": torch, "cuda": cuda, "cudnn": cudnn, "python": python, "blas": blas, "build": build, "os": os}
    asked |= {"arch": arch, "driver": driver, "compression": compression}
    done = explaining.run(root, explaining.request(root, gpu, asked, entry))
    report.lines([explaining.show_json(done) if json else explaining.show(root, done)])
    sys.exit(int(explaining.exit_code(done)))


@task(
    name="inspect",
    help={"wheel": "the file of a torch or extension wheel", "write": "put the rows in catalog.d/NAME.yaml"},
)
@verb
def catalog_inspect(c: Context, wheel: str, write: str = "") -> None:
    """Read CUDA, pins, Python, glibc and device code out of a wheel. Example: catalog inspect torch.whl"""
    from . import report
    from .verbs import catalog as catalogs
    from .verbs import explain

    seen = catalogs.inspect(explain.root(), wheel)
    report.lines([catalogs.told(seen)])
    if write:
        report.lines([f"wrote {catalogs.write(explain.root(), write, seen.rows)}"])


@task(name="refresh")
@verb
def catalog_refresh(c: Context) -> None:
    """Propose rows for what the indexes offer and the catalogue does not say, as a diff. Example: catalog refresh"""
    from . import report
    from .verbs import catalog as catalogs
    from .verbs import explain

    report.lines([catalogs.refresh(explain.root()) or "the catalogue says all that the indexes offer"])


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "image": "any image of the engine, measured by the lock that its label, --id or --gpu names",
        "level": "static: files only, nothing is started; cpu: also in containers; gpu: also on the entry's GPUs",
        "require-gpu": "with --level gpu: where no GPU can be had, fail instead of skipping",
        "json": JSON,
        "junit": "also write a JUnit file here",
        "attest": "the digest of a pushed image: pull it, verify it, put the findings beside it in its registries",
    },
    auto_shortflags=False,
)
@verb
def verify(
    c: Context,
    gpu: str = "",
    id: str = "",
    image: str = "",
    level: str = "",
    require_gpu: bool = False,
    json: bool = False,
    junit: str = "",
    attest: str = "",
) -> None:
    """Say whether images are what their locks say, one finding a check. Example: verify --gpu a100"""

    from .verbs import attest as attesting
    from .verbs import show
    from .verbs import verify as verifying
    from .verbs.project import load, select

    project = load()
    options = verifying.Options(level=level, hardware=gpu, require_gpu=require_gpu)
    if attest:
        verifying.check_alone(attest, id, image)
        attested = attesting.attest(project, attest, options, say=show.say)
        sys.exit(int(verifying.show([attested], as_json=json, junit_file=junit)))
    chosen = select(project, gpu=gpu, image_id=id) if gpu or id or not image else []
    if image:
        one = chosen[0] if chosen else None
        found = [verifying.verify_reference(project, image, one, options, say=show.say)]
    else:
        found = verifying.verify(project, chosen, options, say=show.say)
    sys.exit(int(verifying.show(found, as_json=json, junit_file=junit)))


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "compare": "two images (--compare A B): OCI layouts, archives of `docker save`, or images of the engine",
        "epoch": "with --compare: the latest time that may be in an image, in seconds (else what the images say)",
        "diffoscope": "let diffoscope, which has to be installed, look at files that differ",
        "json": JSON,
    },
    iterable=["compare"],
    auto_shortflags=False,
)
@verb
def reproduce(
    c: Context,
    compare: list[str],
    gpu: str = "",
    id: str = "",
    epoch: str = "",
    diffoscope: bool = False,
    json: bool = False,
) -> None:
    """Build again in an empty builder and compare, or compare two images. Example: reproduce --gpu a100"""

    from .verbs import differences_shown, show
    from .verbs import reproduce as again
    from .verbs.project import load, select

    if compare:
        seen = again.compare(compare, epoch=again.number(epoch), look=diffoscope, say=show.say)
        sys.exit(int(differences_shown.compared(seen, as_json=json)))
    project = load()
    done = again.reproduce(project, select(project, gpu=gpu, image_id=id), look=diffoscope, say=show.say)
    sys.exit(int(differences_shown.reproduced(done, as_json=json)))


@task(help={"all": "also everything that the locks pin: it is fetched again when it is needed"})
@verb
def clean(c: Context, all: bool = False) -> None:
    """Free what this project keeps locally and no lock pins any more. Example: clean --all"""
    from . import report
    from .verbs import clean as cleaning
    from .verbs.project import load

    report.lines([f"freed {report.size(cleaning.clean(load(), everything=all, say=report.say))}"])


REGISTRY = "a site of env.yaml that has a registry, or a registry of the mirrors file; several with commas"


def names(text: str) -> tuple[str, ...]:
    """The words of a list with commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "all": "every image of env.yaml; what they share is sent once",
        "registry": REGISTRY,
        "override": "why the image goes although its findings do not let it; kept in the record",
        "sign": "a private key, or `keyless`: sign the image with cosign, which has to be there",
        "identity-token": "with --sign keyless: a file with the OIDC token that says who signs",
    },
    auto_shortflags=False,
)
@verb
def push(
    c: Context,
    gpu: str = "",
    id: str = "",
    all: bool = False,
    registry: str = "",
    override: str = "",
    sign: str = "",
    identity_token: str = "",
) -> None:
    """Put images into registries, with findings, SBOM and provenance. Example: push --gpu a100"""
    from .errors import InputError
    from .verbs import push as pushing
    from .verbs import show
    from .verbs.project import load, select

    if not (gpu or id or all):
        raise InputError("nothing says which image to push", hint="give --gpu, --id or --all")
    project = load()
    options = pushing.Options(registries=names(registry), override=override, sign=sign, identity_token=identity_token)
    pushing.show(pushing.push(project, select(project, gpu=gpu, image_id=id), options, say=show.say))


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "digest": "any image of this project, by its manifest digest",
        "registry": REGISTRY,
        "to": "docker, podman, oci, sif or sqsh; what is there where it is not given",
        "output": "the file or folder to make",
        "require": "the least level that findings in the registry prove: identity, static, cpu or gpu",
        "verify": "a public key, or `keyless`: take only what cosign finds signed so",
        "identity": "with --verify keyless: who has to have signed, for example an address of mail or a workflow",
        "identity-like": "the same as a regular expression, which has to match all of it",
        "issuer": "with --verify keyless: the address of who vouches for the identity",
        "issuer-like": "the same as a regular expression",
    },
    auto_shortflags=False,
)
@verb
def pull(
    c: Context,
    gpu: str = "",
    id: str = "",
    digest: str = "",
    registry: str = "",
    to: str = "",
    output: str = "",
    require: str = "",
    verify: str = "",
    identity: str = "",
    identity_like: str = "",
    issuer: str = "",
    issuer_like: str = "",
) -> None:
    """Take an image by digest out of a registry, checked, to where it runs. Example: pull --gpu a100 --to sif"""
    from .verbs import pull as pulling
    from .verbs import show
    from .verbs.project import load

    signed_by = {"identity": identity, "identity_like": identity_like, "issuer": issuer, "issuer_like": issuer_like}
    options = pulling.Options(
        to=to, output=output, registries=names(registry), require=require, verify=verify, signed_by=signed_by
    )
    pulling.show(pulling.run(load(), gpu, id, digest, options, say=show.say))


@task(
    help={
        "gpu": GPU,
        "id": ID,
        "finished": "the image itself, as it was built here, instead of what it is made of",
        "output": "the archive to write",
    },
    auto_shortflags=False,
)
@verb
def bundle(c: Context, gpu: str = "", id: str = "", finished: bool = False, output: str = "") -> None:
    """Make one archive that builds the same image without a network. Example: bundle --gpu a100"""
    from .verbs import bundle as bundling
    from .verbs import show
    from .verbs.project import load, select

    project = load()
    images = select(project, gpu=gpu, image_id=id)
    bundling.run(project, images, finished=finished, output=output, say=show.say)


@task(help={"file": "an archive that bundle made"})
@verb
def load(c: Context, file: str) -> None:
    """Take over an archive that bundle made. Example: load torch2.14.1-cu130-py311-debian12-amd64-20261129.tar"""
    from pathlib import Path

    from .verbs import load as loading
    from .verbs import show
    from .verbs.project import load as read

    loading.show(loading.load(read(), Path(file), say=show.say))


def collection(*more: Any) -> Collection:
    """Every task, under the names that people type, and those of a project's own tasks.py."""
    catalog = Collection("catalog", catalog_inspect, catalog_refresh)
    inner = set(catalog.tasks.values())
    found = [value for value in globals().values() if isinstance(value, Task) and value not in inner]
    return Collection(*found, catalog, *more)


ns = collection()
