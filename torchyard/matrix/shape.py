"""The kinds of value that env.yaml is made of: each reads a node, describes itself as JSON Schema and in words.

One table (keys.py) made of these is the only place that says what the file may hold; the reader, schema/env.schema.json
and docs/env.md all come from it, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, Literal, Protocol

from torchyard import yaml_source
from torchyard.yaml_source import Mark, Node, Scalar, Sequence, quote

Known = Callable[[str, str], tuple[str, str] | None]
"""Says what is wrong with a name of a kind ("gpu", "os", "rule") and what helps, or None if it is known."""


class Bad(Enum):
    """What reading gives for a value that is wrong; the mistake is in the text's list."""

    BAD = "bad"


BAD: Literal[Bad.BAD] = Bad.BAD


@dataclass(kw_only=True, slots=True)
class Reader:
    """The text being read, where each path of it stands, and who knows the names in it."""

    text: yaml_source.Text
    known: Known
    places: dict[str, Mark] = field(default_factory=dict)
    judged: dict[tuple[str, str], tuple[str, str] | None] = field(default_factory=dict)

    def problem(self, mark: Mark, path: str, what: str, hint: str = "") -> Literal[Bad.BAD]:
        """Note one mistake."""
        self.text.problem(mark, what, path=path, hint=hint or "docs/env.md has every key")
        return BAD

    def complaint(self, kind: str, name: str) -> tuple[str, str] | None:
        """What is wrong with this name, if anything; nobody is asked once enough mistakes are noted."""
        if (kind, name) not in self.judged:
            self.judged[kind, name] = None if self.text.full else self.known(kind, name)
        return self.judged[kind, name]

    def at(self, path: str) -> Mark:
        """Where this path, or the nearest one above it, stands."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, Mark(line=1, col=1))


class Kind(Protocol):
    """One kind of value."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        """The plain value, or BAD."""

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""

    def words(self) -> str:
        """The same in words, for docs/env.md."""


_NOUNS = {"int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "date": "a date"}


def _kind_word(node: Node) -> str:
    if isinstance(node, Scalar):
        return "a text" if node.kind == "text" else _NOUNS.get(node.kind, "nothing")
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _key(path: str) -> str:
    """The last key of a path, for a hint that can be typed."""
    return re.sub(r"\[\d+\]$", "", path.rpartition(".")[2])


def _number(text: str) -> str:
    try:
        return f"the number {float(text.replace('_', '')):g}"
    except ValueError:
        return "a number"


def _wrong(node: Node, path: str, reader: Reader, wanted: str, hint: str = "") -> Literal[Bad.BAD]:
    if isinstance(node, Scalar) and node.kind == "unread":
        return BAD  # told already
    if isinstance(node, Scalar) and node.kind == "null":
        return reader.problem(node.mark, path, f"{_key(path)} has no value; {wanted} is wanted", hint)
    return reader.problem(node.mark, path, f"{_kind_word(node)} where {wanted} is wanted", hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A text of a given form; a number written without quotes is refused, as YAML drops its last zero."""

    what: str
    pattern: str
    example: str
    longest: int = 200
    hints: tuple[tuple[str, str], ...] = ()  # (pattern, what to say) for the mistakes that people make
    numbers: bool = False  # a whole number without quotes is taken as the text it is written as
    floats: bool = False  # so is a number with a point
    names: str = ""  # the kind of name, if somebody knows all of them

    def read(self, node: Node, path: str, reader: Reader) -> str | Literal[Bad.BAD]:
        """The text."""
        if not isinstance(node, Scalar) or node.kind in ("null", "unread"):
            return _wrong(node, path, reader, self.what, f"for example {self.example}")
        if node.kind not in ("text", *(["int"] if self.numbers else []), *(["float"] if self.floats else [])):
            return self._unquoted(node, path, reader)
        if len(node.text) > self.longest or not _compiled(self.pattern).fullmatch(node.text):
            return reader.problem(node.mark, path, f"{quote(node.text)} is not {self.what}", self._hint(node.text))
        if self.names and (complaint := reader.complaint(self.names, node.text)) is not None:
            return reader.problem(node.mark, path, *complaint)
        return node.text

    def _unquoted(self, node: Scalar, path: str, reader: Reader) -> Literal[Bad.BAD]:
        seen = {"bool": "true or false", "date": "a date"}.get(node.kind) or _number(node.text)
        text = yaml_source.visible(node.text[:60])
        hint = f'put it in quotes: "{text}"' if path.endswith("]") else f'put it in quotes: {_key(path)}: "{text}"'
        if not _compiled(self.pattern).fullmatch(node.text) and (more := self._said(node.text)):
            hint = f"put it in quotes, and {more}"
        return reader.problem(node.mark, path, f"{text} without quotes is read as {seen}; {self.what} is wanted", hint)

    def _hint(self, text: str) -> str:
        if said := self._said(text):
            return said
        if len(text) > self.longest and _compiled(self.pattern).fullmatch(text):
            return f"at most {self.longest} characters"
        odd = sorted({c for c in text if not c.isascii()})
        if odd:
            return f"it holds {', '.join(f'U+{ord(c):04X}' for c in odd[:3])}; for example {self.example}"
        return f"for example {self.example}"

    def _said(self, text: str) -> str:
        """The hint for a mistake that people make, if this is one."""
        matches = ((_compiled(pattern).fullmatch(text), hint) for pattern, hint in self.hints)
        return next((match.expand(hint) for match, hint in matches if match), "")

    def schema(self) -> dict[str, Any]:
        """A string, or also a number where those are taken."""
        text: dict[str, Any] = {"type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}
        if self.numbers:
            return {"anyOf": [text, {"type": "integer"}]}
        return {"anyOf": [text, {"type": "number"}]} if self.floats else text

    def words(self) -> str:
        """What it is."""
        return self.what


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, kw_only=True, slots=True)
class Printable:
    """Any text of one line without control characters: it is quoted wherever it goes."""

    what: str
    longest: int = 4096
    numbers: bool = False

    def read(self, node: Node, path: str, reader: Reader) -> str | Literal[Bad.BAD]:
        """The text."""
        if not isinstance(node, Scalar) or node.kind in ("null", "unread"):
            return _wrong(node, path, reader, self.what, f'for example {_key(path)}: "text"; "" is an empty one')
        plain = self.numbers and node.kind == "int" and re.fullmatch(r"-?(0|[1-9][0-9]*)", node.text)
        if node.kind != "text" and not plain:
            text = yaml_source.visible(node.text[:60])
            what = f"{text} without quotes is {_NOUNS[node.kind]} for YAML; {self.what} is wanted"
            return reader.problem(node.mark, path, what, f'put it in quotes: {_key(path)}: "{text}"')
        if odd := next((c for c in node.text if not c.isprintable()), ""):
            what = f"{quote(node.text)} holds the character U+{ord(odd):04X}; {self.what} is one line of printable text"
            return reader.problem(node.mark, path, what, "leave it out")
        if not node.text.strip() and not self.numbers:
            return reader.problem(
                node.mark, path, f"{_key(path)} is empty; {self.what} is wanted", "write it, or leave the key out"
            )
        if len(node.text) > self.longest:
            what = f"{len(node.text):,} characters; {self.what} has at most {self.longest:,}"
            return reader.problem(node.mark, path, what, "put it in a file")
        return node.text

    def schema(self) -> dict[str, Any]:
        """A string without control characters."""
        text = {"type": "string", "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$", "maxLength": self.longest}
        return {"anyOf": [text, {"type": "integer"}]} if self.numbers else text

    def words(self) -> str:
        """What it is."""
        return self.what


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """A whole number within bounds."""

    least: int
    most: int

    def read(self, node: Node, path: str, reader: Reader) -> int | Literal[Bad.BAD]:
        """The number."""
        if isinstance(node, Scalar) and re.fullmatch(r"-?[0-9]{1,9}", node.text):
            if node.quoted:
                return reader.problem(
                    node.mark,
                    path,
                    f"{quote(node.text)} is a text; {self.words()} is wanted",
                    f"leave the quotes out: {_key(path)}: {node.text}",
                )
            if not (node.text.startswith("0") and len(node.text) > 1) and self.least <= int(node.text) <= self.most:
                return int(node.text)
        if not isinstance(node, Scalar) or node.kind in ("null", "unread"):
            return _wrong(node, path, reader, self.words(), f"for example {_key(path)}: {self.least}")
        return reader.problem(
            node.mark, path, f"{quote(node.text)} is not {self.words()}", f"write {_key(path)}: {self.least}"
        )

    def schema(self) -> dict[str, Any]:
        """An integer within the bounds."""
        if self.least == self.most:
            return {"const": self.least}
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def words(self) -> str:
        """The bounds in words."""
        return str(self.least) if self.least == self.most else f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]
    instead: tuple[tuple[str, str], ...] = ()  # (what people write, what to say)

    def read(self, node: Node, path: str, reader: Reader) -> str | Literal[Bad.BAD]:
        """The word."""
        if not isinstance(node, Scalar) or node.kind in ("null", "unread"):
            return _wrong(node, path, reader, self.words(), f"for example {_key(path)}: {self.values[0]}")
        if node.text in self.values and node.kind == "text":
            return node.text
        hint = dict(self.instead).get(node.text.lower()) or yaml_source.nearest(node.text, self.values)
        return reader.problem(
            node.mark, path, f"{quote(node.text)} is not {self.words()}", hint or f"for example {self.values[0]}"
        )

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"enum": list(self.values)}

    def words(self) -> str:
        """The words, joined."""
        return " or ".join(filter(None, (", ".join(self.values[:-1]), self.values[-1])))


