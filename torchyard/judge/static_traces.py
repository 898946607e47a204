"""What should not be in an image: secrets, proxies, certificates, addresses, rights, times, things that shadow."""

from __future__ import annotations

from collections.abc import Sequence

from . import static_patterns as patterns
from .static_case import Judged, Reference, extended, failed, layer_words, passed, some
from .static_facts import ImageFacts, Sample, Spot

_OPEN = frozenset({"/tmp", "/var/tmp", "/workspace", "/home/user", "/var/lock", "/run/lock", "/dev/shm", "/var/mail"})
_DOCUMENTS = "no time in configuration and history that is later than the lock"
_IMPORTS = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "LD_PRELOAD")


def secrets(ref: Reference, facts: ImageFacts) -> Judged:
    """No secret is in a layer (one that a later layer removes is still there), a variable, or the history."""
    what = "no secrets in layers, environment and history"
    own = dict(ref.lock.image.packages.env)
    named = {
        name: found
        for name, value in facts.env
        if own.get(name) != value and (found := patterns.secret_variable(name, value))
    }
    told = [_spot(spot, facts) for spot in facts.secrets]
    told += [f"{found} in the variable {name}" for name, found in named.items()]
    steps = [(found, layer) for words, layer in facts.history if (found := patterns.secret_step(words))]
    told += [f"{found} in the history" for found, _ in steps]
    told += [f"{found} in the label {name}" for name, v in facts.labels if (found := patterns.secret_text(v.encode()))]
    return _none(
        "traces.secrets",
        what,
        told,
        "make it invalid where it was issued, and build without it: fetched files need no credentials in a build",
        [*(spot.layer for spot in facts.secrets), *map(facts.set_in, named), *(layer for _, layer in steps)],
    )


def _spot(spot: Spot, facts: ImageFacts) -> str:
    gone = ", which a later layer removes: it can still be read" if spot.hidden else ""
    return f"{spot.what} in {spot.path}, {layer_words(facts, spot.layer)}{gone}"


def proxies(ref: Reference, facts: ImageFacts) -> Judged:
    """No proxy of the place where it was built is in the image."""
    own = {name for name, _ in ref.lock.image.packages.env}
    told = [f"the variable {name}" for name, _ in facts.env if name.lower() in patterns.PROXIES and name not in own]
    told += [f"{s.path}, {layer_words(facts, s.layer)}" for s in facts.addresses if "a proxy" in s.what.split(", ")]
    steps = (a for words, _ in facts.history for a in patterns.proxy_step(words))
    told += [f"{name} in the history" for name in sorted(set(steps) - {_word(t) for t in told})]
    layers = [s.layer for s in facts.addresses if "a proxy" in s.what.split(", ")]
    layers += [facts.set_in(name) for name, _ in facts.env if name.lower() in patterns.PROXIES and name not in own]
    return _none("traces.proxies", "no proxy settings", told, "a proxy belongs to the place where it runs", layers)


def _word(text: str) -> str:
    return text.rpartition(" ")[2]


def certificates(ref: Reference, facts: ImageFacts) -> Judged:
    """No certificate authority beyond the distribution's is trusted."""
    own = {name for name, _ in ref.lock.image.packages.env}
    told = [f"{spot.path}, {layer_words(facts, spot.layer)}" for spot in facts.certificates]
    told += [
        f"the variable {name}" for name, _ in facts.env if name.lower() in patterns.AUTHORITIES and name not in own
    ]
    fix = "certificates belong to the place where it runs: mount them there"
    layers = [spot.layer for spot in facts.certificates]
    return _none("traces.certificates", "no certificate authorities but the distribution's", told, fix, layers)


def addresses(ref: Reference, facts: ImageFacts) -> Judged:
    """No index or mirror of the place where it was built is named."""
    own = {name for name, _ in ref.lock.image.packages.env}
    plain = [s for s in facts.addresses if s.what != "a proxy" and not s.path.endswith("config.json")]
    told = [f"{spot.what} in {spot.path}, {layer_words(facts, spot.layer)}" for spot in plain]
    told += [f"the variable {name}" for name, _ in facts.env if patterns.address_variable(name) and name not in own]
    told += [f"{host} in the history" for words, _ in facts.history for host in patterns.address_step(words)]
    fix = "indexes and mirrors belong to the place where it is built: torchyard fetches outside the build"
    return _none("traces.addresses", "no indexes or mirrors", told, fix, [spot.layer for spot in plain])


def setuid(ref: Reference, facts: ImageFacts) -> Judged:
    """Programs that run with another's rights are those that the distribution's packages brought so."""
    told = [f"{s.path} ({s.what}), {layer_words(facts, s.layer)}" for s in facts.setuid]
    fix = f"take the right away (chmod u-s,g-s); {ref.rebuild}"
    return _none("rights.setuid", "setuid only as packages bring it", told, fix, [s.layer for s in facts.setuid])


