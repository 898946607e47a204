"""The private engine's place in the host's network and control groups: made at its start, taken back at its end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from torchyard.errors import Surroundings
from torchyard.world import engine_net, engine_root, process
from torchyard.world.engine_home import TOOL_PATH, Home, owner, saved_net
from torchyard.world.engine_net import Link, Net

BACKENDS = (("iptables-nft", "xtables-nft-multi"), ("iptables-legacy", "xtables-legacy-multi"))


def _tool(home: Home, *argv: str, check: bool = True) -> process.Completed:
    """Run a program of the unpacked root as it is (the host may lack ip and iptables)."""
    return process.run(["chroot", str(home.root), *argv], env={"PATH": TOOL_PATH}, check=check)


def _routes(home: Home) -> str:
    return _tool(home, "ip", "-json", "-4", "route", "show", "table", "all").out


def _links(home: Home) -> tuple[Link, ...]:
    return engine_net.parse_links(_tool(home, "ip", "-json", "-details", "link", "show").out)


def mtu(home: Home) -> int:
    """The largest packet, in bytes, that leaves this machine whole."""
    return engine_net.mtu(_routes(home), _links(home))


def connect(home: Home, say: Callable[[str], None]) -> Net:
    """Have a bridge with a free address range, and the rules that let it out."""
    routes, links = engine_net.parse_routes(_routes(home)), _links(home)
    for net in engine_net.candidates(home.path, saved_net(home)):
        if engine_net.is_free(net, owner(home), routes, links) and _claim(home, net, links):
            break
    else:
        raise Surroundings(
            f"none of the {engine_net.COUNT} address ranges from 10.192.0.0 to 10.223.255.255 is free on this machine",
            hint="install Docker yourself, with an address range of your choice",
        )
    (home.path / "network.json").write_text(json.dumps({"index": net.index}) + "\n")
    usable = _backends(home)
    if not usable:
        say("no packet filter works here: containers of the private engine have no network beyond this machine")
        return net
    _name_iptables(home, usable[0][1])
    for program, _ in usable:
        for table, chain, rule in engine_net.rules(net):
            if _tool(home, program, "-w", "-t", table, "-C", chain, *rule, check=False).code != 0:
                _tool(home, program, "-w", "-t", table, "-I", chain, "1", *rule)
    return net


def _claim(home: Home, net: Net, links: Sequence[Link]) -> bool:
    """Make the bridge, which only one process can; whether it is ours."""
    if all(link.name != net.bridge for link in links):
        made = _tool(home, "ip", "link", "add", "name", net.bridge, "type", "bridge", check=False)
        if made.code != 0:
            if "exist" in made.err.lower():
                return False
            raise process.failed(
                made, hint="the kernel gives no bridge; install Docker yourself, or see docs/engine.md"
            )
        _tool(home, "ip", "link", "set", "dev", net.bridge, "alias", engine_net.alias(owner(home)))
    _tool(home, "ip", "address", "replace", net.gateway, "dev", net.bridge)
    _tool(home, "ip", "link", "set", "dev", net.bridge, "up")
    return True


def _backends(home: Home) -> list[tuple[str, str]]:
    """The packet filters to write to: nf_tables where the kernel has it, the older one where it is in use or alone."""
    nft, legacy = BACKENDS
    usable = [nft] if _tool(home, nft[0], "-w", "-t", "nat", "-S", check=False).code == 0 else []
    in_use = Path("/proc/net/ip_tables_names")
    if (not usable or (in_use.is_file() and in_use.read_text().strip())) and (
        _tool(home, legacy[0], "-w", "-t", "nat", "-S", check=False).code == 0
    ):
        usable.append(legacy)
    return usable


def _name_iptables(home: Home, program: str) -> None:
    """Name the backend `iptables`: the engine calls it inside containers for the name server of compose networks."""
    folder = home.root / "usr" / "sbin"
    for name in ("iptables", "iptables-restore", "iptables-save"):
        link = folder / name
        if not link.is_symlink() or os.readlink(link) != program:
            link.unlink(missing_ok=True)
            link.symlink_to(program)


def disconnect(home: Home) -> None:
    """Take back what the engine left in the host's network and control groups."""
    net = saved_net(home)
    if net is None or not engine_root.made(home.root):
        return
    names = {link.name: link for link in _links(home)}
    if net.bridge in names and names[net.bridge].alias != engine_net.alias(owner(home)):
        return
    for device in engine_net.own_devices(net, engine_net.parse_routes(_routes(home))):
        if device in names:
            _tool(home, "ip", "link", "delete", "dev", device, check=False)
    for program, _ in _backends(home):
        for table, chain, rule in engine_net.rules(net):
            for _ in range(8):
                if _tool(home, program, "-w", "-t", table, "-D", chain, *rule, check=False).code != 0:
                    break
    for top in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*")):
        _remove_groups(top / net.bridge)


def _remove_groups(group: Path) -> None:
    if not group.is_dir():
        return
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
