"""Why each difference probably came about; `unknown` where nothing tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from . import bytecode, insides, packages, tokens
from .packages import Moved
from .values import Cause, Difference, Kind

LOOKED_MOST = 128 << 20  # bytes of one file that is looked into
_LOADER = re.compile(r"^/var/cache/ldconfig/|^/etc/ld\.so\.cache$")
_LOADER_STARTS = (b"glibc-ld.so.cache1.1", b"ld.so-1.7.0", b"glibc-ld.so.auxcache-")
_LOG = re.compile(r"^/var/log/|\.log(?:\.\d+)?(?:\.gz)?$|/logs?/")
_IDS = re.compile(
    r"/machine-id$|/ssh_host_[a-z0-9]+_key(?:\.pub)?$|/random-seed$|ssl-cert-snakeoil|/boot[-_]id$|/hostid$|/\.uuid$"
)
_CACHE = re.compile(
    r"^/var/cache/|/\.cache/|/\.[^/]+/cache/|/pkgcache\.bin$|/srcpkgcache\.bin$|/[^/]+\.cache$|\.nb[ic]$"
    r"|/gschemas\.compiled$|/hwdb\.bin$"
)
_LISTS = re.compile(r"^/var/lib/apt/lists/")
_UMASKS = (0o002, 0o007, 0o022, 0o027, 0o077)
_SEVERAL = 3  # files that lack the same rights tell a umask; one alone was changed by somebody
_SPECIAL = {0o4000: "setuid", 0o2000: "setgid", 0o1000: "sticky"}
_SMALL = 4096
HARD = "hard link to "


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What was read of the files that differ, of one layer: by path, in the first and in the second image."""

    first: Mapping[str, bytes]
    second: Mapping[str, bytes]


def wanted(differences: Iterable[Difference]) -> set[str]:
    """The files of a layer that are needed to say why it differs."""
    kinds = (Kind.CONTENT, Kind.ADDED, Kind.REMOVED, Kind.LINK)
    return {each.path for each in differences if each.kind in kinds}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Around:
    """What the other differences of a layer say of one of them."""

    contents: Contents
    moved: Moved
    changed: set[str]  # paths that differ in more than their time
    listed: set[str]  # folders in which something was added or removed
    renamed: Mapping[str, str]
    linked: Mapping[str, str]  # paths that another one is a hard link to in one image
    umask: int
    epoch: int | None


def of_layer(differences: Sequence[Difference], contents: Contents, epoch: int | None) -> list[Difference]:
    """The differences of one layer, each with its cause."""
    around = _Around(
        contents=contents,
        moved=packages.moved(contents.first, contents.second),
        changed={each.path for each in differences if each.kind not in (Kind.MTIME, Kind.ORDER)},
        listed={
            each.path.rpartition("/")[0] or "/"
            for each in differences
            if each.kind in (Kind.ADDED, Kind.REMOVED, Kind.WHITEOUT)
        },
        renamed=_renamed(differences),
        linked=_linked(differences),
        umask=_umask(differences),
        epoch=epoch,
    )
    found = []
    for each in differences:
        cause, detail = _cause(each, around)
        found.append(replace(each, cause=cause, detail=detail))
    return found


def _cause(each: Difference, around: _Around) -> tuple[Cause, str]:
    was, now = around.contents.first.get(each.path), around.contents.second.get(each.path)
    words = around.moved.of(each.path)
    match each.kind:
        case Kind.CONTENT:
            if not words and (other := around.linked.get(each.path)):
                return Cause.HARDLINK, f"in one image it is the same file as {other}"
            return content(each.path, was, now, around.moved, around.changed)
        case Kind.ADDED | Kind.REMOVED:
            if words:
                return Cause.ARCHIVE, words
            if other := around.renamed.get(each.path):
                return Cause.RANDOM, f"its name: {other} in the other image"
            return alone(each.path, now if each.kind is Kind.ADDED else was)
        case Kind.MTIME:
            if each.path in around.listed:
                return Cause.CONSEQUENCE, "a folder's time follows what is added and removed in it"
            return (Cause.ARCHIVE, words) if words else (Cause.CLOCK, _late(each, around.epoch))
        case Kind.ORDER:
            return Cause.ORDER, ""
        case Kind.MODE:
            return _mode(each, around.umask)
        case Kind.OWNER:
            return Cause.OWNER, ""
        case Kind.XATTR:
            return _attribute(each)
        case Kind.HEADER:
            return Cause.WRITER, "" if each.path else "they say the same, the archive is written in another form"
        case Kind.LINK:
            return (Cause.ARCHIVE, words) if words else _link(each)
        case Kind.WHITEOUT | Kind.TYPE:
            return (Cause.ARCHIVE, words) if words else (Cause.UNKNOWN, "")
        case _:
            return each.cause, each.detail


def _link(each: Difference) -> tuple[Cause, str]:
    if "symlink" in each.was or "symlink" in each.now:
        return Cause.SYMLINK, ""
    copy = "file" in each.was or "file" in each.now
    return Cause.HARDLINK, "a link in one, a copy in the other" if copy else "a link to another of its names"


