"""Reports of real failures where nodes and ranks meet, each with its right outcome."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from test_stack import decide
from test_stack_files import made
from test_stack_launch import load

from torchyard import catalog, matrix, resolve, stack
from torchyard.finding import State

launch: Any = load("launch")
FOREIGN = "192.0.2.11"  # of a range for documentation: no machine has it
JOB = """\
schema: 1
project: acme
sites: {{lab: {{fabric: {fabric}}}}}
hardware: {{a: {{gpu: a100, count: 2, site: lab}}}}
software: {{torch: "2.14.1"}}
env: {{NCCL_IB_DISABLE: "{disabled}"}}
"""


@pytest.fixture
def settings() -> Iterator[pytest.MonkeyPatch]:
    """The environment of a node, given back afterwards also where the launcher fills it."""
    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith(("TORCHYARD_", "NCCL_", "GLOO_"))]:
            patch.delenv(name)
        yield patch
    os.environ.clear()
    os.environ.update(before)


def refused(code: int, **variables: str) -> Any:
    """The problem that the launcher of the first node finds with these settings."""
    os.environ.update(variables)
    with pytest.raises(launch.Problem) as caught:
        launch.rendezvous(2, 0)
    assert caught.value.code == code
    return caught.value


def test_b066_gloo_and_nccl_are_given_one_interface_by_its_whole_name(settings: pytest.MonkeyPatch) -> None:
    """The one that leads to the first node, not docker0, veth… or br-…; without the = NCCL takes prefixes."""
    settings.setattr(launch, "check_own", lambda *_: None)
    settings.setattr(launch, "interface", {"127.0.0.1": "enp226s0"}.__getitem__)
    settings.setenv("TORCHYARD_RENDEZVOUS", "localhost:29400")
    launch.rendezvous(2, 0)
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("enp226s0", "=enp226s0")


def test_b066_what_the_user_names_is_what_is_used(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("NCCL_SOCKET_IFNAME", "ib0")
    launch.rendezvous(1, 0)
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("lo", "ib0")


def test_b066_no_container_sees_the_interfaces_of_the_host() -> None:
    for path, text in made().items():
        if path.suffix == ".yaml" and len(path.parts) == 2 and path.parts[0] == "compose":
            for name, service in yaml.safe_load(text)["services"].items():
                assert "network_mode" not in service and "host" not in str(service.get("networks")), f"{path} {name}"


@pytest.mark.parametrize(
    ("fabric", "disabled", "wrong"), [("ib", "1", True), ("roce", "1", True), ("ib", "0", False), ("none", "1", False)]
)
def test_b068_switching_infiniband_off_where_the_site_has_it_is_flagged(
    fabric: str, disabled: str, wrong: bool
) -> None:
    known = catalog.load()
    read = matrix.parse(JOB.format(fabric=fabric, disabled=disabled), files={}, known=resolve.names(known))
    plan = resolve.plan(read, known)
    entry = stack.entry(plan.cells[0], plan, read)
    found = [each for each in decide(replace(entry, gpus=2)).findings if each.state is State.FAIL]
    assert [each.rule for each in found] == (["stack.fabric"] if wrong else [])
    for each in found:
        assert "NCCL_IB_DISABLE=1" in each.seen and fabric in each.expected
        assert "bandwidth" in each.fix and "NCCL_SOCKET_IFNAME" in each.fix


def test_b070_a_first_node_that_does_not_have_the_address_says_so_at_once(settings: pytest.MonkeyPatch) -> None:
    """That the first node hosts by its number is in test_stack_launch.py."""
    problem = refused(3, TORCHYARD_RENDEZVOUS=f"{FOREIGN}:29400")
    assert f"has to listen on {FOREIGN} ({FOREIGN}) port 29400 and cannot" in problem.what
    launch.check_own("localhost", "127.0.0.1", 0)


@pytest.mark.parametrize("endpoint", ["fe80::1:29400", "[fe80::1%eth0]:29400", "[2001:db8::1]:29400"])
def test_b072_an_ipv6_address_is_refused_at_once(settings: pytest.MonkeyPatch, endpoint: str) -> None:
    problem = refused(2, TORCHYARD_RENDEZVOUS=endpoint)
    assert "IPv6" in problem.what and endpoint in problem.what and "IPv4" in problem.hint


def test_b072_everything_else_is_ipv4_and_the_port_that_is_closed_is_the_last_word() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can take it
        port = closed.getsockname()[1]
        with pytest.raises(launch.Problem, match=f"nothing answers on 127.0.0.1 port {port} within 1 s"):
            launch.wait_for_port("127.0.0.1", port, 1, clock=iter(range(9)).__next__, sleep=lambda _: None)
    assert launch.resolve("localhost", 1) == "127.0.0.1"
    environment = yaml.safe_load(made()[PurePosixPath("compose/big.yaml")])["x-environment"]
    assert environment["NCCL_SOCKET_FAMILY"] == "${NCCL_SOCKET_FAMILY:-AF_INET}"


def test_b074_a_port_that_is_taken_is_told_with_its_holder_and_a_free_one(settings: pytest.MonkeyPatch) -> None:
    """That a job on one node takes any free port is in test_stack_launch.py."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        problem = refused(3, TORCHYARD_RENDEZVOUS=f"localhost:{port}")
    assert f"port {port} of 127.0.0.1 is in use on the first node, by process {os.getpid()} (" in problem.what
    free = re.search(r"TORCHYARD_RENDEZVOUS=localhost:(\d+)", problem.hint)
    assert free is not None and int(free[1]) not in (0, port)


def test_b074_no_stack_publishes_the_port_where_nodes_meet() -> None:
    services = yaml.safe_load(made()[PurePosixPath("compose/big.yaml")])["services"]
    for name in ("train", "node0", "node1"):
        assert "ports" not in services[name]


def test_b077_a_stack_waits_with_nothing_but_its_own_image() -> None:
    services = yaml.safe_load(made()[PurePosixPath("compose/big.yaml")])["services"]
    for name, service in services.items():
        if name in ("dcgm", "prometheus", "grafana"):
            assert re.fullmatch(r"\$\{TORCHYARD_\w+_IMAGE:-[\w./-]+:v?\d[\w.-]*\}", service["image"])
        else:
            assert service["image"].startswith("${TORCHYARD_IMAGE:-") and service["pull_policy"] == "never", name
