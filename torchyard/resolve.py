"""The matrix and the catalogue as a Plan: every cell decided, and the images that the cells select."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torchyard import explain, rules
from torchyard import source as switches
from torchyard.catalog import Catalog
from torchyard.errors import Incompatible, InputError, YardError, raise_all
from torchyard.ids import image_id, set_name
from torchyard.matrix.parse import UNNAMED, know_all
from torchyard.matrix.shape import Known
from torchyard.matrix.values import AUTO, Matrix, Software, WantedCell
from torchyard.plan import BuildKind, Cell, CellState, Compression, Image, PackageSet, Plan, SourceBuild, Verdict
from torchyard.yaml_source import Located, nearest

_MARCH = {"x86_64": "x86-64-v3", "aarch64": "armv8.2-a"}
# A key of a request, and the key of env.yaml that says it.
_KEYS = {
    "cuda": "cuda", "cudnn": "cudnn", "torch": "torch", "packages": "torchvision", "python": "python",
    "python_from": "python", "os": "base", "blas": "blas", "build": "build", "gcc": "source", "arch_list": "source",
    "driver": "driver", "mig": "mig", "memory_gb": "memory_gb", "arch": "arch", "gpu": "gpu", "gpus": "gpu",
    "compression": "compression",
}  # fmt: skip


def names(catalog: Catalog) -> Known:
    """Who knows the names of env.yaml: GPUs, distributions and rules of this catalogue."""

    def known(kind: str, name: str) -> tuple[str, str] | None:
        match kind:
            case "gpu":
                return _complaint(lambda: catalog.gpu(name))
            case "os":
                return _complaint(lambda: catalog.distribution(name))
            case "rule":
                ids = [rule.id for rule in rules.RULES]
                return (
                    None
                    if name in ids
                    else (f"there is no rule {name!r}", nearest(name, ids) or f"one of {', '.join(ids)}")
                )
            case "flag":
                return switches.complaint(name, catalog.switches())
            case "consumer":
                program, ids = name.partition(" ")[0], [row.consumer for row in catalog.consumers()]
                told = f"there is nothing known of {program!r}", nearest(program, ids) or f"one of {', '.join(ids)}"
                return None if program in ids else told
            case _:
                return know_all(kind, name)

    return known


def _complaint(look: Callable[[], object]) -> tuple[str, str] | None:
    try:
        look()
    except InputError as error:
        return error.what, error.hint
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decided:
    """A cell with the image that it selects, if any."""

    cell: Cell
    image: Image | None


def plan(matrix: Matrix, catalog: Catalog) -> Plan:
    """Every cell decided; a refused one is in the plan with its verdicts, only wrong names raise."""
    problems: list[YardError] = []
    decided: list[_Decided] = []
    for wanted in matrix.cells:
        try:
            decided.append(_decide(wanted, matrix, catalog))
        except YardError as error:
            found = [_placed(each, matrix, wanted) for each in error.problems()]
            told = {(each.what, each.where) for each in problems}  # a switch of the file is one for every cell
            problems += [each for each in found if (each.what, each.where) not in told]
    problems += _unused_allows(matrix, decided)
    raise_all(sorted(problems, key=_order))
    images: dict[str, Image] = {}
    jobs: dict[str, int] = {}
    for wanted, each in zip(matrix.cells, decided, strict=True):
        if each.image is not None and each.image.source is not None and wanted.source.jobs:
            jobs[each.image.id] = min(wanted.source.jobs, jobs.get(each.image.id, wanted.source.jobs))
        if each.image is not None and images.setdefault(each.image.id, each.image) != each.image:
            raise AssertionError(f"two images of one id: {each.image} and {images[each.image.id]}")
    return Plan(
        project=matrix.project,
        cells=tuple(each.cell for each in decided),
        images=tuple(images[key] for key in sorted(images)),
        jobs=tuple((key, str(jobs[key])) for key in sorted(jobs)),
    )


def refusal(cell: Cell) -> Incompatible:
    """The error for a refused cell: the broken rules, the cell's place, and the nearest thing that works."""
    broken = [v for v in cell.verdicts if not v.ok and not v.allowed and not v.unproven]
    what = "; ".join(f"{v.what} ({v.rule})" for v in broken) or "no combination fits"
    return Incompatible(f"{cell.hardware} is refused: {what}", where=cell.where, hint=cell.nearest)


