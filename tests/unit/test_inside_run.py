"""The runner of probes, with real processes: what hangs is stopped, what dies is named, and the others go on."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

INSIDE = Path(__file__).resolve().parents[2] / "torchyard" / "inside"
PROBES = {
    "good": "def facts(device):\n    print('said')\n    return {'device': device}\n",
    "fails": "def facts(device):\n    raise RuntimeError('no such thing')\n",
    "crashes": "import ctypes\ndef facts(device):\n    ctypes.string_at(0)\n",
    "killed": "import os\ndef facts(device):\n    os.kill(os.getpid(), 7)\n",
    "leaves": "import os\ndef facts(device):\n    print('leaving')\n    os._exit(3)\n",
    "hangs": "import subprocess, time\ndef facts(device):\n    child = subprocess.Popen(['sleep', '600'])\n"
    "    print('child', child.pid, flush=True)\n    time.sleep(600)\n",
    "computes": "import time\ndef facts(device):\n    end = time.process_time() + 2\n"
    "    while time.process_time() < end:\n        pass\n    return {'done': True}\n",
}


def runner() -> ModuleType:
    """The runner as a module, by another name: this folder is not on the path here."""
    sys.path.append(str(INSIDE))
    found = importlib.util.spec_from_file_location("inside_run", INSIDE / "run.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The runner with probes made for these tests."""
    shutil.copytree(INSIDE, tmp_path / "inside")
    for name, text in PROBES.items():
        (tmp_path / "inside" / "probes" / f"{name}.py").write_text(text)
    return tmp_path / "inside"


def start(folder: Path, jobs: int = 2, **probes: float) -> subprocess.Popen[str]:
    asked = json.dumps({"probes": probes, "device": "cpu", "jobs": jobs})
    argv = [sys.executable, "-S", "-E", str(folder / "run.py"), asked]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def run(folder: Path, jobs: int = 2, **probes: float) -> dict[str, Any]:
    """The ends that the runner told, by probe."""
    child = start(folder, jobs, **probes)
    out, _ = child.communicate()
    assert child.returncode == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["probe"] for e in events if e["event"] == "begin"] == list(probes)
    return {e["probe"]: e for e in events if e["event"] == "end"}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_each_end_is_told_and_the_others_go_on(folder: Path) -> None:
    ends = run(folder, fails=60, crashes=60, killed=60, leaves=60, good=60)
    assert {name: end["end"] for name, end in ends.items()} == {
        "good": "done",
        "fails": "raised",
        "crashes": "died",
        "killed": "died",
        "leaves": "died",
    }
    assert ends["good"]["facts"] == {"device": "cpu"}
    assert ends["fails"]["error"] == "RuntimeError: no such thing"
    assert ends["crashes"]["signal"] == "SIGSEGV"
    assert ends["crashes"]["lines"][0] == "Fatal Python error: Segmentation fault"
    assert ends["killed"]["signal"] == "SIGBUS"
    assert (ends["leaves"]["signal"], ends["leaves"]["code"], ends["leaves"]["lines"]) == ("", 3, ["leaving"])


def test_a_probe_that_hangs_is_stopped_with_its_children_and_says_where_it_was(folder: Path) -> None:
    ends = run(folder, hangs=2, good=60)
    assert ends["good"]["end"] == "done"
    assert ends["hangs"]["end"] == "hung"
    told = "\n".join(ends["hangs"]["lines"])
    assert "hangs.py" in told and "in facts" in told
    log = [line for line in ends["hangs"]["lines"] if line.startswith("child ")]
    assert not any(alive(int(line.split()[1])) for line in log)


def test_a_probe_past_its_time_goes_on_while_it_computes(folder: Path) -> None:
    assert run(folder, computes=2)["computes"]["end"] == "done"


def test_a_probe_that_waits_for_a_cpu_is_told_from_one_that_hangs(tmp_path: Path) -> None:
    for pid, session, threads in ((7, 7, ("1000000000 2000000000 5", "0 500000000 1")), (8, 9, ("9000000000 0 1",))):
        (tmp_path / str(pid) / "task").mkdir(parents=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S 1 {pid} {session} 0\n")
        for number, line in enumerate(threads):
            (tmp_path / str(pid) / "task" / str(pid + number)).mkdir()
            (tmp_path / str(pid) / "task" / str(pid + number) / "schedstat").write_text(f"{line}\n")
    (tmp_path / "10" / "task").mkdir(parents=True)
    wanted = runner().wanted_of_session
    assert wanted(7, str(tmp_path)) == 3.5
    assert wanted(5, str(tmp_path)) == 0
    assert wanted(os.getsid(0)) >= 0


def test_the_end_of_the_runner_is_the_end_of_its_probes(folder: Path) -> None:
    child = start(folder, hangs=60)
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["event"] == "begin"
    before = children(child.pid)
    deadline = time.monotonic() + 30
    while not before and time.monotonic() < deadline:
        time.sleep(0.05)
        before = children(child.pid)
    child.send_signal(signal.SIGTERM)
    child.communicate()
    assert before
    assert not any(alive(pid) for pid in before)


def children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(word) for word in text.split()]


def test_probes_that_need_no_torch_run_here_as_they_do_in_an_image() -> None:
    ends = run(INSIDE, isolation=60, caches=60)
    assert {end["end"] for end in ends.values()} == {"done"}
    assert ends["isolation"]["facts"]["user_site"]["enabled"] in (True, False)
    assert ends["caches"]["facts"]["places"]["temporary"][1] == ""


def test_a_probe_runs_alone_and_prints_its_facts() -> None:
    done = subprocess.run([sys.executable, INSIDE / "one.py", "caches"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["facts"]["uid"] == os.getuid()
