"""Which wheel lies in which layer: each in just one, and what changes often above what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lock_samples import wheel

from torchyard import layering
from torchyard.layering import LARGE, Kind
from torchyard.wheelpin import WheelPin

NAMES = ["torch", "triton", "nvidia-cublas", "nvidia-nvtx", "cuda-bindings", "numpy", "torchvision", "nvidia-ml-py"]
sets = st.lists(
    st.builds(wheel, st.sampled_from(NAMES), st.just("1.0"), st.sampled_from([1, LARGE, LARGE + 1])),
    unique_by=lambda w: w.name,
)


@given(sets)
def test_every_wheel_is_in_one_layer(wheels: list[WheelPin]) -> None:
    laid = [w for layer in layering.framework(wheels) for w in layer.wheels] + [
        *layering.companions(wheels),
        *layering.own(wheels),
    ]
    assert sorted(w.name for w in laid) == sorted(w.name for w in wheels)


@given(sets, st.randoms())
def test_the_order_in_which_wheels_come_is_no_matter(wheels: list[WheelPin], random: object) -> None:
    mixed = list(wheels)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert layering.framework(mixed) == layering.framework(wheels)
    assert layering.companions(mixed) == layering.companions(wheels)
    assert layering.own(mixed) == layering.own(wheels)


@given(sets)
def test_no_layer_is_empty_and_titles_tell_layers_apart(wheels: list[WheelPin]) -> None:
    layers = layering.framework(wheels)
    assert all(layer.wheels for layer in layers)
    assert len({layer.title for layer in layers}) == len(layers)


def test_a_large_cuda_wheel_is_alone_and_torch_lies_on_top() -> None:
    wheels = [wheel(name, size=size) for name, size in zip(NAMES, [900_000_000, 1, LARGE + 1, LARGE, 1, 1, 1, 1])]
    assert [tuple(w.name for w in layer.wheels) for layer in layering.framework(wheels)] == [
        ("nvidia-cublas",),
        ("cuda-bindings", "nvidia-ml-py", "nvidia-nvtx"),
        ("torch", "triton"),
    ]
    assert [w.name for w in layering.companions(wheels)] == ["numpy"]
    assert [w.name for w in layering.own(wheels)] == ["torchvision"]


def requiring(name: str, *requires: str) -> WheelPin:
    return replace(wheel(name), requires=requires)


@pytest.mark.parametrize("torch", ["torch", ""])
def test_a_requirement_of_the_user_leaves_what_torch_requires_alone(torch: str) -> None:
    below = [requiring("sympy", "mpmath"), wheel("mpmath"), wheel("fsspec"), wheel("uv"), wheel("pip"), wheel("numpy")]
    below += [
        requiring(torch, "sympy", "fsspec", "triton", "nvidia-nvtx"),
        wheel("triton"),
        wheel("nvidia-nvtx"),
    ] * bool(torch)
    users = [requiring("datasets", "fsspec", "pandas"), requiring("pandas", "numpy"), requiring("torchvision", "torch")]
    assert layering.companions([*below, *users]) == layering.companions(below)
    assert [w.name for w in layering.companions(below)] == ["fsspec", "mpmath", "numpy", "pip", "sympy", "uv"]
    assert [w.name for w in layering.own([*below, *users])] == ["datasets", "pandas", "torchvision"]


def test_requirements_that_go_in_a_circle_are_followed_once() -> None:
    wheels = [requiring("torch", "a"), requiring("a", "b"), requiring("b", "a", "torch"), requiring("c", "a")]
    assert [w.name for w in layering.companions(wheels)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch", Kind.TORCH),
        ("triton", Kind.TORCH),
        ("torchvision", Kind.REST),
        ("nvidia-cudnn-cu13", Kind.CUDA),
        ("cuda-toolkit", Kind.CUDA),
        ("nvidiax", Kind.REST),
    ],
)
def test_a_name_decides_what_a_wheel_is(name: str, kind: Kind) -> None:
    assert layering.kind(name) is kind