@dataclass(frozen=True, kw_only=True, slots=True)
class OneOf:
    """The one of several kinds that the node looks like; `kinds` are for a scalar, a list, a mapping."""

    scalar: Kind | None = None
    items: Kind | None = None
    table: Kind | None = None
    null: bool = False  # an empty value is allowed and means None

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        """What the fitting kind reads."""
        if isinstance(node, Scalar):
            if self.null and node.kind == "null":
                return None
            kind = self.scalar
        else:
            kind = self.items if isinstance(node, Sequence) else self.table
        if kind is not None:
            return kind.read(node, path, reader)
        hint = "a text with { } or [ ] needs quotes" if not isinstance(node, Scalar) else "see docs/env.md"
        if isinstance(self.items, Items) and isinstance(node, Scalar) and node.kind != "null":
            hint = f"write {_key(path)}: [{yaml_source.visible(node.text[:60])}]"
        return _wrong(node, path, reader, self.words(), hint)

    def _kinds(self) -> list[Kind]:
        return [k for k in (self.scalar, self.items, self.table) if k is not None]

    def schema(self) -> dict[str, Any]:
        """Any of the kinds."""
        schemas = [kind.schema() for kind in self._kinds()]
        return {"anyOf": [*schemas, {"type": "null"}] if self.null else schemas}

    def words(self) -> str:
        """The kinds joined by or."""
        return ", or ".join(kind.words() for kind in self._kinds())


