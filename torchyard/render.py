"""The recipe: a lock and templates in, the text of every generated file out. Compares nothing, looks nothing up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import jinja2

from . import json_text, layering, oci, source_recipe
from .errors import InputError
from .lock import LockedImage, requirements_text
from .matrix import fragment
from .plan import BaseKind, Compression, Image, Plan
from .source_recipe import SourceView

ENVIRONMENT = "opt/venv"  # where the virtual environment of an image lies
CONTEXTS = PurePosixPath(".torchyard/context")  # local, filled by `torchyard fetch`
BAKE = PurePosixPath("images/docker-bake.json")
Template = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerfileView:
    """What the Dockerfile template receives: finished values, nothing to decide."""

    id: str
    target: str
    os: str
    framework: tuple[layering.WheelLayer, ...]
    os_packages: int
    user_packages: int
    dev_packages: int
    wheels: tuple[layering.Installed, ...]
    own_wheels: tuple[layering.Installed, ...]  # one, or none
    dev_wheels: int
    env: tuple[tuple[str, str], ...]
    dev_env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    extend: str
    source: SourceView | None  # of a source build


def image_files(lock: LockedImage, templates: Template) -> dict[PurePosixPath, str]:
    """The generated files of one image, by path from the repository's top, lock.yaml excepted."""
    folder = PurePosixPath("images") / lock.id
    return {
        folder / "Dockerfile": _dockerfile(lock, templates),
        folder / "requirements.txt": requirements_text(lock.wheels, f"The locked distributions of {lock.id}"),
    }


def shared_files(locks: Sequence[LockedImage], plan: Plan) -> dict[PurePosixPath, str]:
    """The generated files that all images share: bake targets, and which hardware selects which image."""
    ordered = sorted(locks, key=lambda lock: lock.id)
    return {
        BAKE: bake(ordered, plan),
        PurePosixPath("images/index.yaml"): index(plan),
    }


def bake(locks: Sequence[LockedImage], plan: Plan) -> str:
    """docker-bake.json: every image as two bake targets, runtime and `<id>-dev`; paths from the repository's top."""
    targets: dict[str, Any] = {}
    for lock in locks:
        jobs = dict(plan.jobs).get(lock.id, "")
        targets[target_name(lock.id)] = _target(lock, plan.project, "runtime", jobs)
        targets[target_name(lock.id) + "-dev"] = _target(lock, plan.project, "dev", jobs)
    document = {"group": {"default": {"targets": [target_name(lock.id) for lock in locks]}}, "target": targets}
    return json.dumps(document, indent=2) + "\n"


def index(plan: Plan) -> str:
    """images/index.yaml: hardware entry to image, in the order of env.yaml, with the other choices of its axes."""
    lines = ["# Which image each hardware entry selects. Made by `torchyard render` from env.yaml; do not edit."]
    for cell in plan.cells:
        choice = " ".join(f"{axis}={value}" for axis, value in cell.choice)
        key = json.dumps(f"{cell.hardware} {choice}".strip() if not cell.default else cell.hardware)
        lines.append(f"{key}: {json.dumps(cell.image)}" if cell.image else f"{key}: null  # refused")
    return "\n".join(lines) + "\n"


def step_titles(lock: LockedImage) -> list[str]:
    """What to call the RUN steps of the Dockerfile, in their order."""
    titles = [f"{len(lock.group('os'))} packages of {lock.image.base.os}", "bytecode of the framework"]
    titles += [f"{len(each.wheels)} more distributions" for each in _installed(lock, own=False)]
    if lock.group("user"):
        titles.append(f"{len(lock.group('user'))} packages of packages.apt")
    titles += [f"{len(each.wheels)} distributions of packages.pip" for each in _installed(lock, own=True)]
    extend = [f"extend: {_short(step)}" for step in fragment.steps(lock.image.packages.extend)]
    return [*titles, *extend]


