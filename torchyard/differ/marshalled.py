"""Python's marshalled objects as a tree, read without the Python that wrote them, and where two such trees differ.

Python's own `marshal` reads only its own version's and forgets what differs when all values are the same: which objects
are marked as shared, and the order of a set.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_OLD = (
    ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_flags"),
    ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_filename", "co_name"),
    ("co_lnotab",),
)
_NEW = (
    ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_stacksize", "co_flags"),
    (
        *("co_code", "co_consts", "co_names", "co_localsplusnames", "co_localspluskinds"),
        *("co_filename", "co_name", "co_qualname"),
    ),
    ("co_linetable", "co_exceptiontable"),
)
FIRST, NEW = 3400, 3450  # magic numbers: of the oldest layout that is read (3.8), of the one since 3.11
_CONSTANTS = {"N": "None", "F": "False", "T": "True", ".": "Ellipsis", "S": "StopIteration", "0": "end"}
_TEXTS = {"t": 4, "u": 4, "a": 4, "A": 4, "z": 1, "Z": 1}
_FAMILY = {"t": "text", "u": "text", "a": "text", "A": "text", "z": "text", "Z": "text", "I": "i", ")": "("}
_INTERNED = frozenset("tAZ")


class Unreadable(Exception):
    """It is not marshalled by a Python whose layout is known."""


@dataclass(slots=True, eq=False)
class Node:
    """One object: its type code, whether it is marked as shared, its value, and what it holds, by name."""

    code: str
    marked: bool = False
    value: object = None
    parts: dict[str, Node] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return _FAMILY.get(self.code, self.code)


@dataclass(frozen=True, slots=True)
class Part:
    """A place in the tree that differs, and how: `value`, `order`, `sharing`, `marks`, `interned`."""

    path: str
    how: str
    was: str = ""
    now: str = ""


class _Reader:
    def __init__(self, data: bytes, magic: int) -> None:
        self.data, self.at, self.shared = data, 0, list[Node]()
        self.layout = _NEW if magic >= NEW else _OLD

    def take(self, count: int) -> bytes:
        block = self.data[self.at : self.at + count]
        if count < 0 or len(block) < count:
            raise Unreadable
        self.at += count
        return block

    def number(self, count: int = 4) -> int:
        return int.from_bytes(self.take(count), "little", signed=count == 4)

    def node(self) -> Node:
        byte = self.take(1)[0]
        code = chr(byte & 0x7F)
        if code == "r":
            number = self.number()
            if not 0 <= number < len(self.shared):
                raise Unreadable
            return Node("r", value=self.shared[number])
        node = Node(code, marked=bool(byte & 0x80))
        if node.marked:
            self.shared.append(node)
        self._fill(node)
        return node

    def _fill(self, node: Node) -> None:
        code = node.code
        if code in _CONSTANTS:
            node.value = _CONSTANTS[code]
        elif code == "i":
            node.value = self.number()
        elif code == "I":
            node.value = int.from_bytes(self.take(8), "little", signed=True)
        elif code == "l":
            count = self.number()
            node.value = (count, self.take(2 * abs(count)))
        elif code in "fx":
            node.value = tuple(self.take(self.number(1)) for _ in range(1 if code == "f" else 2))
        elif code in "gy":
            node.value = struct.unpack("<d", self.take(8))[0] if code == "g" else struct.unpack("<dd", self.take(16))
        elif code == "s":
            node.value = self.take(self.number())
        elif code in _TEXTS:
            node.value = self.take(self.number(_TEXTS[code])).decode("utf-8", "surrogatepass")
        elif code in "()[<>":
            for number in range(self.number(1 if code == ")" else 4)):
                node.parts[str(number)] = self.node()
        elif code == ":":
            node.parts = {name: self.node() for name in ("start", "stop", "step")}
        elif code == "{":
            while (key := self.node()).code != "0":
                node.parts[f"key {len(node.parts) // 2}"] = key
                node.parts[f"value {len(node.parts) // 2}"] = self.node()
        elif code == "c":
            self._code(node)
        else:
            raise Unreadable

    def _code(self, node: Node) -> None:
        numbers, objects, last = self.layout
        for name in numbers:
            node.parts[name] = Node("i", value=self.number())
        for name in objects:
            node.parts[name] = self.node()
        node.parts["co_firstlineno"] = Node("i", value=self.number())
        for name in last:
            node.parts[name] = self.node()


def read(data: bytes, magic: int) -> Node:
    """The object in these bytes, as the Python of this magic number wrote it; raises Unreadable."""
    if magic < FIRST:
        raise Unreadable
    try:
        return _Reader(data, magic).node()
    except (RecursionError, UnicodeDecodeError, struct.error):
        raise Unreadable from None


def compare(first: Node, second: Node) -> list[Part]:
    """Every place where two trees differ."""
    return list(_Comparison().parts(first, second, ""))


class _Comparison:
    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.plain: dict[int, object] = {}

    def parts(self, a: Node, b: Node, path: str) -> Iterator[Part]:
        if (a.code == "r") != (b.code == "r"):
            yield Part(path, "sharing", *("shared" if n.code == "r" else "on its own" for n in (a, b)))
        a, b = _target(a), _target(b)
        if (id(a), id(b)) in self.seen:
            return
        self.seen.add((id(a), id(b)))
        if a.marked != b.marked:
            yield Part(path, "marks", *("marked as shared" if n.marked else "not marked" for n in (a, b)))
        if a.family != b.family or a.value != b.value or len(a.parts) != len(b.parts):
            yield Part(path, "value", _short(a), _short(b))
            return
        if a.family == "text" and (a.code in _INTERNED) != (b.code in _INTERNED):
            yield Part(path, "interned", *("interned" if n.code in _INTERNED else "not interned" for n in (a, b)))
        if a.code in "<>" and self._other_order(a, b):
            yield Part(path, "order", _short(a), _short(b))
            return
        for name in a.parts:
            if name not in b.parts:
                yield Part(path, "value", _short(a), _short(b))
                return
            yield from self.parts(a.parts[name], b.parts[name], _below(path, a, name))

    def _other_order(self, a: Node, b: Node) -> bool:
        here, there = ([self._plain(_target(n)) for n in each.parts.values()] for each in (a, b))
        return here != there and sorted(map(repr, here)) == sorted(map(repr, there))

    def _plain(self, node: Node) -> object:
        """The value of an object alone."""
        if id(node) not in self.plain:
            self.plain[id(node)] = None  # where it holds itself
            inner = tuple(self._plain(_target(part)) for part in node.parts.values())
            self.plain[id(node)] = (node.family, node.value, inner)
        return self.plain[id(node)]


def _target(node: Node) -> Node:
    return node.value if node.code == "r" and isinstance(node.value, Node) else node


def _below(path: str, node: Node, name: str) -> str:
    if node.code == "c":
        return f"{path}.{name}" if path else name
    inner = _target(node.parts[name])
    if inner.code == "c" and path.endswith("co_consts"):
        called = _target(inner.parts.get("co_qualname") or inner.parts["co_name"]).value
        return f"{path}[{called}]"
    return f"{path}[{name}]"


def _short(node: Node) -> str:
    if node.parts:
        inner = ", ".join(_short(_target(part)) for part in list(node.parts.values())[:6])
        return {"c": "code", "(": f"({inner})", ")": f"({inner})"}.get(node.code, f"{{{inner}}}")
    text = repr(node.value)
    return text if len(text) <= 60 else text[:59] + "…"
