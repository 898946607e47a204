"""Runs torchyard, notes each place where it changes a file, connects or starts a program, and ends it at a chosen one.

Called as a program: LOG WHERE HOW ARGUMENT...: WHERE is a line of an earlier run's log, `-` for none; HOW is SIGKILL,
SIGINT, or a number: the kernel ends the process when a file has so many bytes, which is in the middle of a write.
"""

from __future__ import annotations

import os
import resource
import runpy
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.copyfile")
OTHERS = ("socket.connect", "http.client.send", "subprocess.Popen", "fcntl.flock")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PLUMBING = ("unfinished.py", "store.py", "process.py", "workspace.py")  # what others have done by these
PACKAGE = f"{os.sep}torchyard{os.sep}"


def main() -> None:
    """Run the command under watch."""
    log, where, how, *arguments = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; the main thread alone may change that
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def watch(event: str, given: tuple[object, ...]) -> None:
        if event not in (*CHANGES, *OTHERS) and not (event == "open" and _writes(given)):
            return
        if (site := _site()) is None:
            return
        with lock:
            seen[f"{event} {site}"] += 1
            line = f"{event} {site} {seen[f'{event} {site}']}"
        os.write(out, f"{line}\n".encode())
        if line == where:
            os.write(out, b"reached\n")
            _end(how)

    sys.argv = ["torchyard", *arguments]
    sys.addaudithook(watch)
    runpy.run_module("torchyard", run_name="__main__", alter_sys=True)


def _end(how: str) -> None:
    if how.isdigit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(how), resource.RLIM_INFINITY))
    else:
        os.kill(os.getpid(), signal.Signals[how])


def _writes(given: tuple[object, ...]) -> bool:
    path, _, flags = given
    return bool(int(str(flags)) & WRITES) and path != os.devnull


def _site() -> str | None:
    """The line of torchyard that is at work, and for whom, where it serves many; none while modules are loaded."""
    frame: FrameType | None = sys._getframe(2)
    found: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return None
        if PACKAGE in name and (not found or found[-1].partition(":")[0] in PLUMBING):
            found.append(f"{Path(name).name}:{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return "<".join([*found[:1], *(found[-1:] if len(found) > 1 else ())]) or None


def sites(log: Path) -> list[str]:
    """Every line of a log."""
    return [line for line in log.read_text().splitlines() if line != "reached"]


def reached(log: Path) -> bool:
    """Whether the run came to the place where it was to end."""
    return "reached" in log.read_text().splitlines()


if __name__ == "__main__":
    main()
