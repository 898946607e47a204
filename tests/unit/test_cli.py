"""The command line: its exit codes, what it says of mistakes, and that it never shows a traceback for one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from invoke.parser import Parser

from torchyard import tasks

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = {"TORCHYARD_ENGINE": "none", "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
EXAMPLES = {name: re.findall(r"Example: (.+)$", task.__doc__ or "", re.M) for name, task in tasks.ns.tasks.items()}
CONTEXTS = {context.name: context for context in tasks.ns.to_contexts()}
ENV = 'schema: 1\nproject: acme\nsoftware: {torch: "2.13.0"}\nhardware: {cpu: {}, laptop: {}}\n'
SLEEPS = """\
import time
from invoke.tasks import task
from torchyard.tasks import collection, verb

@task
def bare(c):
    print("ready", flush=True)
    time.sleep(60)

@task
@verb
def guarded(c):
    print("ready", flush=True)
    time.sleep(60)

@task
def child(c):
    from torchyard.world import process
    process.attached(["sh", "-c", "trap 'echo told; kill $!; exit 9' TERM; echo ready; sleep 60 & wait"])

ns = collection(bare, guarded, child)
"""


def start(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """torchyard in this folder, as another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "torchyard", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **NOWHERE, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def run(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; a traceback is never right."""
    child = start(folder, *arguments, env=env)
    out, err = child.communicate(timeout=120)
    assert "Traceback" not in out + err, err
    return child.returncode, out, err


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that nothing was done in yet."""
    (tmp_path / "env.yaml").write_text(ENV)
    return tmp_path


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A project with locks: a copy of this repository's."""
    for name in ("images", "compose", ".devcontainer"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("env.yaml", "env.lock.yaml", "compose.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "arguments", [["--list"], ["--version"], ["--help"], ["matrix"], ["matrix", "--json"]], ids=str
)
def test_what_is_asked_rightly_answers_0(project: Path, arguments: list[str]) -> None:
    code, out, err = run(project, *arguments)
    assert code == 0, err
    assert out


def test_a_checked_thing_that_is_bad_answers_1(locked: Path) -> None:
    assert run(locked, "render", "--check")[0] == 0
    changed = next(locked.glob("images/*/Dockerfile"))
    changed.write_text(changed.read_text() + "\n")
    code, _, err = run(locked, "render", "--check")
    assert code == 1
    assert str(changed.relative_to(locked)) in err and "hint:" in err


@pytest.mark.parametrize("variable", ["", "1"])
def test_bytecode_is_kept_as_python_does_it_also_under_invoke(project: Path, tmp_path: Path, variable: str) -> None:
    env = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "PYTHONDONTWRITEBYTECODE": variable}
    assert run(project, "plan", env=env)[0] == 0
    assert bool(list((tmp_path / "bytecode").rglob("torchyard/verbs/plan.*.pyc"))) is (variable == "")


def test_a_check_writes_nothing(locked: Path) -> None:
    (locked / "images" / "index.yaml").unlink()
    before = {path: path.stat().st_mtime_ns for path in locked.rglob("*")}
    assert run(locked, "render", "--check")[0] == 1
    assert {path: path.stat().st_mtime_ns for path in locked.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "biuld"),
        (["build", "--gpus", "cpu"], "--gpus"),
        (["build", "--gpu"], "gpu"),
        (["run", "--", "true"], "gpu"),
        (["build", "--gpu", "cpu", "--id", "x"], "both given"),
        (["build", "--gpu", "lapptop"], "laptop"),
        (["fetch", "--id", "torch2.13.0-cpu"], "torch2.13.0-cpu-"),
        (["run", "--gpu", "nothing"], "cpu"),
        (["--no-such-flag"], "no-such-flag"),
    ],
    ids=str,
)
def test_a_wrong_command_line_answers_2_and_says_what_is_right(project: Path, arguments: list[str], said: str) -> None:
    code, _, err = run(project, *arguments)
    assert code == 2, err
    assert said in err and "hint:" in err


def test_outside_a_project_the_answer_is_2_and_names_init(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "matrix")
    assert code == 2
    assert "no env.yaml" in err and "torchyard init" in err


def test_in_a_folder_that_is_gone_the_answer_is_2(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script = f"rmdir {folder}; exec {sys.executable} -m torchyard matrix"
    env = {**os.environ, "PYTHONPATH": str(ROOT), **NOWHERE}
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "hint:" in done.stderr


@pytest.mark.parametrize("kind", ["a-folder", "a-pipe", "empty", "binary", "latin-1", "a-dangling-link", "huge"])
def test_an_env_file_that_is_none_is_told_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "env.yaml"
    match kind:
        case "a-folder":
            path.mkdir()
        case "a-pipe":
            os.mkfifo(path)
        case "a-dangling-link":
            path.symlink_to(tmp_path / "nowhere")
        case "huge":
            path.write_bytes(b"# \n" * 3_000_000)
        case _:
            path.write_bytes(
                {"empty": b"", "binary": bytes(range(256)), "latin-1": "project: é".encode("latin-1")}[kind]
            )
    code, _, err = run(tmp_path, "matrix")
    assert code == 2, err
    assert "env.yaml" in err and "hint:" in err


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "schema: 2\n", "", "[1, 2"], ids=repr)
def test_a_broken_lock_answers_2_with_what_helps_for_every_verb_that_reads_it(locked: Path, text: str) -> None:
    path = next(locked.glob("images/torch2.13.0-cpu-*/lock.yaml"))
    path.write_text(text)
    for arguments in (["render", "--check"], ["fetch", "--gpu", "cpu"], ["lock", "--gpu", "cpu"], ["clean"]):
        code, _, err = run(locked, *arguments)
        assert code == 2, err
        assert "lock.yaml" in err and "remove images/" in err


