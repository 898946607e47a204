"""The files of an image as a process would see them: its layers laid over each other, with links followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from .image_layer import Seen
from .image_tar import Entry

_WHITEOUT = ".wh."
_OPAQUE = "/.wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Node:
    """An entry, and the layer that has it as it is seen."""

    entry: Entry
    layer: int


class Tree:
    """The visible files of layers, lowest first; `removed` names the layer that took a path away last."""

    def __init__(self, layers: Sequence[Seen]) -> None:
        self.layers = layers
        self.nodes: dict[str, Node] = {}
        self.removed: dict[str, int] = {}
        for number, layer in enumerate(layers):
            self._hide(number, layer)
            for entry in layer.entries:
                if not _hides(entry.path):
                    self._put(entry, number)

    def _hide(self, number: int, layer: Seen) -> None:
        gone: set[str] = set()
        emptied: set[str] = set()
        for entry in layer.entries:
            folder, _, name = entry.path.rpartition("/")
            if entry.path.endswith(_OPAQUE):
                emptied.add(folder)
            elif name.startswith(_WHITEOUT):
                gone.add(f"{folder}/{name.removeprefix(_WHITEOUT)}")
        if gone or emptied:
            for path in [p for p in self.nodes if p in gone or _below(p, gone) or _below(p, emptied)]:
                del self.nodes[path]
                self.removed[path] = number

    def _put(self, entry: Entry, number: int) -> None:
        path = entry.path
        old = self.nodes.get(path)
        if old is not None and old.entry.is_folder and not entry.is_folder:
            for each in [p for p in self.nodes if p.startswith(path + "/")]:
                del self.nodes[each]
                self.removed[each] = number
        if entry.kind == "1":  # a hard link: the file that it names, as this layer has it
            target = self.nodes.get("/" + entry.link.removeprefix("./").strip("/"))
            if target is not None:
                entry = Entry(path, "0", target.entry.mode, target.entry.size, entry.mtime, entry.link)
        self.nodes[path] = Node(entry, number)

    def resolve(self, path: str, depth: int = 0) -> str | None:
        """The path of the file or folder that this path leads to; None where it leads to nothing."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if not name:
            return "/"
        real = self._folder(folder) if folder else ""
        if real is None:
            return None
        if name in (".", ".."):
            return real or "/" if name == "." else real.rpartition("/")[0] or "/"
        found = f"{real.rstrip('/')}/{name}"
        node = self.nodes.get(found)
        if node is None:
            return found if found in self._implied else None
        if node.entry.kind == "2":
            link = node.entry.link
            return None if depth > 20 else self.resolve(link if link.startswith("/") else f"{real}/{link}", depth + 1)
        return found

    def _folder(self, path: str) -> str | None:
        if path not in self._folders:
            self._folders[path] = self.resolve(path)
        return self._folders[path]

    @cached_property
    def _folders(self) -> dict[str, str | None]:
        return {}

    @cached_property
    def _implied(self) -> set[str]:
        """Folders that no layer names, but that have something in them."""
        found: set[str] = set()
        for path in self.nodes:
            folder = path.rpartition("/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return found

    def files(self) -> Iterator[tuple[str, Node]]:
        """Every visible regular file."""
        return ((path, node) for path, node in self.nodes.items() if node.entry.is_file)

    def text(self, path: str) -> str | None:
        """What was read of a visible file, where it is one that is read; links are followed."""
        real = self.resolve(path)
        node = self.nodes.get(real or "")
        return None if node is None else self.layers[node.layer].texts.get(real or "")

    def at(self, path: str) -> Node | None:
        """The file or folder that a path leads to."""
        return self.nodes.get(self.resolve(path) or "")

    def lost(self, path: str) -> int:
        """The layer that took this path away, or one of the folders that it was in; -1 where none did."""
        return self.removed.get(path, -1)


def _hides(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_WHITEOUT)


def _below(path: str, folders: set[str]) -> bool:
    if not folders:
        return False
    folder = path.rpartition("/")[0]
    while folder:
        if folder in folders:
            return True
        folder = folder.rpartition("/")[0]
    return "" in folders
