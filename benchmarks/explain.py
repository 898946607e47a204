"""How long explain takes: one request and a thousand, start-up included. Prints seconds; asserts nothing.

python benchmarks/explain.py [--seed N] [--count N]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from torchyard import catalog  # noqa: E402 - found beside this file, installed or not

_ONE = "import sys; from pathlib import Path; from torchyard import rules; from torchyard.verbs import explain; "
_ONE += "root = Path('.'); done = explain.run(root, rules.parse_request({'gpu': 'h100', 'cuda': '11.7'})); "
_ONE += "print(explain.show(root, done))"
_MANY = "import sys; from pathlib import Path; from torchyard.verbs import explain; "
_MANY += "[print(line) for line in explain.run_requests(Path('.'), sys.argv[1])]"
_KEYS = {
    "gpu": 0.85,
    "torch": 0.7,
    "cuda": 0.55,
    "python": 0.5,
    "os": 0.5,
    "driver": 0.35,
    "build": 0.3,
    "python_from": 0.2,
    "arch": 0.15,
    "blas": 0.1,
    "cudnn": 0.1,
    "precision": 0.1,
    "gcc": 0.08,
    "arch_list": 0.08,
    "memory_gb": 0.08,
    "index": 0.08,
    "mig": 0.04,
    "cuda_compat": 0.04,
}


def requests(count: int, seed: int) -> list[str]:
    """Requests drawn from the whole catalogue: most of them cannot work, which is the slow case."""
    known, draw = catalog.load(), random.Random(seed)
    values: dict[str, list[object]] = {
        "gpu": [g.id for g in known.gpus],
        "torch": [*(r.version for r in known.releases), "2.6"],
        "cuda": [*known.lines(), "cpu", "12.7"],
        "python": list(known.pythons()),
        "os": [d.os for d in known.distributions],
        "driver": ["450.80.02", "525.60.13", "535", "550.54.14", "570.26", "580.65.06", "590.44.01"],
        "build": ["wheel", "source"],
        "python_from": ["distribution", "standalone"],
        "arch": ["x86_64", "aarch64"],
        "blas": ["mkl", "openblas"],
        "cudnn": ["9.24.0.43", "9.10.2.21", "9.1.0.70"],
        "precision": ["bf16", "fp8"],
        "gcc": ["9.3", "12", "13", "14"],
        "arch_list": ["8.0;8.6+PTX", "9.0a"],
        "memory_gb": [24, 80],
        "index": ["pypi"],
        "mig": ["1g.10gb"],
        "cuda_compat": [True],
    }
    drawn = ({k: draw.choice(values[k]) for k, chance in _KEYS.items() if draw.random() < chance} for _ in range(count))
    return [json.dumps(request) for request in drawn]


def timed(code: str, *arguments: str) -> tuple[float, str]:
    """The wall seconds of a fresh interpreter running this code, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    one = min(timed(_ONE)[0] for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requests.jsonl")
        file.write_text("\n".join(requests(chosen.count, chosen.seed)) + "\n")
        many, printed = timed(_MANY, str(file))
    verdicts = Counter(json.loads(line)["verdict"] for line in printed.splitlines())
    print(f"one explain, start-up included: {one:.2f} s (best of 3)")
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"{chosen.count} requests (seed {chosen.seed}), start-up included: {many:.2f} s; {told}")


if __name__ == "__main__":
    main()
