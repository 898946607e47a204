"""Images of this checkout into a real registry and out of it again: the same bytes, sent once, by digest."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apptainer_program
import clones
import fault_proxy as faults
import pytest
import registry_process as registries
import requests
import yaml
from clones import Clone
from fault_proxy import Proxy, Rule
from registry_process import OCI_MANIFEST

from torchyard import sbom

pytestmark = pytest.mark.docker

SEED = int(os.environ.get("TORCHYARD_SEED", "20261201"))
KINDS = {
    "application/vnd.torchyard.findings.v1+json",
    "application/spdx+json",
    "application/vnd.cyclonedx+json",
    "application/vnd.in-toto+json",
}


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    return registries.program(tmp_path_factory.mktemp("registry-program"))


@pytest.fixture(scope="module")
def registry(binary: str, place: Path) -> Iterator[Proxy]:
    """A registry with a proxy before it that counts; on the disk of the clones, for it holds whole images."""
    root = place / "registry"
    with registries.running(binary, root) as host, faults.before(host) as proxy:
        yield proxy
    clones.end_tree(root)


def reaching(clone: Clone, folder: Path, *hosts: str) -> Clone:
    """The clone, with registries called one, two, ... in a mirrors file of its own."""
    names = dict(zip(("one", "two"), hosts))
    file = folder / "mirrors.yaml"
    file.write_text(yaml.safe_dump({"mirrors": {"registry": {name: f"{host}/ml" for name, host in names.items()}}}))
    return replace(clone, env={**clone.env, "TORCHYARD_MIRRORS": str(file)})


@pytest.fixture(scope="module")
def pushed(
    yard: Clone, cpu: dict[str, Any], registry: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clone]:
    """A clone whose CPU image is in the registry called one."""
    clone = reaching(yard, tmp_path_factory.mktemp("mirrors"), registry.host)
    clone.yard("push", "--gpu", "cpu", "--registry", "one").good()
    yield clone
    (clone.root / "images" / cpu["image"] / "published.yaml").unlink(missing_ok=True)


def manifest_at(proxy: Proxy, reference: str) -> requests.Response:
    url = f"http://{proxy.host}/v2/ml/torchyard/manifests/{reference}"
    return requests.get(url, headers={"Accept": f"{OCI_MANIFEST}, {registries.OCI_INDEX}"})


def record(clone: Clone, image: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((clone.root / "images" / image / "published.yaml").read_text())
    return found


def test_the_registry_has_the_very_manifest_and_layers_of_the_receipt(
    pushed: Clone, registry: Proxy, cpu: dict[str, Any]
) -> None:
    by_tag, by_digest = manifest_at(registry, "cpu"), manifest_at(registry, cpu["digest"])
    assert registries.digest_of(by_digest.content) == cpu["digest"] and by_tag.content == by_digest.content
    config = by_digest.json()["config"]["digest"]
    told = requests.get(f"http://{registry.host}/v2/ml/torchyard/blobs/{config}").json()
    assert told["rootfs"]["diff_ids"] == cpu["layers"]


def test_the_record_is_the_only_file_and_names_no_host(pushed: Clone, registry: Proxy, cpu: dict[str, Any]) -> None:
    path = f"images/{cpu['image']}/published.yaml"
    assert pushed.git("status", "--porcelain").split() == ["??", path]
    text = (pushed.root / path).read_text()
    assert "127.0.0.1" not in text and registry.host not in text
    made = record(pushed, cpu["image"])
    assert (made["digest"], made["layers"], made["registries"]) == (cpu["digest"], cpu["layers"], ["one"])
    assert manifest_at(registry, made["tag"]).status_code == 200 and cpu["digest"][7:15] in made["tag"]


def test_a_second_push_sends_nothing(pushed: Clone, registry: Proxy) -> None:
    registry.asked.clear()
    pushed.yard("push", "--gpu", "cpu", "--registry", "one").good()
    assert registry.sent() == 0 and registry.count("POST") == 0


# Laid over the C library of a program: its clock is wrong, and its sleeps are not.
CLOCK = """\
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += atol(getenv("CLOCK_IS_OFF"));
    return answer;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
