"""Building without a network: whether all that locks pin is in the store, said before anything is begun."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Surroundings
from ..lock import LockedImage
from ..plan import BaseKind
from . import registry_taking
from .store import Store

SHOWN = 5


def require(locks: Sequence[LockedImage], store: Store) -> None:
    """Raise Surroundings, with names, where a build of these locks would have to ask a network."""
    for lock in locks:
        missing = absent(lock, store)
        if missing:
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            raise Surroundings(
                f"{len(missing)} of the files that {lock.id} is made of are not in the store:"
                f" {', '.join(missing[:SHOWN])}{more}",
                where=str(store.root),
                hint=f"where there is a network: ./yard bundle --id {lock.id}; then here: ./yard load FILE",
            )


def absent(lock: LockedImage, store: Store) -> list[str]:
    """The names of the files of a lock that the store does not have."""
    named = {w.sha256: w.file for w in (*lock.wheels, *lock.dev_wheels, *lock.build_wheels, lock.tools.uv)}
    named |= {pin.sha256: pin.path.rpartition("/")[2] for pin in lock.os}
    found = [named.get(sha256, sha256) for sha256, size in lock.files().items() if not store.has(sha256, size)]
    if lock.base.kind is BaseKind.IMAGE and registry_taking.stored(lock.base.digest, store) is None:
        found.append(f"{lock.image.base.ref} at {lock.base.digest}")
    return found
