"""Reports of real failures with compose, engines, CDI, MIG and the ends of commands, each with its right outcome."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from fake_engine import FakeEngine
from test_containers_owner import owner_that_is_gone
from test_inside_gpu_access import host
from test_reported_cases import planned, told
from test_reported_limits import CELL
from test_stack import ENTRY, HOST, decide
from test_stack_compose import ENGINE
from test_stack_files import made
from test_stack_launch import FOLDER, load

from torchyard.errors import Exit, InputError, Surroundings
from torchyard.finding import State
from torchyard.judge.cpu_facts import NoGpu
from torchyard.plan import CellState
from torchyard.stack import Wish
from torchyard.verbs import run
from torchyard.world import compose, containers, devices, gpu_access
from torchyard.world.workspace import Workspace

HARDWARE = 'software: {{torch: "2.14.1"}}\nhardware: {{a: {{gpu: a100, {}}}}}\n'
SPECIFICATION = """\
cdiVersion: 0.6.0
kind: nvidia.com/gpu
devices: [{{name: "0"}}, {{name: all}}]
containerEdits:
  mounts: [{{hostPath: /usr/lib/libcuda.so.{driver}, containerPath: /usr/lib/libcuda.so.{driver}}}]
"""


@pytest.mark.parametrize("version", ["1.17.1", "2.19.3", "docker-compose version 1.29.2, build 5becea4c"])
def test_b078_an_old_compose_is_told_before_anything_starts(version: str) -> None:
    """That every stack is valid for a new one is in test_compose.py."""
    with pytest.raises(Surroundings, match=r"2\.20 or newer is needed") as caught:
        compose.require(replace(ENGINE, compose=("printf", f"{version}\\n%.0s")))
    assert version.split(",")[0] in caught.value.what and caught.value.hint


@pytest.mark.parametrize("version", ["2.20.0", "v2.26.1-4", "5.0.0"])
def test_b078_a_newer_compose_is_taken(version: str) -> None:
    compose.require(replace(ENGINE, compose=("printf", f"{version}\\n%.0s")))


def test_b080_devices_are_always_named_as_text_and_never_counted_as_well() -> None:
    for count in (1, 2, 3):
        for name, service in yaml.safe_load(made()[PurePosixPath(f"compose/devices-cdi-{count}.yaml")])[
            "services"
        ].items():
            for asked in service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", ()):
                assert "count" not in asked, name
                assert asked["device_ids"] and all(isinstance(each, str) for each in asked["device_ids"])
    assert decide(wish=Wish(devices=("0", "1"))).variables["TORCHYARD_DEVICES"] == "cdi-2"
    assert decide(replace(ENTRY, gpus=0)).variables["TORCHYARD_DEVICES"] == "none"


@pytest.mark.parametrize("written", ['count: "2"', "count: all", "count: [0, 1]", "count: 0", "count: 2.0"])
def test_b080_a_count_that_is_no_number_of_gpus_is_refused(written: str) -> None:
    assert "hardware.a.count" in told(HARDWARE.format(written)).where


def test_b080_a_count_and_ids_exclude_each_other_because_there_are_no_ids_in_the_file() -> None:
    error = told(HARDWARE.format('count: 1, device_ids: ["0"]'))
    assert "device_ids" in error.what + error.where


def test_b082_swarm_is_refused_with_what_there_is_instead() -> None:
    error = told('software: {torch: "2.14.1"}\nsites: {lab: {runs: swarm}}\nhardware: {a: {gpu: a100, site: lab}}\n')
    assert "swarm" in error.what
    assert all(each in error.what + error.hint for each in ("compose", "slurm", "kubernetes"))


def test_b084_a_specification_where_the_engine_does_not_look_is_named(tmp_path: Path) -> None:
    here, read = tmp_path / "run", tmp_path / "etc"
    for folder in (here, read):
        folder.mkdir()
    (here / "nvidia.yaml").write_text(SPECIFICATION.format(driver="550.54.15"))
    apart = gpu_access.apart([str(read)], [str(here), str(read)])
    assert f"{here}/nvidia.yaml is there, and this engine reads {read} only" in apart
    found = gpu_access.choose(host(gpus=1, cdi_on=True, apart=apart), 1)
    assert found.missing is NoGpu.NO_CDI and apart in found.detail and "nvidia-ctk cdi generate" in found.detail
    assert gpu_access.apart([str(here)], [str(here), str(read)]) == ""
    (tmp_path / "link").symlink_to(here)
    assert gpu_access.apart([str(tmp_path / "link")], [str(here)]) == ""


def test_b084_a_specification_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "nvidia.yaml"
    closed.write_text(SPECIFICATION.format(driver="550.54.15"))
    read = Path.read_text

    def read_text(path: Path, *words: Any, **more: Any) -> str:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *words, **more)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert gpu_access.apart([str(tmp_path)], []) == f"{closed} cannot be read"


@pytest.mark.parametrize(("driver", "stale"), [("535.129.03", True), ("550.54.15", False), ("", False)])
def test_b084_a_specification_of_another_driver_is_named_with_both(tmp_path: Path, driver: str, stale: bool) -> None:
    (tmp_path / "nvidia.yaml").write_text(SPECIFICATION.format(driver="550.54.15"))
    read = devices.cdi_specifications([str(tmp_path)])
    said = gpu_access.stale(read, driver)
    assert bool(said) is stale
    if stale:
        assert f"{tmp_path}/nvidia.yaml is of driver 550.54.15, and {driver} runs" in said
        assert "nvidia-ctk cdi generate" in said
        told_of = gpu_access.choose(host(gpus=1, cdi=frozenset({"0"}), cdi_on=True, stale=said), 1)
        assert told_of.requests and told_of.detail == said
        finding = next(each for each in decide(host=replace(HOST, detail=said)).findings if each.rule == "stack.cdi")
        assert finding.state is State.FAIL and said in finding.seen


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, "~/.config/docker/daemon.json"),
        ({"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}, "/var/snap/docker/current/config/daemon.json"),
        ({"OperatingSystem": "Docker Desktop"}, "Docker Desktop's engine"),
    ],
)
def test_b086_the_engine_that_answers_is_named_with_the_file_that_it_reads(info: dict[str, Any], says: str) -> None:
    whose = gpu_access.whose(info)
    assert says in whose and "not /etc/docker/daemon.json" in whose
    found = gpu_access.choose(host(gpus=2, whose=whose), 2)
    assert found.missing is NoGpu.NO_RUNTIME and whose in found.detail


def test_b086_of_the_systems_own_engine_there_is_nothing_to_say() -> None:
    assert gpu_access.whose({"SecurityOptions": ["name=seccomp"], "DockerRootDir": "/var/lib/docker"}) == ""


def test_b086_what_is_on_this_machine_does_not_count_for_an_engine_elsewhere() -> None:
    seen = gpu_access._host({"Runtimes": {"runc": {}}, "CDISpecDirs": ["/etc/cdi"]}, "tcp://builder:2376")
    found = gpu_access.choose(seen, 1)
    assert "tcp://builder:2376" in found.detail and "do not count there" in found.detail
    served = gpu_access._host({"Runtimes": {"nvidia": {}}}, "tcp://builder:2376")
    assert gpu_access.choose(served, 1).requests


def test_b088_one_slice_is_for_one_process_and_two_are_two_jobs() -> None:
    """Two slices for one job are refused in test_stack.py."""
    (cell,) = planned(HARDWARE.format("mig: 3g.20gb, count: 2")).cells
    assert cell.state is not CellState.REFUSED
    entry = replace(ENTRY, mig="3g.20gb")
    slices = replace(HOST, names=frozenset({"0:0", "0:1", "all"}))
    made_of = decide(entry, slices)
    assert (made_of.devices, made_of.processes) == (("0:0",), 1)
    with pytest.raises(InputError, match="2 processes, .* one MIG slice") as caught:
        decide(entry, slices, Wish(processes=2))
    assert caught.value.code is Exit.INPUT and "a job of its own for each" in caught.value.hint


def test_b088_more_processes_than_gpus_are_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"3 processes, and rtx4090 gets 2 GPU"):
        decide(wish=Wish(processes=3))
    assert decide(wish=Wish(processes=1)).processes == 1


def test_b124_b128_what_is_started_has_a_name_and_a_label_and_goes_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupts are in test_cli.py, test_build_run.py and test_verify_cpu.py."""
    monkeypatch.chdir(tmp_path)
    options = run._options(Workspace(tmp_path), CELL, ENGINE, "torchyard-run-x", print)
    assert "--rm" in options
    assert options[options.index("--name") + 1] == "torchyard-run-x"
    assert f"{containers.LABEL}={containers.owner()}" in options