"""
YEAR = 366 * 86_400


@pytest.mark.parametrize("wrong", [-YEAR, YEAR])
def test_a_clock_that_is_a_year_wrong_changes_no_byte(
    pushed: Clone, registry: Proxy, cpu: dict[str, Any], place: Path, wrong: int
) -> None:
    folder = place / f"clock{wrong}"
    folder.mkdir()
    (folder / "clock.c").write_text(CLOCK)
    compile = ["gcc", "-shared", "-fPIC", "-o", "/clock/clock.so", "/clock/clock.c"]
    pushed.docker("run", "--rm", "--user", "0", "--volume", f"{folder}:/clock", cpu["digest"], *compile).good()
    late = replace(pushed, env={**pushed.env, "LD_PRELOAD": str(folder / "clock.so"), "CLOCK_IS_OFF": str(wrong)})
    year = [sys.executable, "-c", "import datetime; print(datetime.date.today().year)"]
    assert late.call(year).good().out != pushed.call(year).good().out
    late.yard("build", "--gpu", "cpu", "--level", "identity").good()
    assert pushed.receipt(cpu["image"]) == cpu
    registry.asked.clear()
    late.yard("push", "--gpu", "cpu", "--registry", "one").good()
    assert registry.sent() == 0 and registry.count("POST") == 0


def test_findings_sbom_and_provenance_refer_to_the_digest(pushed: Clone, registry: Proxy, cpu: dict[str, Any]) -> None:
    listed = manifest_at(registry, cpu["digest"].replace(":", "-")).json()["manifests"]
    assert {each["artifactType"] for each in listed} == KINDS
    for each in listed:
        found = manifest_at(registry, each["digest"]).json()
        assert found["subject"]["digest"] == cpu["digest"]
        layer = found["layers"][0]["digest"]
        data = requests.get(f"http://{registry.host}/v2/ml/torchyard/blobs/{layer}").json()
        assert cpu["digest"].removeprefix("sha256:") in json.dumps(data)


def test_what_was_deleted_comes_back_by_digest_and_runs(pushed: Clone, cpu: dict[str, Any]) -> None:
    pushed.docker("image", "rm", "--force", cpu["tag"]).good()
    manifest = pushed.store / cpu["digest"][7:9] / cpu["digest"][7:]
    for digest in [each["digest"] for each in json.loads(manifest.read_text())["layers"]]:
        (pushed.store / digest[7:9] / digest[7:]).unlink()
    manifest.unlink()
    pushed.yard("pull", "--gpu", "cpu", "--to", "docker", "--require", "identity").good()
    inspected = json.loads(pushed.docker("image", "inspect", cpu["tag"]).good().out)[0]
    assert (inspected["Id"], inspected["RootFS"]["Layers"]) == (cpu["digest"], cpu["layers"])
    ran = pushed.docker("run", "--rm", cpu["digest"], "python", "-c", "import torch; print(torch.ones(2).sum())")
    assert "tensor(2.)" in ran.good().out
    assert pushed.spoiled() == []


def test_a_level_that_nothing_proves_is_not_pulled(pushed: Clone) -> None:
    refused = pushed.yard("pull", "--gpu", "cpu", "--require", "gpu")
    assert refused.code == 1 and "'gpu' is required" in refused.err


def test_a_level_that_is_reached_later_is_put_beside_the_image(
    yard: Clone, cpu: dict[str, Any], binary: str, place: Path, tmp_path: Path
) -> None:
    path = yard.root / ".torchyard" / "receipts" / f"{cpu['image']}.json"
    record_path = yard.root / "images" / cpu["image"] / "published.yaml"
    good, former = path.read_text(), record_path.read_text() if record_path.is_file() else None
    try:
        with registries.running(binary, place / "attested") as host:
            clone = reaching(yard, tmp_path, host)
            path.unlink()
            clone.yard("build", "--gpu", "cpu", "--level", "identity").good()
            clone.yard("push", "--gpu", "cpu", "--registry", "one").good()
            static = ("pull", "--gpu", "cpu", "--registry", "one", "--to", "docker", "--require", "static")
            refused = clone.yard(*static)
            assert refused.code == 1 and "'static' is required" in refused.err
            other = clone.yard("verify", "--attest", f"sha256:{'0' * 64}")
            assert other.code == 1 and "no image of this project was pushed" in other.err
            path.unlink()  # as on another machine, which has the record alone
            said = clone.yard("verify", "--attest", cpu["digest"], "--level", "static").good()
            assert "one has the findings" in said.err and "to the level static" in said.err
            clone.yard(*static).good()
            assert record(clone, cpu["image"])["level"] == "identity"
    finally:
        path.write_text(good)
        record_path.write_text(former) if former is not None else record_path.unlink(missing_ok=True)
        clones.end_tree(place / "attested")


def test_a_layout_is_made_without_any_engine(pushed: Clone, cpu: dict[str, Any], tmp_path: Path) -> None:
    none = {"TORCHYARD_ENGINE": "none", "TORCHYARD_ENGINE_HOME": str(tmp_path / "e"), "DOCKER_HOST": "unix:///nowhere"}
    alone = replace(pushed, env={**pushed.env, **none})
    target = tmp_path / "image.oci"
    alone.yard("pull", "--digest", cpu["digest"], "--registry", "one", "--to", "oci", "--output", str(target)).good()
    assert json.loads((target / "index.json").read_text())["manifests"][0]["digest"] == cpu["digest"]
    for blob in (target / "blobs" / "sha256").iterdir():
        assert clones.digest_of(blob) == blob.name


def test_the_bill_in_the_registry_is_what_a_scanner_lists(
    pushed: Clone, registry: Proxy, cpu: dict[str, Any], place: Path
) -> None:
    syft = Path(sys.executable).with_name("syft")
    if not syft.is_file():
        pytest.skip("syft's package, which requirements/dev.in names, has no program for this machine")
    target = place / "scanned.oci"
    pushed.yard("pull", "--gpu", "cpu", "--to", "oci", "--output", str(target)).good()
    room = place / "scanning"  # it unpacks the image
    room.mkdir()
    try:
        catalogers = "dpkg-db-cataloger,python-installed-package-cataloger"
        argv = [str(syft), "scan", "-q", "-o", "json", "--override-default-catalogers", catalogers, f"oci-dir:{target}"]
        env = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false", "TMPDIR": str(room)}
        done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    finally:
        clones.end_tree(room)
        clones.end_tree(target)
    scanned = Counter(map(scanned_line, json.loads(done.stdout)["artifacts"]))
    (bill,) = bills(registry, cpu["digest"])
    listed = Counter(bill_line(each) for each in bill["packages"] if each["SPDXID"] != "SPDXRef-image")
    assert {kind for kind, *_ in listed} == {"deb", "pypi"}
    assert listed - scanned == Counter() and scanned - listed == Counter()


def bills(proxy: Proxy, digest: str) -> list[dict[str, Any]]:
    """The SPDX documents that refer to an image."""
    listed = manifest_at(proxy, digest.replace(":", "-")).json()["manifests"]
    kept = [
        manifest_at(proxy, each["digest"]).json()
        for each in listed
        if each["artifactType"].startswith("application/spdx")
    ]
    blobs = [f"http://{proxy.host}/v2/ml/torchyard/blobs/{each['layers'][0]['digest']}" for each in kept]
    return [requests.get(blob).json() for blob in blobs]


def bill_line(package: dict[str, Any]) -> tuple[str, str, str, str]:
    """Kind, name, version and folder of a package in an SPDX document."""
    kind = package["externalRefs"][0]["referenceLocator"].removeprefix("pkg:").partition("/")[0]
    where = package.get("sourceInfo", "").removeprefix("installed in ")
    return kind, sbom.normal(package["name"]) if kind == "pypi" else package["name"], package["versionInfo"], where


def scanned_line(found: dict[str, Any]) -> tuple[str, str, str, str]:
    """The same of what the scanner found."""
    if found["type"] == "deb":
        return "deb", found["name"], found["version"], ""
    (metadata,) = {each["path"] for each in found["locations"] if each["path"].endswith(("/METADATA", "/PKG-INFO"))}
    return "pypi", sbom.normal(found["name"]), found["version"], str(Path(metadata).parents[1])


def test_a_sif_file_runs_torch_as_an_ordinary_user(pushed: Clone, cpu: dict[str, Any], place: Path) -> None:
    folder = place / "apptainer"
    try:
        apptainer = apptainer_program.made(folder, place)
        target = folder / "image.sif"
        path = f"{apptainer.programs}:{os.environ['PATH']}"
        quick = "-comp gzip -Xcompression-level 1"
        user = replace(pushed, env={**pushed.env, "PATH": path, "APPTAINER_MKSQUASHFS_ARGS": quick})
        user.yard("pull", "--gpu", "cpu", "--to", "sif", "--output", str(target)).good()
        assert [path.name for path in folder.glob("*.sif*")] == ["image.sif"]
        seen = "import os, torch; print(torch.__version__, os.getuid(), torch.ones(2).sum())"
        asked = apptainer.as_user("exec", str(target), "python", "-c", seen)
        ran = subprocess.run(asked, cwd=place, capture_output=True, text=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    locked = yaml.safe_load((pushed.root / "images" / cpu["image"] / "lock.yaml").read_text())["image"]
    assert ran.stdout.split() == [locked["torch_requirement"], str(apptainer_program.USER), "tensor(2.)"], ran.stderr


def test_an_image_whose_findings_fail_is_refused_and_its_override_is_recorded(
    pushed: Clone, registry: Proxy, cpu: dict[str, Any]
) -> None:
    path = pushed.root / ".torchyard" / "receipts" / f"{cpu['image']}.json"
    good = path.read_text()
    spoiled = json.loads(good)
    spoiled["findings"][0]["state"] = "fail"
    path.write_text(json.dumps(spoiled))
    try:
        registry.asked.clear()
        refused = pushed.yard("push", "--gpu", "cpu", "--registry", "one")
        assert refused.code == 1 and "--override" in refused.err and registry.asked == []
        pushed.yard("push", "--gpu", "cpu", "--registry", "one", "--override", "known: 4711").good()
        assert record(pushed, cpu["image"])["override"] == "known: 4711"
    finally:
        path.write_text(good)


# At which requests of a push it is killed: of a blob's bytes, of its end, of a manifest.
STEPS = {"bytes": ("PATCH", "/blobs/"), "blob": ("PUT", "/blobs/"), "manifest": ("PUT", "/manifests/")}


def test_a_killed_push_leaves_nothing_half_written_and_the_next_one_goes_on(
    yard: Clone, cpu: dict[str, Any], binary: str, place: Path, tmp_path: Path
) -> None:
    path = yard.root / "images" / cpu["image"] / "published.yaml"
    push = ("push", "--gpu", "cpu", "--registry", "one")
    with registries.running(binary, place / "killed") as host, faults.before(host) as proxy:
        try:
            reaching(yard, tmp_path, f"{proxy.host}/whole").yard(*push).good()
            asked = {name: proxy.count(method, part) for name, (method, part) in STEPS.items()}
            for name, (method, part) in STEPS.items():
                at = random.Random(f"{SEED} {name}").randrange(asked[name])
                print(f"killed at {method} {part} {at + 1} of {asked[name]}, TORCHYARD_SEED={SEED}")
                path.unlink(missing_ok=True)
                clone = reaching(yard, tmp_path, f"{proxy.host}/{name}")  # where nothing was pushed yet
                child = clone.start(clone.argv(*push))
                kill = faults.calling(lambda child=child: os.killpg(child.pid, signal.SIGKILL))  # type: ignore[misc]
                proxy.rules = [Rule(method=method, path=part, fault=kill, skip=at)]
                _, err = child.communicate()
                assert child.returncode == -signal.SIGKILL and proxy.rules[0].times == 0, err
                assert not path.exists() and clone.spoiled() == []
                proxy.rules = []
                clone.yard(*push).good()
                assert record(clone, cpu["image"])["digest"] == cpu["digest"]
                there = requests.get(
                    f"http://{proxy.host}/v2/{name}/ml/torchyard/manifests/cpu", headers={"Accept": OCI_MANIFEST}
                )
                assert registries.digest_of(there.content) == cpu["digest"]
        finally:
            path.unlink(missing_ok=True)
    clones.end_tree(place / "killed")


def test_two_pushes_at_once_to_two_registries_give_one_record(
    yard: Clone, cpu: dict[str, Any], binary: str, place: Path, tmp_path: Path
) -> None:
    with registries.running(binary, place / "reg-a") as one, registries.running(binary, place / "reg-b") as two:
        clone = reaching(yard, tmp_path, one, two)
        try:
            children = [clone.start(clone.argv("push", "--gpu", "cpu", "--registry", "one,two")) for _ in range(2)]
            ends = [(child.communicate(), child.returncode) for child in children]
            assert [code for _, code in ends] == [0, 0], ends
            assert record(clone, cpu["image"])["registries"] == ["one", "two"]
        finally:
            (clone.root / "images" / cpu["image"] / "published.yaml").unlink(missing_ok=True)
    for name in ("reg-a", "reg-b"):
        clones.end_tree(place / name)


def test_another_set_of_requirements_and_packages_uploads_under_five_percent(
    yard: Clone, cpu: dict[str, Any], binary: str, place: Path, tmp_path: Path
) -> None:
    other = replace(yard, root=place / "other set")
    clones.copy_checkout(yard.root, other.root)
    env = other.root / "env.yaml"
    text = env.read_text().replace("apt: [] ", "apt: [tree] ").replace("pip: [numpy]", "pip: [numpy, einops]")
    assert "tree" in text and "einops" in text
    env.write_text(text)
    clones.seed(other, yard.store)
    subprocess.run(["cp", "-al", str(yard.root / ".torchyard" / "layers"), str(other.root / ".torchyard")], check=True)
    with registries.running(binary, place / "shared") as host, faults.before(host) as proxy:
        try:
            reaching(yard, tmp_path, proxy.host).yard("push", "--gpu", "cpu", "--registry", "one").good()
            first = kept(place / "shared")
            there = reaching(other, tmp_path, proxy.host)
            there.yard("build", "--gpu", "cpu", "--level", "identity").good()
            assert there.receipt(there.image("cpu"))["digest"] != cpu["digest"]
            there.yard("push", "--gpu", "cpu", "--registry", "one").good()
            second = kept(place / "shared") - first
            print(f"first {first / 1e6:.1f} MB, second {second / 1e6:.1f} MB", file=sys.stderr)
            assert 0 < second < 0.05 * first
        finally:
            (yard.root / "images" / cpu["image"] / "published.yaml").unlink(missing_ok=True)
            clones.end_tree(other.root)
            yard.yard("build", "--gpu", "cpu", "--level", "identity").good()  # both clones give the tag to theirs
    assert yard.receipt(cpu["image"])["digest"] == cpu["digest"]
    clones.end_tree(place / "shared")


def kept(registry: Path) -> int:
    """The bytes of all blobs that a registry keeps."""
    return sum(path.stat().st_size for path in (registry / "data").rglob("blobs/sha256/*/*/data"))
