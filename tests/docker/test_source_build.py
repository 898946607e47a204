"""The recipe of a source build from end to end: lock, fetch, plain bake; a small package is in the place of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.world import engine, process

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[2]
SETUP = """\
import os
from setuptools import Extension, setup
setup(name="torch", version=os.environ["PYTORCH_BUILD_VERSION"], packages=["torch"],
      ext_modules=[Extension("torch._C", ["torch/c.c"], libraries=["openblas"])])
"""
CODE = """\
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", __FILE__ " " __DATE__, -1, 0};
PyMODINIT_FUNC PyInit__C(void) {
#ifndef __AVX2__
#error "this is not compiled for x86-64-v3"
#endif
    return PyModule_Create(&module);
}
"""


def repository(root: Path) -> str:
    """A mirror of a host on this disk, with a repository in the place of torch's; the commit to build."""
    folder = root / "pytorch" / "pytorch.git"
    for name, text in {"setup.py": SETUP, "torch/c.c": CODE, "torch/__init__.py": "from . import _C\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "torch" / "lib").mkdir()
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    named = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", "v2.13.0"]):
        subprocess.run(["git", *named, *argv], cwd=folder, env={**os.environ, **own}, check=True)
    return process.run(["git", "rev-parse", "HEAD"], cwd=folder).out.strip()


def project(root: Path) -> Path:
    """A project that compiles what the mirror beside it has."""
    commit = repository(root / "mirror")
    home = root / "project"
    (home / ".torchyard").mkdir(parents=True)
    (home / ".torchyard" / "mirrors.yaml").write_text(
        f"mirrors: {{git: {{'https://github.com/': 'file://{root}/mirror/'}}}}\n"
    )
    (home / "env.yaml").write_text(
        "schema: 1\nproject: torchyard-test-source\nhardware: {cpu: {}}\n"
        'software: {torch: "2.13.0", build: source, blas: openblas}\n'
        f'source: {{commit: "{commit}", jobs: 2}}\npackages: {{pip: []}}\n'
    )
    return home


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the release that is taken is locked for x86_64 here")
def test_a_recipe_compiles_installs_and_imports_what_the_lock_pins(tmp_path: Path) -> None:
    home = project(tmp_path)
    found = engine.ensure(lambda text: print(text, file=sys.stderr))
    yard = [sys.executable, "-P", "-m", "torchyard"]
    env = {**found.env, "PYTHONPATH": str(ROOT), "BUILDX_BAKE_ENTITLEMENTS_FS": "0"}
    for verb in ("lock", "fetch"):
        process.run([*yard, verb], cwd=home, env=env)
    bake = json.loads((home / "images" / "docker-bake.json").read_text())
    (target,) = bake["group"]["default"]["targets"]
    tag = bake["target"][target]["tags"][0]
    try:
        argv = [*found.buildx, "bake", "--file", "images/docker-bake.json", "--progress=plain"]
        done = process.run([*argv, "--set", f"{target}.output=type=docker", target], cwd=home, env=env)
        assert "compiling torch 2.13.0+cpu with 2 jobs" in done.err
        code = "import torch._C as c; print(c.__doc__); import importlib.metadata as m; print(m.version('torch'))"
        seen = process.run([*found.docker, "run", "--rm", "--network=none", tag, "python", "-c", code], env=env)
        assert seen.out.splitlines()[0].startswith("torch/c.c ")  # no path of the builder, no day but the epoch's
        assert seen.out.splitlines()[1] == "2.13.0+cpu"
        held = process.run([*found.docker, "run", "--rm", tag, "cat", "/opt/venv/held.txt"], env=env)
        assert "torch==2.13.0+cpu" in held.out.splitlines()
        told = process.run([*found.docker, "image", "inspect", "--format", "{{json .Config.Env}}", tag], env=env)
        assert not [each for each in json.loads(told.out) if each.startswith(("CFLAGS", "USE_", "CCACHE", "BLAS"))]
    finally:
        process.run([*found.docker, "image", "rm", "--force", tag], env=found.env, check=False)


def test_building_says_that_it_does_not_compile_and_how_to_go_on(tmp_path: Path) -> None:
    home = project(tmp_path)
    argv = [sys.executable, "-P", "-m", "torchyard", "build", "--gpu", "cpu"]
    done = process.run(argv, cwd=home, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.code == 2 and "does not compile" in done.err and "buildx bake" in done.err
    assert not (home / "images").exists()