def test_b128_what_a_killed_command_left_is_swept_with_a_note_and_nothing_else() -> None:
    said: list[str] = []
    with FakeEngine() as fake:
        for name, owner in (("killed", owner_that_is_gone()), ("running", containers.owner()), ("anothers", "x-1")):
            fake.containers[name] = {"Labels": {containers.LABEL: owner}}
        containers.sweep(fake.engine, said.append)
        assert set(fake.containers) == {"running", "anothers"}
    assert said == ["removing killed: the command that started it was killed"]


def test_b129_the_driver_is_asked_whether_the_gpus_are_there() -> None:
    healthy: Any = load("healthy")
    assert healthy.trouble(Driver(2)) == ""
    assert healthy.trouble(Driver(1, handle=4)) == ""  # the card behind a MIG slice
    assert healthy.trouble(Driver(2, init=999)) == "the driver does not answer: Unknown Error (999)"
    assert healthy.trouble(Driver(0)) == "the driver shows no GPU: Unknown Error (0)"
    assert healthy.trouble(Driver(2, handle=15)) == "GPU 0 of 2 is lost: Unknown Error (15)"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a driver")
def test_b129_without_the_drivers_library_a_container_is_not_healthy() -> None:
    done = subprocess.run([sys.executable, FOLDER / "healthy.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the driver's library is not in this container" in done.stdout


def test_b129_every_service_with_gpus_is_looked_at_and_one_that_lost_them_is_told() -> None:
    for name in ("devices-cdi-2", "devices-nvidia"):
        services = yaml.safe_load(made()[PurePosixPath(f"compose/{name}.yaml")])["services"]
        for service in ("train", "shell", "jupyter"):
            check = services[service]["healthcheck"]
            assert check["test"] == ["CMD", "python", "/workspace/compose/healthy.py"]
            assert (check["retries"], check["timeout"]) == (2, "10s")
    lost = {"Status": "unhealthy", "Log": [{"Output": "early"}, {"Output": "the driver does not answer\n"}]}
    assert compose.unhealthy({"Status": "running", "Health": lost}) == "the driver does not answer"
    assert compose.unhealthy({"Status": "running", "Health": {"Status": "healthy", "Log": []}}) == ""
    assert compose.unhealthy({"Status": "running"}) == ""


def test_b131_a_container_whose_making_was_never_answered_is_removed() -> None:
    assert containers.CREATE_TIMEOUT > 130
    with FakeEngine(mute=True) as fake:
        with pytest.raises(Surroundings, match="the engine did not run image") as caught:
            containers.run(fake.engine, "image", ["true"])
        assert ("POST", "/containers/create") in fake.asked and fake.containers == {}
    assert caught.value.hint


def test_b131_an_engine_that_answers_in_time_runs_it_and_keeps_nothing() -> None:
    with FakeEngine() as fake:
        assert containers.run(fake.engine, "image", ["true"]).code == 0
        assert ("POST", "/containers/create") in fake.asked and fake.containers == {}


class Driver:
    """The driver's library as far as the check asks it, with the codes that its functions answer."""

    def __init__(self, count: int, init: int = 0, handle: int = 0) -> None:
        self.count, self.init, self.handle = count, init, handle
        self.nvmlErrorString = Words()

    def nvmlInit_v2(self) -> int:
        return self.init

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = self.count
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        return self.handle


class Words:
    """A function of that library which is told what it answers."""

    restype: Any = None

    def __call__(self, code: int) -> bytes:
        return b"Unknown Error"
