"""The words of a comparison: what a layer records of a file, and what one difference is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What differs."""

    CONTENT = "content"
    MTIME = "mtime"
    ORDER = "order"
    MODE = "mode"
    OWNER = "owner"
    XATTR = "xattr"
    LINK = "link"
    TYPE = "type"
    ADDED = "added"  # only the second image has it
    REMOVED = "removed"  # only the first image has it
    WHITEOUT = "whiteout"  # one of them takes away what a layer below has
    HEADER = "header"  # the same facts, written otherwise
    COMPRESSION = "compression"
    LAYER = "layer"  # a whole layer of which nothing more is known
    CONFIG = "config"
    HISTORY = "history"
    MANIFEST = "manifest"


class Cause(StrEnum):
    """What probably made it differ."""

    BYTECODE = "bytecode"
    LOG = "log"
    LDCONFIG = "ldconfig cache"
    TIME = "a time inside a file"
    CLOCK = "the clock"
    RANDOM = "a random id"
    ARCHIVE = "a moved archive"
    SYMLINK = "symlink"
    HARDLINK = "hard link"
    ORDER = "the order in which files were written"
    UMASK = "another umask"
    RIGHTS = "other rights"
    OWNER = "another user"
    CAPABILITY = "a file capability"
    ATTRIBUTE = "an extended attribute"
    CACHE = "a cache of a tool"
    COMPRESSION = "another compressor"
    WRITER = "another program wrote the layer"
    STEP = "another build step"
    CONSEQUENCE = "follows from another difference"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a layer with all that its header says; times in nanoseconds, sha256 empty where it is no file."""

    path: str
    type: str  # tarfile's code
    mode: int
    uid: int
    gid: int
    user: str
    group: str
    size: int
    mtime: int
    link: str
    device: tuple[int, int]
    xattrs: tuple[tuple[str, bytes], ...]
    more: tuple[tuple[str, str], ...]  # what is not named above, of its extended header
    sha256: str
    header: str  # the digest of its header as it is written

    @property
    def is_file(self) -> bool:
        return self.type in ("0", "\0", "7")

    @property
    def is_folder(self) -> bool:
        return self.type == "5"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_whiteout(self) -> bool:
        return self.name.startswith(".wh.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The entries of a layer in its order; unpacked: the digest of its tar stream; written: its compressor's time."""

    entries: tuple[Entry, ...]
    unpacked: str
    written: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A layer as an image names it: its uncompressed and its compressed id, and the build step that made it."""

    diff_id: str
    blob: str
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """An image without its files: what its documents say. digest and manifest are empty where none is kept."""

    name: str
    digest: str
    manifest: dict[str, Any]
    config: dict[str, Any]
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two layers that stand for each other; None where one image has no such layer."""

    first: int | None
    second: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing that differs: where, what, from what to what, and why it probably does.

    layer: its number, lowest is 1, in the first image, or else in the second; 0 for documents. detail: which part.
    """

    layer: int
    step: str
    path: str
    kind: Kind
    was: str
    now: str
    cause: Cause = Cause.UNKNOWN
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """Times after the epoch in one place: how many, and the first of them."""

    where: str
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """What another tool says of a file that differs."""

    layer: int
    path: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What a comparison found. late: times after the epoch; notes: what was not compared, and why."""

    first: Outline
    second: Outline
    differences: tuple[Difference, ...]
    late: tuple[Late, ...] = ()
    epoch: int | None = None
    notes: tuple[str, ...] = ()
    looked: tuple[Looked, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    @property
    def same_content(self) -> bool:
        """Whether what a container would see is the same: layers unpacked, and configuration."""
        return all(each.kind in (Kind.COMPRESSION, Kind.MANIFEST) for each in self.differences)
