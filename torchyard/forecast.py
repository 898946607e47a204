"""What a change means before it lands: which images are made anew, how much is fetched, roughly how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torchyard.lock import LockedImage
from torchyard.plan import BuildKind, Image

# From figures of a two-core machine: a mirror on the same continent, layers made of wheels and sent to an engine.
FETCH_RATE = 25_000_000  # bytes a second
BUILD_RATE = 40_000_000  # bytes of wheels and packages a second
BUILD_BASE = 45  # seconds for the steps that every build has
ASSUMED = (
    f"assumed: {FETCH_RATE // 1_000_000} MB/s to fetch, then {BUILD_BASE} s and {BUILD_RATE // 1_000_000} MB/s to build"
)


class Change(StrEnum):
    """Why an image would be made anew, the gravest first; or that it would not."""

    NEW = "new"  # it has no lock
    LOCK = "lock"  # its lock was made for another env.yaml or catalogue
    RECIPE = "recipe"  # its recipe is not what its lock and the templates make
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was found of one image: its lock, what differs, what its store lacks, whether it was built here."""

    image: Image
    lock: LockedImage | None
    stale: tuple[str, ...]  # what the lock says otherwise, in words
    drift: tuple[str, ...]  # files that differ, in words
    missing: int  # bytes of the lock's files that the store lacks
    built: bool  # a receipt here is for this lock


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What would happen to one image. None is what nobody can know before it is locked or compiled."""

    image: str
    change: Change
    why: tuple[str, ...]
    fetch: int | None  # bytes
    seconds: int | None
    built: bool

    @property
    def rebuilt(self) -> bool:
        """Whether the bytes of the image may change."""
        return self.change is not Change.NONE


def forecast(seen: Seen) -> Forecast:
    """What would happen to this image."""
    change, why = _change(seen)
    fetch = seen.missing if seen.lock is not None and change is not Change.LOCK else None
    return Forecast(
        image=seen.image.id,
        change=change,
        why=why,
        fetch=fetch,
        seconds=_seconds(seen, change, fetch),
        built=seen.built and change is Change.NONE,
    )


def _change(seen: Seen) -> tuple[Change, tuple[str, ...]]:
    if seen.lock is None:
        return Change.NEW, ("it is not locked",)
    if seen.stale:
        return Change.LOCK, seen.stale
    return (Change.RECIPE, seen.drift) if seen.drift else (Change.NONE, ())


def _seconds(seen: Seen, change: Change, fetch: int | None) -> int | None:
    """None where it is not known: before the first lock, and for a torch that is compiled."""
    if change is Change.NONE and seen.built:
        return 0
    if seen.lock is None or fetch is None or seen.image.build is BuildKind.SOURCE:
        return None
    dev = {wheel.sha256 for wheel in seen.lock.dev_wheels} | {pin.sha256 for pin in seen.lock.group("dev")}
    size = sum(size for sha256, size in seen.lock.files().items() if sha256 not in dev)
    return round(fetch / FETCH_RATE + size / BUILD_RATE + BUILD_BASE)
