"""The files of a lock's wheels, brought into the store and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torchyard.errors import CheckFailed, YardError, raise_all
from torchyard.wheelpin import WheelPin
from torchyard.world.download import Changed, DownloadError, NotThere, download, without_credentials
from torchyard.world.store import Store
from torchyard.world.wheel_index import WheelIndex
from torchyard.world.wheel_pages import WheelFile


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a fetch is: the file that is being fetched, and bytes of all files that were missing."""

    file: str
    done: int
    total: int


def missing(pins: Sequence[WheelPin], store: Store) -> tuple[WheelPin, ...]:
    """The pins whose file is not in the store."""
    return tuple(pin for pin in pins if not store.has(pin.sha256, pin.size))


def fetch(
    pins: Sequence[WheelPin],
    store: Store,
    places: WheelIndex,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[WheelPin, ...]:
    """Every pinned wheel in the store; answers those that had to be fetched, and tells all that could not be at once.

    Directories on this machine come before indexes; a file is taken from wherever it is, if its hash is the locked one.
    """
    wanted = missing(pins, store)
    total = sum(pin.size for pin in wanted)
    if wanted:
        say(f"fetching {len(wanted)} of {len(pins)} wheels, {total / 1e6:.0f} MB")
    problems: list[YardError] = []
    done = 0
    for pin in wanted:
        progress(Progress(file=pin.file, done=done, total=total))
        came = 0

        def arrived(count: int, pin: WheelPin = pin, before: int = done) -> None:
            nonlocal came
            came += count
            progress(Progress(file=pin.file, done=before + came, total=total))

        try:
            _one(pin, store, places, arrived, say)
        except YardError as error:
            problems.append(error)
        done += pin.size
    raise_all(problems)
    return wanted


def gone(pins: Sequence[WheelPin], places: WheelIndex, say: Callable[[str], None]) -> list[str]:
    """The pins that neither a directory of this machine nor an index offers with their hash any more, in words."""
    told = []
    for pin in pins:
        copies = [copy for copy in places.here(pin.name) if copy.file == pin.file]
        if any(_same(pin, copy) for copy in copies):
            continue
        offers = places.offers(pin.name, pin.index, anywhere=True)
        offer = offers.wheels.get(pin.file)
        copies += offer.copies if offer else ()
        if any(_same(pin, copy) for copy in copies):
            continue
        if offers.silent:
            say(f"{pin.file}: not checked, {offers.silent[0].what}")
        else:
            told.append(f"{pin.file} {'changed: ' + _seen(copies[0]) if copies else 'left its index'} ({pin.index})")
    return told


def _one(
    pin: WheelPin, store: Store, places: WheelIndex, arrived: Callable[[int], None], say: Callable[[str], None]
) -> None:
    """Directories first, without a network; then whatever index has the file."""
    here = [copy for copy in places.here(pin.name) if copy.file == pin.file]
    if _taken(pin, here, store, places, arrived) is None:
        return
    offers = places.offers(pin.name, pin.index, anywhere=True)
    offer = offers.wheels.get(pin.file)
    copies = offer.copies if offer else ()
    failure = _taken(pin, [copy for copy in copies if copy not in here], store, places, arrived)
    other = [copy for copy in copies if not _same(pin, copy)]
    if failure is None:
        for copy in other:
            say(f"{pin.file}: {_seen(copy)} is another file and was not taken")
        return
    match failure:
        case Changed():
            raise _changed(pin, [f"{failure.what} at {failure.url}", *map(_seen, other)]) from failure
        case NotThere() if other:
            raise _changed(pin, [_seen(each) for each in other]) from failure
        case NotThere() if offers.silent:
            raise offers.silent[0] from failure
        case NotThere():
            raise _vanished(pin, list(offers.wheels), failure.url and f"{failure.what} ({failure.url})") from failure
        case _:
            raise failure


def _taken(
    pin: WheelPin,
    copies: Sequence[WheelFile],
    store: Store,
    places: WheelIndex,
    arrived: Callable[[int], None],
) -> DownloadError | None:
    """Nothing where one of these copies is now in the store, else why none of them could be taken."""
    try:
        download(
            [copy.url for copy in copies if _same(pin, copy)],
            sha256=pin.sha256,
            size=pin.size,
            store=store,
            session=places.session,
            on_progress=arrived,
        )
    except DownloadError as error:
        return error
    return None


def _same(pin: WheelPin, copy: WheelFile) -> bool:
    """Whether the place of this copy does not already say that it is another file."""
    return copy.sha256 in ("", pin.sha256) and copy.size in (None, pin.size)


def _seen(copy: WheelFile) -> str:
    size = "" if copy.size is None else f" ({copy.size} bytes)"
    return f"sha256 {copy.sha256 or 'unknown'}{size} at {without_credentials(copy.url)}"


def _changed(pin: WheelPin, seen: Sequence[str]) -> CheckFailed:
    return CheckFailed(
        f"{pin.file} is not the file that was locked: expected sha256 {pin.sha256} ({pin.size} bytes), seen "
        + "; ".join(seen),
        where=f"{pin.name} {pin.version}, index {pin.index}",
        hint=_ways_on(pin),
    )


def _vanished(pin: WheelPin, files: Sequence[str], because: str = "") -> CheckFailed:
    there = f"; the newest files there: {', '.join(sorted(files)[-3:])}" if files else ""
    return CheckFailed(
        f"{pin.file} is no longer there: expected sha256 {pin.sha256} ({pin.size} bytes), seen "
        + (because or f"no file of that name{there}"),
        where=f"{pin.name} {pin.version}, index {pin.index}",
        hint=_ways_on(pin),
    )


def _ways_on(pin: WheelPin) -> str:
    return (
        f"put the locked file into a directory that pip's find-links names, take it from a store or a bundle that has "
        f"it, or lock what is there now: `./yard lock --upgrade {pin.name}`"
    )
