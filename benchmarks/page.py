"""Make docs/performance.md and its pictures from benchmarks/results.

python benchmarks/page.py

The pictures need matplotlib (`pip install --require-hashes -r requirements/bench.txt`, best in an environment of its
own); without it the page is written, the pictures stay as they are, and that is said.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from building import document, figures  # noqa: E402


def main() -> None:
    """Write the page, and the pictures where that is possible."""
    results = figures.read()
    page = ROOT / "docs" / "performance.md"
    page.write_text(document.text(results))
    print(f"wrote {page.relative_to(ROOT)}")
    if importlib.util.find_spec("matplotlib") is None:
        print("there is no matplotlib here, so the pictures are as they were: requirements/bench.txt")
        return
    from building import pictures

    for path in pictures.write(results, ROOT / "docs" / "pictures"):
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
