"""A YAML text as located nodes: line and column for every key and value, and every mistake told in one go.

Read from the parser's events rather than with a loader: nothing is constructed, so no tag, alias or merge key can do
anything, and a bad piece costs one message instead of the rest of the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from torchyard.errors import InputError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_PROBLEMS = 100
_MAX_REPAIRS = 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Line breaks of YAML 1.1 that no editor shows as such, and what turns text around or hides in it.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A place in the text, counted from 1."""

    line: int
    col: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar:
    """One value as written; `kind` is what YAML makes of it: text, int, float, bool, null or date."""

    text: str
    kind: str
    quoted: bool
    mark: Mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """A list with its items."""

    items: tuple[Node, ...]
    mark: Mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapping:
    """Keys with their values, in the order of the text; a key is there once."""

    entries: tuple[tuple[Scalar, Node], ...]
    mark: Mark
    partial: bool = False  # something in it was told and left out


Node = Scalar | Sequence | Mapping


class Located(InputError):
    """A mistake in a file, with its line shown; `shown` is that line with a caret under the column."""

    def __init__(self, what: str, *, where: str, hint: str = "", shown: str = "", mark: Mark) -> None:
        super().__init__(what, where=where, hint=hint)
        self.shown = shown
        self.mark = mark


@dataclass(kw_only=True, slots=True)
class Text:
    """The text being read, and the mistakes found in it so far."""

    name: str
    lines: tuple[str, ...]
    found: list[Located] = field(default_factory=list)
    unread: bool = False  # a part of the file could not be read: what is missing may be in it
    more: int = 0

    @property
    def full(self) -> bool:
        """Whether enough mistakes are noted: further ones are only counted, so nobody need look for their hints."""
        return len(self.found) >= MAX_PROBLEMS

    def problem(self, mark: Mark, what: str, *, path: str = "", hint: str = "") -> None:
        """Note one mistake; after many, count the rest."""
        if self.full:
            self.more += 1
            return
        self.found.append(self.located(mark, what, path=path, hint=hint))

    def located(self, mark: Mark, what: str, *, path: str = "", hint: str = "") -> Located:
        """The error for this place of the text."""
        where = f"{self.name}:{mark.line}:{mark.col}" + (f"  {path}" if path else "")
        return Located(what, where=where, hint=hint, shown=self.show(mark), mark=mark)

    def show(self, mark: Mark) -> str:
        """The line of this place with a caret under its column, cut to what fits a terminal."""
        if not 0 < mark.line <= len(self.lines):
            return ""
        line = self.lines[mark.line - 1]
        start = max(0, mark.col - 80)
        cut = line[start : start + 110]
        number = str(mark.line)
        before = visible(cut[: mark.col - 1 - start])
        return f"{number} | {before}{visible(cut[mark.col - 1 - start :])}\n{' ' * len(number)} | {' ' * len(before)}^"

    def problems(self) -> list[Located]:
        """All mistakes in the order of the text, with a last one that counts those left out."""
        ordered = sorted(self.found, key=lambda p: (p.mark.line, p.mark.col))
        if self.more:
            last = Mark(line=max(1, len(self.lines)), col=1)
            what = f"{self.more} more mistakes are not shown"
            ordered.append(Located(what, where=self.name, hint="mend those above first", mark=last))
        return ordered


def visible(text: str) -> str:
    """The text with everything that a terminal would not show as a character written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quote(text: str, limit: int = 60) -> str:
    """The text as it is named in a message: in single quotes, cut, without control characters."""
    return "'" + visible(text if len(text) <= limit else text[:limit] + "…") + "'"


def nearest(name: str, names: Iterable[str]) -> str:
    """`did you mean 'x'?` for the closest of these names, or an empty text."""
    if not 0 < len(name) <= 80:
        return ""
    folded = {n.casefold(): n for n in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"did you mean {quote(folded[close[0]])}?" if close else ""


def decode(data: bytes, name: str) -> str:
    """The text of a file's bytes, or one error: too large, not UTF-8."""
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{name} has more bytes than the limit, which is {MAX_BYTES:,}",
            where=name,
            hint="env.yaml lists hardware and software; keep data elsewhere",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        col = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise InputError(
            f"byte 0x{data[error.start]:02x} is not UTF-8",
            where=f"{name}:{line}:{col}",
            hint=_encoding_hint(data),
        ) from None