def _decide(wanted: WantedCell, matrix: Matrix, catalog: Catalog) -> _Decided:
    allow = {a.rule: a.reason for a in matrix.allow if a.hardware == wanted.hardware.name and not a.image}
    request = _request(wanted)
    done = explain.complete(request, catalog, allow=allow, runners_up=False)
    image = _image(wanted, done, catalog)
    by_image = {
        a.rule: a.reason for a in matrix.allow if a.image == image.id and a.hardware in ("", wanted.hardware.name)
    }
    if by_image:
        done = explain.complete(request, catalog, allow={**allow, **by_image}, runners_up=False)
        image = _image(wanted, done, catalog)
    raise_all(list(_switch_problems(wanted, image, matrix, catalog)))
    refused = done.state is CellState.REFUSED
    cell = Cell(
        hardware=wanted.hardware.name,
        gpus=done.choice.gpus,
        compute_capability=done.choice.compute_capability,
        count=wanted.hardware.count,
        site=wanted.hardware.site,
        choice=wanted.choice,
        default=wanted.default,
        state=done.state,
        image="" if refused else image.id,
        driver_min=done.driver_min,
        verdicts=done.verdicts,
        nearest=done.nearest.words() if refused and done.nearest is not None else "",
        where=matrix.where(_refused_path(wanted, matrix, done.verdicts) if refused else wanted.path),
        candidate=image if refused else None,
    )
    return _Decided(cell=cell, image=None if refused else image)


def question(matrix: Matrix, hardware: str) -> rules.Request:
    """What the default cell of a hardware entry asks of the catalogue (InputError for an unknown entry)."""
    wanted = next((cell for cell in matrix.cells if cell.hardware.name == hardware and cell.default), None)
    if wanted is None:
        names = list(dict.fromkeys(cell.hardware.name for cell in matrix.cells))
        hint = nearest(hardware, names) or f"there are: {', '.join(names)}"
        raise InputError(f"env.yaml has no hardware entry {hardware!r}", where="env.yaml  hardware", hint=hint)
    return _request(wanted)


def _request(wanted: WantedCell) -> rules.Request:
    """The question to the catalogue; what the file leaves open stays open."""
    hardware, software, source = wanted.hardware, wanted.software, wanted.source
    compiled = software.build is BuildKind.SOURCE
    pairs = (("torchvision", software.torchvision), ("torchaudio", software.torchaudio))
    return rules.Request(
        gpus=hardware.gpus,
        memory_gb=hardware.memory_gb,
        mig=hardware.mig or None,
        torch=software.torch,
        cuda=_given(software.cuda),
        cudnn=_given(software.cudnn),
        python=_given(software.python),
        python_from=software.python_from,
        blas=_given(software.blas),
        build=software.build.value,
        os=software.base.os,
        arch=hardware.arch,
        driver=hardware.driver or None,
        gcc=str(source.gcc) if compiled and source.gcc else None,
        arch_list=";".join(source.arch_list) if compiled and source.arch_list and hardware.gpus else None,
        packages=tuple((name, version) for name, version in pairs if version not in ("", AUTO)),
        compression=None if software.compression is Compression.GZIP else software.compression.value,
        consumers=hardware.consumers,
    )


def _given(value: str) -> str | None:
    return None if value == AUTO else value


def _image(wanted: WantedCell, done: explain.Completion, catalog: Catalog) -> Image:
    """The image that this cell selects."""
    choice, software = done.choice, wanted.software
    compiled = software.build is BuildKind.SOURCE
    source = _source(wanted, done, catalog) if compiled else None
    release = catalog.build(choice.torch, choice.cuda_tag, choice.arch) if compiled else None
    packages = _named(wanted.packages)
    pairs = _pairs(software, done)
    allowed = tuple(sorted((v.rule, v.allowed) for v in done.verdicts if v.allowed and not v.ok))
    cudnn = choice.cudnn if compiled or done.build is None else done.build.cudnn
    cuda_tag = choice.cuda_tag
    compression = None if software.compression is Compression.GZIP else software.compression
    return Image(
        id=image_id(
            torch=choice.torch,
            cuda_tag=cuda_tag,
            python=choice.python,
            python_from=choice.python_from,
            base=software.base,
            arch=choice.arch,
            pairs=pairs,
            packages_name=packages.name,
            build=software.build,
            blas=choice.blas,
            cudnn=cudnn,
            source=source,
            allowed=allowed,
            compression=compression,
        ),
        torch=choice.torch,
        torch_requirement=release.requirement if release else done.requirement,
        build=software.build,
        cuda_tag=cuda_tag,
        cuda=choice.cuda,
        cudnn=cudnn,
        sass=done.sass,
        ptx=done.ptx,
        python=choice.python,
        python_from=choice.python_from,
        base=software.base,
        arch=choice.arch,
        index=release.index if release else done.index,
        blas=choice.blas,
        driver_require=done.driver_require,
        pairs=pairs,
        allowed=allowed,
        packages=packages,
        source=source,
        compression=compression,
    )


