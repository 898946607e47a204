"""How a container ended: its own exit code, or that somebody else removed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import docker.errors
import pytest
import requests

from torchyard.errors import Exit
from torchyard.world import containers


@dataclass
class Container:
    """What the engine answers for a container; gone says from which question on it knows none."""

    waits: list[Any]
    status: str = "exited"
    code: int = 0
    gone: bool = False
    attrs: dict[str, Any] = field(default_factory=dict)

    def wait(self, timeout: float) -> dict[str, int]:
        answer = self.waits.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"StatusCode": answer}

    def reload(self) -> None:
        if self.gone:
            raise docker.errors.NotFound("no such container")
        self.attrs = {"State": {"ExitCode": self.code}}

    def logs(self, *, stdout: bool, stderr: bool) -> bytes:
        if self.gone:
            raise docker.errors.NotFound("no such container")
        return b"out" if stdout else b"err"


NOT_FOUND = docker.errors.NotFound("no such container")
LATE = requests.exceptions.ReadTimeout()


@pytest.mark.parametrize(
    "container",
    [
        Container(waits=[NOT_FOUND]),
        Container(waits=[137], gone=True),
        Container(waits=[137], status="removing"),
        Container(waits=[LATE], gone=True),
        Container(waits=[LATE], status="removing", code=137),
        Container(waits=[137], status="dead"),
    ],
)
def test_a_container_that_somebody_removed_is_told_as_such(container: Container) -> None:
    with pytest.raises(containers.Removed, match="something else removed the container of small:one") as caught:
        containers.ended(container, 60, "small:one")
    assert caught.value.code is Exit.SURROUNDINGS and caught.value.hint


@pytest.mark.parametrize(
    ("container", "code"),
    [
        (Container(waits=[0], gone=True), 0),
        (Container(waits=[1]), 1),
        (Container(waits=[137]), 137),
        (Container(waits=[LATE], code=3), 3),
        (Container(waits=[LATE, 4]), 0),
    ],
)
def test_a_container_that_ended_has_its_exit_code(container: Container, code: int) -> None:
    assert containers.ended(container, 60, "small:one") == code


def test_what_a_removed_container_printed_is_not_asked_for_in_vain() -> None:
    with pytest.raises(containers.Removed):
        containers.printed(Container(waits=[], gone=True), "small:one")
    assert containers.printed(Container(waits=[]), "small:one", errors=True) == "err"
