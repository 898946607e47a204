"""reproduce on real images: seeds on top of a good one are named, an image equals itself in every form.

That an image is reproduced in a second empty engine is seen in test_build_twice.py, which builds there anyway.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clones import Clone

pytestmark = pytest.mark.docker

SITE = "/opt/venv/lib/python3.11/site-packages"
STEPS = f"""
RUN PYTHONDONTWRITEBYTECODE= python -m compileall -q -f --invalidation-mode timestamp {SITE}/filelock; \\
    for n in 1 2 3; do echo "$(date -Is) step $n"; done >/opt/output; \\
    date >/opt/built; cp /proc/sys/kernel/random/uuid /etc/machine-id; ldconfig; \\
    sed -i '/^Package: libnuma1$/,/^$/s/^Version: .*/Version: 9.9-9/' /var/lib/dpkg/status; \\
    touch -d 2001-01-01 /usr/bin/cmp; chmod 0700 /usr/bin/env; chown 7 /usr/bin/nl; \\
    ln -sf od /usr/bin/fmt; rm /usr/bin/tac; echo other >/opt/venv/held.txt
"""
SEEDS = {  # path: kind, cause
    f"{SITE}/filelock/__pycache__/version.cpython-311.pyc": ("content", "bytecode"),
    "/opt/output": ("added", "log"),
    "/opt/built": ("added", "a time inside a file"),
    "/etc/machine-id": ("content", "a random id"),
    "/var/cache/ldconfig/aux-cache": ("added", "ldconfig cache"),
    "/var/lib/dpkg/status": ("content", "a moved archive"),
    "/usr/bin/cmp": ("mtime", "the clock"),
    "/usr/bin/env": ("mode", "other rights"),
    "/usr/bin/nl": ("owner", "another user"),
    "/usr/bin/fmt": ("link", "symlink"),
    "/usr/bin/tac": ("whiteout", "another build step"),
    "/opt/venv/held.txt": ("content", "unknown"),
}


def compared(yard: Clone, first: str, second: str) -> tuple[int, dict[str, Any]]:
    """What the comparison answers: its exit code and its JSON."""
    done = yard.yard("reproduce", "--compare", first, second, "--json")
    assert done.code in (0, 1), done.err[-2000:]
    return done.code, json.loads(done.out)


def test_seeds_on_top_of_a_good_image_are_named_by_layer_path_kind_and_cause(
    yard: Clone, cpu: dict[str, Any], tmp_path: Path
) -> None:
    """B116: what differs is named, and why."""
    (tmp_path / "Dockerfile").write_text(f"FROM {yard.tag('cpu')}\nUSER 0\n{STEPS}USER 1000:1000\n")
    yard.docker("build", "--quiet", "--network", "none", "--tag", "seeded:image", str(tmp_path)).good()
    try:
        code, found = compared(yard, yard.tag("cpu"), "seeded:image")
    finally:
        yard.docker("image", "rm", "seeded:image")
    assert code == 1 and not found["equal"]
    top = len(cpu["layers"]) + 1
    for path, (kind, cause) in SEEDS.items():
        told = [(each["layer"], each["kind"], each["cause"]) for each in found["differences"] if each["path"] == path]
        assert (top, kind, cause) in told, path
    assert any("libnuma1" in each["detail"] for each in found["differences"])
    assert {late["where"].rpartition(": ")[2] for late in found["late"]} >= {"configuration", f"layer {top}"}


def test_an_image_equals_its_own_archive_and_its_digest(yard: Clone, cpu: dict[str, Any], tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    yard.docker("save", "--output", str(archive), yard.tag("cpu")).good()
    code, found = compared(yard, yard.tag("cpu"), str(archive))
    assert code == 0 and found["equal"] and found["late"] == []
    folder = tmp_path / "layout"
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    code, found = compared(yard, str(folder), cpu["digest"])
    assert code == 0 and found["first"]["digest"] == found["second"]["digest"] == cpu["digest"]


def test_without_a_receipt_there_is_nothing_to_reproduce(yard: Clone, cpu: dict[str, Any]) -> None:
    receipt = yard.root / ".torchyard" / "receipts" / f"{yard.image('cpu')}.json"
    text = receipt.read_text()
    receipt.unlink()
    try:
        done = yard.yard("reproduce", "--gpu", "cpu")
    finally:
        receipt.write_text(text)
    assert done.code == 1 and "no receipt" in done.err and "./yard build --id" in done.err
    assert "Traceback" not in done.err