@dataclass(frozen=True, kw_only=True, slots=True)
class Items:
    """A list of one kind, each value once."""

    of: Kind
    least: int = 0
    most: int = 1000

    def read(self, node: Node, path: str, reader: Reader) -> tuple[Any, ...] | Literal[Bad.BAD]:
        """The values in order."""
        if not isinstance(node, Sequence):
            hint = "start each item with '- '"
            if isinstance(node, Scalar) and node.kind != "null":
                hint = f"write {_key(path)}: [{yaml_source.visible(node.text[:60])}]"
            return _wrong(node, path, reader, self.words(), hint)
        if not self.least <= len(node.items) <= self.most:
            what = f"{len(node.items)} items; {self.least} to {self.most} are wanted"
            return reader.problem(
                node.mark, path, what, "take some out" if node.items else "add one, or leave the key out"
            )
        values: list[Any] = []
        for number, item in enumerate(node.items):
            place = f"{path}[{number}]"
            reader.places[place] = item.mark
            value = self.of.read(item, place, reader)
            if value is not BAD and value in values:
                reader.problem(item.mark, place, "this is in the list twice", "keep one")
            elif value is not BAD:
                values.append(value)
        return tuple(values)

    def schema(self) -> dict[str, Any]:
        """An array."""
        schema: dict[str, Any] = {"type": "array", "items": self.of.schema(), "uniqueItems": True}
        return {**schema, "minItems": self.least} if self.least else schema

    def words(self) -> str:
        """A list of what."""
        return f"a list (each item: {self.of.words()})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A mapping from names that the user chooses to one kind."""

    key: Word
    of: Kind
    least: int = 0
    most: int = 1000

    def read(self, node: Node, path: str, reader: Reader) -> dict[str, Any] | Literal[Bad.BAD]:
        """The values by name, in the order of the file."""
        if not isinstance(node, yaml_source.Mapping):
            return _wrong(node, path, reader, self.words(), f"for example {self.key.example}: …")
        if not self.least <= len(node.entries) <= self.most:
            what = f"{len(node.entries)} entries; {self.least} to {self.most} are wanted"
            return reader.problem(node.mark, path, what, "take some out" if node.entries else "add one")
        values: dict[str, Any] = {}
        for key, item in node.entries:
            place = f"{path}.{yaml_source.visible(key.text[:60])}" if path else key.text
            name = self.key.read(key, place, reader)
            reader.places[place] = key.mark
            value = self.of.read(item, place, reader)
            if name is not BAD and value is not BAD:
                values[name] = value
        return values

    def schema(self) -> dict[str, Any]:
        """An object with a pattern for its keys."""
        schema: dict[str, Any] = {
            "type": "object",
            "propertyNames": {"pattern": f"^(?:{self.key.pattern})$", "maxLength": self.key.longest},
            "additionalProperties": self.of.schema(),
        }
        return {**schema, "minProperties": self.least} if self.least else schema

    def words(self) -> str:
        """A mapping from what to what."""
        return f"a mapping ({self.key.what}: {self.of.words()})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key of a record: its kind, and what docs and editors say of it."""

    name: str
    kind: Kind
    doc: str
    default: str = ""  # in words; empty: none
    example: str = ""  # as YAML
    required: bool = False
    empty: bool = False  # `key:` with nothing after it means that the key is not given


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A mapping with known keys."""

    what: str
    keys: tuple[Key, ...]
    example: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # keys that people write here, with what to do instead

    def read(self, node: Node, path: str, reader: Reader) -> dict[str, Any] | Literal[Bad.BAD]:
        """The given values by key; wrong ones are told and left out."""
        if not isinstance(node, yaml_source.Mapping):
            hint = f"for example {self.example}" if self.example else f"keys: {', '.join(k.name for k in self.keys)}"
            return _wrong(node, path, reader, f"a mapping ({self.what})", hint)
        known = {key.name: key for key in self.keys}
        values: dict[str, Any] = {}
        for name, item in node.entries:
            key = known.get(name.text)
            place = f"{path}.{name.text}" if path else name.text
            if key is None:
                self._unknown(name, path, reader)
                continue
            reader.places[place] = name.mark
            if key.empty and isinstance(item, Scalar) and item.kind == "null":
                continue
            value = key.kind.read(item, place, reader)
            if value is not BAD:
                values[name.text] = value
        self._missing(node, path, reader)
        return values

    def _unknown(self, name: Scalar, path: str, reader: Reader) -> None:
        names = () if reader.text.full else [key.name for key in self.keys]
        place = f"{path}.{yaml_source.visible(name.text[:60])}" if path else yaml_source.visible(name.text[:60])
        hint = self.elsewhere.get(name.text.casefold()) or yaml_source.nearest(name.text, names)
        keys = f"keys of {self.what}: {', '.join(names)}"
        reader.problem(name.mark, place, f"unknown key {quote(name.text)}", f"{hint} {keys}" if hint else keys)

    def _missing(self, node: yaml_source.Mapping, path: str, reader: Reader) -> None:
        given = {key.text for key, _ in node.entries}
        if node.partial or (reader.text.unread and not path):
            return  # it may be in the part that could not be read
        for key in self.keys:
            if key.required and key.name not in given:
                place = f"{path}.{key.name}" if path else key.name
                hint = (
                    f"add {key.name}: {key.example}" if key.example and "\n" not in key.example else f"add {key.name}:"
                )
                reader.problem(node.mark, place, f"the key {key.name!r} is missing from {self.what}", hint)

    def schema(self) -> dict[str, Any]:
        """An object with exactly these keys."""
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
        for key in self.keys:
            inner = key.kind.schema()
            if key.empty:
                inner = _or_null(inner)
            schema["properties"][key.name] = {"description": _described(key), **inner}
        required = [key.name for key in self.keys if key.required]
        return {**schema, "required": required} if required else schema

    def words(self) -> str:
        """The keys in a row."""
        return f"a mapping ({', '.join(key.name for key in self.keys)})"


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that takes null too; a type is widened, so that an editor still marks the place inside."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}


def _described(key: Key) -> str:
    return key.doc + (f" Default: {key.default}." if key.default else "")