def _encoding_hint(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "the file is UTF-16: save it as UTF-8"
    return "save the file as UTF-8"


def read(text: str, name: str) -> tuple[Node | None, Text]:
    """The root node (None for an empty file) with every mistake of the YAML itself noted in the returned text."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    source = Text(name=name, lines=tuple(lines))
    _surface(text, source)
    return _compose(lines, source), source


def _surface(text: str, source: Text) -> None:
    """Note what is wrong with the text before any YAML: marks, line ends, unseen characters."""
    if text.startswith("\ufeff"):
        source.problem(
            Mark(line=1, col=1),
            "the file starts with a byte order mark (U+FEFF)",
            hint="save it as UTF-8 without BOM: sed -i '1s/^\\xEF\\xBB\\xBF//' " + source.name,
        )
    if count := text.count("\r\n"):
        first = text[: text.index("\r\n")].count("\n") + 1
        source.problem(
            Mark(line=first, col=1),
            f"{count} lines end with CR LF; the file is read with LF only",
            hint=f"save it with Unix line ends: sed -i 's/\\r$//' {source.name}",
        )
    for number, line in enumerate(source.lines, 1):
        for match in _UNSEEN.finditer(line):
            source.problem(
                Mark(line=number, col=match.start() + 1),
                f"the character U+{ord(match[0]):04X} cannot be seen and is not allowed",
                hint="delete it and type the text anew",
            )


def _compose(lines: list[str], source: Text) -> Node | None:
    """The root node; a top-level block that is no YAML is told and left out, so that the others are still read."""
    lines = [_UNSEEN.sub(" ", line) for line in lines]
    lines = _without_tabs(lines, source)
    for _ in range(_MAX_REPAIRS):
        try:
            return _Composer(source, "\n".join(lines)).root()
        except yaml.MarkedYAMLError as error:
            mark, what, hint = _explain(error, lines)
            source.problem(mark, what, hint=hint)
            source.unread = True
            if not _blank_block(lines, mark.line - 1):
                return None
    return None


def _without_tabs(lines: list[str], source: Text) -> list[str]:
    """The lines with tabs in an indentation told and replaced, if it is they that make the text no YAML."""
    tabbed = {n for n, line in enumerate(lines) if re.match(" *\t", line) and line.strip()}
    if not tabbed:
        return lines
    try:
        for _ in yaml.parse("\n".join(lines), Loader=_LOADER):
            pass
    except yaml.YAMLError:
        for number in sorted(tabbed):
            source.problem(
                Mark(line=number + 1, col=lines[number].index("\t") + 1),
                "a tab in the indentation; YAML allows spaces only",
                hint="replace each tab by two spaces",
            )
        return [line.replace("\t", "  ") if n in tabbed else line for n, line in enumerate(lines)]
    return lines


def _blank_block(lines: list[str], at: int) -> bool:
    """Empty the top-level block that this line belongs to; False if nothing was left to empty."""
    at = min(max(at, 0), len(lines) - 1)
    starts = [n for n, line in enumerate(lines) if line[:1] not in ("", " ", "#", "\t")]
    first = max((n for n in starts if n <= at), default=0)
    last = min((n for n in starts if n > first), default=len(lines))
    if not any(line.strip() for line in lines[first:last]):
        return False
    lines[first:last] = [""] * (last - first)
    return True


def _explain(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[Mark, str, str]:
    """The place, the words and the hint for what the parser says."""
    problem, context = error.problem or "", error.context or ""
    mark, opened = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    if "nesting depth" in problem:
        return _mark(mark), f"lists or mappings are nested deeper than {MAX_DEPTH} levels", "flatten it"
    if "flow" in context:
        bracket = "list '['" if "sequence" in context else "mapping '{'"
        return (
            _mark(opened),
            f"the {bracket} that is opened here is not closed, or has a wrong character in it",
            ("close it, and put texts with : , [ ] { } in quotes"),
        )
    if "end of stream" in problem or "document indicator" in problem:
        return _mark(opened), "the quote that is opened here is not closed", "close it on the same line"
    if "escape" in problem:
        return _mark(mark), "in double quotes a backslash starts an escape, and this is none", "use single quotes"
    if "plain scalar" in context and "':'" in problem:
        return _mark(mark), "a ':' inside a value without quotes", "put a blank after the ':', or the value in quotes"
    if "mapping values" in problem:
        return (
            _mark(mark),
            "a ':' where no value can start",
            ("a colon inside a value needs quotes; otherwise line the key up with its neighbours"),
        )
    if "cannot start any token" in problem:
        place = _mark(mark)
        found = lines[place.line - 1][place.col - 1 : place.col] if place.line <= len(lines) else ""
        return place, f"a value cannot start with {quote(found)}", "put the value in quotes"
    if "block" in context or "document start" in problem or "expected key" in problem:
        return (
            _mark(mark),
            "this line fits no level of the indentation before it",
            ("line it up with its neighbours; a list item starts with '- ', a key ends with ':'"),
        )
    return (
        _mark(mark),
        ", ".join(visible(w) for w in (context, problem) if w) or "this is not YAML",
        ("put the value in quotes"),
    )


def _mark(mark: Any) -> Mark:
    return Mark(line=mark.line + 1, col=mark.column + 1) if mark is not None else Mark(line=1, col=1)


@cache
def _resolver() -> Any:  # the types of PyYAML leave its resolver out
    return yaml.resolver.Resolver()


_KINDS = {"int": "int", "float": "float", "bool": "bool", "null": "null", "timestamp": "date"}
_YAML_1_2_NUMBER = re.compile(r"[-+]?(0o[0-7]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)")


def kind_of(text: str) -> str:
    """What YAML (1.1 or 1.2) makes of this unquoted text."""
    tag = str(_resolver().resolve(yaml.ScalarNode, text, (True, False))).rpartition(":")[2]
    if tag in _KINDS:
        return _KINDS[tag]
    return "float" if _YAML_1_2_NUMBER.fullmatch(text) else "text"


class _Composer:
    """Makes nodes of events; anchors, aliases, tags, merge keys and doubled keys are told and left out."""

    def __init__(self, source: Text, text: str) -> None:
        self.source = source
        self.events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)
        self.found = len(source.found)

    def root(self) -> Node | None:
        root: Node | None = None
        documents = 0
        try:
            for event in self.events:
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        self._tell(event, "a second document ('---') in the file", "one file holds one env.yaml")
                        break
                elif isinstance(event, yaml.NodeEvent):
                    root = self._node(event, 1)
        except yaml.YAMLError:
            del self.source.found[self.found :]  # they are found again once the bad block is out
            raise
        return root

    def _tell(self, event: yaml.Event, what: str, hint: str) -> None:
        self.source.problem(_mark(event.start_mark), what, hint=hint)

    def _node(self, event: Any, depth: int) -> Node:
        mark = _mark(event.start_mark)
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="exceeded maximum nesting depth", problem_mark=event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            name = quote("*" + str(event.anchor))
            self._tell(
                event,
                f"the alias {name} is not allowed",
                "write the value out; a value that starts with * needs quotes",
            )
            return Scalar(text="", kind="unread", quoted=False, mark=mark)
        if event.anchor is not None:
            name = quote("&" + str(event.anchor))
            self._tell(
                event, f"the anchor {name} is not allowed", "leave it out; a value that starts with & needs quotes"
            )
        if event.tag is not None:
            self._tell(
                event,
                f"the tag {quote(event.tag.replace('tag:yaml.org,2002:', '!!'))} is not allowed",
                'leave it out; quotes make a text: "3.10"',
            )
        if isinstance(event, yaml.ScalarEvent):
            quoted = event.style in ("'", '"', "|", ">")
            return Scalar(text=event.value, kind="text" if quoted else kind_of(event.value), quoted=quoted, mark=mark)
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(items=tuple(self._items(depth)), mark=mark)
        return self._mapping(mark, depth)

    def _items(self, depth: int) -> Iterator[Node]:
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth + 1)

    def _mapping(self, mark: Mark, depth: int) -> Mapping:
        seen: dict[str, int] = {}
        entries: list[tuple[Scalar, Node]] = []
        partial = False
        for event in self.events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, depth + 1)
            value = self._node(next(self.events), depth + 1)
            if isinstance(value, Scalar) and value.text == "" and not value.quoted:
                value = Scalar(text="", kind=value.kind, quoted=False, mark=key.mark)
            if isinstance(key, Scalar) and key.kind != "unread" and (key.quoted or key.text != "<<"):
                if key.text in seen:
                    first = seen[key.text]
                    self._tell(event, f"the key {quote(key.text)} is here twice; first on line {first}", "keep one")
                else:
                    seen[key.text] = key.mark.line
                    entries.append((key, value))
                continue
            partial = True
            if not isinstance(key, Scalar):
                self._tell(event, "a list or mapping cannot be a key", "text with { } or [ ] needs quotes")
            elif key.kind != "unread":
                self._tell(event, "the merge key '<<' is not allowed", "write the keys out")
        return Mapping(entries=tuple(entries), mark=mark, partial=partial)