def _linked(differences: Sequence[Difference]) -> dict[str, str]:
    """The paths that another path is a hard link to in one image and not in the other."""
    found = {}
    for each in differences:
        for told in (each.was, each.now):
            if each.kind is Kind.LINK and told.startswith(HARD):
                found["/" + told.removeprefix(HARD).removeprefix("./").strip("/")] = each.path
    return found


def content(path: str, was: bytes | None, now: bytes | None, moved: Moved, changed: set[str]) -> tuple[Cause, str]:
    """Why a file's content probably differs."""
    if words := moved.of(path):
        return Cause.ARCHIVE, words
    if was is None or now is None:
        return _by_name(path) or (Cause.UNKNOWN, "too large to look into")
    if packages.STATUS.match(path):
        if moved.versions:
            return Cause.ARCHIVE, "; ".join(sorted(moved.versions.values())[:5])
        if packages.same_stanzas(was, now):
            return Cause.ORDER, "the same packages in another order"
    if was.startswith(_LOADER_STARTS) or now.startswith(_LOADER_STARTS):
        return Cause.LDCONFIG, ""
    if bytecode.is_bytecode(path, was) and bytecode.is_bytecode(path, now):
        return Cause.BYTECODE, bytecode.part(was, now)
    names = packages.named(path, was, now)
    if names and names <= changed | {path}:
        return Cause.CONSEQUENCE, f"it has the digest of {min(names - {path}, default=path)}"
    if found := _by_name(path):
        return found
    cause, detail = insides.cause(was, now)
    if cause is Cause.UNKNOWN and _CACHE.search(path):
        return Cause.CACHE, detail
    return cause, detail


def _by_name(path: str) -> tuple[Cause, str] | None:
    if _LOADER.search(path):
        return Cause.LDCONFIG, ""
    if path.endswith((".pyc", ".pyo")):
        return Cause.BYTECODE, ""
    if _LISTS.search(path):
        return Cause.ARCHIVE, "the package lists"
    if _LOG.search(path):
        return Cause.LOG, ""
    if _IDS.search(path):
        return Cause.RANDOM, "made by chance where it is installed"
    return None


def alone(path: str, data: bytes | None) -> tuple[Cause, str]:
    """Why a file is probably in one image only."""
    if found := _by_name(path):
        return found
    if data is None:
        return Cause.UNKNOWN, ""
    if data.startswith(_LOADER_STARTS):
        return Cause.LDCONFIG, ""
    if bytecode.is_bytecode(path, data):
        return Cause.BYTECODE, ""
    if tokens.is_text(data) and data.strip():
        if tokens.is_log(data):
            return Cause.LOG, "lines that begin with a time"
        if len(data) <= _SMALL:
            if tokens.has_id(data):
                return Cause.RANDOM, "it names an id"
            if found_time := tokens.TIMES.search(data):
                return Cause.TIME, found_time[0].decode("ascii", "replace")
    elif tokens.is_noise(data):
        return Cause.RANDOM, f"{len(data)} bytes that look drawn by chance"
    return (Cause.CACHE, "") if _CACHE.search(path) else (Cause.UNKNOWN, "")


def _renamed(differences: Sequence[Difference]) -> dict[str, str]:
    """Files that only their names, which look drawn by chance, tell apart: each with its other name."""
    gone = [each.path for each in differences if each.kind is Kind.REMOVED]
    came = [each.path for each in differences if each.kind is Kind.ADDED]
    found: dict[str, str] = {}
    for path in gone:
        folder = path.rpartition("/")[0]
        for other in came:
            if other not in found and other.rpartition("/")[0] == folder and len(other) == len(path):
                change = tokens.Change(path.encode(), other.encode(), "")
                if tokens.is_random_change(change):
                    found[path], found[other] = other, path
                    break
    return found


def _late(each: Difference, epoch: int | None) -> str:
    if epoch is None:
        return ""
    limit = tokens.iso(epoch)
    late = [name for name, text in (("first", each.was), ("second", each.now)) if text[:19] > limit[:19]]
    if late:
        return f"later than the epoch in the {' and the '.join(late)} image, so not clamped"
    return "not later than the epoch in either"


def _umask(differences: Sequence[Difference]) -> int:
    """The umask that explains all differences of rights in a layer; 0 where none does, or they are too few to tell."""
    modes = [(int(each.was, 8), int(each.now, 8)) for each in differences if each.kind is Kind.MODE]
    if len(modes) < _SEVERAL:
        return 0
    return next((u for u in _UMASKS if all(was & ~u == now or now & ~u == was for was, now in modes)), 0)


def _mode(each: Difference, umask: int) -> tuple[Cause, str]:
    if umask:
        return Cause.UMASK, f"{umask:03o} where there are fewer rights"
    special = [name for bit, name in _SPECIAL.items() if (int(each.was, 8) ^ int(each.now, 8)) & bit]
    return Cause.RIGHTS, ", ".join(special)


def _attribute(each: Difference) -> tuple[Cause, str]:
    name = next(t for t in (each.was, each.now) if not t.startswith("no ")).partition("=")[0]
    if name == "security.capability":
        return Cause.CAPABILITY, ""
    return Cause.ATTRIBUTE, "the label of the place where it was built" if name == "security.selinux" else name
