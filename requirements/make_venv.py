"""Makes .venv from requirements/tool.txt or dev.txt, hash by hash; run by ./yard with the system's Python.

One run at a time (a lock that pip inherits); a run that was killed is seen by its `making` file and starts afresh. Only
where packages come from is taken from the user's pip configuration: a constraint or a target there is not for this.
"""

from __future__ import annotations

import ast
import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
MAKING = VENV / "torchyard-making"
PLACE = VENV / "torchyard-place"
KINDS = {"tool": ("tool",), "dev": ("tool", "dev")}  # dev.txt holds all of tool.txt
TAKEN = (
    "cache-dir", "cert", "client-cert", "default-timeout", "extra-index-url", "find-links", "index-url",
    "keyring-provider", "no-cache-dir", "no-index", "proxy", "resume-retries", "retries", "timeout", "trusted-host",
    "use-deprecated", "use-feature",
)  # fmt: skip
COMMAND = """\
#!/bin/sh
exec "$(dirname -- "$(readlink -f -- "$0")")/python" -P -m torchyard "$@"
"""


def say(text: str) -> None:
    """Tell the user, on the stream that is not the command's own output."""
    print(f"yard: {text}", file=sys.stderr, flush=True)


def fail(what: str, hint: str) -> None:
    """End with the exit code for "the surroundings are not right"."""
    print(f"error: {what}\n hint: {hint}", file=sys.stderr)
    raise SystemExit(3)


def place() -> str:
    """Where this environment belongs, and the interpreter that it was made with."""
    return f"{ROOT}\n{PYTHON.resolve()}\n"


def copy_of(kind: str) -> Path:
    """The copy of the requirements file that is written when all of it is installed."""
    return VENV / f"torchyard-{kind}.txt"


def lock_text(kind: str) -> bytes:
    """The requirements file."""
    return (ROOT / "requirements" / f"{kind}.txt").read_bytes()


def holds(kind: str) -> bool:
    """Whether all of this requirements file is installed."""
    return copy_of(kind).is_file() and copy_of(kind).read_bytes() == lock_text(kind)


def in_place() -> bool:
    """Whether .venv is whole and ours."""
    return PLACE.is_file() and PLACE.read_text() == place() and PYTHON.exists() and not MAKING.exists()


def pip_environment(settings: str, environment: dict[str, str]) -> dict[str, str]:
    """The environment for pip: from `pip config list`, only where packages come from and how they are reached."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the order in which pip lets one outdo the other
        for line in settings.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    kept = {name: value for name, value in environment.items() if not name.startswith("PIP_")}
    taken = {f"PIP_{name.upper().replace('-', '_')}": " ".join(found[name].split()) for name in TAKEN if name in found}
    return {**kept, **taken, "PIP_CONFIG_FILE": os.devnull}


def make(kind: str, lock: int) -> None:
    """Make the environment, or add to it what is missing."""
    say(f"putting what torchyard needs into {VENV} (requirements/{kind}.txt, every file checked against its hash)")
    changed = any(copy_of(k).is_file() and not holds(k) for k in KINDS["dev"])
    if changed or not in_place():
        if VENV.exists() and not PLACE.exists() and not MAKING.exists():
            say(f"{VENV} was not made by ./yard, so it is made anew")
        if VENV.is_symlink():  # --clear would empty the folder that it leads to
            fail(
                f"{VENV} is a link to {os.readlink(VENV)}, and ./yard keeps an environment of its own there",
                f"remove the link: rm {VENV}",
            )
        if subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(VENV)], pass_fds=(lock,), check=False
        ).returncode:
            fail(
                f"{sys.executable} could not make {VENV} (its messages are above)",
                "see that the disk has room and that the folder is yours",
            )
    MAKING.touch()
    pip = [str(PYTHON), "-m", "pip"]
    settings = subprocess.run([*pip, "config", "list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    file = ROOT / "requirements" / f"{kind}.txt"
    options = ("-qq", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:")
    command = [*pip, "install", *options, "--require-hashes", "-r", str(file)]
    environment = pip_environment(settings, dict(os.environ))
    if subprocess.run(command, env=environment, stdout=sys.stderr, pass_fds=(lock,), check=False).returncode != 0:
        fail(
            f"pip could not install {file} (its messages are above)",
            "see that pip reaches its index: proxy, certificate and index-url are taken from your pip configuration",
        )
    variables = {"base": str(VENV), "platbase": str(VENV)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=variables))
    (packages / "torchyard.pth").write_text(f"{ROOT}\n")
    command_file = VENV / "bin" / "torchyard"
    command_file.write_text(COMMAND)
    command_file.chmod(0o755)
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", str(ROOT / "torchyard")], stdout=sys.stderr, check=False)
    for each in KINDS[kind]:
        copy_of(each).write_bytes(lock_text(each))
    PLACE.write_text(place())
    MAKING.unlink()


def main(kind: str) -> None:
    """Have .venv as the requirements say; one run at a time."""
    (ROOT / ".torchyard").mkdir(exist_ok=True)
    with (ROOT / ".torchyard" / "venv.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./yard is setting up .venv; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (in_place() and holds(kind)):
            make(kind, lock.fileno())


if __name__ == "__main__":
    main(sys.argv[1])