def _installed(lock: LockedImage, *, own: bool) -> tuple[layering.Installed, ...]:
    """The layers of distributions that are, or are not, the user's own."""
    return tuple(each for each in layering.installed(lock.wheels) if (each.context == layering.OWN) is own)


def _short(step: str, most: int = 60) -> str:
    return step if len(step) <= most else step[: most - 1] + "…"


def target_name(image_id: str) -> str:
    """The id as buildx bake accepts a target's name, which has no dot."""
    return image_id.replace(".", "_").replace("+", "_")


def tag(project: str, image_id: str) -> str:
    """The local tag of an image."""
    return f"{project}:{image_id}"


def contexts(lock: LockedImage) -> dict[str, str]:
    """The named contexts of an image, by name, as paths from the repository's top (base: the layout's folder)."""
    folder = CONTEXTS / lock.id
    names = ["base", "debs-os", "debs-dev", "wheels-dev", *(each.context for each in layering.installed(lock.wheels))]
    if lock.group("user"):
        names.append("debs-user")
    if lock.source:
        names += ["debs-build", "source", "wheels-build"]
    return {"steps": str(CONTEXTS / "steps"), **{name: str(folder / name) for name in names}}


def contexts_root() -> PurePosixPath:
    """The folder of all named contexts, from the repository's top."""
    return CONTEXTS


def _target(lock: LockedImage, project: str, stage: str, jobs: str) -> dict[str, Any]:
    paths = contexts(lock)
    paths["base"] = f"oci-layout://{paths['base']}:latest"
    if stage == "runtime":
        paths = {name: path for name, path in paths.items() if not name.endswith("-dev")}
    suffix = "" if stage == "runtime" else "-dev"
    return {
        "context": f"images/{lock.id}",
        "contexts": dict(sorted(paths.items())),
        "target": stage,
        "args": {"SOURCE_DATE_EPOCH": str(lock.epoch), **({"JOBS": jobs} if lock.source and jobs else {})},
        "platforms": [f"linux/{oci.architecture(lock.image.arch)}"],
        "network": "none",
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "tags": [tag(project, lock.id) + suffix],
        "output": [f"type=image,oci-mediatypes=true{_compressed(lock.image)}"],
    }


def _compressed(image: Image) -> str:
    """What the exporter is told of compression; nothing for gzip.

    The ready layers are zstd already, with ids of their own, so no layer comes out of BuildKit's cache as gzip.
    """
    if image.compression is not Compression.ZSTD:
        return ""
    return f",compression=zstd,compression-level={oci.ZSTD_LEVEL}"


def archive_output(bake_file: str | None, image_id: str, file: str) -> str:
    """The output of an image's target in docker-bake.json, as an OCI archive in a file instead of in the engine."""
    try:
        output: str = json_text.loads(bake_file or "")["target"][target_name(image_id)]["output"][0]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{BAKE} has no target for {image_id}", where=str(BAKE), hint="./yard render") from error
    return f"{output.replace('type=image', 'type=oci', 1)},dest={file}"


def _dockerfile(lock: LockedImage, templates: Template) -> str:
    image = lock.image
    view = DockerfileView(
        id=lock.id,
        target=target_name(lock.id),
        os=image.base.os if image.base.kind is BaseKind.ARCHIVE else f"{image.base.ref} ({image.base.os})",
        framework=layering.framework(lock.wheels),
        os_packages=len(lock.group("os")),
        user_packages=len(lock.group("user")),
        dev_packages=len(lock.group("dev")),
        wheels=_installed(lock, own=False),
        own_wheels=_installed(lock, own=True),
        dev_wheels=len(lock.dev_wheels),
        env=_environment(lock),
        dev_env=_dev_environment(lock),
        labels=_labels(lock),
        extend=fragment.sealed(image.packages.extend).rstrip("\n"),
        source=source_recipe.view(lock) if lock.source else None,
    )
    name = "Dockerfile-source.j2" if lock.source else "Dockerfile.j2"
    return filled(name, templates, image=view)


