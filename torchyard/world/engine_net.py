"""The private engine's network: a bridge and an address range that nothing else on this machine uses."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import json_text

COUNT = 128  # ranges: 10.192.0.0/18, 10.192.64.0/18, ... 10.223.192.0/18
FIRST = int(ipaddress.IPv4Address("10.192.0.0"))
PREFIX = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Net:
    """One address range: the engine's default bridge has its first /24, compose networks get the others."""

    index: int

    @property
    def bridge(self) -> str:
        """The name of the default bridge."""
        return f"torchyard{self.index}"

    @property
    def pool(self) -> ipaddress.IPv4Network:
        """The whole range."""
        return ipaddress.IPv4Network((FIRST + (self.index << (32 - PREFIX)), PREFIX))

    @property
    def gateway(self) -> str:
        """The bridge's address, with its prefix length."""
        return f"{self.pool.network_address + 1}/24"


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A range that this machine sends through a device."""

    to: ipaddress.IPv4Network
    device: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A network device; `alias` is the note that its maker left."""

    name: str
    alias: str
    mtu: int


def parse_routes(text: str) -> tuple[Route, ...]:
    """The routes in what `ip -json -4 route show table all` prints, without the default and local ones."""
    routes = []
    for entry in json_text.loads(text or "[]"):
        if entry.get("dst", "default") == "default" or entry.get("type") in ("local", "broadcast", "multicast"):
            continue
        network = ipaddress.IPv4Network(entry["dst"], strict=False)
        if network.prefixlen > 1:  # some VPNs route everything as two halves
            routes.append(Route(to=network, device=entry.get("dev", "")))
    return tuple(routes)


def parse_links(text: str) -> tuple[Link, ...]:
    """The devices in what `ip -json link` prints."""
    return tuple(
        Link(name=entry["ifname"], alias=entry.get("ifalias", ""), mtu=int(entry.get("mtu", 1500)))
        for entry in json_text.loads(text or "[]")
        if "ifname" in entry
    )


def mtu(routes_text: str, links: Sequence[Link]) -> int:
    """The size of packet that the default route takes, at most 1500."""
    entries = json_text.loads(routes_text or "[]")
    devices = {e.get("dev", "") for e in entries if e.get("dst") == "default"}
    return min([link.mtu for link in links if link.name in devices] + [1500])


def own_devices(net: Net, routes: Iterable[Route]) -> tuple[str, ...]:
    """The bridges inside the range: the engine's own and those of its compose networks."""
    inside = {r.device for r in routes if r.to.subnet_of(net.pool) and _ours(net, r.device)}
    return tuple(sorted(inside | {net.bridge}))


def _ours(net: Net, device: str) -> bool:
    return device == net.bridge or device.startswith("br-")


def is_free(net: Net, owner: str, routes: Iterable[Route], links: Iterable[Link]) -> bool:
    """Whether this range is unused, or used by this owner's engine only."""
    named = [link for link in links if link.name == net.bridge]
    mine = any(link.alias == alias(owner) for link in named)
    if named and not mine:
        return False
    return not any(r.to.overlaps(net.pool) and not (mine and _ours(net, r.device)) for r in routes)


def candidates(home: Path, saved: Net | None) -> tuple[Net, ...]:
    """Every range in the order in which this home tries them: the saved one, then from its own place on."""
    start = int.from_bytes(hashlib.sha256(str(home).encode()).digest()[:4], "big") % COUNT
    nets = [Net(index=(start + step) % COUNT) for step in range(COUNT)]
    return tuple(nets if saved is None else [saved, *(n for n in nets if n != saved)])


def alias(owner: str) -> str:
    """The note that marks a bridge as the one of this engine (the kernel keeps 255 characters)."""
    text = f"torchyard {owner}"
    return text if len(text) <= 250 else f"torchyard {hashlib.sha256(text.encode()).hexdigest()}"


def rules(net: Net) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """The packet filter's rules (table, chain, rule) that let the range out; the engine itself writes none."""
    pool = str(net.pool)
    return (
        ("nat", "POSTROUTING", ("-s", pool, "!", "-d", pool, "-j", "MASQUERADE")),
        ("filter", "FORWARD", ("-s", pool, "-j", "ACCEPT")),
        ("filter", "FORWARD", ("-d", pool, "-j", "ACCEPT")),
    )
