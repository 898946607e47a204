"""Which wheel lies in which layer: each in just one, and what changes often above what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lock_samples import wheel

from torchyard import layering
from torchyard.layering import LARGE, SMALL, Kind
from torchyard.wheelpin import WheelPin

NAMES = ["torch", "triton", "nvidia-cublas", "nvidia-nvtx", "cuda-bindings", "numpy", "torchvision", "nvidia-ml-py"]
sets = st.lists(
    st.builds(wheel, st.sampled_from(NAMES), st.just("1.0"), st.sampled_from([1, LARGE, LARGE + 1])),
    unique_by=lambda w: w.name,
)


@given(sets)
def test_every_wheel_is_in_one_layer(wheels: list[WheelPin]) -> None:
    layers = [*layering.framework(wheels), *layering.installed(wheels)]
    laid = [w for layer in layers for w in layer.wheels]
    assert all(layer.wheels for layer in layers)
    assert sorted(w.name for w in laid) == sorted(w.name for w in wheels)


@given(sets, st.randoms())
def test_the_order_in_which_wheels_come_is_no_matter(wheels: list[WheelPin], random: object) -> None:
    mixed = list(wheels)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert layering.framework(mixed) == layering.framework(wheels)
    assert layering.companions(mixed) == layering.companions(wheels)
    assert layering.own(mixed) == layering.own(wheels)
    assert layering.installed(mixed) == layering.installed(wheels)


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


def test_what_is_small_and_the_users_own_lie_above_what_is_large() -> None:
    wheels = [requiring("torch", "sympy", "fsspec"), wheel("sympy", size=SMALL + 1), wheel("fsspec", size=SMALL)]
    wheels += [wheel("numpy", size=SMALL + 1), wheel("pandas", size=SMALL + 1)]
    layers = [(layer.context, [w.name for w in layer.wheels]) for layer in layering.installed(wheels)]
    assert layers == [("wheels", ["numpy", "sympy"]), ("wheels-small", ["fsspec"]), ("wheels-own", ["pandas"])]
    assert layering.installed(wheels[:1]) == ()


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
