"""The private engine's address range: never one that something else on the machine uses."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from torchyard.world import engine_net
from torchyard.world.engine_net import Link, Net, Route

HOME = Path("/home/me/.cache/torchyard/engine")
OWNER = f"fe00:2 {HOME}"
ROUTES = json.dumps(
    [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
        {"dst": "172.17.0.0/16", "dev": "docker0", "protocol": "kernel"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "0.0.0.0/1", "dev": "tun0"},
        {"type": "local", "dst": "10.200.0.1", "dev": "lo"},
        {"dst": "10.200.3.7", "dev": "wg0"},
    ]
)


def link(name: str, alias: str = "", mtu: int = 1500) -> Link:
    return Link(name=name, alias=alias, mtu=mtu)


def route(to: str, device: str) -> Route:
    return Route(to=ipaddress.IPv4Network(to), device=device)


def test_routes_are_read_without_the_default_and_local_ones() -> None:
    assert engine_net.parse_routes(ROUTES) == (
        route("172.17.0.0/16", "docker0"),
        route("192.0.2.0/24", "eth0"),
        route("10.200.3.7/32", "wg0"),
    )


def test_the_packet_size_is_that_of_the_default_route() -> None:
    assert engine_net.mtu(ROUTES, [link("eth0", mtu=1400), link("docker0", mtu=1200)]) == 1400
    assert engine_net.mtu(ROUTES, [link("eth0", mtu=9000)]) == 1500
    assert engine_net.mtu("[]", []) == 1500


def test_links_are_read_with_their_notes() -> None:
    text = json.dumps([{"ifname": "torchyard3", "mtu": 1500, "ifalias": "torchyard x"}, {}])
    assert engine_net.parse_links(text) == (link("torchyard3", "torchyard x"),)


@given(st.integers(0, engine_net.COUNT - 1), st.integers(0, engine_net.COUNT - 1))
def test_two_ranges_never_overlap_and_names_fit_the_kernel(one: int, other: int) -> None:
    assert one == other or not Net(index=one).pool.overlaps(Net(index=other).pool)
    assert len(Net(index=one).bridge) <= 15
    assert ipaddress.IPv4Interface(Net(index=one).gateway).network.subnet_of(Net(index=one).pool)


def test_a_range_that_is_routed_elsewhere_is_not_free() -> None:
    net = Net(index=32)  # 10.200.0.0/18
    assert engine_net.is_free(net, OWNER, [], [])
    assert not engine_net.is_free(net, OWNER, [route("10.200.3.7/32", "wg0")], [])
    assert not engine_net.is_free(net, OWNER, [route("10.0.0.0/8", "tun0")], [])


def test_its_own_bridges_do_not_make_a_range_taken() -> None:
    net = Net(index=32)
    links = [link(net.bridge, engine_net.alias(OWNER)), link("br-0123456789ab")]
    routes = [route("10.200.0.0/24", net.bridge), route("10.200.1.0/24", "br-0123456789ab")]
    assert engine_net.is_free(net, OWNER, routes, links)
    assert not engine_net.is_free(net, OWNER, [*routes, route("10.200.2.0/24", "tun0")], links)


def test_the_bridge_of_another_engine_is_left_alone() -> None:
    net = Net(index=32)
    assert not engine_net.is_free(net, OWNER, [], [link(net.bridge, "torchyard fe00:9 /elsewhere")])
    assert not engine_net.is_free(net, OWNER, [], [link(net.bridge)])


def test_what_is_taken_back_is_inside_the_range() -> None:
    net = Net(index=32)
    routes = [
        route("10.200.0.0/24", net.bridge),
        route("10.200.1.0/24", "br-0123456789ab"),
        route("172.18.0.0/16", "br-ba9876543210"),
        route("10.200.2.0/24", "eth1"),
    ]
    assert engine_net.own_devices(net, routes) == ("br-0123456789ab", net.bridge)


def test_every_range_is_tried_once_and_the_saved_one_first() -> None:
    nets = engine_net.candidates(HOME, None)
    assert len(set(nets)) == engine_net.COUNT
    saved = nets[5]
    again = engine_net.candidates(HOME, saved)
    assert again[0] == saved
    assert set(again) == set(nets)
    assert len(again) == len(nets)


def test_a_long_path_still_gives_a_note_that_the_kernel_keeps() -> None:
    assert len(engine_net.alias("x" * 4000)) <= 255
    assert engine_net.alias("x" * 4000) != engine_net.alias("x" * 4001)


def test_the_rules_name_this_range_only() -> None:
    for _, _, rule in engine_net.rules(Net(index=32)):
        assert "10.200.0.0/18" in rule
