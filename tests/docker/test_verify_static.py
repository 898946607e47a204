"""verify's first tier on real images: good ones pass, each fault is named first and nothing unrelated fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from clones import Clone
from static_faults import FAULTS, LOCKED, WHEELS, Fault

from torchyard.finding import State
from torchyard.receipt import Level
from torchyard.verbs import project as projects
from torchyard.verbs import tiers
from torchyard.verbs.tiers import Case
from torchyard.world import engine_home, host_gpu
from torchyard.world.engine import Engine

pytestmark = pytest.mark.docker

PINNED = re.compile(r'"file": "([^"]+)", "sha256": "([0-9a-f]{64})"')


@pytest.fixture(scope="module")
def given(yard: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels that faults install: some of the index, and some that the locks pin."""
    folder = tmp_path_factory.mktemp("given")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--python-version", "3.11", "--dest", str(folder), *WHEELS]
    subprocess.run(argv, check=True, env={**os.environ, "HOME": str(yard.home)}, capture_output=True)
    for gpu, names in LOCKED.items():
        text = (yard.root / "images" / yard.image(gpu) / "lock.yaml").read_text()
        pinned = [(file, digest) for file, digest in PINNED.findall(text) if file.startswith(names)]
        assert len(pinned) == len(names)
        for file, digest in pinned:
            os.link(yard.store / digest[:2] / digest, folder / file)
    return folder


def verified(yard: Clone, *arguments: str) -> tuple[int, dict[str, Any]]:
    """What verify answers: its exit code and its JSON."""
    done = yard.yard("verify", "--level", "static", "--json", *arguments)
    assert done.code in (0, 1), done.err[-2000:]
    return done.code, json.loads(done.out)


def spoiled(yard: Clone, given: Path, name: str, fault: Fault) -> str:
    """The tag of an image with this fault."""
    tag = f"{name}:fault"
    file = given.parent / f"{name}.Dockerfile"
    file.write_text(f"FROM {yard.tag(fault.gpu)}\nUSER 0\n{fault.steps}\n")
    yard.docker("build", "--quiet", "--network", "none", "--tag", tag, "--file", str(file), str(given)).good()
    return tag


def failures(found: dict[str, Any]) -> list[dict[str, str]]:
    """The findings that fail, in their order."""
    return [finding for finding in found["findings"] if finding["state"] == "fail"]


@pytest.mark.parametrize("gpu", ["cpu", "a100"])
def test_a_good_image_passes_and_its_receipt_says_so(yard: Clone, request: pytest.FixtureRequest, gpu: str) -> None:
    request.getfixturevalue(gpu)
    code, found = verified(yard, "--gpu", gpu)
    assert failures(found) == []
    assert code == 0
    assert found["image"] == yard.image(gpu)
    assert found["level"] == "static"
    receipt = yard.receipt(yard.image(gpu))
    assert receipt["level"] == "static"
    assert [f for f in receipt["findings"] if f.pop("level") == "static"] == found["findings"]
    assert len(receipt["layer_sizes"]) == len(receipt["layers"])
    if gpu == "a100":
        code_finding = next(f for f in found["findings"] if f["rule"] == "code.torch")
        assert code_finding["state"] == "pass"
        assert "8.0" in code_finding["expected"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first_and_nothing_unrelated_fails(
    yard: Clone, request: pytest.FixtureRequest, given: Path, name: str
) -> None:
    fault = FAULTS[name]
    request.getfixturevalue(fault.gpu)
    tag = spoiled(yard, given, name, fault)
    try:
        code, found = verified(yard, "--image", tag)
    finally:
        yard.docker("image", "rm", tag)
    first, *rest = failures(found)
    assert code == 1
    assert first["rule"] == fault.cause
    assert first["because"] == ""
    assert first["fix"]
    assert [word for word in fault.words if word not in first["seen"]] == []
    assert [f["rule"] for f in rest if not f["because"].startswith("consequence of ")] == []
    assert {f["rule"] for f in rest} <= {*fault.follow, "times.config"}  # each was built a moment ago


def test_an_image_that_is_not_ours_is_refused_unless_it_is_said_what_it_should_be(
    yard: Clone, cpu: dict[str, Any], given: Path
) -> None:
    file = given.parent / "foreign.Dockerfile"
    file.write_text(f"FROM scratch\nCOPY --from={yard.tag('cpu')} /etc/os-release /etc/os-release\n")
    yard.docker("build", "--quiet", "--tag", "foreign:one", "--file", str(file), str(given)).good()
    refused = yard.yard("verify", "--level", "static", "--image", "foreign:one")
    assert refused.code == 2
    assert "was not made by torchyard" in refused.err
    assert "Traceback" not in refused.err
    code, found = verified(yard, "--image", "foreign:one", "--gpu", "cpu")
    assert code == 1
    assert "torch.release" in {f["rule"] for f in failures(found)}
    yard.docker("image", "rm", "foreign:one")


def test_an_image_that_is_not_there_is_said_so(yard: Clone, cpu: dict[str, Any]) -> None:
    refused = yard.yard("verify", "--image", "nothing:here")
    assert refused.code == 2
    assert "nothing:here" in refused.err


def images(yard: Clone) -> list[str]:
    """The engine's images, sorted: those with equal times come in any order."""
    return sorted(yard.docker("image", "ls", "--all", "--format", "{{.Repository}}:{{.Tag}}").good().out.split())


def test_nothing_is_started_and_nothing_is_left(yard: Clone, cpu: dict[str, Any]) -> None:
    before = images(yard)
    since = yard.docker("info", "--format", "{{.SystemTime}}").good().out.strip()
    for kept in (yard.root / ".torchyard" / "seen").glob("*"):
        kept.unlink()
    verified(yard, "--gpu", "cpu")
    until = yard.docker("info", "--format", "{{.SystemTime}}").good().out.strip()
    happened = yard.docker("events", "--since", since, "--until", until, "--filter", "type=container").good().out
    assert happened == ""
    assert images(yard) == before


@pytest.mark.parametrize("require", [False, True])
def test_without_a_gpu_each_check_on_one_says_why_it_is_skipped_or_fails_where_one_is_required(
    yard: Clone, cpu: dict[str, Any], require: bool
) -> None:
    if host_gpu.look().gpus:
        pytest.skip("this machine has a GPU")
    host = engine_home.home_of(yard.environment).docker_host
    found = Engine(
        docker_host=host,
        private=True,
        docker=(),
        buildx=(),
        compose=(),
        version="",
        containerd_store=True,
        env={"DOCKER_HOST": host},
    )
    here = projects.load(yard.root)
    lock = projects.fresh_lock(here.work, projects.select(here, gpu="a100")[0])
    case = Case(engine=found, tag=yard.tag("a100"), lock=lock, project=here, hardware="a100", require_gpu=require)
    tier = tiers.look(case, Level.GPU, print).tier
    assert {each.state for each in tier.findings} == {State.FAIL if require else State.SKIPPED}
    assert all("no NVIDIA GPU" in each.seen + each.because for each in tier.findings)
    assert not tier.looked and not tier.on


def test_a_junit_file_has_one_case_a_finding(yard: Clone, cpu: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "found.xml"
    _, found = verified(yard, "--gpu", "cpu", "--junit", str(file))
    suite = ElementTree.parse(file).getroot()[0]
    assert [case.get("name") for case in suite] == [f["rule"] for f in found["findings"]]
    assert int(suite.get("skipped", "")) == sum(f["state"] == "skipped" for f in found["findings"])
