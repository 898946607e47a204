"""Records the facts of the good images and of every fault made from them: python tests/facts/record_static.py.

Needs an engine that has the cpu and a100 images, and a folder with the wheels that faults install.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "docker"), str(ROOT / "tests" / "unit")]

import static_cases as cases  # noqa: E402
from static_faults import FAULTS  # noqa: E402

from torchyard import render, report  # noqa: E402
from torchyard.judge import static_facts  # noqa: E402
from torchyard.verbs import project as projects  # noqa: E402
from torchyard.world import engine, image_files  # noqa: E402


def main(given: Path, only: list[str]) -> None:
    """Write tests/facts/static-*."""
    project, found = projects.load(ROOT), engine.ensure(report.say)
    for gpu in ("cpu", "a100"):
        image = projects.select(project, gpu=gpu)[0]
        lock = projects.fresh_lock(project.work, image)
        tag, name = render.tag(project.plan.project, image.id), f"static-good-{gpu}"
        good = static_facts.to_data(image_files.gather(found, tag, lock, project.work, report.say))
        folder = cases.FOLDER / name
        folder.mkdir(exist_ok=True)
        (folder / "facts.json").write_text(cases.text(good), encoding="utf-8")
        shutil.copyfile(ROOT / projects.lock_path(image.id), folder / "lock.yaml")
        for fault, spoiled in FAULTS.items():
            if spoiled.gpu != gpu or (only and fault not in only):
                continue
            with tempfile.TemporaryDirectory() as place:
                file = Path(place) / "Dockerfile"
                file.write_text(f"FROM {tag}\nUSER 0\n{spoiled.steps}\n")
                argv = [*found.docker, "build", "-q", "--network", "none", "-t", f"recorded:{fault}", "-f", str(file)]
                subprocess.run([*argv, str(given)], check=True, env={**os.environ, **found.env})
            data = static_facts.to_data(image_files.gather(found, f"recorded:{fault}", lock, project.work, report.say))
            subprocess.run(
                [*found.docker, "image", "rm", f"recorded:{fault}"], check=True, env={**os.environ, **found.env}
            )
            folder = cases.FOLDER / f"static-{fault}"
            folder.mkdir(exist_ok=True)
            (folder / "changes.json").write_text(cases.text(cases.changed(good, data, name)), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", type=Path)
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    main(given.given, given.only)