def _switch_problems(wanted: WantedCell, image: Image, matrix: Matrix, catalog: Catalog) -> Iterator[InputError]:
    """What is wrong with the switches of a source build, each at its place in the file."""
    if image.source is None:
        return
    name = f"hardware.{wanted.hardware.name}"
    build = switches.Build(torch=image.torch, arch=image.arch, blas=image.blas, cuda=image.cuda, name=name)
    for flag, what, hint in switches.problems(wanted.source.flags, build, catalog.switches()):
        own, shared = f"{wanted.path}.source.flags.{flag}", f"source.flags.{flag}"
        yield matrix.problem(own if own in matrix.places else shared, what, hint)


def _source(wanted: WantedCell, done: explain.Completion, catalog: Catalog) -> SourceBuild:
    given, choice = wanted.source, done.choice
    computed = (*done.sass, *(f"{ptx}+PTX" for ptx in done.ptx))
    return SourceBuild(
        ref=given.ref or f"v{choice.torch}",
        commit=given.commit,
        archive=given.archive,
        flags=switches.normal(given.flags, catalog.switches()),
        cpu=given.cpu or _MARCH[choice.arch],
        arch_list=(given.arch_list or computed) if choice.gpus else (),
        gcc=choice.gcc or "",
    )


def _pairs(software: Software, done: explain.Completion) -> tuple[tuple[str, str], ...]:
    """torchvision and torchaudio with their versions, where the file wants them."""
    belonging = dict(done.pairs)
    wanted = (("torchaudio", software.torchaudio), ("torchvision", software.torchvision))
    resolved = ((name, belonging.get(name, "") if version == AUTO else version) for name, version in wanted if version)
    return tuple((name, version) for name, version in resolved if version)


def _named(packages: PackageSet) -> PackageSet:
    return replace(packages, name=set_name(packages)) if packages.name == UNNAMED else packages


def _refused_path(wanted: WantedCell, matrix: Matrix, verdicts: tuple[Verdict, ...]) -> str:
    """The key of the file that the first broken rule reads: the entry's own before the file's."""
    broken = {v.rule for v in verdicts if not v.ok and not v.allowed}
    reads = [key for rule in rules.RULES if rule.id in broken for key in rule.reads]
    keys = [name for key, name in _KEYS.items() if key in reads]
    own = [f"{wanted.path}.{key}" for key in keys if f"{wanted.path}.{key}" in matrix.places]
    return own[0] if own else wanted.path


def _unused_allows(matrix: Matrix, decided: list[_Decided]) -> Iterator[InputError]:
    """An allow for an image that no cell selects would be silent for ever: say so."""
    images = {each.image.id for each in decided if each.image is not None}
    for allow in matrix.allow:
        if allow.image and allow.image not in images:
            yield InputError(
                f"no cell selects the image {allow.image!r}",
                where=matrix.where(f"{allow.path}.image"),
                hint=nearest(allow.image, images) or "torchyard matrix shows the ids",
            )


def _order(error: YardError) -> tuple[int, int]:
    """By place in the file; what has none comes last."""
    mark = error.mark if isinstance(error, Located) else None
    return (mark.line, mark.col) if mark else (sys.maxsize, 0)


def _placed(error: YardError, matrix: Matrix, wanted: WantedCell) -> YardError:
    """The same problem with the cell's place, where it has none."""
    return error if error.where else InputError(error.what, where=matrix.where(wanted.path), hint=error.hint)
