"""build looks at what it built: good images with layers of a user's own pass, and the receipt keeps what was found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clones
import pytest
from clones import Clone, Ended

pytestmark = pytest.mark.docker

# Wheels with C extensions; packages and variables; instructions, with a package of Python made of their own text.
ENV = """\
schema: 1
project: own
hardware:
  nlp: {packages: {pip: [numpy, regex, pyyaml], name: nlp}}
  tools: {packages: {apt: [git, tmux], name: tools}, env: {HF_HUB_OFFLINE: "1", OMP_NUM_THREADS: "1"}}
  own: {packages: {name: own}, extend: own.Dockerfile}
software: {torch: "2.13.0", python: "3.11"}
packages: {pip: [numpy]}
budget: {layer: "1 GB", image: "3 GB"}
"""
EXTEND = r"""# Tools of the team.
RUN <<EOF
mkdir /tmp/mine
cd /tmp/mine
printf '[project]\nname = "team-tools"\nversion = "1.2"\n' >pyproject.toml
printf '[tool.setuptools]\npy-modules = ["team_tools"]\n' >>pyproject.toml
echo 'ANSWER = 42' >team_tools.py
pip install --no-cache-dir --no-index --no-build-isolation --no-deps .
rm -r /tmp/mine
EOF
RUN install -d -o 1000 /opt/team && \
    printf '#!/bin/sh\necho team\n' >/usr/local/bin/team && chmod 0755 /usr/local/bin/team
USER 1000
RUN echo hello >/opt/team/motd
USER 0
LABEL org.example.team="tools"
"""


@pytest.fixture(scope="module")
def own(place: Path, yard: Clone, cpu: dict[str, Any]) -> Iterator[Clone]:
    """A project of its own beside the clone, with the same engine and what is fetched there already."""
    made = Clone(root=place / "own", engine=yard.engine, home=yard.home, env=yard.env)
    clones.copy_checkout(yard.root, made.root)
    shutil.rmtree(made.root / "images")
    (made.root / "env.yaml").write_text(ENV)
    (made.root / "own.Dockerfile").write_text(EXTEND)
    for name in ("archives", "bases", "layers", "seen", "store"):
        if (there := yard.root / ".torchyard" / name).is_dir():
            shutil.copytree(there, made.root / ".torchyard" / name, copy_function=os.link)
    yield made
    for image in ("nlp", "tools", "own"):
        made.docker("image", "rm", "--force", tag(image))
    clones.end_tree(made.root)


def name(entry: str) -> str:
    """The image of an entry."""
    return f"torch2.13.0-cpu-py311-debian12-amd64-{entry}"


def tag(entry: str) -> str:
    """Its tag."""
    return f"own:{name(entry)}"


def seen(receipt: dict[str, Any], rule: str) -> str:
    """What a check saw."""
    (found,) = [each["seen"] for each in receipt["findings"] if each["rule"] == rule]
    return str(found)


@pytest.fixture(scope="module")
def built(own: Clone) -> Ended:
    """How building the three images ended: files and containers without a GPU are looked at by default."""
    return own.yard("build")


def test_images_with_layers_of_a_users_own_pass_both_tiers(own: Clone, built: Ended) -> None:
    built.good()
    for entry in ("nlp", "tools", "own"):
        receipt = own.receipt(name(entry))
        states = {each["state"] for each in receipt["findings"]}
        assert receipt["level"] == "cpu" and "fail" not in states
        assert {each["level"] for each in receipt["findings"]} == {"identity", "static", "cpu"}
        assert all(each["because"] for each in receipt["findings"] if each["state"] == "skipped")
        assert len(receipt["layer_sizes"]) == len(receipt["layer_steps"]) == len(receipt["layers"])
    rows = [line for line in built.out.splitlines() if line.startswith(("pass ", "skipped ", "fail "))]
    assert rows and not [row for row in rows if not row.startswith("skipped ")]
    assert " pass, 0 fail, " in built.out


def test_what_extend_adds_is_told_and_leaves_no_time(own: Clone, built: Ended) -> None:
    receipt = own.receipt(name("own"))
    assert seen(receipt, "wheels.locked").endswith("and of `extend`: team-tools 1.2")
    assert seen(receipt, "python.distributions").endswith("and of `extend`: team-tools 1.2")
    assert (seen(receipt, "times.files"), seen(receipt, "times.bytecode")) == ("none", "none with a time")


def test_a_second_build_with_an_extend_gives_the_same_bytes_and_looks_at_nothing_again(
    own: Clone, built: Ended
) -> None:
    before = own.receipt(name("own"))
    again = own.yard("build", "--gpu", "own", "--no-cache").good()
    assert own.receipt(name("own")) == before
    assert "findings are those of its receipt" in again.err
    assert "checking " not in again.err


def test_verifying_again_compares_bits_keeps_the_level_and_says_why_no_gpu_is_used(own: Clone, built: Ended) -> None:
    before = own.receipt(name("nlp"))
    found = json.loads(own.yard("verify", "--gpu", "nlp", "--level", "gpu", "--json").good().out)
    rules = {each["rule"]: each for each in found["findings"]}
    assert found["level"] == "cpu"
    assert rules["fingerprint"]["state"] == "pass" and "the same bits of" in rules["fingerprint"]["seen"]
    assert rules["gpu.devices"]["because"] == "no hardware entry with a GPU selects this image"
    own.yard("verify", "--gpu", "nlp", "--level", "static").good()
    receipt = own.receipt(name("nlp"))
    assert receipt["level"] == "cpu"
    assert receipt["computed"] == before["computed"] != []
    assert {each["level"] for each in receipt["findings"]} == {"identity", "static", "cpu", "gpu"}
    required = own.yard("verify", "--gpu", "nlp", "--require-gpu")
    assert required.code == 2 and "no hardware entry with a GPU" in required.err


def test_a_layer_above_its_budget_fails_the_build_and_the_receipt_says_so(own: Clone, built: Ended) -> None:
    (own.root / "env.yaml").write_text(ENV.replace('layer: "1 GB"', 'layer: "500 MB"'))
    try:
        done = own.yard("build", "--gpu", "tools")
    finally:
        (own.root / "env.yaml").write_text(ENV)
    assert done.code == 1
    assert "size.layers" in done.out and "wheels: torch==2.13.0+cpu" in done.out and "at most 500 MB each" in done.out
    assert "its receipt says that it failed" in done.err and "Traceback" not in done.err
    assert "(cpu)" not in done.err  # its containers were looked at before
    receipt = own.receipt(name("tools"))
    assert [each["rule"] for each in receipt["findings"] if each["state"] == "fail"] == ["size.layers"]
    assert own.docker("image", "inspect", tag("tools")).code == 0
