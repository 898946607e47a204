"""Judging what of Python loads: versions against the lock, where modules come from, what leaks in, what is held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..finding import Finding, State
from ..lock import LockedImage
from ..plan import BuildKind
from . import loading
from .cpu_ends import by, named

PURPOSE = {
    "torch.compile": "torch.compile keeps its code there",
    "TORCHINDUCTOR_CACHE_DIR": "torch.compile keeps its code there",
    "TRITON_CACHE_DIR": "Triton keeps its kernels there",
    "XDG_CACHE_HOME": "most programs keep their caches there",
    "torch.hub": "downloaded weights go there",
    "TORCH_HOME": "downloaded weights go there",
    "HF_HOME": "downloaded models and data go there",
    "temporary": "temporary files go there",
}


def versions(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """Torch and what is locked beside it load, with the versions of the lock, from the image's environment."""
    fix = f"./yard build --id {lock.id} --no-cache"
    modules: Mapping[str, Mapping[str, Any]] = seen["modules"]
    findings = [_origin(seen)]
    for name, module in modules.items():
        locked = lock.wheel(name)
        if module.get("absent"):
            if locked or name == "torch":
                findings.append(_load(name, "no module of this name", fix))
        elif "error" in module:
            findings.append(_load(name, loading.told(str(module["error"]), module.get("nvjitlink", ())), fix))
        else:
            findings += _version(lock, name, module, fix)
    return findings


def _origin(seen: Mapping[str, Any]) -> Finding:
    """Every module comes from the environment or the distribution: not from a home, not from a path that is set."""
    prefixes = tuple(f"{prefix}/" for prefix in seen["prefixes"])
    site = str(seen["user_site"][0])
    strange = [
        f"{name} {module['version']} from {module['file']}"
        for name, module in seen["modules"].items()
        if module.get("file") and (not module["file"].startswith(prefixes) or module["file"].startswith(f"{site}/"))
    ]
    strange += [entry for entry in seen["path"] if entry == site] if not strange else []
    return Finding(
        rule="python.shadowed",
        state=State.FAIL if strange else State.PASS,
        what="where the modules that load come from",
        expected=" or ".join(seen["prefixes"]),
        seen=", ".join(strange) or "all from there",
        fix="remove those packages, and let the image's environment have PYTHONNOUSERSITE=1 and no PYTHONPATH"
        if strange
        else "",
    )


def _load(name: str, error: str, fix: str) -> Finding:
    return Finding(
        rule=f"load.{name}", state=State.FAIL, what=f"{name} loads", expected="no error", seen=error, fix=fix
    )


def _version(lock: LockedImage, name: str, module: Mapping[str, Any], fix: str) -> list[Finding]:
    expected = _expected(lock, name)
    seen = str(module["version"])
    if expected is None:
        return []
    if name != "torch" or lock.image.build is BuildKind.SOURCE:  # local parts are of the index, or of the build
        expected, seen = expected.partition("+")[0], seen.partition("+")[0]
    found = [Finding.same(f"version.{name}", what=f"the {name} that loads", expected=expected, seen=seen, fix=fix)]
    if name == "torch":
        found.append(
            Finding.same(
                "version.cuda",
                what="the CUDA that the loaded torch was made for",
                expected=lock.image.cuda or "none",
                seen=module["cuda"] or "none",
                fix=fix,
            )
        )
    return found


def _expected(lock: LockedImage, name: str) -> str | None:
    """The version as the module tells it; None for what is in the image without being locked by this name."""
    if name == "torch":
        return f"{lock.image.torch}+{lock.image.cuda_tag}"
    wheel = lock.wheel(name)
    return wheel.version if wheel else None


def arrays(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """Torch and numpy understand each other."""
    if seen.get("absent"):
        return [Finding.skipped("numpy.exchange", what="torch and numpy exchange arrays", because="no numpy here")]
    good = (seen["there"], seen["back"], seen["solved"]) == (10.0, 10.0, 1.5) and not seen["warnings"]
    return [
        Finding(
            rule="numpy.exchange",
            state=State.PASS if good else State.FAIL,
            what="torch and numpy exchange arrays",
            expected="10.0 10.0 1.5, no warning",
            seen=f"{seen['there']} {seen['back']} {seen['solved']}, "
            + ("; ".join(seen["warnings"]) or f"numpy {seen['numpy']}"),
            fix="" if good else _numpy_fix(lock),
        )
    ]


def _numpy_fix(lock: LockedImage) -> str:
    wheel = lock.wheel("numpy")
    return f"numpy {wheel.version} is what the lock has" if wheel else "take a numpy that this torch was made for"


def isolation(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """No variable of a host is in the image, and no package of a home is found."""
    wanted = dict(lock.image.packages.env)
    strange = {name: value for name, value in seen["variables"].items() if wanted.get(name) != value}
    user = seen["user_site"]
    open_home = user.get("leaked") or "error" in user
    return [
        Finding(
            rule="python.host-variables",
            state=State.FAIL if strange else State.PASS,
            what="variables that lead Python or the loader elsewhere",
            expected="none but those of env.yaml",
            seen=", ".join(f"{name}={value}" for name, value in sorted(strange.items())) or "none",
            fix="take those ENV lines out of the image, or write them under env in env.yaml" if strange else "",
        ),
        Finding(
            rule="python.user-site",
            state=State.FAIL if open_home else State.PASS,
            what="a package in the home of the user, which clusters mount",
            expected="not found by this Python",
            seen=str(user.get("error", "it is found and would take the place of the image's own"))
            if open_home
            else "not found",
            fix="let the image's environment have PYTHONNOUSERSITE=1" if open_home else "",
        ),
    ]


def held(lock: LockedImage, seen: Mapping[str, Any]) -> list[Finding]:
    """Pip and uv refuse another torch."""
    return [_installer(lock, name, seen[name], seen["other"]) for name in ("pip", "uv")]


def _installer(lock: LockedImage, name: str, asked: Mapping[str, Any] | None, other: str) -> Finding:
    command = "uv pip" if name == "uv" else name
    rule, what = f"held.{name}", f"{command} install torch=={other}"
    if asked is None:
        return Finding.skipped(rule, what=what, because=f"no {name} in this image")
    refused = asked["code"] != 0
    named_it = f"torch=={lock.image.torch}" in asked["said"]
    last = next((line for line in reversed(asked["said"].splitlines()) if line.strip()), "")
    return Finding(
        rule=rule,
        state=State.PASS if refused and named_it else State.FAIL,
        what=what,
        expected=f"refused: torch=={lock.image.torch} is held",
        seen="refused, and the held version named" if refused and named_it else f"code {asked['code']}: {last}",
        fix=""
        if refused and named_it
        else "the image needs its constraints: UV_CONSTRAINT, and `constraint` in /etc/pip.conf",
    )


def caches(lock: LockedImage, setting: str, seen: Mapping[str, Any]) -> list[Finding]:
    """The folders for caches can be written by this user; a home need not be there."""
    bad = {name: (path, why) for name, (path, why) in seen["places"].items() if why and name in PURPOSE}
    told = [f"{name} {path}: {why} ({PURPOSE[name]})" for name, (path, why) in sorted(bad.items())]
    return [
        Finding(
            rule=named("caches", setting),
            state=State.FAIL if bad else State.PASS,
            what=f"the folders for caches{by(setting)}",
            expected="can be written",
            seen="; ".join(told) or ", ".join(sorted({path for path, _ in seen["places"].values()})),
            fix="set those variables to a folder below /tmp, or let the folders have mode 1777" if bad else "",
        )
    ]
