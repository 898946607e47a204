"""Whether the packages and distributions of an image, and their files, are the locked ones."""

from __future__ import annotations

from .. import source_recipe
from ..plan import BaseKind, BuildKind
from .static_case import Judged, Reference, extended, failed, passed, some
from .static_facts import ImageFacts, Loss


def os_locked(ref: Reference, facts: ImageFacts) -> Judged:
    """Every package of the distribution equals the lock, none is extra or twice; what `extend` adds is said."""
    what = "the distribution's packages"
    locked = {(p.name, p.architecture): p.version for p in ref.lock.os if p.group not in ("dev", "build")}
    if ref.lock.base.kind is BaseKind.IMAGE:  # what it brought is pinned by its digest
        own = {(p.name, p.architecture): p.version for p in facts.packages if p.first < facts.base}
        locked = {**own, **locked}
    added = {p for p in facts.packages if (p.name, p.architecture) not in locked and extended(ref, facts, p.first)}
    seen = {(p.name, p.architecture): p.version for p in facts.packages if p not in added}
    wrong = {
        key: f"{key[0]} {seen.get(key, 'missing')} (locked {locked.get(key, 'none')})"
        for key in sorted({*locked, *seen})
        if locked.get(key) != seen.get(key)
    }
    if not wrong:
        more = _of_extend([f"{p.name} {p.version}" for p in added])
        return passed("os.locked", what, expected=f"{len(locked)} as locked", seen=f"{len(seen)} as locked{more}")
    return failed(
        "os.locked",
        what,
        expected=f"{len(locked)} as locked",
        seen=some(list(wrong.values())),
        fix=_mended(ref, facts, [facts.status_layer], "packages.apt"),
        about=[f"os {name}" for name, _ in wrong],
        layers=[facts.status_layer],
    )


def _mended(ref: Reference, facts: ImageFacts, layers: list[int], key: str) -> str:
    """What helps: a new build, but where `extend` changed what is locked."""
    if any(extended(ref, facts, layer) for layer in layers):
        return f"`extend` changes what the lock pins: say it under {key} of env.yaml and leave it out there"
    return ref.rebuild


def wheels_locked(ref: Reference, facts: ImageFacts) -> Judged:
    """Every distribution of the environment equals the lock; none is extra, missing or twice; `extend` may add some."""
    what = "the distributions of the environment"
    site = _site(ref)
    locked = {w.name: w.version for w in ref.lock.wheels}
    if ref.lock.image.build is BuildKind.SOURCE:
        locked.setdefault("torch", source_recipe.version(ref.lock.image))
    there = [d for d in facts.distributions if d.folder == site]
    added = [d for d in there if d.name not in locked and extended(ref, facts, d.layer)]
    here = [d for d in there if d not in added]
    seen: dict[str, list[str]] = {}
    for each in here:
        seen.setdefault(each.name, []).append(each.version)
    wrong: dict[str, str] = {}
    for name in sorted({*locked, *seen}):
        versions, want = seen.get(name, []), locked.get(name, "")
        if len(versions) > 1:
            wrong[name] = f"{name} is there {len(versions)} times: {' and '.join(sorted(versions))}"
        elif not versions:
            wrong[name] = f"{name} missing (locked {want})"
        elif not same_version(versions[0], want):
            wrong[name] = f"{name} {versions[0]} (locked {want or 'none'})"
    if not wrong:
        more = _of_extend([f"{d.name} {d.version}" for d in added])
        return passed("wheels.locked", what, expected=f"{len(locked)} as locked", seen=f"{len(here)} as locked{more}")
    layers = [d.layer for d in here if d.name in wrong]
    layers += [loss.layer for loss in facts.losses if loss.owner.removeprefix("python ") in wrong]
    return failed(
        "wheels.locked",
        what,
        expected=f"{len(locked)} as locked",
        seen=some(list(wrong.values())),
        fix=_mended(ref, facts, layers, "packages.pip"),
        about=[f"python {name}" for name in wrong],
        layers=layers,
    )


def _of_extend(names: list[str]) -> str:
    return f", and of `extend`: {some(sorted(names))}" if names else ""


def same_version(seen: str, locked: str) -> bool:
    """Whether an installed version is the locked one; an index may leave the local part (`+cu130`) to the file."""
    if seen == locked:
        return True
    return bool(locked) and "+" not in locked and seen.partition("+")[0] == locked and not seen.endswith("+cpu")


def files(ref: Reference, facts: ImageFacts) -> list[Judged]:
    """Every package's files are there, and as long as the package says."""
    return [
        _files("wheels.files", "the files of the distributions", "python ", ref, facts),
        _files("os.files", "the libraries and programs of the distribution's packages", "os ", ref, facts),
    ]


def _files(rule: str, what: str, kind: str, ref: Reference, facts: ImageFacts) -> Judged:
    lost = [loss for loss in facts.losses if loss.owner.startswith(kind)]
    changed = [loss for loss in facts.changes if loss.owner.startswith(kind)]
    if not lost and not changed:
        return passed(rule, what, expected="all there", seen="all there")
    told = [_told(loss, "missing", kind) for loss in lost] + [_told(loss, "changed", kind) for loss in changed]
    names = [f"lib {path.rpartition('/')[2]}" for loss in lost for path in loss.first]
    return failed(
        rule,
        what,
        expected="all there, as their packages say",
        seen=some(told),
        fix=ref.rebuild,
        about=[*(loss.owner for loss in (*lost, *changed)), *names],
        layers=[loss.layer for loss in (*lost, *changed)],
    )


def _told(loss: Loss, state: str, kind: str) -> str:
    return f"{state} of {loss.owner.removeprefix(kind)}: {some(list(loss.first), 2)}" + (
        f" ({loss.count} files)" if loss.count > 2 else ""
    )


def _site(ref: Reference) -> str:
    return f"/opt/venv/lib/python{ref.lock.image.python}/site-packages"
