"""What a new lock takes over from the one before, and what has to be resolved anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lock_samples import image, lock, wheel

from torchyard import keeping
from torchyard.lock import LockedImage, fingerprint
from torchyard.plan import Base, BaseKind, Image, PackageSet
from torchyard.wheelpin import WheelPin

RUNTIME = (
    wheel("torch", "2.14.1", requires=("fsspec", "cuda-toolkit")),
    wheel("fsspec", "2026.1"),
    wheel("cuda-toolkit", "13.0.3", requires=("nvidia-cublas",)),
    wheel("nvidia-cublas", "13.1"),
)
NVCC = wheel("nvidia-cuda-nvcc", "13.0.1", requires=("nvidia-cublas",))
SPY = wheel("py-spy", "0.4", requires=("click",))
CLICK = wheel("click", "8.1")


def locked(**changes: object) -> LockedImage:
    made = image(**changes)
    return replace(lock(), image=made, fingerprint=fingerprint(made))


def test_another_requirement_leaves_the_packages_and_the_target_as_they_are() -> None:
    more = image(packages=PackageSet(pip=("numpy", "tomli-w")))
    assert keeping.same_packages(locked(), more)
    assert keeping.same_target(locked(), more)


@pytest.mark.parametrize(
    "other",
    [
        image(packages=PackageSet(pip=("numpy",), apt=("git",))),
        image(base=Base(kind=BaseKind.ARCHIVE, os="debian-13")),
        image(arch="aarch64"),
    ],
)
def test_other_packages_another_system_or_processor_are_asked_for_anew(other: Image) -> None:
    assert not keeping.same_packages(locked(), other)


@pytest.mark.parametrize(
    "other", [image(python="3.13"), image(torch_requirement="2.15.0"), image(index="pytorch-cu130"), image(cudnn="9.0")]
)
def test_another_target_resolves_its_tools_anew(other: Image) -> None:
    assert not keeping.same_target(locked(), other)


def test_a_lock_of_a_torchyard_that_gave_images_other_packages_is_not_taken_over() -> None:
    older = replace(locked(), fingerprint="0" * 64)
    assert not keeping.same_packages(older, image())
    assert not keeping.same_target(older, image())


@pytest.mark.parametrize(
    ("asked", "found", "earlier", "kept"),
    [
        (["py-spy"], (*RUNTIME, wheel("tomli-w")), (SPY, CLICK), True),
        (["py-spy"], (RUNTIME[0], wheel("fsspec", "2026.2"), *RUNTIME[2:]), (SPY, CLICK), True),  # nothing of theirs
        (["py-spy"], (*RUNTIME, CLICK), (SPY, CLICK), False),  # the runtime has now what was added
        (["py-spy"], (*RUNTIME, wheel("click", "9.0")), (SPY, CLICK), False),
        (["py-spy"], (*RUNTIME, wheel("tomli-w")), (SPY,), False),  # what it requires was of the runtime, and is gone
        (["cuda-toolkit[nvcc]==13.0.3", "py-spy"], (*RUNTIME, wheel("tomli-w")), (NVCC, SPY, CLICK), True),
        (["cuda-toolkit[nvcc]==13.0.3"], (*RUNTIME[:3], wheel("nvidia-cublas", "13.2")), (NVCC,), False),
        (["cuda-toolkit[nvcc]==13.0.3"], (RUNTIME[0], wheel("fsspec", "2026.2"), *RUNTIME[2:]), (NVCC,), False),
        ([], (*RUNTIME, wheel("tomli-w")), (), True),
    ],
)
def test_added_wheels_stay_where_nothing_that_they_follow_from_has_changed(
    asked: list[str], found: tuple[WheelPin, ...], earlier: tuple[WheelPin, ...], kept: bool
) -> None:
    answer = keeping.additions(asked, found, RUNTIME, earlier)
    assert answer == (earlier if kept else None)
