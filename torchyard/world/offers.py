"""What the user's indexes offer of torch and its companions, as plain facts for the catalogue's proposals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from email.parser import HeaderParser

from torchyard.inspection import arch_of, glibc_of, python_of
from torchyard.proposals import Offered
from torchyard.world import pipconf
from torchyard.world.wheel_index import Offer, WheelIndex

PROJECTS = ("torch", "torchvision", "torchaudio", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def offered(wanted: Callable[[tuple[Offered, ...]], tuple[str, ...]]) -> tuple[Offered, ...]:
    """Every Linux wheel that is offered; the metadata of those torch versions is read that `wanted` names."""
    index = WheelIndex(pipconf.read())
    offers = [(project, offer) for project in PROJECTS for offer in index.offers(project, "pypi").wheels.values()]
    plain = tuple(found for project, offer in offers if (found := _plain(project, offer)))
    new = wanted(plain)
    return tuple(_told(project, offer, new, index, plain) for project, offer in offers if _plain(project, offer))


def _plain(project: str, offer: Offer, requires: tuple[str, ...] = ()) -> Offered | None:
    wheel = offer.wheel
    tags = tuple(sorted(str(tag) for tag in wheel.tags))
    if wheel.version.is_prerelease or wheel.version.local or not any(_linux(tag) for tag in tags):
        return None
    return Offered(
        project=project,
        version=str(wheel.version),
        arch=arch_of(tags),
        python=python_of(tags),
        glibc=glibc_of(tags),
        uploaded=wheel.uploaded.date().isoformat() if wheel.uploaded else "",
        requires_python=wheel.requires_python,
        megabytes=round((wheel.size or 0) / 1e6),
        withdrawn=wheel.yanked is not None,
        requires=requires,
    )


def _linux(tag: str) -> bool:
    return "linux" in tag or tag.endswith("-any")


def _told(project: str, offer: Offer, new: Iterable[str], index: WheelIndex, plain: tuple[Offered, ...]) -> Offered:
    """The wheel with its requirements, where it is one of a new torch, or a companion published since."""
    known = _plain(project, offer)
    assert known is not None
    versions = set(new)
    since = min((o.uploaded for o in plain if o.project == "torch" and o.version in versions), default="")
    mine = known.version in versions if project == "torch" else bool(since) and known.uploaded >= since
    if not mine or project.startswith("nvidia"):
        return known
    headers = HeaderParser().parsestr(index.metadata(offer).decode("utf-8", "replace"))
    found = _plain(project, offer, tuple(headers.get_all("Requires-Dist", [])))
    return found or known
