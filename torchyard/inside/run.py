"""Runs probes, each in a process of its own, some at a time; prints a line of JSON when one begins and when it ends.

`python run.py '{"probes": {"NAME": SECONDS}, "device": "cpu", "jobs": 2}'`. Needs only Python: it is started without
the site module, so that what breaks an interpreter of the image breaks a probe and not this. A probe that outlives its
seconds is stopped with all that it started, once it computes nothing (on a busy machine it has up to PATIENCE times as
long); one that dies is told with its signal, and the others go on.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import cgroup

HERE = os.path.dirname(os.path.abspath(__file__))
FAULT = ("Fatal Python error", "Current thread", "Thread 0x")
LINES = 20  # of what a probe printed, kept
WIDTH = 400  # of each such line
PATIENCE = 6
ANSWER = 0.5  # seconds for a hanging probe to say where it is
IDLE = 0.02  # of a CPU: what neither computes nor waits for a CPU for more than this, over a part of its limit, hangs


class Running:
    """A probe that was started."""

    def __init__(self, name, device, seconds, scratch):
        self.name = name
        self.seconds = seconds
        self.result = os.path.join(scratch, name + ".json")
        self.log = os.path.join(scratch, name + ".log")
        self.killed_before = cgroup.oom_kills()
        self.began = time.monotonic()
        self.used = (self.began, 0.0, 0.0)
        environment = dict(os.environ, PYTHONFAULTHANDLER="1", PYTHONUNBUFFERED="1")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "one.py"), name, device, self.result],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def ended(self):
        """What became of it, or None while it runs within its time."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        took = time.monotonic() - self.began
        if not pid and not self.hangs(took):
            return None
        if not pid:
            cpu = cpu_of_session(self.process.pid)
            self.process.send_signal(signal.SIGUSR1)  # one.py has Python say where it is
            time.sleep(ANSWER)
            self.stop()
            return self.told(took, cpu, end="hung", lines=self.lines())
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.stop()
        cpu = usage.ru_utime + usage.ru_stime
        if code < 0:
            killed = code == -signal.SIGKILL and cgroup.oom_kills() > self.killed_before
            lines = self.lines() + ([had()] if killed else [])
            return self.told(took, cpu, end="died", signal=_signal(-code), oom=killed, lines=lines)
        return self.told(took, cpu, **self.said(code))

    def told(self, took, cpu, **more):
        """An event of its end."""
        told = {"event": "end", "probe": self.name, "limit": self.seconds}
        return dict(told, seconds=round(took, 2), cpu=round(cpu, 2), **more)

    def hangs(self, took):
        """Whether it is past its time and computes nothing, or is past any time."""
        if took < self.seconds:
            return False
        if took >= self.seconds * PATIENCE:
            return True
        now, used, wanted = time.monotonic(), cpu_of_session(self.process.pid), wanted_of_session(self.process.pid)
        before, used_before, wanted_before = self.used
        if now - before < self.seconds / 4 and before != self.began:
            return False
        self.used = (now, used, wanted)
        return max(used - used_before, wanted - wanted_before) < IDLE * (now - before)

    def said(self, code):
        """What it wrote, where it came to that."""
        try:
            with open(self.result) as file:
                seen = json.load(file)
        except (OSError, ValueError):
            return {"end": "died", "signal": "", "code": code, "lines": self.lines()}
        if "error" in seen:
            error = seen["error"]
            return {"end": "raised", "error": error["type"] + ": " + error["text"], "lines": error["lines"]}
        return {"end": "done", "facts": seen["facts"], "lines": self.lines() if code else []}

    def stop(self):
        """End what is left of it and of what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.returncode is None:
            self.process.wait()

    def lines(self):
        """What it printed last; of Python's own account of a fault the beginning, where the place is."""
        with open(self.log, errors="replace") as file:
            kept = [line.rstrip()[:WIDTH] for line in file if line.strip()]
        starts = [number for number, line in enumerate(kept) if line.startswith(FAULT)]
        return kept[starts[0] :][:LINES] if starts else kept[-LINES:]


def cpu_of_session(leader, proc="/proc"):
    """Seconds of CPU that the processes of a session have used, with those of their children that have ended."""
    ticks = 0
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                with open(os.path.join(proc, entry, "stat")) as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def wanted_of_session(leader, proc="/proc"):
    """Seconds in which the threads of a session ran or waited for a CPU, as far as they live and the kernel tells."""
    wanted = 0
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                with open(os.path.join(proc, entry, "stat")) as file:
                    session = int(file.read().rpartition(")")[2].split()[3])
                threads = os.listdir(os.path.join(proc, entry, "task")) if session == leader else []
                for thread in threads:
                    with open(os.path.join(proc, entry, "task", thread, "schedstat")) as file:
                        wanted += sum(int(field) for field in file.read().split()[:2])
            except (OSError, ValueError):
                continue
    return wanted / 1e9


def had():
    """How much memory this container may have, in words."""
    limit = cgroup.memory()
    return f"the container may have {limit >> 20} MiB" if limit else "the container has no limit of its own"


def _signal(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal " + str(number)


def say(event):
    """One event as a line, at once: whoever ends this process has what was seen so far."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def run(probes, device, jobs, scratch, asked_to_end):
    """Run all probes, `jobs` at a time, in their order, until it is asked to end."""
    waiting = list(probes.items())
    running = []
    try:
        while (waiting or running) and not asked_to_end:
            while waiting and len(running) < jobs:
                name, seconds = waiting.pop(0)
                say({"event": "begin", "probe": name, "limit": seconds})
                running.append(Running(name, device, seconds, scratch))
            for each in list(running):
                end = each.ended()
                if end is not None:
                    running.remove(each)
                    say(end)
            time.sleep(0.02)
    finally:
        for each in running:
            each.stop()


def main(argv):
    """Read what is asked, and run it."""
    asked = json.loads(argv[0])
    ends = []  # looked at between probes' starts: an exception out of a handler could lose one that was just started
    signal.signal(signal.SIGTERM, lambda number, frame: ends.append(128 + number))
    with tempfile.TemporaryDirectory(prefix="torchyard-") as scratch:
        run(asked["probes"], asked.get("device", "cpu"), int(asked.get("jobs", 2)), scratch, ends)
    sys.exit(ends[0] if ends else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
