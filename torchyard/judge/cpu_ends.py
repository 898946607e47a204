"""Findings on probes that did not come to their facts: hung, killed, raised, or never begun; and who caused whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..finding import Finding, State
from .cpu_facts import READ_ONLY, UID, Broken, End, Facts, Seen

LINES = 4  # of what a probe printed last, told
FAULT = ("Fatal Python error", "Current thread", "Thread 0x")
SIGNALS = {
    "SIGSEGV": "a segmentation fault",
    "SIGBUS": "a bus error",
    "SIGILL": "an instruction that this CPU does not have",
    "SIGABRT": "aborted",
    "SIGKILL": "killed",
    "SIGFPE": "an arithmetic fault",
}


def named(rule: str, setting: str) -> str:
    """The rule as findings of a setting name it: that of the image's own user has no mark."""
    return rule if setting not in (UID, READ_ONLY) else f"{rule}@{setting}"


def by(setting: str) -> str:
    """The setting in words, to follow what was checked."""
    return {UID: " as a uid without a name", READ_ONLY: " as a uid without a name on a read-only root"}.get(setting, "")


def container(broken: Broken) -> Finding:
    """The finding on a container that could not do its work."""
    return Finding(
        rule=named("container", broken.setting),
        state=State.FAIL,
        what=f"the container of the probes{by(broken.setting)}",
        expected="it starts and ends well",
        seen=broken.what,
        fix="look at its configuration: docker image inspect; it must have python on its PATH and a writable /tmp",
    )


def ended(seen: Seen) -> Finding:
    """The finding on a probe without facts."""
    rule = named(f"probe.{seen.probe}", seen.setting)
    what = f"the probe {seen.probe}{by(seen.setting)}"
    account = seen.lines[0].startswith(FAULT) if seen.lines else False  # Python's own begins with the innermost call
    last = " / ".join(line.strip() for line in (seen.lines[:LINES] if account else seen.lines[-LINES:]))
    fix = f"its last lines say where; the probe is torchyard/inside/probes/{seen.probe}.py and runs alone"
    match seen.end:
        case End.HUNG:
            said = f"still running after {seen.seconds:.0f} s and stopped"
            expected = f"ends within {seen.limit:.0f} s"
        case End.DIED:
            said, expected = _death(seen), "ends by itself"
        case End.RAISED:
            said, expected, last = seen.error, "no error", ""
        case End.UNSTARTED:
            return Finding.skipped(rule, what=what, because="its container ended before it began")
        case End.DONE:
            return Finding(rule=rule, state=State.PASS, what=what, expected="ends by itself", seen="ended by itself")
    if seen.oom:
        fix = "give the machine or the container more memory"
    return Finding(
        rule=rule, state=State.FAIL, what=what, expected=expected, seen=f"{said}: {last}" if last else said, fix=fix
    )


def _death(seen: Seen) -> str:
    if seen.oom:
        return "killed by the kernel for want of memory (OOM, SIGKILL)"
    if seen.signal:
        words = SIGNALS.get(seen.signal)
        return f"died of {seen.signal}" + (f", {words}" if words else "")
    return "died without its facts"


def followed(findings: Sequence[Finding], causes: Callable[[Finding], Sequence[str]]) -> list[Finding]:
    """The findings, where a fail that another fail explains says so; a cause stands before what follows from it."""
    failed = [f.rule for f in findings if f.state is State.FAIL]
    found = [_marked(f, [rule for rule in causes(f) if rule in failed and rule != f.rule]) for f in findings]
    consequence = [f for f in found if f.because and f.state is State.FAIL]
    return [f for f in found if f not in consequence] + consequence


def _marked(finding: Finding, causes: Sequence[str]) -> Finding:
    if finding.state is not State.FAIL or not causes:
        return finding
    return replace(finding, because=f"follows from {causes[0]}", fix=f"mend {causes[0]} first")


def compare(rule: str, *, what: str, errors: Mapping[str, object], limits: Mapping[str, float], fix: str) -> Finding:
    """One finding on errors against the limit of each; what is no number, or NaN, is beyond any limit."""
    bad = {name: value for name, value in errors.items() if not _within(value, limits[name])}
    worst = max((v for v in errors.values() if isinstance(v, float)), default=0.0)
    told = ", ".join(f"{name} {_number(value)} (limit {limits[name]:g})" for name, value in sorted((bad or {}).items()))
    return Finding(
        rule=rule,
        state=State.FAIL if bad or not errors else State.PASS,
        what=what,
        expected=f"relative errors below {_range([limits[name] for name in errors])}",
        seen=told if bad else f"{len(errors)} results, the worst {worst:.1e} off" if errors else "no result",
        fix=fix if bad or not errors else "",
    )


def _within(value: object, limit: float) -> bool:
    return isinstance(value, int | float) and value == value and value <= limit


def _number(value: object) -> str:
    return f"{value:.1e}" if isinstance(value, float) else str(value)


def _range(values: Sequence[float]) -> str:
    kinds = sorted(set(values))
    return " to ".join(f"{value:g}" for value in ([kinds[0], kinds[-1]] if len(kinds) > 1 else kinds))


def failures(facts: Facts) -> list[Finding]:
    """The findings on containers and probes that did not come to their facts."""
    return [*(container(b) for b in facts.broken), *(ended(s) for s in facts.seen if s.end is not End.DONE)]
