"""What is said of a change before it lands: which images are made anew, how much is fetched, roughly how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from canned_locks import canned

from torchyard import forecast, receipt
from torchyard import lock as locking
from torchyard.finding import Finding, State
from torchyard.forecast import Change, Seen
from torchyard.plan import BuildKind
from torchyard.verbs import lock as lock_verb
from torchyard.verbs import plan as verb
from torchyard.verbs import project as projects
from torchyard.verbs import render as rendering
from torchyard.verbs.project import Project

ENV = 'schema: 1\nproject: p\nsoftware: {torch: "2.14.1"}\nhardware: {a100: {gpu: a100}, cpu: {torch: "2.13.0"}}\n'
SOURCE = ENV.replace("gpu: a100", 'gpu: a100, cuda: "13.0", build: source')


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose images are locked, and rendered."""
    (tmp_path / "env.yaml").write_text(ENV)
    return locked(tmp_path)


def locked(root: Path) -> Path:
    project = projects.load(root)
    project.work.write_tree(rendering.files(project, [current(project, image.id) for image in project.plan.images]))
    return root


def current(project: Project, image_id: str) -> locking.LockedImage:
    """A made-up lock that this version of the tool would not make anew."""
    made = canned(project.plan.image(image_id))
    tools = {"base_format": lock_verb.bases.FORMAT, "layer_format": lock_verb.wheel_layer.FORMAT}
    return replace(made, tools=replace(made.tools, **tools))


def seen(root: Path) -> dict[str, forecast.Forecast]:
    """What is forecast, by hardware entry."""
    project = projects.load(root)
    return {project.plan.sharers(each.image)[0]: each for each in verb.plan(project, project.plan.images)}


def test_what_is_as_locked_is_not_made_anew(root: Path) -> None:
    found = seen(root)
    assert {each.change for each in found.values()} == {Change.NONE}
    assert not any(each.rebuilt or each.built for each in found.values())
    assert found["a100"].fetch == sum(canned(projects.load(root).plan.image(found["a100"].image)).files().values())


def test_an_image_that_is_new_is_said_to_be_unknown(root: Path) -> None:
    (root / "env.yaml").write_text(ENV.replace("2.13.0", "2.14.1"))
    found = seen(root)
    assert (found["cpu"].change, found["cpu"].fetch, found["cpu"].seconds) == (Change.NEW, None, None)
    assert found["a100"].change is Change.NONE
    project = projects.load(root)
    assert verb.gone(project) == ["torch2.13.0-cpu-py311-debian12-amd64"]
    lines = verb.summary(project, verb.plan(project, project.plan.images))
    assert lines[0].startswith("1 of 2 images would be rebuilt") and "1 more will pin" in lines[0]
    assert any("no cell selects it" in line for line in lines)
    assert "assumed" in lines[-1]


def test_other_packages_ask_for_another_lock_and_say_which(root: Path) -> None:
    (root / "env.yaml").write_text(ENV + "env: {A: 1}\n")
    found = seen(root)
    assert {each.change for each in found.values()} == {Change.LOCK}
    assert all("packages" in " ".join(each.why) and each.fetch is None for each in found.values())


def test_a_changed_template_is_a_changed_recipe(root: Path) -> None:
    (root / "templates" / "parts").mkdir(parents=True)
    (root / "templates" / "parts" / "runtime.j2").write_text("FROM locked AS runtime\nUSER 5:5\n")
    found = seen(root)
    assert {each.change for each in found.values()} == {Change.RECIPE}
    assert all("Dockerfile" in each.why[0] for each in found.values())


def test_what_the_store_has_is_not_fetched_and_what_was_built_takes_no_time(root: Path) -> None:
    project = projects.load(root)
    image = project.plan.cells[0].image
    text = project.work.read(projects.lock_path(image)) or ""
    finding = Finding(rule="x", state=State.PASS, what="x")
    lock = locking.hashlib.sha256(text.encode()).hexdigest()
    tier = receipt.Tier(level=receipt.Level.CPU, checks="c", findings=(finding,))
    made = receipt.Receipt(
        image=image, tag="t", digest="d", layers=(), lock=lock, fingerprint="f", buildkit="b", tiers=(tier,), size=0
    )
    path = PurePosixPath(f".torchyard/receipts/{image}.json")
    project.work.write_tree({path: receipt.to_text(made)})
    found = seen(root)["a100"]
    assert found.built and found.seconds == 0
    made = replace(made, lock="0" * 64)
    project.work.write_tree({path: receipt.to_text(made)})
    assert not seen(root)["a100"].built


def test_a_compiled_torch_takes_a_time_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text(SOURCE)
    found = seen(locked(tmp_path))
    assert found["a100"].seconds is None and found["cpu"].seconds is not None
    assert projects.load(tmp_path).plan.image(found["a100"].image).build is BuildKind.SOURCE


def test_the_document_has_every_image_and_what_was_assumed(root: Path) -> None:
    project = projects.load(root)
    made = verb.document(project, verb.plan(project, project.plan.images))
    assert [each["id"] for each in made["images"]] == [image.id for image in project.plan.images]
    assert made["images"][1]["hardware"] == ["a100"] and made["assumed"]["fetch_bytes_per_second"] > 0
    assert len(verb.table(project, verb.plan(project, project.plan.images))[0]) == len(verb.HEAD)


def test_time_grows_with_what_is_fetched() -> None:
    image = canned(projects.load(Path(__file__)).plan.images[0]).image
    lock = canned(image)
    few = forecast.forecast(Seen(image=image, lock=lock, stale=(), drift=("x",), missing=0, built=True))
    many = forecast.forecast(Seen(image=image, lock=lock, stale=(), drift=("x",), missing=10**10, built=True))
    assert few.rebuilt and not few.built
    assert few.seconds is not None and many.seconds is not None and many.seconds - few.seconds == 400