def writable(ref: Reference, facts: ImageFacts) -> Judged:
    """What anybody can write is the temporary folders, the workspace and the home."""
    bad = [s for s in facts.writable if not (s.path in _OPEN and s.what.startswith("1"))]
    told = [f"{s.path} ({s.what}), {layer_words(facts, s.layer)}" for s in bad]
    fix = f"take the right away (chmod o-w); {ref.rebuild}"
    return _none("rights.writable", "nothing else that anybody can write", told, fix, [s.layer for s in bad])


def shadows(ref: Reference, facts: ImageFacts) -> Judged:
    """Nothing lies where Python would import it instead of the environment's, or beside it."""
    own = {name for name, _ in ref.lock.image.packages.env}
    spots = [s for s in facts.shadows if not extended(ref, facts, s.layer)]
    told = [f"{s.path} has {s.what}, {layer_words(facts, s.layer)}" for s in spots]
    named = [name for name, _ in facts.env if name in _IMPORTS and name not in own]
    told += [f"the variable {name}={facts.variable(name)}" for name in named]
    if facts.variable("PYTHONNOUSERSITE") != "1" and "PYTHONNOUSERSITE" not in own:
        named.append("PYTHONNOUSERSITE")
        told.append("PYTHONNOUSERSITE is not set, so a user's packages take the place of the locked ones")
    preloaded = facts.variable("LD_PRELOAD").replace(":", " ").split() if named == ["LD_PRELOAD"] and not spots else []
    return _none(
        "python.shadows",
        "nothing shadows the environment",
        told,
        f"remove it: what is installed belongs into the lock (packages.pip); {ref.rebuild}",
        [*(s.layer for s in spots), *map(facts.set_in, named)],
        [f"copy {path}" for path in preloaded],
    )


def times(ref: Reference, facts: ImageFacts) -> Judged:
    """No file is younger than the lock: the epoch is the one time that may appear."""
    late, aside = _apart(facts.late, ref, facts)
    if not late:
        return passed("times.files", "no file younger than the lock", expected="none", seen=f"none{aside}")
    return failed(
        "times.files",
        "no file younger than the lock",
        expected=f"none younger than {facts.epoch}",
        seen=_samples(late, facts),
        fix=ref.rebuild,
        layers=[sample.layer for sample in late],
    )


def documents(ref: Reference, facts: ImageFacts) -> Judged:
    """Neither the configuration nor a step of the history is younger than the lock."""
    told = [f"{spot.path} {spot.what}" for spot in facts.late_documents]
    if not told:
        return passed("times.config", _DOCUMENTS, expected="none", seen="none")
    return failed(
        "times.config",
        _DOCUMENTS,
        expected=f"none later than {facts.epoch}",
        seen=some(told, 3),
        fix=ref.rebuild,
        layers=[spot.layer for spot in facts.late_documents],
    )


def _apart(samples: Sequence[Sample], ref: Reference, facts: ImageFacts) -> tuple[list[Sample], str]:
    """Those of our own layers; and in words how many there are in the layers of `extend`, which are the user's."""
    ours = [sample for sample in samples if not extended(ref, facts, sample.layer)]
    theirs = sum(sample.count for sample in samples) - sum(sample.count for sample in ours)
    return ours, f"; {theirs} in layers of `extend`, which differ from build to build" if theirs else ""


def bytecode(ref: Reference, facts: ImageFacts) -> Judged:
    """Bytecode is checked by hash or not at all, so it carries no time."""
    timed, aside = _apart(facts.timed_bytecode, ref, facts)
    if not timed:
        seen = f"none with a time{aside}"
        return passed("times.bytecode", "bytecode without times", expected="none with a time", seen=seen)
    return failed(
        "times.bytecode",
        "bytecode without times",
        expected="none with a time",
        seen=_samples(timed, facts),
        fix=f"compile with --invalidation-mode unchecked-hash; {ref.rebuild}",
        layers=[sample.layer for sample in timed],
    )


def _samples(samples: Sequence[Sample], facts: ImageFacts) -> str:
    return "; ".join(f"{s.count} in {layer_words(facts, s.layer)}: {some(list(s.first), 3)}" for s in samples)


def _none(
    rule: str, what: str, told: Sequence[str], fix: str, layers: Sequence[int], about: Sequence[str] = ()
) -> Judged:
    if not told:
        return passed(rule, what, expected="none", seen="none")
    return failed(rule, what, expected="none", seen=some(told, 5), fix=fix, layers=layers, about=about)
