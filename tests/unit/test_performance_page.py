"""docs/performance.md is made of the results that are kept, and the baselines are the files that they name."""

from __future__ import annotations

import copy
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from building import baseline, document, figures, trace  # noqa: E402
from building.trace import Span  # noqa: E402

RATES = {"seconds": [20.0, 22.0, 21.0, 30.0, 20.5], "compressed": [300e6] * 5, "peak": [9e9] * 5}
MACHINE = {"cores": 2, "memory_gib": 24, "disk": "virtual, ext4"}


def a_pair(other: str, factor: float = 2) -> dict[str, Any]:
    """Both sides of a comparison in which the other one needs `factor` times as much."""
    theirs = {key: [value * factor for value in values] for key, values in RATES.items()}
    return {"sides": {"torchyard": RATES, other: theirs}}


def test_the_page_is_what_the_kept_results_give() -> None:
    assert (ROOT / "docs" / "performance.md").read_text() == document.text(figures.read()), (
        "benchmarks/page.py makes it"
    )


def test_what_was_not_taken_is_said_to_be_so() -> None:
    page = document.text({})
    assert "No figure was taken" in page
    for row in document.ROWS:
        assert f"| {row.what} ({row.other}) | not taken | not taken | not taken |" in page


def test_a_result_comes_with_its_interval_its_ratio_and_what_is_aimed_at() -> None:
    page = document.text({"cold": {**a_pair("naive"), "machine": MACHINE}})
    row = next(line for line in page.splitlines() if line.startswith("| CPU image, cold"))
    assert row == (
        "| CPU image, cold (naive) | 21.0 [20.0, 30.0] s | 42.0 [40.0, 60.0] s | 0.50 [0.50, 0.50] | 0.9 | 5, 94% |"
    )
    assert "2 cores, 24 GiB of memory, disk: virtual, ext4" in page


def test_one_run_has_no_interval() -> None:
    one = {side: {"seconds": [1.0]} for side in ("torchyard", "naive")}
    page = document.text({"cold": {"sides": one, "machine": MACHINE}})
    assert "| CPU image, cold (naive) | 1.00 s | 1.00 s | 1.00 | 0.9 | 1 |" in page


def test_half_a_pair_is_no_result() -> None:
    half = copy.deepcopy(a_pair("naive"))
    del half["sides"]["naive"]
    assert "| CPU image, cold (naive) | not taken" in document.text({"cold": {**half, "machine": MACHINE}})


@pytest.mark.parametrize(("runs", "ranks", "covers"), [(5, (0, 4), 0.9375), (9, (1, 7), 0.9609375), (1, (0, 0), 0.0)])
def test_an_interval_is_of_order_statistics(runs: int, ranks: tuple[int, int], covers: float) -> None:
    found = figures.middle([float(value) for value in reversed(range(runs))])
    assert (found.low, found.high, found.covers) == (*map(float, ranks), covers)


def test_shares_add_up_to_the_wall_time() -> None:
    spans = [
        Span(kind="transfer", what="a", start=1.0, end=5.0),
        Span(kind="transfer", what="b", start=1.0, end=3.0),
        Span(kind="unpack", what="c", start=3.0, end=7.0),
    ]
    told = trace.shares(spans, 10.0)
    assert sum(told.values()) == pytest.approx(10.0)
    assert told["transfer"] == pytest.approx(3.0)
    assert told["unpack"] == pytest.approx(3.0)
    assert told["the rest"] == pytest.approx(4.0)


@pytest.mark.parametrize("indent", [None, 2])
def test_buildkits_progress_becomes_spans(indent: int | None) -> None:
    stamp = "1970-01-01T00:01:{:02d}.5Z"
    vertex = {"digest": "v", "name": "[locked 2/4] RUN true", "started": stamp.format(0)}
    status = {"vertex": "x", "id": "exporting layers"}
    told = [
        {"vertexes": [vertex]},
        {"vertexes": [{**vertex, "completed": stamp.format(4)}]},
        {"vertexes": [{**vertex, "digest": "w", "cached": True, "completed": stamp.format(9)}]},
        {"statuses": [{**status, "started": stamp.format(4)}]},
        {"statuses": [{**status, "started": stamp.format(4), "completed": stamp.format(6)}]},
    ]
    text = "\n{ no JSON\n".join(json.dumps(each, indent=indent) for each in told)
    assert trace.of_build(text, 10.0, 60.0) == [
        Span(kind="install", what="[locked 2/4] RUN true", start=10.5, end=14.5),
        Span(kind="compress", what="exporting layers | ", start=14.5, end=16.5),
    ]


@pytest.mark.parametrize("name", baseline.SHA256)
def test_a_baseline_is_the_file_that_it_was(name: str) -> None:
    assert sha256(baseline.dockerfile(name).read_bytes()).hexdigest() == baseline.SHA256[name]


def test_a_changed_baseline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "naive.Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(SystemExit, match="is not the baseline"):
        baseline.dockerfile("naive", tmp_path)
