"""Wheels resolved and fetched from real index processes on loopback; no Docker engine is needed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from torchyard.errors import CheckFailed, Incompatible, InputError, Problems, Surroundings
from torchyard.wheelpin import WheelPin
from torchyard.world import pipconf, wheels
from torchyard.world.pipconf import PipSettings
from torchyard.world.store import Store
from torchyard.world.wheel_index import WheelIndex

CP311 = "cp311-cp311-manylinux_2_28_x86_64"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    filler: bytes = b"",
) -> Path:
    """A wheel of this name and version that requires these; equal arguments give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/__init__.py": filler,
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {r}" for r in requires),
                "",
            ]
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data)
    return path


@dataclass(frozen=True)
class Index:
    """A running index: its address, its folder of files, and how it behaves."""

    url: str
    folder: Path

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def requests(self) -> list[str]:
        log = self.folder / "requests.txt"
        return log.read_text().splitlines() if log.exists() else []

    def behave(self, **how: Any) -> None:
        (self.folder / "how.json").write_text(json.dumps(how))

    def add(self, name: str, version: str, **kind: Any) -> Path:
        return make_wheel(self.files, name, version, **kind)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Index]]:
    """Start an index of this name, with TLS where a key file is given; all are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(name: str, *pem: Path) -> Index:
        folder = tmp_path / name
        (folder / "files").mkdir(parents=True)
        (folder / "how.json").write_text("{}")
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("wheel_server.py")), str(folder), *map(str, pem)],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(server)
        assert server.stdout is not None
        scheme = "https" if pem else "http"
        return Index(url=f"{scheme}://127.0.0.1:{int(server.stdout.readline())}/simple", folder=folder)

    yield start
    for server in running:
        server.kill()
        server.communicate()


@pytest.fixture
def pypi(serve: Callable[..., Index]) -> Index:
    """An index with torch 1.10.2 and a dependency of it."""
    index = serve("pypi")
    index.add("torch", "1.10.2", tag=CP311, requires=("typing-extensions",))
    index.add("typing_extensions", "4.0")
    index.add("typing_extensions", "4.1")
    return index


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine's pip or uv, and no proxy, reach a test."""
    for name in [each for each in os.environ if each.startswith(("PIP_", "UV_")) or each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def places(
    index_url: str, *extra: str, links: tuple[str, ...] = (), mirrors: dict[str, str] | None = None
) -> WheelIndex:
    settings = PipSettings(index_url=index_url, extra_index_urls=extra, find_links=links, retries=0)
    return WheelIndex(settings, mirrors, pause=lambda _: None)


def resolve(
    at: WheelIndex, *requirements: str, torch: str = "1.10.2", index: str = "pypi", **more: Any
) -> tuple[WheelPin, ...]:
    return wheels.resolve(
        requirements, torch=torch, python="3.11", arch="x86_64", glibc="2.36", index=index, places=at, **more
    )


def versions(pins: tuple[WheelPin, ...]) -> dict[str, str]:
    return {pin.name: pin.version for pin in pins}


def test_each_distribution_is_pinned_to_one_file_with_hash_size_and_dependencies(pypi: Index) -> None:
    pins = resolve(places(pypi.url))
    torch, typing = pins
    assert versions(pins) == {"torch": "1.10.2", "typing-extensions": "4.1"}
    assert torch.requires == ("typing-extensions",)
    assert typing.requires == ()
    assert {pin.index for pin in pins} == {"pypi"}
    for pin in pins:
        data = (pypi.files / pin.file).read_bytes()
        assert (pin.sha256, pin.size) == (hashlib.sha256(data).hexdigest(), len(data))


def test_resolving_twice_and_from_the_other_kind_of_page_gives_the_same_pins(pypi: Index) -> None:
    first = resolve(places(pypi.url))
    assert resolve(places(pypi.url)) == first
    pypi.behave(kind="html", ranges=False)
    assert resolve(places(pypi.url)) == first


def test_of_several_wheels_of_a_version_the_best_for_the_target_is_taken(pypi: Index) -> None:
    for tag in ("py3-none-any", "cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_40_x86_64", CP311,
                "cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_28_aarch64"):  # fmt: skip
        pypi.add("fast", "1.0", tag=tag)
    pins = resolve(places(pypi.url), "fast")
    assert next(pin.file for pin in pins if pin.name == "fast") == f"fast-1.0-{CP311}.whl"


def test_existing_pins_stay_where_they_still_satisfy(pypi: Index) -> None:
    locked = tuple(
        replace(pin, version="4.0", file="typing_extensions-4.0-py3-none-any.whl", sha256=hashlib.sha256(
            (pypi.files / "typing_extensions-4.0-py3-none-any.whl").read_bytes()).hexdigest())
        if pin.name == "typing-extensions" else pin
        for pin in resolve(places(pypi.url))
    )  # fmt: skip
    assert resolve(places(pypi.url), prefer=locked) == locked
    assert versions(resolve(places(pypi.url), "typing-extensions>4", prefer=locked))["typing-extensions"] == "4.1"


def test_a_locked_wheel_whose_hash_on_the_index_changed_stops_the_lock(pypi: Index) -> None:
    locked = resolve(places(pypi.url))
    pypi.add("typing_extensions", "4.1", filler=b"other")
    with pytest.raises(CheckFailed, match="changed since it was locked") as caught:
        resolve(places(pypi.url), prefer=locked)
    assert locked[1].sha256 in caught.value.what
    assert "lock --upgrade typing-extensions" in caught.value.hint


def test_an_index_with_a_version_and_its_builds_gives_exactly_the_build_that_was_asked_for(pypi: Index) -> None:
    for local in ("cu113", "cpu", "rocm4.2"):
        pypi.add("torch", f"1.10.2+{local}", tag=CP311)
    for torch in ("1.10.2", "1.10.2+cu113", "1.10.2+cpu"):
        assert versions(resolve(places(pypi.url), torch=torch))["torch"] == torch


def test_a_cpu_index_inherited_from_the_environment_never_replaces_a_cuda_build(
    pypi: Index, serve: Callable[..., Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = serve("cpu")
    cpu.add("torch", "1.10.2+cpu", tag=CP311)
    cpu.add("torchvision", "0.11.3+cpu", tag=CP311, requires=("torch==1.10.2",))
    pypi.add("torchvision", "0.11.2", tag=CP311, requires=("torch==1.10.2",))
    monkeypatch.setenv("PIP_INDEX_URL", pypi.url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", cpu.url)
    settings = pipconf.read()
    assert settings.extra_index_urls == (cpu.url,)
    pins = resolve(WheelIndex(settings), "torchvision")
    assert versions(pins) == {"torch": "1.10.2", "torchvision": "0.11.2", "typing-extensions": "4.1"}


def test_a_distribution_bound_to_torch_is_never_taken_from_another_build(pypi: Index) -> None:
    pypi.add("torch", "1.10.2+cpu", tag=CP311)
    pypi.add("torchvision", "0.11.3", tag=CP311, requires=("torch==1.10.2",))
    pypi.add("models", "1.0", requires=("torchvision",))
    with pytest.raises(InputError, match="belongs to other builds of torch: 0.11.3"):
        resolve(places(pypi.url), "models", torch="1.10.2+cpu")


def test_variables_and_files_that_steer_pip_or_uv_do_not_reach_the_resolver(
    pypi: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = resolve(places(pypi.url))
    steering = tmp_path / "constraints.txt"
    steering.write_text("torch<1\ntyping-extensions<4.1\n")
    config = tmp_path / "pip.conf"
    config.write_text(
        f"[global]\nindex-url = {pypi.url}\nconstraint = {steering}\n[install]\npre = true\nuser = true\n"
    )
    for name, value in {
        "UV_INDEX_URL": NOWHERE, "UV_EXCLUDE_NEWER": "2001-01-01", "UV_CONSTRAINT": str(steering),
        "UV_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_PRERELEASE": "allow", "UV_RESOLUTION": "lowest",
        "PIP_CONSTRAINT": str(steering), "PIP_NO_DEPS": "1", "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_CONFIG_FILE": str(config), "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    pypi.add("typing_extensions", "5.0rc1")
    assert resolve(WheelIndex(pipconf.read())) == expected


def test_a_package_that_needs_another_torch_is_named_with_a_version_that_agrees(pypi: Index) -> None:
    pypi.add("needs_torch", "1.0", requires=("torch==2.0.1",))
    pypi.add("needs_torch", "1.1", requires=("torch>=1.10",))
    with pytest.raises(
        Incompatible, match=r"needs-torch\S+ depends on torch==2\.0\.1 and you require torch==1\.10\.2"
    ) as caught:
        resolve(places(pypi.url), "needs-torch==1.0")
    assert caught.value.where == "needs-torch==1.0"
    assert "needs-torch==1.1" in caught.value.hint


def test_a_version_that_is_not_there_is_told_with_the_nearest(pypi: Index) -> None:
    with pytest.raises(InputError, match=r"no wheel of torch fits ==1\.11\.0") as caught:
        resolve(places(pypi.url), torch="1.11.0")
    assert "1.10.2" in caught.value.hint
    with pytest.raises(InputError, match=r"typing-extensions fits ==4\.9") as caught:
        resolve(places(pypi.url), "typing-extensions==4.9")
    assert "4.0, 4.1" in caught.value.hint


def test_a_distribution_without_a_wheel_for_the_target_is_told_with_what_it_has(pypi: Index) -> None:
    (pypi.files / "only_source-1.0.tar.gz").write_bytes(b"")
    pypi.add("elsewhere", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    with pytest.raises(Problems) as caught:
        resolve(places(pypi.url), "only-source", "elsewhere")
    elsewhere, source = caught.value.problems()
    assert "elsewhere has no wheel for Python 3.11 on x86_64 with glibc 2.36; it has wheels for cp312" in elsewhere.what
    assert "only-source 1.0 exists only as source" in source.what


def test_a_project_that_is_nowhere_is_told_by_name(pypi: Index) -> None:
    with pytest.raises(InputError, match="there is no distribution no-such-thing"):
        resolve(places(pypi.url), "no-such-thing")


def test_a_broken_wheel_matters_only_where_it_is_needed(pypi: Index) -> None:
    pypi.add("whole", "1.0")
    pypi.add("whole", "0.9").write_bytes(b"no archive")
    assert versions(resolve(places(pypi.url), "whole"))["whole"] == "1.0"
    with pytest.raises(CheckFailed, match="whole-0.9-py3-none-any.whl cannot be read as a wheel"):
        resolve(places(pypi.url), "whole<1")


def test_an_index_that_is_down_is_the_fault_of_the_surroundings() -> None:
    with pytest.raises(Surroundings, match="cannot be reached"):
        resolve(places(NOWHERE))


def test_a_build_whose_own_index_is_down_is_served_by_a_directory(pypi: Index, tmp_path: Path) -> None:
    make_wheel(tmp_path / "links", "torch", "1.10.2+cpu", tag=CP311, requires=("typing-extensions",))
    said: list[str] = []
    at = places(pypi.url, links=(str(tmp_path / "links"),), mirrors={"pytorch": NOWHERE})
    pins = resolve(at, torch="1.10.2+cpu", index="pytorch-cpu", say=said.append)
    assert [(pin.name, pin.version, pin.index) for pin in pins] == [
        ("torch", "1.10.2+cpu", "pytorch-cpu"),
        ("typing-extensions", "4.1", "pypi"),
    ]
    assert any("pytorch-cpu does not answer" in line for line in said)
    with pytest.raises(Surroundings, match=r"torch==1\.10\.9\+cpu is in no place that answers") as caught:
        resolve(at, torch="1.10.9+cpu", index="pytorch-cpu")
    assert "1.10.2+cpu" in caught.value.hint


def test_a_mirror_of_the_builds_index_serves_torch_and_what_is_nowhere_else(
    pypi: Index, serve: Callable[..., Index]
) -> None:
    own = serve("own")
    own.add("torch", "1.10.2", tag=CP311, requires=("typing-extensions", "special"))
    own.add("special", "1.0")
    own.add("typing_extensions", "9.9")
    prefix, _, build = own.url.rpartition("/")
    pins = resolve(places(pypi.url, mirrors={"pytorch": prefix}), torch="1.10.2", index=f"pytorch-{build}")
    assert [(pin.name, pin.version, pin.index) for pin in pins] == [
        ("special", "1.0", "pytorch-simple"),
        ("torch", "1.10.2", "pytorch-simple"),
        ("typing-extensions", "4.1", "pypi"),
    ]
    assert pins[1].sha256 == hashlib.sha256((own.files / pins[1].file).read_bytes()).hexdigest()


def test_wheels_uploaded_after_a_day_are_not_seen(pypi: Index) -> None:
    pypi.behave(uploaded={"typing_extensions-4.1-py3-none-any.whl": "2024-05-02T00:00:01Z"})
    assert versions(resolve(places(pypi.url), exclude_newer=date(2024, 5, 1)))["typing-extensions"] == "4.0"
    assert versions(resolve(places(pypi.url), exclude_newer=date(2024, 5, 2)))["typing-extensions"] == "4.1"


def test_a_login_comes_from_the_address_or_from_netrc(
    pypi: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = resolve(places(pypi.url))
    pypi.behave(login="me:secret")
    with pytest.raises(Surroundings, match="answers 401") as caught:
        resolve(places(pypi.url))
    assert "secret" not in caught.value.where
    with_login = pypi.url.replace("http://", "http://me:secret@")
    assert resolve(places(with_login)) == expected
    assert wheels.fetch(expected, Store(tmp_path / "store"), places(with_login)) == expected
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert resolve(places(pypi.url)) == expected


def test_an_index_behind_a_private_authority_is_reached_with_pips_certificate_and_only_with_it(
    serve: Callable[..., Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate, both = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=corporate",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    index = serve("tls", both)
    index.add("torch", "1.10.2", tag=CP311)
    with pytest.raises(Surroundings, match="certificate") as caught:
        resolve(places(index.url))
    assert "global.cert" in caught.value.hint
    for settings in (
        PipSettings(index_url=index.url, cert=str(certificate), retries=0),
        PipSettings(index_url=index.url, trusted_hosts=("127.0.0.1",), retries=0),
    ):
        at = WheelIndex(settings)
        pins = resolve(at)
        assert versions(pins) == {"torch": "1.10.2"}
        assert wheels.fetch(pins, Store(tmp_path / f"store-{len(settings.cert)}"), at) == pins


def test_fetching_brings_every_wheel_into_the_store_and_a_second_time_nothing(pypi: Index, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    pins = resolve(places(pypi.url))
    seen: list[wheels.Progress] = []
    assert wheels.fetch(pins, store, places(pypi.url), progress=seen.append) == pins
    assert all(store.has(pin.sha256, pin.size) for pin in pins)
    assert seen[-1].done == seen[-1].total == sum(pin.size for pin in pins)
    asked = len(pypi.requests)
    assert wheels.fetch(pins, store, places(pypi.url)) == ()
    assert len(pypi.requests) == asked


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_is_cut_twice_is_finished(pypi: Index, tmp_path: Path, ranges: bool) -> None:
    file = pypi.add("big", "1.0", filler=os.urandom(1 << 20))
    pins = tuple(pin for pin in resolve(places(pypi.url), "big") if pin.name == "big")
    pypi.behave(cut={file.name: [0.3, 0.6]}, ranges=ranges)
    before = len(pypi.requests)
    store = Store(tmp_path / "store")
    wheels.fetch(pins, store, places(pypi.url))
    assert store.path(pins[0].sha256).read_bytes() == file.read_bytes()
    assert sum(file.name in line for line in pypi.requests[before:]) == 3


def test_a_server_that_gives_other_bytes_than_its_page_says_is_told_with_both_hashes(
    pypi: Index, tmp_path: Path
) -> None:
    pins = resolve(places(pypi.url))[:1]
    data = pypi.add("torch", "1.10.2", tag=CP311, filler=b"x").read_bytes()
    pypi.behave(claimed={pins[0].file: pins[0].sha256})
    at = places(pypi.url)
    with pytest.raises(CheckFailed, match="not the file that was locked") as caught:
        wheels.fetch((replace(pins[0], size=len(data)),), Store(tmp_path / "store"), at)
    assert pins[0].sha256 in caught.value.what and hashlib.sha256(data).hexdigest() in caught.value.what


def test_wheels_that_changed_or_vanished_are_all_named_with_expected_seen_and_the_ways_on(
    pypi: Index, tmp_path: Path
) -> None:
    pins = resolve(places(pypi.url))
    changed = pypi.add("torch", "1.10.2", tag=CP311, filler=b"rebuilt")
    (pypi.files / "typing_extensions-4.1-py3-none-any.whl").unlink()
    with pytest.raises(Problems) as caught:
        wheels.fetch(pins, Store(tmp_path / "store"), places(pypi.url))
    torch, typing = caught.value.problems()
    assert "not the file that was locked" in torch.what
    assert f"expected sha256 {pins[0].sha256}" in torch.what
    assert f"seen sha256 {hashlib.sha256(changed.read_bytes()).hexdigest()}" in torch.what
    assert "typing_extensions-4.1-py3-none-any.whl is no longer there" in typing.what
    assert "typing_extensions-4.0-py3-none-any.whl" in typing.what
    for problem in (torch, typing):
        assert "find-links" in problem.hint and "./yard lock --upgrade" in problem.hint


def test_a_page_that_still_names_a_file_that_is_gone_is_told_as_vanished(pypi: Index, tmp_path: Path) -> None:
    pins = resolve(places(pypi.url))
    pypi.behave(hidden=[pins[0].file])
    with pytest.raises(CheckFailed, match=r"no longer there.*404"):
        wheels.fetch(pins, Store(tmp_path / "store"), places(pypi.url))


def test_a_directory_serves_a_fetch_when_no_index_answers(pypi: Index, tmp_path: Path) -> None:
    pins = resolve(places(pypi.url))
    store = Store(tmp_path / "store")
    wheels.fetch(pins, store, places(NOWHERE, links=(str(pypi.files),)))
    assert all(store.has(pin.sha256, pin.size) for pin in pins)


def test_another_file_of_the_same_name_in_a_directory_is_not_taken(pypi: Index, tmp_path: Path) -> None:
    links = tmp_path / "links"
    make_wheel(links, "torch", "1.10.2", tag=CP311, filler=b"built here")
    at = places(pypi.url, links=(str(links),))
    pins = resolve(at)
    assert pins[0].sha256 == hashlib.sha256((pypi.files / pins[0].file).read_bytes()).hexdigest()
    store = Store(tmp_path / "store")
    wheels.fetch(pins, store, at)
    assert store.has(pins[0].sha256)


def test_an_index_in_a_directory_serves_like_one_on_a_server(pypi: Index, tmp_path: Path) -> None:
    expected = resolve(places(pypi.url))
    simple = tmp_path / "local" / "simple"
    for project in ("torch", "typing-extensions"):
        (simple / project).mkdir(parents=True)
        links = "".join(
            f'<a href="../../files/{pin.file}#sha256={pin.sha256}">x</a>' for pin in expected if pin.name == project
        )
        (simple / project / "index.html").write_text(links)
    (tmp_path / "local" / "files").symlink_to(pypi.files)
    assert resolve(places(simple.as_uri())) == expected
