"""How far verify looks, what findings depend on, and what is refused before anything is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_locks import canned

from torchyard.errors import InputError
from torchyard.finding import Finding, State
from torchyard.judge import gpu
from torchyard.receipt import Level, Receipt, Tier
from torchyard.verbs import build, project, tiers, verify
from torchyard.verbs.verify import Options
from torchyard.world import conditions
from torchyard.world.engine import Engine

ENV = """schema: 1
project: p
software: {torch: "2.14.1"}
sites: {lab: {driver: "580.65.06", fabric: ib}}
hardware: {a100: {gpu: a100, count: 4, site: lab}, h100: {gpu: h100, count: 8}, cpu: {torch: "2.13.0"}}
"""


@pytest.fixture
def here(tmp_path: Path) -> project.Project:
    """A project with two entries that share an image, and a CPU."""
    (tmp_path / "env.yaml").write_text(ENV)
    return project.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (Options(), [Level.STATIC, Level.CPU]),
        (Options(level="static"), [Level.STATIC]),
        (Options(level="gpu"), [Level.STATIC, Level.CPU, Level.GPU]),
        (Options(require_gpu=True), [Level.STATIC, Level.CPU, Level.GPU]),
    ],
)
def test_each_level_comes_after_those_below_it(options: Options, levels: list[Level]) -> None:
    assert list(options.wanted()) == levels


@pytest.mark.parametrize("options", [Options(level="cuda"), Options(level="identity"), Options(level="none")])
def test_a_level_that_is_none_of_verify_is_refused_with_those_that_are(options: Options) -> None:
    with pytest.raises(InputError) as caught:
        options.wanted()
    assert caught.value.hint == "one of static, cpu, gpu"


def test_a_level_without_a_gpu_cannot_require_one() -> None:
    with pytest.raises(InputError, match="no GPU is used there"):
        Options(level="cpu", require_gpu=True).wanted()


def test_a_gpu_cannot_be_required_of_an_image_for_cpus_alone(here: project.Project) -> None:
    images = project.select(here, gpu="cpu")
    with pytest.raises(InputError, match="no hardware entry with a GPU"):
        verify.verify(here, images, Options(require_gpu=True), say=print)


def test_a_build_goes_up_to_the_level_of_containers_without_a_gpu(here: project.Project) -> None:
    with pytest.raises(InputError) as caught:
        build.build(here, [], build.Options(level="gpu"), say=print)
    assert caught.value.hint == "one of identity, static, cpu"


def test_an_image_for_cpus_alone_has_nothing_to_run_on_a_gpu(here: project.Project) -> None:
    engine = Engine(docker_host="unix:///nowhere", private=False, docker=(), buildx=(), compose=(), version="", env={},
                    containerd_store=True)  # fmt: skip
    lock = canned(project.select(here, gpu="cpu")[0])
    tier = tiers.look(tiers.Case(engine=engine, tag="t", lock=lock, project=here), Level.GPU, print).tier
    assert [each.rule for each in tier.findings] == [rule for rule, _ in gpu.RULES]
    assert {each.because for each in tier.findings} == {"no hardware entry with a GPU selects this image"}
    assert not tier.looked


def test_findings_follow_from_the_code_the_catalogue_and_what_the_image_is_measured_by(tmp_path: Path) -> None:
    first = conditions.checks(tmp_path, "8.0")
    assert conditions.checks(tmp_path, "8.0") == first
    assert conditions.checks(tmp_path, "9.0") != first
    (tmp_path / "catalog.d").mkdir()
    (tmp_path / "catalog.d" / "own.yaml").write_text("gpus: {}\n")
    assert conditions.checks(tmp_path, "8.0") != first


def test_what_an_earlier_tier_found_broken_explains_what_fails_to_run() -> None:
    broken = Finding(rule="wheels.files", state=State.FAIL, expected="x", seen="y", fix="z")
    runs = Finding(rule="load.torch", state=State.FAIL)
    unproven = Finding(rule="gpu.devices", state=State.FAIL, because="never seen on hardware")
    found = tiers.told(
        (
            Tier(level=Level.STATIC, checks="", findings=(broken,)),
            Tier(level=Level.CPU, checks="", findings=(runs,)),
            Tier(level=Level.GPU, checks="", findings=(unproven,)),
        )
    )
    assert [(f.rule, f.because) for f in found] == [
        ("wheels.files", ""),
        ("load.torch", "consequence of wheels.files"),
        ("gpu.devices", "consequence of wheels.files; never seen on hardware"),
    ]


def test_that_a_required_gpu_was_not_there_is_not_kept_as_a_fault_of_the_image() -> None:
    lacking = Finding(rule="gpu.devices", state=State.FAIL, expected="a GPU", seen="no GPU")
    known = Receipt(image="i", tag="t", digest="d", layers=(), lock="l", fingerprint="f", buildkit="b", size=0)
    absent = tiers.Looked(tier=Tier(level=Level.GPU, checks="c", findings=(lacking,)))
    assert absent.within(known) == known
    there = tiers.Looked(tier=Tier(level=Level.GPU, checks="c", on="1 x NVIDIA L4", findings=(lacking,)))
    assert there.within(known).level is Level.GPU


def test_a_digest_to_attest_stands_alone() -> None:
    verify.check_alone("sha256:1", "", "")
    for given, option in ((("one", ""), "--id"), (("", "one:tag"), "--image")):
        with pytest.raises(InputError, match="names the image by its digest") as caught:
            verify.check_alone("sha256:1", *given)
        assert caught.value.where == option
