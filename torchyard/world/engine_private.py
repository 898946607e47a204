"""The private engine: dockerd from the unpacked root, in namespaces of its own, under one directory.

Its mounts are in a mount namespace and its processes in a process namespace, so the host keeps no mount, and ending the
first process ends everything. It sees the host's files at their own paths; only /usr is its own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.errors import Surroundings
from torchyard.world import engine_link, engine_root, engine_sources, process
from torchyard.world.engine_home import TOOL_PATH, Home, locked
from torchyard.world.engine_net import Net

READY_WITHIN = 120.0  # seconds
SETTLED_WITHIN = 20.0  # a start whose torchyard was killed is nearly done
STOP_WITHIN = 30.0
POLL = 0.1
LOG_LIMIT = 10 << 20
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # what Docker reads by itself
CACHE_KEPT = "20GB"  # of build cache, when BuildKit collects garbage

START = Path(__file__).with_name("engine_start.sh")


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """The two processes that hold an engine: `guard` waits for `init`, the first in the engine's namespace."""

    guard: int
    init: int | None


def daemon_config(home: Home, net: Net, mtu: int) -> dict[str, Any]:
    """What dockerd is told.

    The packet filter is left to us, because dockerd would empty the chains of a host engine. live-restore is on because
    without it a dockerd that has address pools deletes the interface docker0 when it starts on old data, whoever's that
    is (moby, daemon/daemon_unix.go: removeDefaultBridgeInterface); containers do not outlive this engine all the same.
    """
    return {
        "bridge": net.bridge,
        "builder": {"gc": {"defaultKeepStorage": CACHE_KEPT, "enabled": True}},
        "cdi-spec-dirs": [*CDI_FOLDERS, str(home.cdi)],
        "cgroup-parent": f"/{net.bridge}",
        "data-root": str(home.data),
        "default-address-pools": [{"base": str(net.pool), "size": 24}],
        "default-network-opts": {"bridge": {"com.docker.network.driver.mtu": str(mtu)}},
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "exec-root": "/run/docker",
        "features": {"cdi": True, "containerd-snapshotter": True},
        "hosts": [home.docker_host],
        "ip-masq": False,
        "ip6tables": False,
        "iptables": False,
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-file": "2", "max-size": "50m"},
        "mtu": mtu,
        "pidfile": "/run/docker/docker.pid",
    }


def running(home: Home) -> Running | None:
    """The processes of this engine, found by their command line: a reused process number is never taken for one."""
    mark = home.mark.encode()
    guard: int | None = None
    init: int | None = None
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if mark not in words or entry.stat().st_uid != 0:
                continue
            if not os.path.samestat(os.stat(entry / "root"), os.stat("/")):
                continue  # it runs in another root directory, where the same path is another place
        except OSError:
            continue  # it ended meanwhile
        if words[0] == b"unshare":
            guard = int(entry.name)
        else:
            init = int(entry.name)
    if guard is None and init is None:
        return None
    return Running(guard=guard if guard is not None else init or 0, init=init)


def answers(socket_path: Path, timeout: float = 5.0) -> bool:
    """Whether an engine answers on this socket."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(timeout)
            self.sock.connect(str(socket_path))

    connection = Connection("localhost", timeout=timeout)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def make_programs(home: Home, say: Callable[[str], None], lock: int) -> None:
    """Have the engine's programs there, made anew where they are missing, half-made or of another recipe."""
    host = engine_sources.read_host()
    if engine_root.made(home.root) == engine_sources.stamp(host):
        return
    if running(home) is not None:
        return  # a root that is in use stays; the next start makes it anew
    engine_root.make(home.root, host, say=say, lock=lock)


def up(home: Home, say: Callable[[str], None]) -> None:
    """Have the private engine running: set up, started, or found as it is."""
    if running(home) is not None and answers(home.socket):
        return
    with locked(home, say) as lock:
        if _settled(home, say):
            return
        make_programs(home, say, lock)
        net = engine_link.connect(home, say)
        _start(home, net)
        say(f"the private engine runs; its data are in {home.data}")


def _settled(home: Home, say: Callable[[str], None]) -> bool:
    """Whether the engine runs and answers; one that does not answer in time is ended."""
    if running(home) is None:
        return False
    deadline = time.monotonic() + SETTLED_WITHIN
    while running(home) is not None and time.monotonic() < deadline:
        if answers(home.socket):
            return True
        time.sleep(POLL)
    if running(home) is not None:
        say("the private engine runs but does not answer; starting it again on its data")
        end(home)
    return False


