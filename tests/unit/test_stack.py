"""The stack of an entry on a machine: devices, processes, sizes, findings, and the text of .env."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchyard import stack, stack_lines
from torchyard.errors import InputError, Surroundings
from torchyard.finding import State
from torchyard.stack import Entry, Handover, Host, Settings, Wish

GIB = 1 << 30
ENTRY = Entry(
    project="acme",
    hardware="rtx4090",
    image="torch2.14.1-cu130-py311-debian12-amd64",
    torch="2.14.1",
    gpus=2,
    mig="",
    shm="",
    where="env.yaml:3:3  hardware.rtx4090",
)
HOST = Host(
    place="0badcafe",
    uid=1001,
    gid=1002,
    cpus=16,
    memory=64 * GIB,
    may_raise=True,
    memlock=-1,
    handover=Handover.CDI,
    names=frozenset({"0", "1", "2", "3", "all"}),
)
CPU = replace(ENTRY, hardware="cpu", gpus=0)
NOTHING = Wish()


def decide(entry: Entry = ENTRY, host: Host = HOST, wish: Wish = NOTHING, **former: str) -> Settings:
    """The settings for a digest."""
    return stack.settings(entry, host, wish, "sha256:" + "a" * 64, former, "fresh-token")


def test_an_entry_gets_exactly_its_devices_and_a_process_each() -> None:
    made = decide()
    assert made.devices == ("0", "1")
    assert made.variables["TORCHYARD_DEVICES"] == "cdi-2"
    assert {k: v for k, v in made.variables.items() if k.startswith("TORCHYARD_GPU")} == {
        "TORCHYARD_GPU_0": "0",
        "TORCHYARD_GPU_1": "1",
    }
    assert made.variables["TORCHYARD_PROCESSES"] == "2"
    assert made.variables["TORCHYARD_NODE_PROCESSES"] == "1"


def test_a_chosen_subset_is_what_it_gets() -> None:
    made = decide(wish=Wish(devices=("3",)))
    assert (made.devices, made.processes) == (("3",), 1)
    assert made.variables["TORCHYARD_DEVICES"] == "cdi-1"


def test_the_nvidia_runtime_gets_the_same_names_in_one_variable() -> None:
    made = decide(host=replace(HOST, handover=Handover.NVIDIA, names=frozenset()))
    assert made.variables["TORCHYARD_DEVICES"] == "nvidia"
    assert made.variables["TORCHYARD_GPUS"] == "0,1"
    assert (made.variables["TORCHYARD_GPUS_NODE0"], made.variables["TORCHYARD_GPUS_NODE1"]) == ("0", "1")


def test_cards_that_a_specification_names_by_uuid_are_taken_by_it() -> None:
    made = decide(host=replace(HOST, names=frozenset({"GPU-b", "GPU-a", "GPU-c", "all"})))
    assert made.devices == ("GPU-a", "GPU-b")


def test_a_sliced_entry_gets_one_slice() -> None:
    host = replace(HOST, names=frozenset({"0:0", "0:1", "all"}))
    made = decide(replace(ENTRY, mig="3g.20gb"), host)
    assert (made.devices, made.processes) == (("0:0",), 1)
    assert decide(replace(ENTRY, mig="3g.20gb"), host, Wish(devices=("0:1",))).devices == ("0:1",)


@pytest.mark.parametrize(
    ("wish", "kind", "says"),
    [
        (("0", "0"), InputError, "twice"),
        (("0:0", "0:1"), InputError, "only one"),
        (("0", "1", "2"), InputError, "rtx4090 has 2"),
        (("7",), Surroundings, "has no 7; it has 0, 1, 2, 3"),
        (("$(id)",), InputError, "no name of a GPU"),
    ],
)
def test_devices_that_cannot_be_are_refused_with_what_there_is(
    wish: tuple[str, ...], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says.replace("$", r"\$")):
        decide(wish=Wish(devices=wish))


def test_more_gpus_than_the_machine_has_are_refused_with_both_numbers() -> None:
    with pytest.raises(Surroundings, match="has 8 GPU.*no\\s+4, 5, 6, 7; it has 0, 1, 2, 3"):
        decide(replace(ENTRY, gpus=8))


def test_without_a_way_to_hand_over_gpus_the_job_runs_on_the_cpu_and_a_finding_says_why() -> None:
    made = decide(
        host=replace(HOST, handover=Handover.NONE, names=frozenset(), detail="this machine has no NVIDIA GPU")
    )
    assert (made.devices, made.processes, made.variables["TORCHYARD_DEVICES"]) == ((), 2, "none")
    finding = made.findings[0]
    assert (finding.rule, finding.state) == ("stack.devices", State.SKIPPED)
    assert "no NVIDIA GPU" in finding.because


def test_the_user_says_how_many_processes() -> None:
    assert decide(CPU, wish=Wish(processes=5)).variables["TORCHYARD_PROCESSES"] == "5"
    assert decide(CPU).variables["TORCHYARD_PROCESSES"] == "2"
    assert decide(CPU, replace(HOST, cpus=1)).variables["TORCHYARD_PROCESSES"] == "1"


@pytest.mark.parametrize(("memory", "shm"), [(64 * GIB, 16 * GIB), (8 * GIB, 4 * GIB), (64 << 20, 64 << 20)])
def test_shared_memory_is_sized_to_the_host(memory: int, shm: int) -> None:
    assert decide(host=replace(HOST, memory=memory)).variables["TORCHYARD_SHM"] == str(shm)


def test_the_entrys_own_size_wins_and_one_larger_than_the_host_is_a_finding() -> None:
    made = decide(replace(ENTRY, shm="100g"))
    assert made.variables["TORCHYARD_SHM"] == str(100 * GIB)
    assert [(f.rule, f.state) for f in made.findings if f.state is State.FAIL] == [("stack.shm", State.FAIL)]


def test_the_tmpfs_for_hot_data_is_a_quarter_of_memory() -> None:
    assert decide().variables["TORCHYARD_HOT"] == str(16 * GIB)


def test_a_host_that_cannot_raise_memlock_starts_all_the_same_with_a_finding() -> None:
    made = decide(host=replace(HOST, may_raise=False, memlock=8 << 20))
    assert made.variables["TORCHYARD_LIMITS"] == "kept"
    finding = next(f for f in made.findings if f.rule == "stack.memlock")
    assert (finding.state, finding.seen) == (State.FAIL, "at most 8192 KiB")
    assert "InfiniBand" in finding.fix
    without = decide(CPU, replace(HOST, may_raise=False, memlock=8 << 20))
    assert [f.state for f in without.findings] == [State.SKIPPED]
    assert decide().variables["TORCHYARD_LIMITS"] == "raised"


def test_two_clones_have_stacks_of_different_names() -> None:
    names = {decide(host=replace(HOST, place=place)).variables["COMPOSE_PROJECT_NAME"] for place in ("aa", "bb")}
    assert names == {"acme-aa", "acme-bb"}


def test_a_token_and_ports_are_kept() -> None:
    made = decide(TORCHYARD_TOKEN="old", TORCHYARD_JUPYTER_PORT="9999")
    assert made.variables["TORCHYARD_TOKEN"] == "old"
    assert made.variables["TORCHYARD_JUPYTER_PORT"] == "9999"
    assert decide().variables["TORCHYARD_TOKEN"] == "fresh-token"


def test_a_port_that_is_in_use_is_passed_over() -> None:
    variables = {"TORCHYARD_JUPYTER_PORT": "6005"}
    found = stack.free_ports(variables, ["jupyter", "tensorboard"], lambda port: port not in (6005, 6007))
    assert found == {"TORCHYARD_JUPYTER_PORT": "6006", "TORCHYARD_TENSORBOARD_PORT": "6008"}
    assert stack.free_ports({}, ["train"], lambda port: False) == {}


def test_no_free_port_is_said() -> None:
    with pytest.raises(Surroundings, match="no free port for grafana"):
        stack.free_ports({}, ["grafana"], lambda port: False)


def test_the_users_lines_of_env_stay_and_win() -> None:
    first = stack_lines.text({"TORCHYARD_SHM": "1", "TORCHYARD_IMAGE": "sha256:b"}, "WANDB_MODE=offline\n")
    changed = first + "TORCHYARD_SHM=64g\n"
    second = stack_lines.text({"TORCHYARD_SHM": "2"}, changed)
    assert stack_lines.own(second) == ["WANDB_MODE=offline", "TORCHYARD_SHM=64g"]
    assert stack_lines.values(second) == {"TORCHYARD_SHM": "64g", "WANDB_MODE": "offline"}
    assert stack_lines.text({"TORCHYARD_SHM": "2"}, second) == second


def test_a_torn_mark_loses_no_line_of_the_users() -> None:
    assert stack_lines.own(f"{stack_lines.BEGIN}\nA=1\n") == ["A=1"]
    assert stack_lines.own(f"A=1\n{stack_lines.END}\nB=2\n") == ["A=1", "B=2"]
