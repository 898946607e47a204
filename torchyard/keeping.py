"""What of an earlier lock a new one may take over as it is, because nothing that it follows from has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from . import groups
from .lock import LockedImage, fingerprint
from .plan import Image
from .wheelpin import WheelPin


def same_packages(before: LockedImage, image: Image) -> bool:
    """Whether the distribution's packages that this image asks for are those that the earlier lock was made for.

    A lock whose fingerprint is not the one of its image today was made by a torchyard that gave images other packages.
    """
    then = before.image
    return (
        before.fingerprint == fingerprint(then)
        and (then.base, then.arch) == (image.base, image.arch)
        and groups.wanted(then) == groups.wanted(image)
    )


def same_target(before: LockedImage, image: Image) -> bool:
    """Whether the earlier lock's wheels were chosen for the same system, Python and build of torch, by today's data."""

    def target(one: Image) -> tuple[object, ...]:
        return one.base, one.arch, one.python, one.torch_requirement, one.index, one.cudnn, one.build

    return before.fingerprint == fingerprint(before.image) and target(before.image) == target(image)


def additions(
    asked: Sequence[str], found: Sequence[WheelPin], before: Sequence[WheelPin], earlier: Sequence[WheelPin]
) -> tuple[WheelPin, ...] | None:
    """The wheels that these requirements add to `found`, as `earlier` has them; None where they have to be resolved.

    earlier: what the same requirements added to `before`. Of what they reach, nothing may have changed since; a pin
    does not say what its extras require, so where one is asked for, nothing at all.
    """
    now, then, added = _named(found), _named(before), _named(earlier)
    if added.keys() & now.keys():
        return None
    wanted = [Requirement(line) for line in asked]
    names = {str(canonicalize_name(each.name)) for each in wanted} | added.keys()
    reached = then.keys() | names if any(each.extras for each in wanted) else _reached(names, {**now, **added})
    if any(name not in added and (name not in now or now[name] != then.get(name)) for name in reached):
        return None
    return tuple(earlier)


def _reached(names: Iterable[str], pins: Mapping[str, WheelPin]) -> set[str]:
    """These names and all that their pins require, directly or not."""
    reached, todo = set(names), list(names)
    while todo:
        pin = pins.get(todo.pop())
        more = set(pin.requires if pin else ()) - reached
        reached |= more
        todo += more
    return reached


def _named(pins: Sequence[WheelPin]) -> Mapping[str, WheelPin]:
    return {pin.name: pin for pin in pins}
