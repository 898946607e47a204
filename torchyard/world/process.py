"""Processes: the one function that starts a command and tells exactly what went wrong with it."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from torchyard.errors import Surroundings, YardError
from torchyard.world import disks

BLOCK = 1 << 16
LAST_LINES = 20
POLL = 0.05  # seconds; only a child that left a grandchild on its pipe, or closed its output, is waited for so
FINAL_ROUNDS = 32  # reads after the child's end; more than a pipe holds, so a chatty grandchild cannot keep us
TERM_GRACE = 5.0  # seconds between SIGTERM and SIGKILL


class Ended(KeyboardInterrupt):
    """This process was asked to end (SIGTERM, SIGHUP): what it started is not, unlike with Ctrl-C at a terminal."""


def end_on_signals() -> None:
    """Make SIGTERM and SIGHUP end this process as Ctrl-C does, so that it cleans up; nohup's choice is kept."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, frame: object) -> NoReturn:
    raise Ended(number)


@contextlib.contextmanager
def _held() -> Iterator[list[int]]:
    """Signals that end this process wait while a child is started, or nobody would know the child: those that came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {number: handler for number, handler in former.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield came
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


def _deliver(came: Iterable[int]) -> None:
    """Answer the signals that waited."""
    for number in came:
        signal.raise_signal(number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A command that ended: what ran, its exit code (128 + N for signal N) and what it printed."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str


def quoted(argv: Sequence[str], cwd: Path | str | None = None) -> str:
    """The command as one line that can be pasted into a shell."""
    line = shlex.join(argv)
    return f"cd {shlex.quote(str(cwd))} && {line}" if cwd is not None else line


def last_lines(text: str, count: int = LAST_LINES) -> str:
    """The last lines of a command's output that are not blank, indented."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-count:])


