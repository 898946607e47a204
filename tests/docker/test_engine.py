"""A private engine for real: set up, killed, started again, side by side with another, and gone without a trace.

They need root on Debian or Ubuntu; the packages come from the mirror that the machine's apt uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.world import engine, engine_home, engine_private, engine_root, engine_sources, process
from torchyard.world.engine import Engine
from torchyard.world.engine_home import Home

pytestmark = pytest.mark.docker

ENSURE = "from torchyard.world import engine; print(engine.ensure(print).docker_host)"
ROOT = Path(__file__).resolve().parents[2]
IMAGE = "torchyard-test-engine"


def quiet(_: str) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def only_where_it_can_work() -> None:
    if os.geteuid() != 0 or not engine_sources.read_host().supported:
        pytest.skip("a private engine needs root on Debian 12 or Ubuntu 24.04, or newer")


@contextlib.contextmanager
def an_empty_home() -> Iterator[Home]:
    path = Path(tempfile.mkdtemp(prefix="torchyard-test-", dir="/var/tmp"))
    home = engine_home.home_of({"TORCHYARD_ENGINE_HOME": str(path)})
    try:
        yield home
    finally:
        engine_private.down(home, quiet, purge=True)
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with an_empty_home() as made:
        yield made


@pytest.fixture
def up(home: Home, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return ensure(home, monkeypatch)


def ensure(home: Home, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("TORCHYARD_ENGINE", "private")
    monkeypatch.setenv("TORCHYARD_ENGINE_HOME", str(home.path))
    return engine.ensure(quiet)


def docker(found: Engine, *arguments: str) -> str:
    return process.run([*found.docker, *arguments], env=found.env).out.strip()


def build(found: Engine, home: Home) -> None:
    """Build an image from the engine's own shell, with a step that runs in a container on the default bridge."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shell = (home.root / "usr" / "bin" / "dash").resolve()
        loader = next((home.root / "usr").glob("lib*/ld-linux-*"))
        files = {"bin/sh": shell, f"{loader.parent.name}/{loader.name}": loader}
        files["lib/libc.so.6"] = next((home.root / "usr" / "lib").glob("*-linux-gnu/libc.so.6"))
        for name, source in files.items():
            target = context / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755)
        (context / "Dockerfile").write_text("FROM scratch\nCOPY tree /\nRUN echo built >/made\n")
        argv = [*found.buildx, "build", "--no-cache", "--quiet", "--tag", IMAGE, str(context)]
        process.run(argv, env=found.env)


def say_hello(found: Engine) -> str:
    return docker(found, "run", "--rm", IMAGE, "sh", "-c", "read text </made; echo hello $text")


