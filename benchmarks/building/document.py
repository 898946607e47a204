"""docs/performance.md out of the results that are kept: the same results give the same page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import figures, trace
from .figures import Middle

YARD = "torchyard"
NOT_TAKEN = "not taken"
WHERES = (("where", "the CPU image"), ("where-a100", "the A100 image"))
HEAD = """\
<!-- Made from benchmarks/results by `python benchmarks/page.py`; do not edit by hand. -->
# Speed and size

What torchyard's builds take beside Dockerfiles written by hand
([benchmarks/baselines](../benchmarks/baselines/README.md)), measured by `python benchmarks/build.py NAME`; its `--help`
says what each name measures. Both sides get the same root file system, wheels, packages and kind of compressor, and
read them from the same directory and the same archive on loopback. Runs of the two sides take turns.
"""
READING = """\
A figure is the median of its runs; in brackets are the runs between which the true median lies, by order statistics,
with the probability in the last column. A ratio is torchyard's figure over the other one, pair by pair. Builds run with
`--level identity`: the image is started and its torch is asked for its version, to which nothing on the other side
corresponds. A change of a requirement is edited into env.yaml, and the build locks it first; the other side resolves as
it installs. `careless` is torchyard's own build without the parts of its steps that make the bytes the same each time.
"""

FLOORS = """\
One cold build. A moment in which several kinds of work run is divided among them. The floors were measured after it on
the same disk: writing what is unpacked, and one pass of gzip on one core over the layers that no wheel had compressed.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison: what, from which result, which series in it, the other side, and what is aimed at."""

    what: str
    result: str
    other: str
    series: str = "seconds"
    part: str = ""
    aim: float | None = None
    unit: str = "s"

    def found(self, results: Mapping[str, Any]) -> tuple[list[float], list[float]] | None:
        """Both series, where they were taken."""
        whole = results.get(self.result)
        part = whole.get(self.part) if whole and self.part else whole
        if not part:
            return None
        pair = [part.get("sides", {}).get(side, {}).get(self.series) for side in (YARD, self.other)]
        series = [each if isinstance(each, list) else [each] for each in pair if each is not None]
        return (series[0], series[1]) if len(series) == 2 and all(series) else None


NAIVE = "naive"
TWO_STAGE = "two-stage"
CARELESS = "careless"
ROWS = (
    Row(what="CPU image, cold", result="cold", other=NAIVE, aim=0.9),
    Row(what="A100 image, cold", result="cold-a100", other=TWO_STAGE, aim=0.6),
    Row(what="the same build again", result="again", other=NAIVE),
    Row(what="one more requirement", result="requirement", part="added", other=NAIVE, aim=0.1),
    Row(what="fsspec of another version", result="requirement", part="moved", other=NAIVE, aim=0.1),
    Row(what="CPU image, steps again", result="reproducible", other=CARELESS, aim=1.1),
    Row(what="another image with the same torch", result="another", other=NAIVE),
    Row(what="CPU image, compressed", result="size", other=NAIVE, series="compressed", aim=1.0, unit="MB"),
    Row(what="A100 image, compressed", result="cold-a100", other=TWO_STAGE, series="compressed", aim=1.0, unit="MB"),
    Row(what="`docker run` to `import torch`", result="start", part="warm", other=NAIVE, aim=1.0),
    Row(what="the same with nothing in memory", result="start", part="from disk", other=NAIVE, aim=1.0),
    Row(what="pull of a first image", result="pull", other=NAIVE, series="first_seconds"),
    Row(what="bytes of it", result="pull", other=NAIVE, series="first_bytes", unit="MB"),
    Row(what="its first `import torch`", result="pull", other=NAIVE, series="first_start"),
    Row(what="pull of a second image", result="pull", other=NAIVE, series="second_seconds"),
    Row(what="bytes of it", result="pull", other=NAIVE, series="second_bytes", unit="MB"),
    Row(what="its first `import torch`", result="pull", other=NAIVE, series="second_start"),
)
AGAIN_AIM = 1.5  # seconds


def text(results: Mapping[str, Any]) -> str:
    """The page."""
    parts = [HEAD, _machines(results), READING, _table(results)]
    if any(row.found(results) for row in ROWS):
        parts.append("![Ratios with their intervals](pictures/performance-ratios.svg)\n")
    parts += [_again(results), _disk(results), _layers(results), _where(results)]
    return "\n".join(part for part in parts if part)


def ratio(row: Row, results: Mapping[str, Any]) -> Middle | None:
    """The median ratio of a row with its interval, where it was taken."""
    found = row.found(results)
    return figures.middle(figures.ratios(*found)) if found else None


def _machines(results: Mapping[str, Any]) -> str:
    seen = {}
    for name, result in results.items():
        m = result["machine"]
        seen.setdefault(f"{m['cores']} cores, {m['memory_gib']} GiB of memory, disk: {m['disk']}", []).append(name)
    if not seen:
        return "No figure was taken yet.\n"
    if len(seen) == 1:
        return f"The machine: {next(iter(seen))}.\n"
    return "".join(f"- {machine}: {', '.join(names)}\n" for machine, names in seen.items())


def _table(results: Mapping[str, Any]) -> str:
    lines = ["| what | torchyard | by hand | ratio | at most | runs, covered |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        aim = f"{row.aim:g}" if row.aim is not None else ""
        name = f"{row.what} ({row.other})"
        found = row.found(results)
        if found is None:
            lines.append(f"| {name} | {NOT_TAKEN} | {NOT_TAKEN} | {NOT_TAKEN} | {aim} | |")
            continue
        ours, theirs, over = (figures.middle(each) for each in (*found, figures.ratios(*found)))
        covered = f"{over.runs}, {over.covers:.0%}" if over.runs > 1 else f"{over.runs}"
        lines.append(
            f"| {name} | {_shown(ours, row.unit)} | {_shown(theirs, row.unit)} | {_interval(over, '.2f')} | {aim} |"
            f" {covered} |"
        )
    return "\n".join(lines) + "\n"


def _shown(m: Middle, unit: str) -> str:
    if unit == "MB":
        return f"{m.median / 1e6:,.1f} MB"
    return f"{_interval(m, '.2f' if m.median < 10 else '.1f')} {unit}"


def _interval(m: Middle, form: str) -> str:
    return f"{m.median:{form}}" + (f" [{m.low:{form}}, {m.high:{form}}]" if m.runs > 1 else "")


def _again(results: Mapping[str, Any]) -> str:
    row = next(row for row in ROWS if row.result == "again")
    found = row.found(results)
    if found is None:
        return ""
    middle = figures.middle(found[0])
    return f"The same build again, aimed at less than {AGAIN_AIM:g} s: {_shown(middle, 's')}, its checks included.\n"


def _disk(results: Mapping[str, Any]) -> str:
    """How full the file systems of the A100 image were."""
    found = results.get("cold-a100")
    if not found:
        return ""
    lines = [
        "## Disk\n",
        "Bytes that the A100 build added to the file system that it had for itself, at the fullest moment.\n",
    ]
    lines += ["| side | file system | peak |", "|---|---|---|"]
    for side, series in found["sides"].items():
        if series.get("peak"):
            peak = figures.middle(series["peak"])
            lines.append(f"| {side} | {found['file_system_gb'][side]:g} GB | {peak.median / 1e9:.1f} GB |")
    return "\n".join(lines) + "\n"


def _layers(results: Mapping[str, Any]) -> str:
    """What a change leaves and makes anew."""
    cases = [
        (what, part, side)
        for what, part in (
            ("one more requirement", (results.get("requirement") or {}).get("added")),
            ("fsspec of another version", (results.get("requirement") or {}).get("moved")),
            ("another image with the same torch", results.get("another")),
        )
        if part
        for side in (YARD, NAIVE)
    ]
    if not cases:
        return ""
    lines = ["## What a change makes anew\n"]
    lines.append("Compressed bytes of the layers that the image before has too, and of those that are new.\n")
    lines += ["| change | side | kept | new | fetched | written into the engine |", "|---|---|---|---|---|---|"]
    for what, part, side in cases:
        series = part["sides"][side]
        cells = [_bytes(series.get(key)) for key in ("kept", "new", "fetched", "written")]
        lines.append(f"| {what} | {side} | {' | '.join(cells)} |")
    for what, part, side in cases:
        series = part["sides"][side]
        if "framework" in series:
            stayed, all_of_it = _bytes(series["framework_kept"]), _bytes(series["framework"])
            lines.append("")
            lines.append(f"Of torch's and CUDA's layers {stayed} of {all_of_it} stay ({what}).")
    return "\n".join(lines) + "\n"


def _bytes(values: Sequence[float] | None) -> str:
    return f"{figures.middle(values).median / 1e6:,.1f} MB" if values else ""


def _where(results: Mapping[str, Any]) -> str:
    """Where the time goes, and the floors."""
    lines = ["## Where the time goes\n"]
    taken = [(name, what) for name, what in WHERES if name in results]
    if not taken:
        return lines[0] + f"\nThis figure was {NOT_TAKEN} yet.\n"
    lines.append(FLOORS)
    lines.append("![Where the time goes](pictures/performance-where.svg)\n")
    lines.append("| seconds | " + " | ".join(what for _, what in taken) + " |")
    lines.append("|---|" + "---|" * len(taken))
    for kind in trace.KINDS:
        cells = [f"{results[name]['shares'][kind]:.1f}" for name, _ in taken]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines.append("| all | " + " | ".join(f"{results[name]['seconds']:.1f}" for name, _ in taken) + " |")
    for title, seconds, count in (
        ("floor: disk", "disk_seconds", "disk_bytes"),
        ("floor: compression", "compress_seconds", "compress_bytes"),
    ):
        cells = [
            f"{results[name]['floors'][seconds]:.1f} ({results[name]['floors'][count] / 1e6:,.0f} MB)"
            for name, _ in taken
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