def run(
    argv: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str | None] | None = None,
    input: str | bytes | None = None,
    check: bool = True,
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
    error: type[YardError] = Surroundings,
    hint: str = "",
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a command to its end and return its exit code and output.

    env is laid over this process's environment; None as a value removes a variable. on_line gets every line of both
    streams as it comes. With `check`, another exit code than 0 raises `error`; a time-out and a missing executable
    always do. Interrupted, timed out or left by an exception of on_line, the child's whole process group is ended.
    """
    argv = tuple(argv)
    with _held() as came:
        child = _start(argv, cwd=cwd, env=env, piped=input is not None, pass_fds=pass_fds, error=error, hint=hint)
    try:
        _deliver(came)
        out, err = _converse(child, input, timeout=timeout, on_line=on_line)
    except subprocess.TimeoutExpired as expired:
        end_group(child)
        printed = str(expired.output)
        raise error(
            f"the command was still running after {timeout:g} s and was stopped:\n  {quoted(argv, cwd)}"
            + (f"\nits last lines:\n{last_lines(printed)}" if printed.strip() else ""),
            hint=hint,
        ) from None
    except BaseException:
        end_group(child)
        raise
    finally:
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    done = Completed(argv=argv, code=_code(child.returncode), out=out, err=err)
    if check and done.code != 0:
        raise failed(done, cwd=cwd, error=error, hint=hint)
    return done


def fed(
    argv: Sequence[str], pieces: Iterable[bytes], *, env: Mapping[str, str | None] | None = None, hint: str = ""
) -> Completed:
    """Run a command that reads these pieces, made while it reads, and return its exit code and output."""
    argv = tuple(argv)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            with _held() as came:
                child = subprocess.Popen(
                    argv, env=_environment(env), stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
                )
        except OSError as problem:
            raise _cannot_start(argv, None, problem, Surroundings, hint) from None
        assert child.stdin is not None
        try:
            _deliver(came)
            with contextlib.suppress(BrokenPipeError), child.stdin:  # it ended early: its exit code says why
                for piece in pieces:
                    child.stdin.write(piece)
            child.wait()
        except BaseException:
            end_group(child)
            raise
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    done = Completed(argv=argv, code=_code(child.returncode), out=texts[0], err=texts[1])
    if done.code != 0:
        raise failed(done, hint=hint)
    return done


@contextlib.contextmanager
def beside(argv: Sequence[str], *, env: Mapping[str, str | None] | None = None) -> Iterator[Callable[[], Completed]]:
    """Run a command while the caller goes on: what is yielded waits for its end. Left before that, it is ended."""
    argv = tuple(argv)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            with _held() as came:
                child = subprocess.Popen(
                    argv,
                    env=_environment(env),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        except OSError as problem:
            raise _cannot_start(argv, None, problem, Surroundings, "") from None

        def ended() -> Completed:
            child.wait()
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode("utf-8", "replace"))
            return Completed(argv=argv, code=_code(child.returncode), out=texts[0], err=texts[1])

        try:
            _deliver(came)
            yield ended
        finally:
            if child.poll() is None:
                end_group(child)


def attached(argv: Sequence[str], *, cwd: Path | str | None = None, env: Mapping[str, str | None] | None = None) -> int:
    """Run a command on this process's own terminal and return its exit code; Ctrl-C is the command's to answer."""
    argv = tuple(argv)
    try:
        with _held() as came:
            child = subprocess.Popen(argv, cwd=cwd, env=_environment(env))
    except OSError as problem:
        raise _cannot_start(argv, cwd, problem, Surroundings, "") from None
    asked: Ended | None = None
    while True:
        try:
            if came:
                _deliver([came.pop()])
            code = _code(child.wait())
            break
        except Ended as ended:
            asked = ended
            child.terminate()
        except KeyboardInterrupt:
            continue  # the terminal sent it to the command as well
    if asked is not None:
        raise asked
    return code


def failed(
    done: Completed,
    *,
    cwd: Path | str | None = None,
    error: type[YardError] = Surroundings,
    hint: str = "",
    writes: Sequence[Path] = (),
) -> YardError:
    """The error that tells of a failed command: the line to paste, its exit code and its last lines.

    writes: folders to which it writes, beside those of the project, should their disk be full.
    """
    printed = last_lines(done.err if done.err.strip() else done.out)
    return error(
        f"the command failed with exit code {done.code}:\n  {quoted(done.argv, cwd)}"
        + (f"\nits last lines:\n{printed}" if printed else "\nit printed nothing"),
        hint="; ".join(filter(None, (disks.short(*writes, said=f"{done.out}\n{done.err}"), hint))),
    )


def end_group(child: subprocess.Popen[bytes], grace: float = TERM_GRACE) -> None:
    """End the process group that `run` made for this child: SIGTERM, then SIGKILL for what is left."""
    _signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        child.poll()  # reaps the child, so that an ended group is seen as gone
        if not _signal_group(child.pid, 0):
            break
        time.sleep(POLL)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _start(
    argv: tuple[str, ...],
    *,
    cwd: Path | str | None,
    env: Mapping[str, str | None] | None,
    piped: bool,
    pass_fds: Sequence[int],
    error: type[YardError],
    hint: str,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=_environment(env),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except OSError as problem:
        raise _cannot_start(argv, cwd, problem, error, hint) from None


def _environment(env: Mapping[str, str | None] | None) -> dict[str, str] | None:
    if env is None:
        return None
    merged: dict[str, str | None] = {**os.environ, **env}
    return {name: value for name, value in merged.items() if value is not None}


def _cannot_start(
    argv: tuple[str, ...], cwd: Path | str | None, problem: OSError, error: type[YardError], hint: str
) -> YardError:
    if cwd is not None and not Path(cwd).is_dir():
        return error(f"the directory {str(cwd)!r} is not there, in which to run:\n  {quoted(argv)}", hint=hint)
    if isinstance(problem, FileNotFoundError):
        return error(
            f"the program {argv[0]!r} is not there, or not on PATH:\n  {quoted(argv, cwd)}",
            hint=hint or f"install the package that has {argv[0]!r}",
        )
    return error(f"the program {argv[0]!r} cannot be run: {problem.strerror}\n  {quoted(argv, cwd)}", hint=hint)


def _converse(
    child: subprocess.Popen[bytes],
    given: str | bytes | None,
    *,
    timeout: float | None,
    on_line: Callable[[str], None] | None,
) -> tuple[str, str]:
    """Feed the child and read it until it has ended; a grandchild that keeps the pipe open is not waited for."""
    deadline = None if timeout is None else time.monotonic() + timeout
    assert child.stdout is not None and child.stderr is not None
    outputs = {child.stdout: _Output(on_line), child.stderr: _Output(on_line)}
    waiting = memoryview(given.encode() if isinstance(given, str) else given or b"")
    with selectors.DefaultSelector() as selector:
        for stream in outputs:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            selector.register(child.stdin, selectors.EVENT_WRITE)
        rounds = 0
        while True:
            ended = child.poll() is not None  # asked before reading: all that it wrote is then in the pipe
            ready = selector.select(0 if ended else POLL) if selector.get_map() else []
            for key, _ in ready:
                if key.fileobj is child.stdin:
                    waiting = _feed(selector, child.stdin, waiting)
                    continue
                stream = child.stdout if key.fileobj is child.stdout else child.stderr
                if not outputs[stream].take(stream.fileno()):
                    selector.unregister(stream)
            reading = any(key.fileobj is not child.stdin for key, _ in ready)
            rounds += ended
            if (ended and not reading) or rounds > FINAL_ROUNDS:
                break
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(POLL)
            if deadline is not None and time.monotonic() > deadline:
                printed = outputs[child.stderr].text() or outputs[child.stdout].text()
                raise subprocess.TimeoutExpired(child.args, timeout or 0.0, output=printed)
    for output in outputs.values():
        output.finish()
    return outputs[child.stdout].text(), outputs[child.stderr].text()


def _feed(selector: selectors.BaseSelector, stdin: IO[bytes], waiting: memoryview) -> memoryview:
    """What is still to be written after this write; the pipe is closed when that is nothing."""
    try:
        waiting = waiting[os.write(stdin.fileno(), waiting[:BLOCK]) :] if waiting else waiting
    except BlockingIOError:
        return waiting
    except BrokenPipeError:  # the child does not read on; its exit code tells whether that matters
        waiting = waiting[:0]
    if not waiting:
        selector.unregister(stdin)
        stdin.close()
    return waiting


class _Output:
    """What one stream printed, handed on line by line."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._rest = ""
        self._on_line = on_line

    def take(self, descriptor: int) -> bool:
        """Read what is there; False at the end of the stream."""
        try:
            block = os.read(descriptor, BLOCK)
        except BlockingIOError:
            return True
        self._add(self._decoder.decode(block, final=not block))
        return bool(block)

    def _add(self, text: str) -> None:
        self._parts.append(text)
        if self._on_line is None:
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._on_line(line.rstrip("\r"))

    def finish(self) -> None:
        if self._on_line is not None and self._rest:
            rest, self._rest = self._rest, ""
            self._on_line(rest.rstrip("\r"))

    def text(self) -> str:
        return "".join(self._parts)


def _signal_group(group: int, number: int) -> bool:
    """Signal a process group; whether there was one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # on some systems the answer for a group of zombies
        return False
    return True


def _code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode
