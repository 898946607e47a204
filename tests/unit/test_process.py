"""Running commands: what a person is told when one fails, and that nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from torchyard.errors import CheckFailed, Surroundings
from torchyard.world import process


def gone(number: int) -> bool:
    """Whether the process has ended (a zombie, whose parent has not asked yet, has)."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_both_streams_and_the_code_come_back() -> None:
    done = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")


def test_a_failure_names_the_line_to_paste_its_code_and_its_last_lines() -> None:
    with pytest.raises(Surroundings) as caught:
        process.run(["sh", "-c", "echo 'it broke' >&2; exit 7", "two words"])
    assert "exit code 7" in caught.value.what
    assert "'two words'" in caught.value.what
    assert "    it broke" in caught.value.what


def test_the_directory_is_part_of_the_line_to_paste(tmp_path: Path) -> None:
    with pytest.raises(Surroundings, match=f"cd {tmp_path} && false"):
        process.run(["false"], cwd=tmp_path)


def test_another_error_can_be_asked_for() -> None:
    with pytest.raises(CheckFailed) as caught:
        process.run(["false"], error=CheckFailed, hint="look again")
    assert caught.value.hint == "look again"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Surroundings, match="the program 'no-such-program' is not there"):
        process.run(["no-such-program", "x"])


def test_a_missing_directory_is_not_taken_for_a_missing_program() -> None:
    with pytest.raises(Surroundings, match="the directory '/no/such/directory' is not there"):
        process.run(["true"], cwd="/no/such/directory")


def test_a_variable_is_laid_over_the_environment_and_none_removes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_OLD", "1")
    done = process.run(["sh", "-c", 'echo "${YARD_OLD-none} $YARD_NEW"'], env={"YARD_OLD": None, "YARD_NEW": "2"})
    assert done.out == "none 2\n"


def test_a_large_input_comes_back_whole() -> None:
    text = "0123456789" * 400_000
    assert process.run(["cat"], input=text).out == text


def test_an_input_that_is_not_read_to_its_end_is_no_failure() -> None:
    assert process.run(["head", "-c", "1"], input="x" * 4_000_000).out == "x"


def test_lines_come_whole_also_when_they_were_written_in_parts() -> None:
    lines: list[str] = []
    process.run(["sh", "-c", r"printf 'a\nb'; printf 'c\r\nd'"], on_line=lines.append)
    assert lines == ["a", "bc", "d"]


def test_a_grandchild_that_holds_the_pipe_is_not_waited_for() -> None:
    """B126."""
    done = process.run(["sh", "-c", "sleep 600 & echo $!"])
    number = int(done.out)
    assert not Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].startswith(" Z")
    os.kill(number, signal.SIGKILL)


def test_a_chatty_grandchild_does_not_keep_us() -> None:
    done = process.run([sys.executable, "-c", CHATTY])
    number = int(re.search(r"(\d+)\n", done.out)[1])  # type: ignore[index]  # the child may write first
    with contextlib.suppress(ProcessLookupError):  # a pipe that nobody reads has ended it already
        os.kill(number, signal.SIGKILL)
    assert gone(number)


CHATTY = """
import os
child = os.fork()
if child:
    os.write(1, f"{child}\\n".encode())
else:
    while True:
        os.write(1, b"x" * 1000)
"""


def test_a_time_out_ends_the_whole_group() -> None:
    with pytest.raises(Surroundings, match=r"still running after 0\.5 s") as caught:
        process.run(["sh", "-c", "sleep 600 & echo $! >&2; wait"], timeout=0.5)
    assert gone(int(caught.value.what.split()[-1]))


def test_an_interrupt_ends_the_whole_group() -> None:
    numbers: list[int] = []

    def interrupt(line: str) -> None:
        numbers.append(int(line))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        process.run(["sh", "-c", "sleep 600 & echo $!; wait"], on_line=interrupt)
    assert gone(numbers[0])


def test_a_process_that_does_not_heed_term_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.end_group, "__defaults__", (0.3,))
    with pytest.raises(Surroundings) as caught:
        process.run(["sh", "-c", "trap '' TERM; echo $$ >&2; while :; do sleep 0.1; done"], timeout=0.5)
    assert gone(int(caught.value.what.split()[-1]))


def test_an_error_of_the_listener_ends_the_child() -> None:
    numbers: list[int] = []

    def refuse(line: str) -> None:
        numbers.append(int(line))
        raise ValueError(line)

    with pytest.raises(ValueError, match=r"\d+"):
        process.run(["sh", "-c", "echo $$; sleep 600"], on_line=refuse)
    assert gone(numbers[0])


def test_the_end_by_a_signal_is_told_as_a_shell_tells_it() -> None:
    assert process.run(["sh", "-c", "kill -9 $$"], check=False).code == 137


def test_an_attached_command_gives_its_code() -> None:
    assert process.attached(["sh", "-c", "exit 4"]) == 4


def test_a_command_beside_the_caller_answers_when_it_is_asked() -> None:
    with process.beside(["sh", "-c", "echo out; echo err >&2; exit 3"]) as ended:
        done = ended()
    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")


def test_a_command_beside_a_caller_that_fails_is_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with (
        pytest.raises(CheckFailed),
        process.beside(["sh", "-c", f"echo $$ > {told}.new; mv {told}.new {told}; sleep 60"]),
    ):
        while not told.exists():
            time.sleep(0.01)
        raise CheckFailed("the caller")
    assert gone(int(told.read_text()))


AT_THE_WORST_MOMENT = """
import os, signal, subprocess, sys
from torchyard.world import process

class Popen(subprocess.Popen):
    def _execute_child(self, *arguments, **options):
        super()._execute_child(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)  # the child runs, and nobody has it yet

subprocess.Popen = Popen
process.end_on_signals()
try:
    started = START(["sh", "-c", "echo $$ > pid; exec sleep 60"])
    with started:  # of `beside`
        pass
except process.Ended:
    print("ended")
"""


@pytest.mark.parametrize("start", ["attached", "run", "beside"])
def test_a_child_that_was_just_started_when_a_signal_came_is_ended(tmp_path: Path, start: str) -> None:
    code = AT_THE_WORST_MOMENT.replace("START", f"process.{start}")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = process.run([sys.executable, "-c", code], cwd=tmp_path, env=env, timeout=50)
    assert done.out == "ended\n"
    told = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not told or gone(int(told))
