"""The files of the stacks: what is rendered for env.yaml, that it is what is committed, and that it is well formed."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import jsonschema
import pytest
import yaml

from torchyard import catalog, matrix, resolve, stack_files
from torchyard.errors import InputError
from torchyard.verbs import project as projects
from torchyard.verbs import render as rendering
from torchyard.world import stack_tree, workspace
from torchyard.world.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = PurePosixPath("compose")
TEXT = """\
schema: 1
project: acme
hardware:
  big: {{gpu: a100-sxm4-40gb, count: {count}, torch: "2.14.1"}}
  {name}: {{torch: "2.13.0"}}
software: {{torch: "2.14.1", python: "3.11", base: {{from: archive, os: debian-12}}}}
"""
# Of Prometheus' configuration as much as is used here (prometheus.io/docs/prometheus/latest/configuration).
SCRAPE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["global", "scrape_configs"],
    "properties": {
        "global": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {"type": "string", "pattern": "^[0-9]+s$"} for name in ("scrape_interval", "scrape_timeout")
            },
        },
        "scrape_configs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["job_name", "static_configs"],
                "properties": {
                    "job_name": {"type": "string"},
                    "static_configs": {
                        "type": "array",
                        "items": {
                            "properties": {"targets": {"type": "array", "items": {"pattern": "^[a-z]+:[0-9]+$"}}}
                        },
                    },
                },
            },
        },
    },
}


def made(name: str = "small", count: int = 3) -> dict[PurePosixPath, str]:
    """The files of a project with two entries."""
    known = catalog.load()
    read = matrix.parse(TEXT.format(name=name, count=count), files={}, known=resolve.names(known))
    return stack_files.files(resolve.plan(read, known), read, workspace.packaged_template)


def stack(name: str, **options: Any) -> Any:
    """One of these compose files, read as YAML; its variables stay texts."""
    return yaml.safe_load(made(**options)[COMPOSE / f"{name}.yaml"])


def test_what_is_committed_is_what_is_rendered() -> None:
    project = projects.load(ROOT)
    expected = stack_files.files(project.plan, project.matrix, project.work.template)
    assert {path: project.work.read(path) for path in expected} == expected
    assert set(stack_tree.generated(project.work)) <= set(expected)


def test_a_stack_has_no_devices_and_there_is_an_overlay_for_each_number_of_them() -> None:
    for each in stack("big")["services"].values():
        assert not {"deploy", "devices", "runtime", "gpus"} & each.keys()
    names = {path.name for path in made() if path.name.startswith("devices-")}
    assert names == {"devices-none.yaml", "devices-nvidia.yaml", *(f"devices-cdi-{n}.yaml" for n in (1, 2, 3))}


def test_an_overlay_asks_for_exactly_so_many_devices_and_shares_them_out_to_two_nodes() -> None:
    services = stack("devices-cdi-3")["services"]
    ids = {
        name: each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for name, each in services.items()
        if "deploy" in each
    }
    slots = [f"nvidia.com/gpu=${{TORCHYARD_GPU_{n}:-{n}}}" for n in range(3)]
    assert ids["train"] == ids["shell"] == ids["jupyter"] == slots
    assert (ids["node0"], ids["node1"]) == (slots[:1], slots[1:2])


def test_one_gpu_is_not_shared_by_two_nodes() -> None:
    services = stack("devices-cdi-1")["services"]
    for name in ("node0", "node1"):
        assert services[name] == {"environment": {"TORCHYARD_DEVICES": "none"}}


def test_a_machine_with_very_many_gpus_does_not_make_very_many_files() -> None:
    assert sum(path.name.startswith("devices-cdi-") for path in made(count=1024)) == 16


def test_every_published_port_is_on_loopback() -> None:
    for path, text in made().items():
        if path.suffix == ".yaml" and path.parts[0] == "compose" and len(path.parts) == 2:
            for name, each in yaml.safe_load(text)["services"].items():
                for port in each.get("ports", ()):
                    assert port.startswith("127.0.0.1:"), f"{path} {name}"
                assert each.get("network_mode") is None and not each.get("privileged"), f"{path} {name}"


def test_allocator_settings_belong_to_stacks_with_gpus() -> None:
    assert "PYTORCH_CUDA_ALLOC_CONF" in stack("big")["x-environment"]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in stack("small")["x-environment"]


def test_the_plain_command_takes_an_entry_that_needs_no_gpu() -> None:
    assert "compose/${TORCHYARD_HARDWARE:-small}.yaml" in made()[PurePosixPath("compose.yaml")]


@pytest.mark.parametrize("name", ["devices-none", "limits-kept"])
def test_an_entry_cannot_take_the_name_of_an_overlay(name: str) -> None:
    with pytest.raises(InputError, match=f"cannot be called {name}"):
        made(name=name)


def test_each_entry_has_a_devcontainer_in_which_a_gpu_is_optional() -> None:
    found = {path.parts[1]: text for path, text in made().items() if path.name == "devcontainer.json"}
    read = {name: json.loads("\n".join(text.splitlines()[1:])) for name, text in found.items()}
    assert {name: each.get("hostRequirements") for name, each in read.items()} == {
        "big": {"gpu": "optional"},
        "small": None,
    }
    assert read["big"]["image"] == "acme:torch2.14.1-cu130-py311-debian12-amd64"


def test_everything_that_a_stack_mounts_of_the_project_is_rendered() -> None:
    files = made()
    mounted = re.findall(r"source: (\./compose/[^ ,}]+)", files[COMPOSE / "big.yaml"])
    started = re.findall(r"python (?:-u )?(compose/\S+)", files[COMPOSE / "big.yaml"])
    assert len(mounted) == 5 and len(started) >= 4
    assert {PurePosixPath(each) for each in (*mounted, *started)} <= set(files)


def test_what_runs_in_images_is_python_that_old_images_read() -> None:
    for path, text in made().items():
        if path.suffix == ".py":
            ast.parse(text, feature_version=(3, 8))


def test_prometheus_reads_what_the_exporter_serves() -> None:
    files = made()
    read = yaml.safe_load(files[COMPOSE / "monitor/prometheus.yml"])
    jsonschema.validate(read, SCRAPE)
    (target,) = read["scrape_configs"][0]["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert port in yaml.safe_load(files[COMPOSE / "big.yaml"])["services"][service]["expose"]


def test_the_dashboard_asks_the_source_that_is_there_for_counters_that_there_are() -> None:
    files = made()
    listed = [line.split(",")[0] for line in files[COMPOSE / "monitor/counters.csv"].splitlines() if line[0] != "#"]
    asked = set()
    board = json.loads(files[COMPOSE / "monitor/gpus.json"])
    (source,) = yaml.safe_load(files[COMPOSE / "monitor/datasource.yaml"])["datasources"]
    assert source["url"] == "http://prometheus:9090"
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in board["panels"]]
    assert len(set(places)) == len(places) == 8
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": source["uid"]}
            asked |= set(re.findall(r"DCGM_\w+", target["expr"]))
    assert sorted(asked) == sorted(listed)


def test_a_compose_file_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    project = own_project(tmp_path)
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "mine.yaml").write_text("services: {}\n")
    rendering.render(project)
    assert (tmp_path / "compose.yaml").read_text() == "services: {}\n"
    assert (tmp_path / "compose" / "mine.yaml").is_file()
    assert (tmp_path / "compose" / "small.yaml").is_file()


def test_a_file_that_stands_in_the_way_is_said_and_kept(tmp_path: Path) -> None:
    project = own_project(tmp_path)
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "small.yaml").write_text("services: {}\n")
    with pytest.raises(InputError, match=r"compose/small\.yaml is there and was not made by torchyard"):
        rendering.render(project)


def test_the_stack_of_an_entry_that_is_gone_goes_too(tmp_path: Path) -> None:
    rendering.render(own_project(tmp_path))
    rendering.render(own_project(tmp_path, name="other"))
    assert sorted(path.name for path in (tmp_path / ".devcontainer").iterdir()) == ["big", "other"]
    assert not (tmp_path / "compose" / "small.yaml").exists()


def own_project(root: Path, name: str = "small") -> projects.Project:
    """A project on disk."""
    (root / "env.yaml").write_text(TEXT.format(name=name, count=3))
    assert Workspace(root).read("env.yaml")
    return projects.load(root)
