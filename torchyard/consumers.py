"""What the programs that run images can read of their layers; the catalogue's `consumers` says since which version."""

from __future__ import annotations

from collections.abc import Iterable

from .catalog import Catalog
from .catalog.rows import Consumer
from .errors import Incompatible
from .versions import below

RULE = "compression"
RUNS = {"slurm": ("enroot", "apptainer"), "kubernetes": ("containerd",), "compose": ("docker",)}


def of_site(runs: str, consumer: str) -> tuple[str, ...]:
    """What reads images at a site, as `enroot 4.1.0` where env.yaml says it, else the programs of what runs there."""
    return (consumer,) if consumer else RUNS.get(runs, ())


def unread(word: str, catalog: Catalog) -> tuple[Consumer, str] | None:
    """The row and the words that stand against zstd layers for a program (`docker`, `docker 26.1.5`); None: it reads
    them, or is not in the catalogue."""
    name, _, version = word.partition(" ")
    row = next((each for each in catalog.consumers() if each.consumer == name), None)
    if row is None or (row.zstd and (not below(version, row.zstd) if version else row.granted)):
        return None
    if row.zstd and not version:
        return row, f"{name}, whose version is not said, may not read zstd layers; {row.zstd} or newer does"
    since = f"{row.zstd} or newer does" if row.zstd else "no version that was seen does"
    return row, f"{word} does not read zstd layers; {since}"


def check(kinds: Iterable[str], consumer: str, version: str, catalog: Catalog, *, where: str) -> None:
    """Raise Incompatible where this program, of this version (empty: not known), does not read these media types."""
    if has_zstd(kinds) and (found := unread(f"{consumer} {version}".strip(), catalog)) is not None:
        raise _refused(*found, catalog, where)


def check_site(kinds: Iterable[str], words: Iterable[str], catalog: Catalog, *, where: str) -> None:
    """The same for what reads images at a site; a row that nobody has verified refuses nothing here."""
    if not has_zstd(kinds):
        return
    for word in words:
        if (found := unread(word, catalog)) is not None and found[0].proven():
            raise _refused(*found, catalog, where)


def has_zstd(kinds: Iterable[str]) -> bool:
    """Whether one of these media types is that of a zstd layer."""
    return any(kind.endswith("zstd") for kind in kinds)


def _refused(row: Consumer, what: str, catalog: Catalog, where: str) -> Incompatible:
    way = row.instead or f"upgrade {row.consumer}"
    told = "; ".join(catalog.sources.get(source, source) for source in row.source)
    return Incompatible(what, where=where, hint=f"{way}, or compression: gzip in env.yaml ({told})")
