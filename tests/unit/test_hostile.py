"""Hostile values of env.yaml, in every file made of them: read back by parsers, they are what was written."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from canned_locks import canned
from dockerfile_reader import instructions, words

from torchyard import catalog, matrix, render, resolve
from torchyard import lock as locking
from torchyard.lock import LockedImage
from torchyard.matrix import fragment
from torchyard.plan import Image, Plan
from torchyard.verbs import matrix as matrix_verb
from torchyard.world import workspace

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hostile"
CATALOG = catalog.load()
TEXT = (FOLDER / "env.yaml").read_text(encoding="utf-8")
WRITTEN: dict[str, Any] = yaml.safe_load(TEXT)  # another reader than ours says what the file means


def planned() -> Plan:
    files = {name: (FOLDER / name).read_text() for name in matrix.needed_files(TEXT)}
    return resolve.plan(matrix.parse(TEXT, files=files, known=resolve.names(CATALOG)), CATALOG)


PLAN = planned()
LOCKS = {image.id: canned(image) for image in PLAN.images}


def wanted(hardware: str) -> dict[str, str]:
    """The environment of an entry's image: the file's with the entry's over it."""
    own = WRITTEN["hardware"][hardware].get("env", {})
    return {name: value for name, value in {**WRITTEN["env"], **own}.items() if value is not None}


def files(lock: LockedImage) -> dict[str, str]:
    return {path.name: text for path, text in render.image_files(lock, workspace.packaged_template).items()}


def shared() -> dict[str, str]:
    return {path.name: text for path, text in render.shared_files(list(LOCKS.values()), PLAN).items()}


@pytest.fixture(params=[cell.hardware for cell in PLAN.cells])
def entry(request: pytest.FixtureRequest) -> tuple[str, Image]:
    """A hardware entry with the image that it selects."""
    cell = PLAN.cell(request.param)
    assert cell is not None and cell.image, cell
    return request.param, PLAN.image(cell.image)


def test_every_name_of_hardware_stays_a_text() -> None:
    assert [cell.hardware for cell in PLAN.cells] == ["4090", "null", "yes", "1e3", "0o17"]
    assert yaml.safe_load(shared()["index.yaml"]) == {cell.hardware: cell.image for cell in PLAN.cells}


def test_an_environment_comes_back_from_the_dockerfile(entry: tuple[str, Image]) -> None:
    hardware, image = entry
    read = [words(rest) for name, rest in instructions(files(LOCKS[image.id])["Dockerfile"]) if name == "ENV"]
    (final,) = [each for each in read if "PYTHONNOUSERSITE" in each]
    assert {name: final[name] for name in wanted(hardware)} == wanted(hardware)
    assert ("GONE" in final) == (hardware not in ("yes", "1e3", "0o17"))


def test_an_environment_comes_back_from_the_lock(entry: tuple[str, Image]) -> None:
    hardware, image = entry
    text = locking.to_text(LOCKS[image.id])
    data = yaml.safe_load(text)
    assert dict(data["image"]["packages"]["env"]) == wanted(hardware)
    assert data["image"]["packages"]["pip"] == list(image.packages.pip)
    assert locking.from_text(text, name="lock.yaml") == LOCKS[image.id]


def test_nothing_adds_an_instruction(entry: tuple[str, Image]) -> None:
    """The instructions are those of an image without any value of the user, and those of the fragment."""
    _, image = entry
    names = [name for name, _ in instructions(files(LOCKS[image.id])["Dockerfile"])]
    plain = [name for name, _ in instructions(_without_values(LOCKS[image.id]))]
    extra = ["SHELL", "RUN", "LABEL", "SHELL"] if image.packages.extend else []
    assert sorted(names) == sorted([*plain, *extra])


def _without_values(lock: LockedImage) -> str:
    from dataclasses import replace

    packages = replace(lock.image.packages, env=(), extend="")
    return files(replace(lock, image=replace(lock.image, packages=packages)))["Dockerfile"]


def test_a_label_and_a_path_are_the_id(entry: tuple[str, Image]) -> None:
    _, image = entry
    read = [words(rest) for name, rest in instructions(files(LOCKS[image.id])["Dockerfile"]) if name == "LABEL"]
    assert [each["torchyard.id"] for each in read if "torchyard.id" in each] == [image.id]
    for path in render.image_files(LOCKS[image.id], workspace.packaged_template):
        assert path.parts[:2] == ("images", image.id) and ".." not in path.parts
    assert PurePosixPath(image.id).name == image.id


def test_a_fragment_is_taken_to_the_letter(entry: tuple[str, Image]) -> None:
    _, image = entry
    if image.packages.extend:
        own = (FOLDER / "hostile.Dockerfile").read_text().rstrip("\n")
        assert f"\n{fragment.sealed(own)}\nSHELL" in files(LOCKS[image.id])["Dockerfile"]
        mount = " --network=none --mount=type=bind,from=steps,target=/run/yard/steps"  # what a step is sealed with
        assert fragment.sealed(own).replace(mount, "") == own


def test_switches_come_back_from_the_builder() -> None:
    (image,) = [image for image in PLAN.images if image.source]
    read = [words(rest) for name, rest in instructions(files(LOCKS[image.id])["Dockerfile"]) if name == "ENV"]
    (builder,) = [each for each in read if "CXXFLAGS" in each]
    assert builder["CXXFLAGS"].endswith(" -DX=1 -Wno-error=a")


def test_the_bake_file_has_a_tag_and_a_folder_for_each_image() -> None:
    targets = json.loads(shared()["docker-bake.json"])["target"]
    runtime = {name: target for name, target in targets.items() if target["target"] == "runtime"}
    assert {target["tags"][0] for target in runtime.values()} == {f"hostile_1-2:{image.id}" for image in PLAN.images}
    assert {target["context"] for target in targets.values()} == {f"images/{image.id}" for image in PLAN.images}


def test_the_matrix_comes_back_from_json() -> None:
    document = json.loads(json.dumps(matrix_verb.document(PLAN)))
    assert [cell["hardware"] for cell in document["cells"]] == list(WRITTEN["hardware"])
    assert [cell["site"] for cell in document["cells"]] == ["on", None, None, None, None]


def test_requirements_keep_their_lines() -> None:
    for lock in LOCKS.values():
        lines = files(lock)["requirements.txt"].splitlines()
        assert len(lines) == 1 + len(lock.wheels)


def test_the_files_are_what_was_agreed() -> None:
    seen = {f"{image}--{name}": text for image, lock in LOCKS.items() for name, text in files(lock).items()}
    seen |= shared()
    expected = FOLDER / "expected"
    if os.environ.get("ACCEPT"):
        expected.mkdir(exist_ok=True)
        for path in expected.iterdir():
            path.unlink()
        for name, text in seen.items():
            (expected / name).write_text(text, encoding="utf-8")
    assert seen == {path.name: path.read_text(encoding="utf-8") for path in expected.iterdir()}
