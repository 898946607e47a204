"""The console command: the same tasks as `invoke`, with exit code 2 for a command line that is wrong."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from invoke.collection import Collection
from invoke.exceptions import ParseError, UnexpectedExit
from invoke.program import Program

from . import __version__, report
from .errors import Exit, InputError, YardError
from .tasks import ns, surroundings
from .world import process, workspace


class _Yard(Program):
    """invoke's program, which answers 1 for a wrong command line; here that is 2, like every wrong input."""

    def parse_collection(self) -> None:
        try:
            super().parse_collection()
        except ParseError as error:
            _wrong(error)

    def parse_tasks(self) -> None:
        try:
            super().parse_tasks()
        except ParseError as error:
            _wrong(error)

    def parse_core(self, argv: list[str] | None) -> None:
        try:
            super().parse_core(argv)
        except ParseError as error:
            _wrong(error)

    def execute(self) -> None:
        try:
            super().execute()
        except KeyboardInterrupt:  # invoke would answer 1
            sys.exit(int(Exit.INTERRUPTED))


def _wrong(error: Exception) -> NoReturn:
    report.error(
        InputError(str(error), where="command line", hint="torchyard --list names the verbs; VERB --help its options")
    )
    sys.exit(int(Exit.INPUT))


def _namespace() -> Collection:
    """The tasks of the project's own tasks.py, where there is one that has `ns`, else torchyard's."""
    try:
        path = workspace.find().root / "tasks.py"
    except YardError:
        return ns
    if not path.is_file():
        return ns
    spec = importlib.util.spec_from_file_location("tasks", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"tasks.py does not load: {type(error).__name__}: {error}",
            where=str(path),
            hint="mend it, or move it away: torchyard has its verbs without it",
        ) from error
    found = getattr(module, "ns", None)
    return found if isinstance(found, Collection) else ns


def _help(arguments: list[str]) -> list[str]:
    """`run --help` as invoke takes it also where something that the verb needs is missing; empty for all else."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    asks = bool(words) and not words[0].startswith("-") and ("--help" in words or "-h" in words)
    return ["--help", words[0]] if asks else []


def _both(arguments: list[str]) -> list[str]:
    """`reproduce --compare A B` as invoke takes it, which knows no option with two words: each word with the option."""
    at = arguments.index("--compare") + 2 if "--compare" in arguments[:-2] else 0
    pair = arguments[:1] == ["reproduce"] and at and not arguments[at].startswith("-")
    return [*arguments[:at], "--compare", *arguments[at:]] if pair else arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb. SIGTERM and SIGHUP end it as Ctrl-C does; a reader that goes away ends it as SIGPIPE does."""
    process.end_on_signals()
    gc.set_threshold(100_000)  # a command makes many values that stay, and looking through them again finds nothing
    try:
        try:
            _main(list(sys.argv[1:] if argv is None else argv))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _main(arguments: list[str]) -> None:
    try:
        if arguments[:1] == ["docker"]:
            from .verbs import engine

            engine.docker(arguments[1:], report.say)
        if arguments[:1] == ["catalog"] and len(arguments) > 1 and not arguments[1].startswith("-"):
            arguments[:2] = [f"catalog.{arguments[1]}"]  # `catalog inspect`, as people type it
        arguments = _both(arguments)
        program = _Yard(name="torchyard", binary="torchyard", version=__version__, namespace=_namespace())
        program.run(["torchyard", *(_help(arguments) or arguments)])
    except YardError as problem:
        report.error(problem)
        sys.exit(int(problem.code))
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
    except OSError as error:
        found = surroundings(error)
        if found is None:
            raise
        report.error(found)
        sys.exit(int(found.code))
    except UnexpectedExit as error:
        sys.exit(error.result.exited)


if __name__ == "__main__":
    main()
