"""Suites: what needs more than Python (an engine, a cluster, a GPU) runs with its flag and is skipped without it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAID = pytest.StashKey[list[str]]()

BESIDE_A100 = ("test_verify_built.py",)  # so that both halves take about as long

SUITES = {
    "docker": "starts processes, engines and servers",
    "cluster": "starts a small cluster",
    "gpu": "needs an NVIDIA GPU",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """One flag a suite."""
    for name, words in SUITES.items():
        parser.addoption(f"--{name}", action="store_true", help=f"run tests/{name}: {words}")
    parser.addoption("--long", action="store_true", help="also the tests that are run by hand, for the time they take")
    parser.addoption("--no-skips", action="store_true", help="fail where a test of the suites asked for was skipped")
    parser.addoption("--accept", action="store_true", help="write what the folder cases see as what they expect")


def pytest_configure(config: pytest.Config) -> None:
    """The folder cases read ACCEPT, so that they also run without this file."""
    # A shell that starts us in the background has Ctrl-C ignored, and nohup has hang-ups, for us and all that we start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.getoption("--accept"):
        os.environ["ACCEPT"] = "1"


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Keep a line for the end of the run, where a person reads it."""
    return pytestconfig.stash.setdefault(SAID, []).append


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the suites that were not asked for, with the flag that runs them; leave out what takes long."""
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        for name, words in SUITES.items():
            if (Path("tests") / name).as_posix() in item.path.as_posix():
                item.add_marker(getattr(pytest.mark, name))
                if not config.getoption(f"--{name}"):
                    item.add_marker(pytest.mark.skip(reason=f"{words}; run it with --{name}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes, the files whose tests share the clone `yard` stay together, in two halves.

    Each half has a clone and an engine of its own; only one of them builds the large image.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            text = (config.rootpath / file).read_text(encoding="utf-8")
            if "yard: Clone" not in text:
                return file
            return "yard, with a100" if "a100" in text or file.endswith(BESIDE_A100) else "yard, without a100"

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Repeat what the fixtures had to say, and name the skipped tests that --no-skips does not accept."""
    if said := config.stash.get(SAID, []):
        terminalreporter.section("said")
        for line in said:
            terminalreporter.line(line)
    if unsteady := [
        report for report in terminalreporter.stats.get("rerun", []) if not _failed(terminalreporter, report)
    ]:
        terminalreporter.section("unsteady: failed once, then passed; find out why")
        for report in unsteady:
            terminalreporter.line(f"{report.nodeid} ({report.when})\n{report.longreprtext}")
    if skipped := _unwanted(terminalreporter, config):
        terminalreporter.section("skipped, and --no-skips was given")
        for report in skipped:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Take over what the fixtures of one of several processes had to say."""
    node.config.stash.setdefault(SAID, []).extend(getattr(node, "workeroutput", {}).get("said", []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail for skipped tests under --no-skips."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["said"] = session.config.stash.get(SAID, [])
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter is not None and _unwanted(reporter, session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _failed(reporter: pytest.TerminalReporter, report: pytest.TestReport) -> bool:
    ends = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    return report.nodeid in {end.nodeid for end in ends}


def _unwanted(reporter: pytest.TerminalReporter, config: pytest.Config) -> list[pytest.TestReport]:
    if not config.getoption("--no-skips"):
        return []
    off = [f"tests/{name}/" for name in SUITES if not config.getoption(f"--{name}")]
    return [r for r in reporter.stats.get("skipped", []) if not any(r.nodeid.startswith(folder) for folder in off)]
