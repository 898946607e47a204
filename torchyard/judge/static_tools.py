"""Whether what torch.compile and NCCL need beside torch is there, and how large the layers are."""

from __future__ import annotations

import re

from .static_case import Judged, Reference, failed, layer_words, passed, step
from .static_facts import WANTED, ImageFacts

_OWNERS = {
    "cc": ("gcc", "gcc-12", "gcc-13", "gcc-14", "cpp", "cpp-12", "libgcc-12-dev", "libc6-dev"),
    "c++": ("g++", "g++-12", "g++-13", "g++-14", "libstdc++-12-dev"),
    "ld": ("binutils", "binutils-x86-64-linux-gnu", "binutils-common", "libbinutils"),
    "as": ("binutils", "binutils-x86-64-linux-gnu", "binutils-common", "libbinutils"),
    "libc headers": ("libc6-dev", "linux-libc-dev", "libc-dev-bin"),
    "Python headers": ("python3-dev", "libpython3-dev"),
    "libibverbs.so.1": ("libibverbs1", "ibverbs-providers"),
    "librdmacm.so.1": ("librdmacm1",),
    "libnuma.so.1": ("libnuma1",),
    "provider mlx5": ("ibverbs-providers",),
    "provider list": ("ibverbs-providers",),
}
LEAST_GROWN = 1_000_000  # bytes: less is not worth a word
_VERSION = re.compile(r"==\S+")
_COMPILER = ("cc", "c++", "ld", "as", "libc headers", "Python headers")
_RDMA = ("libibverbs.so.1", "librdmacm.so.1", "libnuma.so.1", "provider mlx5", "provider list")


def compiler(ref: Reference, facts: ImageFacts) -> Judged:
    """A C and C++ compiler with its linker, libc and Python headers: torch.compile calls them when it runs."""
    what = "the compiler that torch.compile calls"
    return _there("tools.compiler", what, _COMPILER, "without it torch.compile fails", ref, facts)


def rdma(ref: Reference, facts: ImageFacts) -> Judged:
    """RDMA's libraries with a provider: without them NCCL falls back to sockets in silence."""
    what = "RDMA's libraries, with a provider"
    return _there("tools.rdma", what, _RDMA, "without it NCCL falls back to sockets in silence", ref, facts)


def _there(rule: str, what: str, names: tuple[str, ...], why: str, ref: Reference, facts: ImageFacts) -> Judged:
    assert set(names) <= set(WANTED)
    missing = [name for name in names if name not in facts.present]
    if not missing:
        return passed(rule, what, expected=", ".join(names), seen="all there")
    places = {spot.what: spot for spot in facts.missing}
    installed = {p.name for p in facts.packages}
    gone = [pin.name for pin in ref.lock.os if pin.group in ("os", "user", "base") and pin.name not in installed]
    owners = {f"os {each}" for name in missing for each in _OWNERS[name]}
    return failed(
        rule,
        what,
        expected=", ".join(names),
        seen=f"missing: {', '.join(f'{n} ({places[n].path})' if n in places else n for n in missing)}",
        fix=f"{why}; {ref.rebuild}",
        about=[*owners, *(f"os {name}" for name in gone), *(f"lib {name}" for name in missing)],
        layers=[places[name].layer for name in missing if name in places] + [facts.status_layer],
    )


def size(ref: Reference, facts: ImageFacts) -> Judged:
    """No layer is larger than the budget; what grew since the build before is said."""
    what = "the size of each layer, unpacked"
    large = [n for n, layer in enumerate(facts.layers) if layer.size > ref.budget]
    most = max(range(len(facts.layers)), key=lambda n: facts.layers[n].size, default=-1)
    expected = f"at most {_mb(ref.budget)} each"
    if not large:
        seen = (
            f"the largest is {_mb(facts.layers[most].size)}, {layer_words(facts, most)}" if most >= 0 else "no layers"
        )
        return passed("size.layers", what, expected=expected, seen=seen)
    told = [f"{layer_words(facts, n)}: {_mb(facts.layers[n].size)}" for n in large]
    return failed(
        "size.layers",
        what,
        expected=expected,
        seen=", ".join(told) + _told(_grown(ref, facts)),
        fix="leave out what is not needed, cut it in two, or raise budget.layer in env.yaml",
        layers=large,
    )


def total(ref: Reference, facts: ImageFacts) -> Judged:
    """The layers together are no larger than the budget; what grew since the build before is said."""
    what = "the size of all layers, unpacked"
    now, before = sum(layer.size for layer in facts.layers), sum(layer.size for layer in ref.former)
    expected = f"at most {_mb(ref.image_budget)}"
    seen = f"{_mb(now)} in {len(facts.layers)} layers" + (f", {_mb(before)} before" if ref.former else "")
    grown = _told(_grown(ref, facts))
    if now <= ref.image_budget:
        return passed("size.image", what, expected=expected, seen=seen + grown)
    most = sorted(range(len(facts.layers)), key=lambda n: -facts.layers[n].size)[:3]
    largest = ", ".join(f"{layer_words(facts, n)} {_mb(facts.layers[n].size)}" for n in most)
    return failed(
        "size.image",
        what,
        expected=expected,
        seen=f"{seen}; the largest: {largest}{grown}",
        fix="leave out what is not needed, or raise budget.image in env.yaml",
    )


def _told(grown: list[str]) -> str:
    return f"; since the build before: {', '.join(grown)}" if grown else ""


def _grown(ref: Reference, facts: ImageFacts) -> list[str]:
    """What is larger than in the build before, layer by layer: one is known again by its step, versions aside."""
    if not ref.former:
        return []
    same = {layer.diff_id for layer in ref.former}
    before: dict[str, list[int]] = {}
    for each in ref.former:
        before.setdefault(_VERSION.sub("", each.step), []).append(each.size)
    told = []
    for number, layer in enumerate(facts.layers):
        sizes = before.get(_VERSION.sub("", step(layer.words)), [])
        old = sizes.pop(0) if sizes else None
        if layer.diff_id in same or layer.size < (old or 0) + LEAST_GROWN:
            continue
        words = layer_words(facts, number)
        told.append(f"{words} grew from {_mb(old)} to {_mb(layer.size)}" if old is not None else f"{words} is new")
    return told


def _mb(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
