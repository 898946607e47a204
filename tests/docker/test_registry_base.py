"""Bases from a registry: a real docker-registry on loopback, with and without log-in, and an image built on one."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import registry_process as registries
from archive_server import ESSENTIAL, SmallArchive, served
from registry_process import NAME, PASSWORD, TokenServer, digest_of, image, push, tar_of

from torchyard import oci, render
from torchyard.errors import Incompatible, Surroundings
from torchyard.plan import BaseKind
from torchyard.verbs import build, fetch, lock, project
from torchyard.verbs.project import Project
from torchyard.world import archive, bases, bootstrap, engine, process, registry, registry_layers, workspace
from torchyard.world.archive import Archives
from torchyard.world.bootstrap import Builder
from torchyard.world.engine import Engine
from torchyard.world.store import Store

STEPS = workspace.packaged_templates() / "steps"
SMALL = image([tar_of({"etc/one": b"1"}), tar_of({"etc/two": b"2"})], {"Env": ["PATH=/bin", "LANG=C"], "User": "7"})
OTHER = image([tar_of({"etc/one": b"other"})], {})
ARM = image([tar_of({"etc/arm": b"1"})], {}, machine="arm64")


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    return registries.program(tmp_path_factory.mktemp("registry-program"))


@pytest.fixture
def host(binary: str, tmp_path: Path) -> Iterator[str]:
    with registries.running(binary, tmp_path / "registry") as host:
        yield host


def log_in(host: str, folder: Path, monkeypatch: pytest.MonkeyPatch, password: str = PASSWORD) -> None:
    """What `docker login` leaves behind."""
    folder.mkdir()
    auth = base64.b64encode(f"{NAME}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


def log_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("TORCHYARD_ENGINE_HOME", "/nonexistent/engine")  # the folder's path may be too long for a socket


def test_a_tag_means_the_digest_that_was_pushed_and_its_layers_come_into_the_store(host: str, tmp_path: Path) -> None:
    push(host, "small", "1", SMALL)
    said: list[str] = []
    digest = registry.resolve(f"{host}/small:1", "x86_64")
    start = registry.pull(f"{host}/small:1", digest, "x86_64", Store(tmp_path / "a" / "store"), said.append)
    assert digest == SMALL.digest and [layer.digest for layer in start.layers] == SMALL.layers
    assert [layer.unpacked for layer in start.layers] == [len(tar_of({"etc/one": b"1"}))] * 2
    assert start.layers[0].diff_id == digest_of(tar_of({"etc/one": b"1"}))
    assert all(Store(tmp_path / "a" / "store").has(x.digest.removeprefix("sha256:"), x.size) for x in start.layers)
    assert json.loads(start.config)["Env"][1:] == ["LANG=C"] and "User" in said[-1]


def test_what_is_in_the_store_is_pulled_without_the_registry(binary: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "store")
    with registries.running(binary, tmp_path / "registry") as host:
        push(host, "small", "1", SMALL)
        first = registry.pull(f"{host}/small:1", SMALL.digest, "x86_64", store, print)
    assert registry.pull(f"{host}/small:1", SMALL.digest, "x86_64", store, print) == first


def test_an_index_means_the_manifest_of_the_machine(host: str) -> None:
    both = registries.index({"arm64": ARM, "amd64": SMALL})
    for made in (ARM, SMALL):
        push(host, "both", made.digest, made)
    push(host, "both", "1", both)
    assert registry.resolve(f"{host}/both:1", "x86_64") == SMALL.digest
    assert registry.resolve(f"{host}/both:1", "aarch64") == ARM.digest
    assert registry.resolve(f"{host}/both@{both.digest}", "aarch64") == ARM.digest
    push(host, "both", "arm", ARM)
    with pytest.raises(Incompatible, match=r"no image for linux/amd64; it has linux/arm64"):
        registry.resolve(f"{host}/both:arm", "x86_64")


def test_a_tag_that_is_not_there_is_told_with_the_nearest(host: str) -> None:
    push(host, "debian", "12-slim", SMALL)
    push(host, "debian", "11-slim", OTHER)
    with pytest.raises(Surroundings, match="has no tag '12-slin' of debian") as caught:
        registry.resolve(f"{host}/debian:12-slin", "x86_64")
    assert "12-slim" in caught.value.hint
    with pytest.raises(Surroundings, match="has no debain:12-slim"):
        registry.resolve(f"{host}/debain:12-slim", "x86_64")


def test_a_layer_that_is_gone_is_named(host: str, tmp_path: Path) -> None:
    push(host, "small", "1", SMALL)
    registries.delete_blob(host, "small", SMALL.layers[1])
    with pytest.raises(Surroundings, match=f"does not serve the layer {SMALL.layers[1]}") as caught:
        registry.pull(f"{host}/small:1", SMALL.digest, "x86_64", Store(tmp_path / "a" / "store"), print)
    assert "404" in caught.value.what and "lock --upgrade os" in caught.value.hint


def test_a_registry_that_asks_for_a_password_gets_the_one_docker_has(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registries.running(binary, tmp_path / "r", registries.basic_auth(tmp_path / "auth")) as host:
        basic = {"Authorization": "Basic " + base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()}
        push(host, "small", "1", SMALL, basic)
        log_out(tmp_path / "nobody", monkeypatch)
        with pytest.raises(Surroundings, match="refuses .*401.*authentication required") as caught:
            registry.resolve(f"{host}/small:1", "x86_64")
        assert f"docker login {host}" in caught.value.hint
        log_in(host, tmp_path / "somebody", monkeypatch)
        store = Store(tmp_path / "a" / "store")
        assert registry.resolve(f"{host}/small:1", "x86_64") == SMALL.digest
        assert len(registry.pull(f"{host}/small:1", SMALL.digest, "x86_64", store, print).layers) == 2


@pytest.mark.parametrize("open_to_all", [True, False])
def test_a_registry_that_sends_for_a_token_gets_one(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_to_all: bool
) -> None:
    tokens = TokenServer(tmp_path / "tokens", open_to_all=open_to_all)
    try:
        with registries.running(binary, tmp_path / "r", tokens.settings) as host:
            write = {"Authorization": f"Bearer {tokens.token(['push', 'pull'], 'team/small')}"}
            push(host, "team/small", "1", SMALL, write)
            log_out(tmp_path / "nobody", monkeypatch)
            if not open_to_all:
                with pytest.raises(Surroundings, match="refuses .*401") as caught:
                    registry.resolve(f"{host}/team/small:1", "x86_64")
                assert PASSWORD not in str(caught.value)
                log_in(host, tmp_path / "somebody", monkeypatch)
            store = Store(tmp_path / "a" / "store")
            assert registry.resolve(f"{host}/team/small:1", "x86_64") == SMALL.digest
            assert len(registry.pull(f"{host}/team/small:1", SMALL.digest, "x86_64", store, print).layers) == 2
    finally:
        tokens.close()


@dataclass(frozen=True, kw_only=True)
class Real:
    """A Debian base as bootstrapped, to be pushed, and the engine."""

    layer: bytes  # the plain tar
    status: str
    engine: Engine


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    root = tmp_path_factory.mktemp("real")
    found = engine.ensure(print)
    archives = Archives(store=Store(root / "store"), cache=root / "lists", mirrors=[], say=print)
    answer = archive.resolve("debian-12", "x86_64", {"base": ()}, archives=archives)
    archive.fetch(answer.pins, os="debian-12", arch="x86_64", archives=archives, dates=answer.dates)
    layout = bootstrap.build_base(
        answer.pins,
        store=archives.store,
        epoch=answer.epoch,
        os="debian-12",
        arch="x86_64",
        builder=Builder(argv=found.buildx, env=found.env),
        cache=root / "bases",
        say=print,
    )
    blob = layout.blob.read_bytes()
    with archives.store.incoming() as stream:
        stream.write(blob)
        stream.flush()
        archives.store.keep(Path(stream.name))
    status = registry_layers.read([layout.layer], ["var/lib/dpkg/status"], archives.store)["var/lib/dpkg/status"]
    return Real(layer=gzip.decompress(blob), status=status.decode(), engine=found)


def older(status: str, package: str, version: str) -> str:
    """A status in which a package has another version."""
    return re.sub(rf"(?ms)(^Package: {package}\n.*?^Version: )[^\n]+", rf"\g<1>{version}", status)


def project_on(ref: str, root: Path) -> Project:
    root.mkdir()
    (root / "env.yaml").write_text(
        "schema: 1\nproject: registry-base\nhardware:\n  cpu: {torch: '2.13.0'}\n"
        f"software:\n  base: {{from: image, os: debian-12, ref: '{ref}'}}\n  python: '3.11'\n"
    )
    return project.load(root)


def test_an_image_is_built_on_a_registry_image_of_the_locked_digest(real: Real, host: str, tmp_path: Path) -> None:
    changed = tar_of({"var/lib/dpkg/status": older(real.status, "libc6", "2.36-9").encode()})
    pushed = image([real.layer, changed], {"Env": ["GREETING=hello"], "User": "nobody", "Cmd": ["bash"]})
    push(host, "debian", "12-slim", pushed)
    here = project_on(f"{host}/debian:12-slim", tmp_path / "project")
    images = project.select(here, gpu="cpu")
    said: list[str] = []
    lock.lock(here, images, say=said.append)
    locked = project.fresh_lock(here.work, images[0])
    assert (locked.base.kind, locked.base.digest) == (BaseKind.IMAGE, pushed.digest)
    assert not locked.group("base") and "libc6" in {pin.name for pin in locked.group("os")}
    assert "bash" not in {pin.name for pin in locked.os}
    assert any("its environment and labels are kept, not its Cmd, User" in line for line in said)

    push(host, "debian", "12-slim", OTHER)
    assert OTHER.digest in bases.moved(locked)
    tag = render.tag("registry-base", locked.id)
    asked = "echo $GREETING; dpkg --audit; python3 -c 'import torch; print(torch.__version__)'"
    try:
        receipt = build.build(here, images, build.Options(level="static"), say=said.append)[0][0]
        assert receipt.layers[:2] == (digest_of(real.layer), digest_of(changed))
        run = engine.client(real.engine).containers.run
        shown = run(tag, ["sh", "-c", asked], remove=True, network_mode="none")
        assert shown.decode().split() == ["hello", "2.13.0+cpu"]
    finally:
        engine.client(real.engine).images.remove(tag, force=True)
    assert project.fresh_lock(here.work, images[0]) == locked

    gone = pushed.layers[1]
    registries.delete_blob(host, "debian", gone)
    here.work.store.path(gone.removeprefix("sha256:")).unlink()
    with pytest.raises(Surroundings, match=f"does not serve the layer {gone}"):
        fetch.fetch(here, [locked], say=said.append)


def test_packages_are_installed_on_a_registry_image_without_apt(real: Real, host: str, tmp_path: Path) -> None:
    changed = {"var/lib/dpkg/status": older(real.status, "libc6", "2.36-9").encode(), "usr/bin/.wh.apt-get": b""}
    pushed = image([real.layer, tar_of(changed)], {})
    push(host, "debian", "12-dpkg", pushed)
    ref, store = f"{host}/debian:12-dpkg", Store(tmp_path / "local" / "store")
    start = registry.pull(ref, pushed.digest, "x86_64", store, print)
    archives = Archives(store=store, cache=tmp_path / "lists", mirrors=[], say=print)
    answer = archive.resolve(
        "debian-12",
        "x86_64",
        {"base": (), "os": ("libc6-dev", "python3")},
        archives=archives,
        installed=registry.packages(start, ref, "debian-12", store),
    )
    archive.fetch(answer.pins, os="debian-12", arch="x86_64", archives=archives, dates=answer.dates)
    for pin in answer.pins:
        store.link(pin.sha256, tmp_path / "debs" / Path(pin.path).name)
    (tmp_path / "empty" / "Dockerfile").parent.mkdir()
    (tmp_path / "empty" / "Dockerfile").write_text(
        "FROM base\nRUN --network=none --mount=type=bind,from=steps,target=/run/yard/steps"
        " --mount=type=bind,from=debs,target=/run/yard/debs ! command -v apt-get && sh /run/yard/steps/install-debs &&"
        " python3 -c 'print(1)' && dpkg-query -W -f '${Package} ${Version}\\n' >/seen\n"
        "FROM scratch\nCOPY --from=0 /seen /\n"
    )
    contexts = {"base": layout(start, store, tmp_path / "layout"), "debs": str(tmp_path / "debs"), "steps": str(STEPS)}
    process.run(
        [
            *real.engine.buildx,
            "build",
            "--no-cache",
            "--provenance=false",
            "--output",
            f"type=local,dest={tmp_path}/out",
        ]
        + [word for name, value in contexts.items() for word in ("--build-context", f"{name}={value}")]
        + [str(tmp_path / "empty")],
        env=dict(real.engine.env),
    )
    seen = set((tmp_path / "out" / "seen").read_text().splitlines())
    assert {f"{pin.name} {pin.version}" for pin in answer.pins} <= seen
    assert {"libc6", "libc6-dev", "python3"} <= {pin.name for pin in answer.pins}


def test_a_lock_on_an_image_has_what_the_image_lacks_and_upgrades_only_what_has_to_be_newer(tmp_path: Path) -> None:
    small = SmallArchive(tmp_path / "archive")
    try:
        small.add("base-files", "13", ESSENTIAL)
        small.add("lib", "1.1")
        small.add("exact", "1.1", "Depends: lib (= 1.1)\n")
        small.add("tool", "2.0", "Depends: lib, dep\n")
        small.add("dep", "2.0")
        small.publish(1_700_000_000)
        with served(small) as uri:
            (tmp_path / "mirrors.yaml").write_text(
                f"mirrors:\n  debian: {{release: '{uri}', updates: null, security: null, keyring: '{small.keyring}'}}\n"
            )
            store = Store(tmp_path / "store")
            archives = Archives(store=store, cache=tmp_path / "lists", mirrors=[tmp_path / "mirrors.yaml"], say=print)
            status = "".join(
                f"Package: {name}\nStatus: install ok installed\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@x>\n"
                "Description: x\n\n"
                for name in ("base-files", "lib", "dep", "foreign")
            )

            def resolve(*names: str) -> set[tuple[str, str, str]]:
                groups = {"base": (), "os": ("lib",), "user": names}
                answer = archive.resolve("debian-12", "x86_64", groups, archives=archives, installed=status)
                return {(pin.group, pin.name, pin.version) for pin in answer.pins}

            assert resolve("tool", "dep") == {("user", "tool", "2.0")}
            assert resolve("exact") == {("user", "exact", "1.1"), ("user", "lib", "1.1")}
            status = status.replace("Version: 1.0", "Version: 1.2")
            with pytest.raises(Incompatible, match="exact") as caught:
                resolve("exact")
            assert "another base image" in caught.value.hint
    finally:
        small.close()


def layout(start: oci.Start, store: Store, folder: Path) -> str:
    """The build context of an image that is just its base."""
    documents = oci.documents(start, [], arch="x86_64", epoch=0)
    blobs = folder / "blobs" / "sha256"
    for layer in start.layers:
        store.link(layer.digest.removeprefix("sha256:"), blobs / layer.digest.removeprefix("sha256:"))
    for document in (documents.config, documents.manifest):
        (blobs / digest_of(document).removeprefix("sha256:")).write_bytes(document)
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (folder / "index.json").write_bytes(documents.index)
    return f"oci-layout://{folder}@{documents.digest}"