def test_a_lock_under_the_name_of_another_image_answers_2(locked: Path) -> None:
    cpu = next(locked.glob("images/torch2.13.0-cpu-*/lock.yaml"))
    cuda = next(locked.glob("images/torch2.14.1-*/lock.yaml"))
    cpu.write_text(cuda.read_text())
    code, _, err = run(locked, "fetch", "--gpu", "cpu")
    assert code == 2
    assert cuda.parent.name in err


def test_a_lock_whose_image_was_edited_by_hand_is_stale(locked: Path) -> None:
    path = next(locked.glob("images/torch2.13.0-cpu-*/lock.yaml"))
    path.write_text(path.read_text().replace('packages: {"pip": ["numpy"]}', 'packages: {"env": [["A", "1"]]}'))
    code, _, err = run(locked, "fetch", "--gpu", "cpu")
    assert code == 1
    assert "./yard lock" in err


def test_without_an_engine_the_answer_is_3_and_says_what_to_install(project: Path) -> None:
    code, _, err = run(project, "engine", "--env")
    assert code == 3
    assert "hint:" in err


def test_an_engine_choice_that_there_is_not_answers_2(project: Path) -> None:
    code, _, err = run(project, "engine", "--env", env={"TORCHYARD_ENGINE": "podman"})
    assert code == 2
    assert "podman" in err and "hint:" in err


@pytest.mark.parametrize("text", ["import nothing_of_that_name\n", "def x(:\n", "1/0\n"])
def test_a_tasks_file_that_does_not_load_answers_2(project: Path, text: str) -> None:
    (project / "tasks.py").write_text(text)
    code, _, err = run(project, "matrix")
    assert code == 2
    assert "tasks.py" in err and "hint:" in err


def test_a_disk_that_cannot_be_written_answers_3(locked: Path) -> None:
    changed = next(locked.glob("images/*/Dockerfile"))
    changed.unlink()
    (locked / ".torchyard").write_text("a file where a folder should be")
    code, _, err = run(locked, "render")
    assert code == 3
    assert "hint:" in err


@pytest.mark.parametrize(
    ("task", "number"),
    [
        *((task, number) for task in ("bare", "guarded") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        ("child", signal.SIGTERM),
        ("child", signal.SIGHUP),  # Ctrl-C reaches a child from the terminal, and its answer is the answer
    ],
)
def test_interrupted_or_asked_to_end_the_answer_is_130(project: Path, number: signal.Signals, task: str) -> None:
    """B124."""
    (project / "tasks.py").write_text(SLEEPS)
    child = start(project, task)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert ("told" in out) is (task == "child")


def test_a_hang_up_that_nohup_ignores_stays_ignored(project: Path) -> None:
    (project / "tasks.py").write_text(SLEEPS)
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from torchyard.world import process; "
    code += "process.end_on_signals(); print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "True\n"


def test_a_reader_that_goes_away_ends_it_quietly(project: Path) -> None:
    child = start(project, "matrix", "--json")
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert child.wait(timeout=60) in (0, 128 + signal.SIGPIPE)
    assert child.stderr.read() == ""


@pytest.mark.parametrize(
    "variables", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"TERM": "dumb", "COLUMNS": "1"}]
)
def test_any_locale_and_terminal_will_do(project: Path, variables: dict[str, str]) -> None:
    (project / "env.yaml").write_text(ENV.replace("laptop: {}", "v100: {gpu: v100}"))
    code, out, _ = run(project, "matrix", env=variables)
    assert code == 0
    assert "cpu" in out


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_of_every_verb_shows_an_example(project: Path, name: str) -> None:
    assert len(EXAMPLES[name]) == 1
    code, out, _ = run(project, name, "--help")
    assert code == 0
    assert f"Example: {EXAMPLES[name][0]}" in re.sub(r"\s+", " ", out)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_command_line_that_is_understood(name: str) -> None:
    words = EXAMPLES[name][0].split()
    words = words[: words.index("--")] if "--" in words else words
    (found,) = Parser(contexts=list(CONTEXTS.values())).parse_argv(words)
    assert found.name == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_option_has_a_help(name: str) -> None:
    for argument in CONTEXTS[name].args.values():
        assert argument.help, argument.name


HEAVY = {"docker", "requests", "urllib3", "pydantic", "isal", "deflate", "zstandard", "installer", "rich", "uv"}


@pytest.mark.parametrize(
    ("arguments", "also"),
    [(["--list"], ["jinja2", "packaging"]), (["matrix", "--json"], ["jinja2"]), (["render", "--check"], [])],
    ids=str,
)
def test_a_verb_that_only_reads_loads_nothing_of_engines_and_networks(arguments: list[str], also: list[str]) -> None:
    code = (
        "import sys\nfrom torchyard.__main__ import main\n"
        f"try: main({arguments!r})\nexcept SystemExit as end: assert end.code in (0, 1), end.code\n"
        "print('\\nLOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.rpartition("LOADED")[2].split()) & (HEAVY | set(also)) == set()
