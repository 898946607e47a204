"""Whether the configuration sets what the recipe sets: the environment's Python first, the driver's condition."""

from __future__ import annotations

from .static_case import Judged, Reference, failed, passed, some
from .static_facts import ImageFacts

_PROGRAMS = "/opt/venv/bin"


def environment(ref: Reference, facts: ImageFacts) -> Judged:
    """The variables that the recipe and env.yaml set have those values; PATH finds the environment's programs first."""
    what = "the variables that the recipe sets"
    image = ref.lock.image
    wanted = {"VIRTUAL_ENV": _PROGRAMS.rpartition("/")[0]}
    if image.cuda is not None:
        wanted["NVIDIA_REQUIRE_CUDA"] = image.driver_require
        wanted["NVIDIA_VISIBLE_DEVICES"] = "all"
    wanted |= dict(image.packages.env)
    wrong = {
        name: f"{name} is {facts.variable(name) or 'not set'}, not {value}"
        for name, value in sorted(wanted.items())
        if facts.variable(name) != value
    }
    first = facts.variable("PATH").split(":")[0]
    if "PATH" not in wanted and first != _PROGRAMS:
        wrong["PATH"] = f"PATH begins with {first or 'nothing'}: another Python than the environment's is found"
    expected = f"PATH begins with {_PROGRAMS}; {', '.join(sorted(wanted))} as locked"
    if not wrong:
        return passed("config.environment", what, expected=expected, seen="as locked")
    return failed(
        "config.environment",
        what,
        expected=expected,
        seen=some(list(wrong.values())),
        fix=ref.rebuild,
        layers=map(facts.set_in, wrong),
    )
