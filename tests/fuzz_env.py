"""Mutates env.yaml files; each ends in a plan or in told mistakes, soon: `python3 tests/fuzz_env.py 20000`.

The shipped file and the larger ones of tests/fuzz/ are changed at random (seed printed; give it as second argument to
repeat). No traceback, no exit code but 0, 1 and 2, nothing over two seconds; what is accepted renders, with a lock of
made-up answers, to files that parse and that say what the plan says.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path, PurePosixPath

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "unit"), str(HERE.parent)]

from canned_locks import canned  # noqa: E402 - found beside this file
from dockerfile_reader import instructions, words  # noqa: E402

from torchyard import catalog, matrix, render, resolve  # noqa: E402
from torchyard import lock as locking  # noqa: E402
from torchyard.errors import YardError  # noqa: E402
from torchyard.plan import Image, Plan  # noqa: E402
from torchyard.verbs import matrix as matrix_verb  # noqa: E402
from torchyard.world import workspace  # noqa: E402

SEEDS = [HERE.parent / "env.yaml", *sorted((HERE / "fuzz").glob("*.yaml"))]
SLOWEST = 2.0
PIECES = [
    b"\t", b"\r\n", b"\n", b"  ", b"- ", b": ", b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system ", b"!x ",
    b"{", b"}",
    b"[", b"]", b"'", b'"', b"|\n", b">\n", b"#", b"---\n", b"...\n", b"%YAML 1.1\n", b"\xef\xbb\xbf", b"\xff", b"\x00",
    b"\xe2\x80\xae", b"\xc2\xa0",
    b"3.10", b"12.0", b"null", b"~", b"yes", b"1e999", b"0x1F", b"2026-11-30", b"../", b"$(id)", b"{{ x }}",
    b"a100", b"native", b"latest", b"cpu", b"auto", b"\\", b"`", b"@", b"\xd0\xb0", b"9" * 400, b"[" * 60, b"a: " * 3,
]  # fmt: skip


def mutated(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The bytes with one to five changes."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5])):
        data = _change(data, others, rng)
    return data


def _change(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    lines = data.split(b"\n")
    row = rng.randrange(len(lines))
    match rng.randrange(9):
        case 0:
            return data[:at] + rng.choice(PIECES) + data[at:]
        case 1:
            return data[:at] + data[at + rng.randint(1, 8) :]
        case 2:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 3:
            return b"\n".join([*lines[:row], lines[row], *lines[row:]])
        case 4:
            return b"\n".join(lines[:row] + lines[row + 1 :])
        case 5:
            other = rng.randrange(len(lines))
            lines[row], lines[other] = lines[other], lines[row]
            return b"\n".join(lines)
        case 6:
            return b"\n".join([*lines[:row], b" " * rng.randint(0, 4) + lines[row].lstrip(), *lines[row + 1 :]])
        case 7:
            donor = rng.choice(others).split(b"\n")
            return b"\n".join([*lines[:row], rng.choice(donor), *lines[row:]])
        case _:
            words = lines[row].split(b" ")
            words[rng.randrange(len(words))] = rng.choice(PIECES)
            lines[row] = b" ".join(words)
            return b"\n".join(lines)


def outcome(data: bytes, facts: catalog.Catalog) -> str:
    """What becomes of these bytes: a plan, or how the mistakes end; anything else raises."""
    try:
        text = matrix.read_bytes_checked(data)
        files = {name: "RUN true\n" if name.endswith("file") else "numpy\n" for name in matrix.needed_files(text)}
        plan = resolve.plan(matrix.parse(text, files=files, known=resolve.names(facts)), facts)
    except YardError as error:
        assert int(error.code) in (1, 2), error.code
        assert all(each.what and each.where and each.hint for each in error.problems()), [
            (p.where, p.what) for p in error.problems() if not (p.where and p.hint)
        ]
        return "told"
    assert plan.cells
    rendered(plan)
    return "planned"


def rendered(plan: Plan) -> None:
    """Render what can be locked of this plan, and read every file back with a parser of its kind."""
    locks = [canned(image) for image in plan.images if image.index]
    for made in locks:
        _image_files(made.image)
    shared = {path.name: text for path, text in render.shared_files(locks, plan).items()}
    targets = json.loads(shared["docker-bake.json"])["target"]
    assert {name for made in locks for name in made_names(made.id)} == targets.keys()
    assert all(target["tags"][0].startswith(plan.project + ":") for target in targets.values())
    index = yaml.safe_load(shared["index.yaml"])
    assert {cell.hardware: cell.image or None for cell in plan.cells if cell.default}.items() <= index.items()
    json.loads(json.dumps(matrix_verb.document(plan)))


def made_names(image_id: str) -> tuple[str, str]:
    """The two bake targets of an image."""
    return render.target_name(image_id), render.target_name(image_id) + "-dev"


@cache  # most mutations leave most images as they were
def _image_files(image: Image) -> None:
    made = canned(image)
    assert locking.from_text(locking.to_text(made), name="lock.yaml") == made
    files = {path.name: text for path, text in render.image_files(made, _template).items()}
    read = instructions(files["Dockerfile"])
    assert {"FROM", "RUN", "ENV", "LABEL"} <= {name for name, _ in read}
    given = [words(rest) for name, rest in read if name == "ENV"]
    assert any(dict(image.packages.env).items() <= each.items() for each in given)
    assert any(
        words(rest)["torchyard.id"] == image.id for name, rest in read if name == "LABEL" and "torchyard.id" in rest
    )
    lines = files["requirements.txt"].splitlines()[1:]
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert PurePosixPath(image.id).name == image.id and len(image.id) <= 128


@cache
def _template(name: str) -> str | None:
    return workspace.packaged_template(name)


def main(count: int, seed: int) -> int:
    """Run so many mutations; 0 if all ended well."""
    rng = random.Random(seed)
    facts = catalog.load()
    starts = [path.read_bytes() for path in SEEDS]
    counts: Counter[str] = Counter()
    slowest = 0.0
    print(f"seed {seed}, {count} mutations of {len(starts)} files")
    for number in range(count):
        data = mutated(rng.choice(starts), starts, rng)
        began = time.monotonic()
        try:
            counts[outcome(data, facts)] += 1
        except Exception:
            failed = Path(tempfile.gettempdir()) / "fuzz-failure.yaml"
            failed.write_bytes(data)
            print(f"mutation {number} failed; it is in {failed}")
            raise
        slowest = max(slowest, time.monotonic() - began)
    print(dict(counts), f"slowest {slowest:.2f} s")
    return 0 if slowest < SLOWEST else 1


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    sys.exit(main(given[0] if given else 5000, given[1] if len(given) > 1 else 20261130))
