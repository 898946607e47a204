"""Builds through buildx bake: what runs, what it says while it runs, and which image came out."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import json_text, render
from ..errors import Surroundings
from . import containers, process
from .engine import Engine
from .workspace import Workspace

_HEAD = re.compile(r"^#(\d+) \[(?:[\w-]+ )?(\d+/\d+)\] (RUN|FROM|WORKDIR)\b")
_CONTEXT = re.compile(r"^#(\d+) \[context ([\w-]+)\]")
_DONE = re.compile(r"^#(\d+) (DONE (\d+\.\d+)s|CACHED|ERROR.*)$")
_EXPORT = re.compile(r"^#(\d+) exporting to ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """What a build made: manifest digest (of the OCI result) and BuildKit's version."""

    digest: str
    buildkit: str


def bake(
    work: Workspace,
    engine: Engine,
    image_id: str,
    *,
    stage: str,
    titles: Sequence[str],
    no_cache: bool,
    buildkit: str,
    say: Callable[[str], None],
    settings: Sequence[str] = (),
    log_name: str = "build",
) -> Built:
    """Build one image by its committed bake target; titles are what to call the steps of its Dockerfile.

    buildkit: what `requiring` answered; settings: changes of the target, as bake's --set takes them behind its name.

    The whole log is in .torchyard/logs. Raises Surroundings with the command and its last lines.
    """
    target = render.target_name(image_id) + ("" if stage == "runtime" else "-dev")
    log = work.local / "logs" / f"{log_name}-{image_id}-{stage}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as lines:
        metadata = Path(folder) / "metadata.json"
        argv = [*engine.buildx, "bake", "--file", "images/docker-bake.json", "--progress=plain"]
        argv += ["--metadata-file", str(metadata)]
        if not engine.containerd_store:
            argv += ["--set", f"{target}.output=type=docker"]
        for setting in settings:
            argv += ["--set", f"{target}.{setting}"]
        if no_cache:
            argv.append("--no-cache")
        teller = _Teller(titles, say)

        def line(text: str) -> None:
            lines.write(text + "\n")
            teller.line(text)

        words = [*argv, target]
        env = {**engine.env, "BUILDX_BAKE_ENTITLEMENTS_FS": "0"}
        done = process.run(words, cwd=work.root, env=env, on_line=line, check=False)
        if done.code:
            hint = f"the whole log is in {log.relative_to(work.root)}"
            raise process.failed(done, cwd=work.root, hint=hint, writes=containers.data_roots(engine))
        made = json_text.loads(metadata.read_text())[target]
    digest = made.get("containerimage.digest", "")
    return Built(digest=digest if engine.containerd_store else "", buildkit=buildkit)


@contextlib.contextmanager
def requiring(engine: Engine, minimum: str) -> Iterator[Callable[[], str]]:
    """Ask for the version of the BuildKit that builds while the caller goes on; what is yielded answers it.

    That raises Surroundings where it is older than the recipes need. Where BuildKit does not say, it is the version of
    the engine that carries it.
    """
    with process.beside([*engine.buildx, "inspect"], env=engine.env) as ended:
        yield lambda: _checked(_version(ended().out, engine), engine, minimum)


def require(engine: Engine, minimum: str) -> str:
    """The version that `requiring` answers, at once."""
    with requiring(engine, minimum) as version:
        return version()


def _version(inspected: str, engine: Engine) -> str:
    found = re.search(r"^BuildKit(?: version)?:\s+(\S+)", inspected, re.MULTILINE)
    version = found.group(1) if found else ""
    return version if version and "unknown" not in version else f"of Docker {engine.version}"


def _checked(version: str, engine: Engine, minimum: str) -> str:
    numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
    if version.startswith("of Docker"):
        if numbers and numbers[0] < 25:
            raise Surroundings(
                f"Docker {engine.version} carries a BuildKit older than {minimum}",
                hint="upgrade Docker to 25 or newer, or use a buildx builder: docker buildx create --use",
            )
    elif numbers < [int(n) for n in minimum.split(".")]:
        raise Surroundings(
            f"BuildKit is {version}, the recipes need {minimum} or newer", hint="upgrade Docker or the builder"
        )
    return version


class _Teller:
    """Turns BuildKit's plain progress into one line a step."""

    def __init__(self, titles: Sequence[str], say: Callable[[str], None]) -> None:
        self.titles = titles
        self.say = say
        self.names: dict[str, str] = {}
        self.runs = 0
        self.base = False

    def line(self, text: str) -> None:
        if found := _HEAD.match(text):
            number, _, word = found.groups()
            if word == "RUN" and number not in self.names:
                title = self.titles[self.runs] if self.runs < len(self.titles) else text.split("] ", 1)[1][:60]
                self.runs += 1
                self.names[number] = title
                self.say(f"  {title} …")
        elif (found := _CONTEXT.match(text)) and found.group(2) == "base" and not self.base:
            self.base = True
            self.say("  base and framework layers into the engine …")
        elif (found := _EXPORT.match(text)) and found.group(1) not in self.names:
            self.names[found.group(1)] = "export"
        elif (found := _DONE.match(text)) and found.group(1) in self.names:
            outcome = found.group(2)
            name = self.names[found.group(1)]
            if outcome == "CACHED":
                self.say(f"  {name}: as before")
            elif found.group(3) and float(found.group(3)) >= 0.5:
                self.say(f"  {name}: {found.group(3)} s")
