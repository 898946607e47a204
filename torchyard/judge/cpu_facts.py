"""What probes saw in containers of one image, as plain values, and as the text that tests and receipts keep."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .. import json_text

SCHEMA = 1
USER, UID, READ_ONLY = "user", "uid", "read-only"


class End(StrEnum):
    """How a probe ended."""

    DONE = "done"  # it printed its facts
    RAISED = "raised"  # Python raised something
    DIED = "died"  # by a signal, or without a word
    HUNG = "hung"  # it was stopped at its limit
    UNSTARTED = "unstarted"  # its container ended before


class NoGpu(StrEnum):
    """Why no container was given a GPU."""

    NO_GPU = "no-gpu"  # this machine has none
    NO_DRIVER = "no-driver"  # one is on the bus, and no driver answers
    NO_RUNTIME = "no-runtime"  # the engine has neither NVIDIA's runtime nor CDI
    NO_CDI = "no-cdi"  # the engine could use CDI, and there is no specification of nvidia.com/gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """How a container was run: as whom, with a read-only root or not, with how much shared memory (bytes)."""

    name: str
    user: str = ""  # empty: the image's own
    read_only: bool = False
    shm: int = 0  # 0: the engine's default


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What one probe saw in one setting. lines: the last that it printed, or of its traceback."""

    setting: str
    probe: str
    end: End
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    signal: str = ""  # SIGSEGV; empty where it ended by itself
    oom: bool = False
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    cpu: float = 0.0  # seconds of CPU, with what it started
    limit: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """A container that could not do its work: it did not start, or was gone before its probes had ended."""

    setting: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What all probes saw. no_gpu and detail are set where device is cuda and no container could be given one."""

    device: str  # cpu | cuda
    settings: tuple[Setting, ...] = ()
    seen: tuple[Seen, ...] = ()
    broken: tuple[Broken, ...] = ()
    no_gpu: NoGpu | None = None
    detail: str = ""
    where: str = "here"  # or where these facts come from, if they are not of a run of ours

    def of(self, probe: str, setting: str = USER) -> Seen | None:
        """What a probe saw in a setting, or None where it was not to run there."""
        return next((s for s in self.seen if s.probe == probe and s.setting == setting), None)

    def done(self, probe: str, setting: str = USER) -> Mapping[str, Any]:
        """The facts of a probe, empty where it has none."""
        found = self.of(probe, setting)
        return found.facts if found is not None else {}


def to_text(facts: Facts) -> str:
    """The JSON of these facts."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(facts)}, indent=1, sort_keys=True) + "\n"


def from_text(text: str) -> Facts:
    """The facts that `to_text` wrote (ValueError where it is none of this schema)."""
    try:
        data = dict(json_text.loads(text))
        if data.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        return Facts(
            device=str(data["device"]),
            settings=tuple(Setting(**each) for each in data.get("settings", ())),
            seen=tuple(_seen(each) for each in data.get("seen", ())),
            broken=tuple(Broken(**each) for each in data.get("broken", ())),
            no_gpu=NoGpu(data["no_gpu"]) if data.get("no_gpu") else None,
            detail=str(data.get("detail", "")),
            where=str(data.get("where", "here")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"not facts of probes: {error}") from error


def _seen(data: Mapping[str, Any]) -> Seen:
    kept = {**data, "end": End(data["end"]), "lines": tuple(data.get("lines", ()))}
    return Seen(**kept)


def event(setting: str, told: Mapping[str, Any]) -> Seen:
    """What the runner inside says of a probe that ended (`inside/run.py`)."""
    return Seen(
        setting=setting,
        probe=str(told["probe"]),
        end=End(told["end"]),
        facts=told.get("facts", {}),
        error=str(told.get("error", "")),
        signal=str(told.get("signal", "")),
        oom=bool(told.get("oom", False)),
        lines=tuple(str(line) for line in told.get("lines", ())),
        seconds=float(told.get("seconds", 0.0)),
        cpu=float(told.get("cpu", 0.0)),
        limit=float(told.get("limit", 0.0)),
    )