def filled(name: str, templates: Template, **values: Any) -> str:
    """The text that a template makes of these values."""
    try:
        text = _jinja(templates).get_template(name).render(**values)
    except jinja2.TemplateError as error:
        place = getattr(error, "name", None) or name
        raise InputError(
            f"the template does not render: {error}",
            where=f"templates/{place}:{getattr(error, 'lineno', '?')}",
            hint="mend the template, or remove it so that the packaged one is used",
        ) from error
    return text.rstrip("\n") + "\n"


def _environment(lock: LockedImage) -> tuple[tuple[str, str], ...]:
    image = lock.image
    fixed = {
        "PATH": f"/{ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "VIRTUAL_ENV": f"/{ENVIRONMENT}",
        "UV_CONSTRAINT": f"/{ENVIRONMENT}/held.txt",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",
        "PYTHONNOUSERSITE": "1",
        "LANG": "C.UTF-8",
        "HOME": "/home/user",
        "LNAME": "user",  # the last name that Python's getpass asks for: a uid without a passwd entry still has one
        "XDG_CACHE_HOME": "/tmp/.cache",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor",
        "TRITON_CACHE_DIR": "/tmp/triton",
    }
    if image.cuda is not None:
        fixed["NVIDIA_VISIBLE_DEVICES"] = "all"
        fixed["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        fixed["NVIDIA_REQUIRE_CUDA"] = image.driver_require
    return (*fixed.items(), *image.packages.env)


def _dev_environment(lock: LockedImage) -> tuple[tuple[str, str], ...]:
    if lock.image.cuda is None or not lock.dev_wheels:
        return ()
    site = f"/{ENVIRONMENT}/lib/python{lock.image.python}/site-packages/nvidia"
    home = (
        f"{site}/cu{lock.image.cuda.split('.')[0]}" if int(lock.image.cuda.split(".")[0]) >= 13 else f"{site}/cuda_nvcc"
    )
    return (("CUDA_HOME", home),)


def _labels(lock: LockedImage) -> tuple[tuple[str, str], ...]:
    image = lock.image
    values = {
        "org.opencontainers.image.title": lock.id,
        "torchyard.id": lock.id,
        "torchyard.torch": image.torch,
        "torchyard.cuda": image.cuda or "none",
        "torchyard.cudnn": image.cudnn or "none",
        "torchyard.python": image.python,
    }
    if image.allowed:
        values["torchyard.allowed"] = "; ".join(f"{rule}: {reason}" for rule, reason in image.allowed)
    return tuple(sorted(values.items()))


def dockerfile_quote(value: str) -> str:
    """A value as one double-quoted word of a Dockerfile, in which nothing is expanded."""
    if any(c in value for c in "\n\r\0"):
        raise InputError(f"{value!r} holds a line break, which a Dockerfile cannot carry", hint="remove it")
    for special in ("\\", '"', "$"):
        value = value.replace(special, "\\" + special)
    return f'"{value}"'


@lru_cache(maxsize=4)
def _jinja(templates: Template) -> jinja2.Environment:
    """One environment for each source of templates, which parses each of them once as long as its text stays."""

    def load(name: str) -> tuple[str, None, Callable[[], bool]] | None:
        text = templates(name)
        return None if text is None else (text, None, lambda: templates(name) == text)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["dockerfile"] = dockerfile_quote
    return environment


def drift(expected: Mapping[PurePosixPath, str], found: Mapping[PurePosixPath, str | None]) -> list[str]:
    """What differs between what would be written and what is there, in words, sorted by path."""
    lines = []
    for path in sorted({*expected, *found}):
        want, have = expected.get(path), found.get(path)
        if want is None and have is not None:
            lines.append(f"{path}: not made from env.yaml any more")
        elif have is None and want is not None:
            lines.append(f"{path}: missing")
        elif want != have:
            lines.append(f"{path}: differs from what its lock and template make")
    return lines
