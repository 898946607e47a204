"""All printing: what is being done goes to standard error, what was asked for to standard output."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import YardError

# What would move a terminal's cursor, ring it, colour it or turn the order of its letters round: names of files and
# answers of servers may hold it.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def tame(text: str) -> str:
    """A text in which what would steer a terminal is written out; the ends of lines and tabs stay."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def word(text: str) -> str:
    """A name that may hold anything, on one line."""
    return tame(text).replace("\n", "\\n").replace("\t", "\\t")


def say(text: str) -> None:
    """One line about what is being done."""
    sys.stderr.write(tame(text) + "\n")
    sys.stderr.flush()


def error(problem: YardError) -> None:
    """A problem and what helps, on standard error; several are numbered by their places."""
    problems = problem.problems()
    for each in problems:
        say("")
        say(f"error: {each.what}")
        if each.where:
            say(f"   at: {each.where}")
        if shown := getattr(each, "shown", ""):
            say("\n".join(f"      {line}" for line in shown.splitlines()))
        if each.hint:
            say(f" hint: {each.hint}")
    if len(problems) > 1:
        say("")
        say(f"{len(problems)} problems; nothing was written")


def as_json(value: Any) -> None:
    """A value for machines, on standard output."""
    print(json.dumps(value, indent=2))


def lines(text: Iterable[str]) -> None:
    """Lines on standard output."""
    for line in text:
        print(tame(line))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be; the last one is folded to the terminal's width, where there is one."""
    cells = [tuple(head), *(tuple(tame(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    left = sum(widths[:-1]) + 2 * (len(head) - 1)
    room = max(shutil.get_terminal_size((200, 24)).columns - left, 24)
    for number, row in enumerate(cells):
        start = "  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths))
        for part_number, part in enumerate(_folded(row[-1], room)):
            prefix = start if part_number == 0 else " " * (left - 2)
            print(f"{prefix}  {part}".rstrip() if len(row) > 1 else part)
        if number == 0:
            print("-" * min(left + widths[-1], left + room))


def size(count: float) -> str:
    """Bytes for people, in powers of ten as registries count them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


class Bar:
    """Progress of something that takes longer than a second: a line that moves on a terminal, else one now and then."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self._began = self._told = time.monotonic()
        self._moves = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def to(self, done: int) -> None:
        """Set how many bytes are done."""
        self.done = done
        now = time.monotonic()
        if now - self._told >= (0.2 if self._moves else 10):
            self._told = now
            self._print("\r" if self._moves else "\n")

    def add(self, count: int) -> None:
        """Count bytes that were done."""
        self.to(self.done + count)

    def end(self) -> None:
        """The last line, with the whole and the time it took."""
        taken = time.monotonic() - self._began
        self._clear()
        if self.done:
            say(f"{self.title}: {size(self.done)} in {taken:.1f} s")

    def _print(self, end: str) -> None:
        share = f"{100 * self.done // self.total}% of " if self.total else ""
        sys.stderr.write(f"{self.title}: {share}{size(self.total or self.done)}   {end}")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self._moves:
            sys.stderr.write("\r\033[K")


def _folded(text: str, width: int) -> list[str]:
    if not sys.stdout.isatty() or len(text) <= width:
        return [text]
    import textwrap

    return textwrap.wrap(text, width) or [""]
