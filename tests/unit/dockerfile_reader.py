"""A small parser of Dockerfiles: instructions with their continuation lines joined, and the words of ENV and LABEL.

As BuildKit reads them: a backslash at the end of a line joins it with the next, lines that are comments are left out
(parser.go); within double quotes a backslash takes the meaning of a quote, a dollar or a backslash (shell/lex.go). What
the engine's own parser makes of such values is in tests/docker/test_render_env.py.
"""

from __future__ import annotations

import re

_NAMES = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction and the rest of its logical line (AssertionError for a line that is none)."""
    found: list[tuple[str, str]] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line
        while re.search(r"\\[ \t]*$", whole):
            more = next(lines, "")
            if more.lstrip().startswith("#"):
                continue
            whole = re.sub(r"\\[ \t]*$", "", whole) + more
        name, _, rest = whole.strip().partition(" ")
        assert name.upper() in _NAMES, f"no instruction: {line!r}"
        for _, _, end in (
            re.findall(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2", rest) if name.upper() in ("RUN", "COPY", "ADD") else ()
        ):
            for more in lines:
                if more.lstrip("\t") == end:
                    break
        found.append((name.upper(), rest.strip()))
    return found


def words(rest: str) -> dict[str, str]:
    """The NAME=value pairs of an ENV or LABEL whose values are in double quotes (AssertionError for anything else)."""
    found: dict[str, str] = {}
    while rest:
        match = re.match(r'([^=" ]+)="((?:\\.|[^"\\$])*)"(?: +|$)', rest)
        if match is None:  # a user's own fragment may quote otherwise, or not at all
            match = re.match(r"([^=\" ]+)=([^\"'\s]*)(?: +|$)", rest)
        assert match, rest
        found[match[1]] = re.sub(r'\\(["$\\])', r"\1", match[2])
        rest = rest[match.end() :]
    return found