def _start(home: Home, net: Net) -> None:
    _check_root_directory()
    home.data.mkdir(mode=0o711, exist_ok=True)
    home.socket.parent.mkdir(mode=0o755, exist_ok=True)
    home.cdi.mkdir(exist_ok=True)
    home.socket.unlink(missing_ok=True)
    if home.log.exists() and home.log.stat().st_size > LOG_LIMIT:
        home.log.replace(home.path / "log.old")
    config = home.path / "daemon.json"
    config.write_text(json.dumps(daemon_config(home, net, engine_link.mtu(home)), indent=2, sort_keys=True) + "\n")
    script = home.path / "start.sh"
    script.write_bytes(START.read_bytes())  # a copy: the engine outlives this checkout
    argv = [
        *("unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", str(script), home.mark, str(home.root / "usr"), str(home.path / "room"), str(config)),
    ]
    began = home.log.stat().st_size if home.log.exists() else 0
    with home.log.open("ab") as log:
        child = os.posix_spawnp(
            argv[0],
            argv,
            _daemon_environment(home),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
            ],
            setsid=True,  # the engine outlives this process and its terminal
        )
    deadline = time.monotonic() + READY_WITHIN
    while not answers(home.socket):
        code = _exit_code(child)
        if code is not None or time.monotonic() > deadline:
            printed = home.log.read_bytes()[began:].decode(errors="replace")
            end(home)
            state = f"ended with exit code {code}" if code is not None else f"gave no answer in {READY_WITHIN:g} s"
            raise Surroundings(
                f"the private engine {state}; the last lines of {home.log}:\n{process.last_lines(printed)}",
                hint="set TORCHYARD_ENGINE_HOME to a directory on a local disk"
                if code == 97
                else "install Docker yourself, or see docs/engine.md",
            )
        time.sleep(POLL)


def _inherited() -> list[int]:
    """The files beside the standard streams that a child would get, such as a lock or a pipe of a caller."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists is closed already
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _check_root_directory() -> None:
    if not os.path.ismount("/"):
        raise Surroundings(
            "the root directory of this process is not a mount point (a chroot), so no container can start here",
            hint="enter the directory with pivot_root (as container tools do) instead of chroot",
        )
    for name in ("bin", "lib", "sbin"):
        if not os.path.islink(f"/{name}"):
            raise Surroundings(
                f"/{name} is a directory of its own here, and the private engine needs it to be a link to usr/{name}",
                hint="install the package usrmerge, or install Docker yourself",
            )


def _daemon_environment(home: Home) -> dict[str, str]:
    """The user's environment (a proxy, for example) without what would turn the daemon elsewhere."""
    dropped = ("DOCKER_", "LD_", "NOTIFY_SOCKET", "LISTEN_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment["PATH"] = TOOL_PATH
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists() and "SSL_CERT_FILE" not in environment:
        bundle = home.root / "usr" / "share" / "ca-certificates" / "mozilla"
        environment["SSL_CERT_DIR"] = str(bundle)
    return environment


def end(home: Home) -> bool:
    """End this engine's processes (its containers are among them); whether there were any."""
    found = running(home)
    if found is None:
        return False
    _stop_containers(home)
    for number, within in ((signal.SIGTERM, STOP_WITHIN), (signal.SIGKILL, STOP_WITHIN)):
        now = running(home)
        if now is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(now.init if now.init is not None else now.guard, number)
        deadline = time.monotonic() + within
        while running(home) is not None and time.monotonic() < deadline:
            time.sleep(POLL)
    if running(home) is not None:
        raise Surroundings(
            f"process {found.guard} of the private engine does not end", hint="look at it with ps, then try again"
        )
    home.socket.unlink(missing_ok=True)
    return True


def _stop_containers(home: Home) -> None:
    """Let the containers end by themselves, where the engine answers; what does not is killed with the namespace."""
    docker = str(home.root / "usr" / "bin" / "docker")
    env = {"DOCKER_HOST": home.docker_host, "DOCKER_CONFIG": str(home.client / "config")}
    if not answers(home.socket):
        return
    with contextlib.suppress(Surroundings):
        names = process.run([docker, "ps", "--quiet"], env=env, timeout=STOP_WITHIN).out.split()
        if names:
            process.run([docker, "stop", "--time", "5", *names], env=env, timeout=STOP_WITHIN)


def _exit_code(child: int) -> int | None:
    """The exit code of our child, None while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def down(home: Home, say: Callable[[str], None], *, purge: bool = False) -> bool:
    """End the engine and keep its data, or remove them and its programs as well; whether there was anything."""
    if not home.path.is_dir():
        return False
    with locked(home, say):
        ended = end(home)
        engine_link.disconnect(home)
        if purge:
            for entry in sorted(home.path.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    engine_root.remove_tree(entry)
                elif entry.name != "lock":
                    entry.unlink()
            (home.path / "lock").unlink()
            with contextlib.suppress(OSError):
                home.path.rmdir()
    return ended or purge
