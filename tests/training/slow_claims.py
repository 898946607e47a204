"""What takes too long for every run of the tests: checked by name, python tests/training/run.py NAME."""

from __future__ import annotations

from claims import claims_of
from rig import Rig


def a_compiled_model_learns_the_same(rig: Rig) -> None:
    flags = ("--model", "resnet", "--samples", "1024", "--steps", "3", "--lr", "1e-4")
    ended = rig.train(*flags, "--compile", ranks=2, limit=200).good()
    plain = rig.train(*flags, ranks=2).good()
    for ours, theirs in zip(ended.losses, plain.losses, strict=True):
        assert abs(ours - theirs) < 1e-3, (ended.losses, plain.losses)


EVERY = claims_of(globals())
