""".env as text: the lines that torchyard writes, between two marks, and those of the user, which win."""

from __future__ import annotations

import re
from collections.abc import Mapping

BEGIN = "# torchyard: up to the end mark this is written by build, pull and up. Your own lines go below it, and win."
END = "# torchyard: end"


def text(variables: Mapping[str, str], former: str) -> str:
    """The text of .env: what torchyard writes, then the lines that were the user's."""
    block = [BEGIN, *(f"{name}={value}" for name, value in variables.items()), END]
    kept = own(former)
    return "\n".join([*block, *kept]) + "\n"


def own(former: str) -> list[str]:
    """The lines of .env that are not between torchyard's marks."""
    lines = former.splitlines()
    if BEGIN in lines and END in lines[lines.index(BEGIN) :]:
        start = lines.index(BEGIN)
        return lines[:start] + lines[lines.index(END, start) + 1 :]
    return [line for line in lines if line not in (BEGIN, END)]


def values(lines: str) -> dict[str, str]:
    """The plain NAME=VALUE lines of .env, the last of a name winning as Compose has it."""
    found = {}
    for line in lines.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found[name] = value.strip().strip("\"'")
    return found