def numbers(home: Home, word: str) -> list[int]:
    """The processes of this engine whose command line starts with a word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().decode(errors="replace").split("\0")
            if words[0] == word and str(home.path) in " ".join(words):
                found.append(int(entry.parent.name))
    return found


def tool(home: Home, *argv: str) -> str:
    return process.run(["chroot", str(home.root), *argv], env={"PATH": engine_home.TOOL_PATH}, check=False).out


def bridges(home: Home) -> set[str]:
    return {
        entry["ifname"] for entry in json.loads(tool(home, "ip", "-json", "link", "show", "type", "bridge") or "[]")
    }


def test_a_killed_set_up_is_taken_up_again_and_two_callers_get_one_engine() -> None:
    with an_empty_home() as fresh:
        environment = {
            **os.environ,
            "TORCHYARD_ENGINE": "private",
            "TORCHYARD_ENGINE_HOME": str(fresh.path),
            "PYTHONPATH": str(ROOT),
        }

        def start(*kept: int) -> subprocess.Popen[str]:
            argv = [sys.executable, "-c", ENSURE]
            return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True, pass_fds=kept)

        killed = start()
        while not list(fresh.path.glob("making-*/apt/cache")):
            assert killed.poll() is None
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert engine_root.made(fresh.root) == ""

        there, here = os.pipe()  # as a caller's lock or pipe, which the engine must not keep open
        callers = [start(here), start(here)]
        os.close(here)
        answers = [caller.communicate()[0].split()[-1] for caller in callers]
        assert [caller.returncode for caller in callers] == [0, 0]
        assert select.select([there], [], [], 0) == ([there], [], []) and os.read(there, 1) == b""
        os.close(there)
        assert answers == [fresh.docker_host] * 2
        assert len(numbers(fresh, "unshare")) == 1
        assert list(fresh.path.glob("making-*")) == []


def test_it_builds_and_runs_and_says_what_it_is(home: Home, up: Engine) -> None:
    build(up, home)
    assert say_hello(up) == "hello built"
    assert up.private
    assert up.containerd_store
    assert docker(up, "compose", "version")


def test_a_file_of_the_host_is_seen_at_its_own_path(home: Home, up: Engine, tmp_path: Path) -> None:
    build(up, home)
    (tmp_path / "text").write_text("from the host\n")
    seen = docker(up, "run", "--rm", "-v", f"{tmp_path}:/x", IMAGE, "sh", "-c", "read text </x/text; echo $text")
    assert seen == "from the host"


def test_the_host_keeps_no_mount_of_it(home: Home, up: Engine) -> None:
    build(up, home)
    say_hello(up)
    assert str(home.path) not in Path("/proc/self/mountinfo").read_text()


def test_asking_again_gives_the_engine_that_runs(home: Home, up: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine_private.running(home)
    assert ensure(home, monkeypatch) == up
    assert engine_private.running(home) == before


@pytest.mark.parametrize("word", ["dockerd", "unshare"])
def test_a_killed_engine_starts_again_on_its_data(
    home: Home, up: Engine, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    build(up, home)
    name = docker(up, "run", "--detach", IMAGE, "sh", "-c", "while :; do read line <&1; done")
    (number,) = numbers(home, word)
    os.kill(number, signal.SIGKILL)
    for _ in range(100):
        if engine_private.running(home) is None:
            break
        time.sleep(0.1)
    again = ensure(home, monkeypatch)
    assert say_hello(again) == "hello built"
    assert docker(again, "inspect", "--format", "{{.State.Running}}", name) == "false"
    docker(again, "rm", name)


def test_another_engines_docker0_stays_when_it_starts_on_old_data(
    home: Home, up: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = "docker0" not in bridges(home)
    if ours:
        tool(home, "ip", "link", "add", "name", "docker0", "type", "bridge")
    try:
        engine_private.down(home, quiet)
        again = ensure(home, monkeypatch)
        assert "docker0" in bridges(home)
        build(again, home)
        assert say_hello(again) == "hello built"
    finally:
        if ours:
            tool(home, "ip", "link", "delete", "dev", "docker0")


def test_two_engines_live_side_by_side(home: Home, up: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    build(up, home)
    with an_empty_home() as second:
        process.run(["cp", "--archive", "--link", str(home.root), str(second.root)])
        other = ensure(second, monkeypatch)
        build(other, second)
        assert say_hello(other) == say_hello(up) == "hello built"
        assert engine_home.saved_net(second) != engine_home.saved_net(home)
    assert engine_private.running(second) is None
    build(up, home)
    assert say_hello(up) == "hello built"


def test_down_leaves_the_data_and_nothing_else(home: Home, up: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    build(up, home)
    docker(up, "network", "create", "torchyard-test")
    net = engine_home.saved_net(home)
    assert net is not None
    assert net.bridge in bridges(home)
    assert engine_private.down(home, quiet)
    assert not engine_private.down(home, quiet)
    assert engine_private.running(home) is None
    assert numbers(home, "dockerd") == numbers(home, "unshare") == []
    assert net.bridge not in bridges(home)
    for program in ("iptables-nft", "iptables-legacy"):
        for table in ("nat", "filter"):
            assert str(net.pool) not in tool(home, program, "-t", table, "-S")
    assert list(Path("/sys/fs/cgroup").glob(f"*/{net.bridge}")) == []
    again = ensure(home, monkeypatch)
    assert say_hello(again) == "hello built"
    docker(again, "network", "rm", "torchyard-test")


def test_purge_leaves_nothing() -> None:
    with an_empty_home() as fresh:
        (fresh.path / "making-left").mkdir()
        (fresh.path / "data" / "x").mkdir(parents=True)
        assert engine_private.down(fresh, quiet, purge=True)
        assert not fresh.path.exists()
