"""Starts the reference training the way torchrun does, quickly: processes are forked from one that has torch ready."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("sabotage.py")  # runs examples/train.py, after a fault was prepared


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job that ended: the code of the first process that failed, and what all of them printed."""

    code: int
    rank: int  # the process whose code it is
    text: str
    out: Path

    @property
    def steps(self) -> dict[int, dict[str, float]]:
        """Loss and norm of every step, as the run wrote them."""
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line for line in lines if "loss" in line}

    @property
    def losses(self) -> list[float]:
        """The losses, in the order of the steps."""
        return [self.steps[step]["loss"] for step in sorted(self.steps)]

    @property
    def result(self) -> dict[str, Any]:
        """What came out at the end."""
        found: dict[str, Any] = json.loads((self.out / "result.json").read_text())
        return found

    def good(self) -> Ended:
        """This, where it ended well."""
        assert self.code == 0, f"exit code {self.code} of rank {self.rank}\n{self.text[-4000:]}"
        return self

    def fault(self, code: int, *words: str) -> Ended:
        """This, where it ended with this code and one message that has these words."""
        assert self.code == code, f"exit code {self.code} of rank {self.rank}, not {code}\n{self.text[-4000:]}"
        assert self.text.count("train: ") == 1, f"not one message\n{self.text[-4000:]}"
        assert "Traceback" not in self.text, self.text[-4000:]
        for word in words:
            assert word in self.text, f"{word!r} is not in\n{self.text[-4000:]}"
        return self


class Rig:
    """Starts jobs, and removes what they wrote."""

    def __init__(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="training-"))
        self.count = 0

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.top, ignore_errors=True)

    def folder(self) -> Path:
        """A folder that is not there yet."""
        self.count += 1
        return self.top / f"run-{self.count}"

    def train(
        self,
        *flags: str,
        ranks: int = 1,
        start: Iterable[int] | None = None,
        out: Path | None = None,
        sabotage: str = "",
        env: dict[str, str] | None = None,
        kill_at: int | None = None,
        limit: float = 120,
    ) -> Ended:
        """Run it to its end in `ranks` processes, of which those in `start` are started.

        As with torchrun the first failure ends all. With `kill_at` all are killed once that step was written.
        """
        out = out or self.folder()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = self.top / f"log-{self.count}-{time.monotonic_ns()}"
        argv = [*flags, "--out", str(out)]
        children: dict[int, int] = {}
        for rank in range(ranks) if start is None else start:
            told = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                **(env or {}),
            }
            children[self._fork(argv, told, sabotage, log)] = rank
        code, first = self._wait(children, out, kill_at, limit)
        return Ended(code=code, rank=first, text=log.read_text(errors="replace"), out=out)

    def torchrun(
        self, *flags: str, options: Sequence[str] = (), out: Path | None = None, sabotage: str = "", limit: float = 180
    ) -> Ended:
        """Run it with torchrun on two processes."""
        out = out or self.folder()
        child = self.start_torchrun(*flags, options=options, out=out, sabotage=sabotage)
        text, _ = child.communicate(timeout=limit)
        return Ended(code=child.returncode, rank=-1, text=text, out=out)

    def start_torchrun(
        self, *flags: str, options: Sequence[str] = (), out: Path, sabotage: str = ""
    ) -> subprocess.Popen[str]:
        """Start it with torchrun on two processes."""
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["--local-addr=127.0.0.1"]  # a container without a network does not know its own name
        script = [str(SCRIPT)] if sabotage else [str(ROOT / "examples" / "train.py")]
        return subprocess.Popen(
            [*command, *options, *script, *flags, "--out", str(out)],
            env={**os.environ, "SABOTAGE": sabotage, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _fork(self, argv: list[str], env: dict[str, str], sabotage: str, log: Path) -> int:
        child = os.fork()
        if child:
            return child
        code = 70
        try:
            os.setsid()
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(handle, stream)
            os.environ.update(env, SABOTAGE=sabotage)
            sys.argv = [str(SCRIPT), *argv]
            runpy.run_path(str(SCRIPT), run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _wait(self, children: dict[int, int], out: Path, kill_at: int | None, limit: float) -> tuple[int, int]:
        end = time.monotonic() + limit
        code, first = 0, -1
        while children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child in children:
                rank, ended = children.pop(child), os.waitstatus_to_exitcode(status)
                if ended and not code:
                    code, first = ended, rank
                    _kill(children)
            elif time.monotonic() > end:
                code = code or 124
                _kill(children)
            elif kill_at is not None and _written(out / "metrics.jsonl") > kill_at:
                kill_at = None
                _kill(children)
            else:
                time.sleep(0.02)
        return code, first


def _kill(children: dict[int, int]) -> None:
    for child in children:
        os.killpg(child, signal.SIGKILL)


def _written(path: Path) -> int:
    return path.read_text().count('"loss"') if path.exists() else -1
