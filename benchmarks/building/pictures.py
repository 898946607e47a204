"""The plots of the page: the same results give the same bytes with the pinned matplotlib (requirements/bench.txt)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "torchyard", "svg.fonttype": "none", "font.size": 9})

from matplotlib import pyplot  # noqa: E402

from . import document, trace  # noqa: E402

COLOURS = ("#4c78a8", "#72b7b2", "#9ecae9", "#f58518", "#54a24b", "#e45756", "#b279a2", "#bab0ac")


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every picture that there are figures for; those without any are removed."""
    made = []
    for name, draw in (("performance-ratios", ratios), ("performance-where", where)):
        path = folder / f"{name}.svg"
        figure = draw(results)
        if figure is None:
            path.unlink(missing_ok=True)
            continue
        folder.mkdir(exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
        pyplot.close(figure)
        path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))
        made.append(path)
    return made


def ratios(results: Mapping[str, Any]) -> Any:
    """Each ratio with its interval and what is aimed at."""
    rows = [(row, found) for row in document.ROWS if (found := document.ratio(row, results))]
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(7, 0.35 * len(rows) + 1))
    for at, (row, found) in enumerate(reversed(rows)):
        axes.plot([found.low, found.high], [at, at], color=COLOURS[0], linewidth=2)
        axes.plot([found.median], [at], "o", color=COLOURS[0], markersize=5)
        if row.aim is not None:
            axes.plot([row.aim, row.aim], [at - 0.3, at + 0.3], color=COLOURS[5], linewidth=2)
    axes.axvline(1, color="#888888", linewidth=0.8, linestyle=":")
    names = [f"{row.what}{' (pull)' if row.result == 'pull' else ''}".replace("`", "") for row, _ in reversed(rows)]
    axes.set_yticks(range(len(rows)), names)
    axes.set_xlim(left=0)
    axes.set_xlabel("torchyard over the hand-written file, median and interval; red: at most")
    return figure


def where(results: Mapping[str, Any]) -> Any:
    """Where the time of a cold build goes, as stacked bars, with the floors beside each."""
    taken = [(name, what) for name, what in document.WHERES if name in results]
    if not taken:
        return None
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    ticks: list[str] = []
    for name, what in taken:
        result, bottom = results[name], 0.0
        for kind, colour in zip(trace.KINDS, COLOURS):
            seconds = result["shares"][kind]
            axes.bar(len(ticks), seconds, bottom=bottom, color=colour, label=kind if not ticks else None)
            bottom += seconds
        ticks.append(what)
        for title, key in (("disk", "disk_seconds"), ("compression", "compress_seconds")):
            axes.bar(len(ticks), result["floors"][key], color="#dddddd", edgecolor="#666666", hatch="//")
            ticks.append(f"floor: {title}")
    axes.set_xticks(range(len(ticks)), ticks, rotation=20, ha="right")
    axes.set_ylabel("seconds")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure
