"""Whether an image is what its lock says: torch, CUDA, cuDNN and device code as the loaded library reports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import source_recipe
from ..finding import Finding, State
from ..lock import LockedImage
from . import loading


def judge(lock: LockedImage, facts: Mapping[str, Any]) -> list[Finding]:
    """The findings on what `inside/probe.py` saw in an image built from this lock."""
    fix = f"./yard build --id {lock.id} --no-cache"
    torch = facts["torch"]
    if "error" in torch:
        failed = Finding(
            rule="torch.import",
            state=State.FAIL,
            what="torch loads",
            expected="no error",
            seen=loading.told(torch["error"]),
            fix=fix,
        )
        return [_python(lock, facts, fix), failed, *_distributions(lock, facts, fix)]
    image = lock.image
    findings = [
        _python(lock, facts, fix),
        Finding(rule="torch.import", state=State.PASS, what="torch loads", expected="no error", seen=torch["file"]),
        Finding.same(
            "torch.version",
            what="the torch that loads",
            expected=source_recipe.version(lock.image),
            seen=torch["version"],
            fix=fix,
        ),
        Finding.same(
            "torch.cuda",
            what="the CUDA torch was built with",
            expected=image.cuda or "none",
            seen=torch["cuda"] or "none",
            fix=fix,
        ),
        Finding.same(
            "torch.computes",
            what="the sum of an 8x8 product of ones",
            expected="512.0",
            seen=str(torch["sum"]),
            fix=fix,
        ),
    ]
    return [*findings, *_cuda(lock, torch, fix), *_distributions(lock, facts, fix)]


def cudnn_number(version: str) -> int:
    """cuDNN's version as torch reports it: 9.24.0.43 is 92400, 8.9.2.26 is 8902 (cudnn.h, CUDNN_VERSION)."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 10000 + minor * 100 + patch if major >= 9 else major * 1000 + minor * 100 + patch


def _python(lock: LockedImage, facts: Mapping[str, Any], fix: str) -> Finding:
    seen = ".".join(facts["python"].split(".")[:2])
    return Finding.same(
        "python.version", what="the Python of the environment", expected=lock.image.python, seen=seen, fix=fix
    )


def _cuda(lock: LockedImage, torch: Mapping[str, Any], fix: str) -> list[Finding]:
    image = lock.image
    if image.cuda is None:
        return []
    findings = []
    if image.cudnn is None:
        findings.append(Finding.skipped("torch.cudnn", because="the catalogue does not name this build's cuDNN"))
    else:
        findings.append(
            Finding.same(
                "torch.cudnn",
                what=f"cuDNN {image.cudnn} as torch counts it",
                expected=str(cudnn_number(image.cudnn)),
                seen=str(torch["cudnn"]),
                fix=fix,
            )
        )
    return [*findings, _arch_list(lock, torch, fix)]


def _arch_list(lock: LockedImage, torch: Mapping[str, Any], fix: str) -> Finding:
    expected = sorted(_targets(lock))
    if torch["arch_flags"] is None:
        return Finding.skipped("torch.arch-list", because="this torch does not report its device code")
    return Finding.same(
        "torch.arch-list",
        what="the device code of this build",
        expected=" ".join(expected),
        seen=" ".join(sorted(torch["arch_flags"].split())),
        fix=fix,
    )


def _targets(lock: LockedImage) -> set[str]:
    """The targets of the device code: of the released wheel as the catalogue has them, of a compiled torch its own."""
    image = lock.image
    if image.source is None:
        return {*(f"sm_{_digits(cc)}" for cc in image.sass), *(f"compute_{_digits(cc)}" for cc in image.ptx)}
    named = [cc.partition("+") for cc in image.source.arch_list]
    return {*(f"sm_{_digits(cc)}" for cc, _, _ in named), *(f"compute_{_digits(cc)}" for cc, _, ptx in named if ptx)}


def _digits(capability: str) -> str:
    return capability.replace(".", "")


def _distributions(lock: LockedImage, facts: Mapping[str, Any], fix: str) -> list[Finding]:
    """One finding: the installed distributions are the locked ones, no more and no fewer, but for those of `extend`."""
    locked = {w.name: w.version for w in lock.wheels}
    if lock.image.source is not None:
        locked["torch"] = source_recipe.version(lock.image)
    seen: Mapping[str, str] = facts["distributions"]
    added = sorted(set(seen) - set(locked)) if lock.image.packages.extend else []
    names = sorted({*locked, *seen} - set(added))
    wrong = [
        f"{n} {seen.get(n, 'missing')} (locked {locked.get(n, 'none')})" for n in names if seen.get(n) != locked.get(n)
    ]
    return [
        Finding(
            rule="python.distributions",
            state=State.FAIL if wrong else State.PASS,
            what="the distributions of the environment",
            expected=f"{len(locked)} as locked",
            seen=", ".join(wrong) if wrong else f"{len(names)} as locked" + _of_extend(seen, added),
            fix=fix if wrong else "",
        )
    ]


def _of_extend(seen: Mapping[str, str], added: list[str]) -> str:
    return f", and of `extend`: {', '.join(f'{name} {seen[name]}' for name in added)}" if added else ""
