"""The step that compiles bytecode: the same bytes whatever else a process compiled, in any order, at any time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

STEP = Path(__file__).resolve().parents[2] / "templates" / "steps" / "compile.py"
SOURCES = {
    "sets.py": "X = 'b' in {'a', 'b', 'c', 'dd', 'eee'}\ndef f(a, *, b=frozenset({'x', 'y'})): return {1, 2}, b\n",
    "shared.py": "def shared_name(value): return value.shared_name\nclass C:\n    shared_name = 'shared_name'\n",
    "names.py": "shared_name = ('shared_name', 'a', 1.5, 10**30, b'bytes', ..., None, True)\nimport os, sys\n",
    "closures.py": "def f():\n    x = 1\n    def g():\n        nonlocal x\n        return lambda: x\n    return g\n",
    "docs.py": '"""Words."""\nasync def f():\n    """More."""\n    return [i async for i in f()]\n',
    "empty.py": "",
    "größe.py": "# -*- coding: latin-1 -*-\nx = 1\n",
}


def compiled(folder: Path, names: Iterable[str], seed: str) -> dict[str, bytes]:
    """The bytecode that the step writes for files of this folder, by source file."""
    for old in folder.rglob("*.pyc"):
        old.unlink()
    given = b"\0".join(os.fsencode(folder / name) for name in names)
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run([sys.executable, "-W", "ignore", STEP], input=given, env=environment, check=True)
    return {path.name.partition(".")[0] + ".py": path.read_bytes() for path in folder.rglob("*.pyc")}


def sources(folder: Path) -> Path:
    for name, text in SOURCES.items():
        (folder / name).write_text(text, encoding="latin-1" if "latin-1" in text else "utf-8")
    return folder


def test_bytecode_depends_on_its_source_alone(tmp_path: Path) -> None:
    folder = sources(tmp_path)
    whole = compiled(folder, SOURCES, "0")
    assert whole.keys() == SOURCES.keys()
    assert compiled(folder, reversed(SOURCES), "1") == whole
    alone = [compiled(folder, [name], "2") for name in SOURCES]
    assert {name: code for each in alone for name, code in each.items()} == whole


def test_bytecode_holds_no_time_and_is_not_checked_against_its_source(tmp_path: Path) -> None:
    folder = sources(tmp_path)
    before = compiled(folder, SOURCES, "0")
    for name in SOURCES:
        os.utime(folder / name, (1, 1))
    assert compiled(folder, SOURCES, "0") == before
    for name, code in before.items():
        assert code[:4] == importlib.util.MAGIC_NUMBER
        assert code[4:8] == b"\1\0\0\0"
        assert code[8:16] == importlib.util.source_hash((folder / name).read_bytes())


def test_python_runs_what_was_compiled(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("def f(): return 'compiled'\n")
    compiled(tmp_path, ["mod.py"], "0")
    (tmp_path / "mod.py").write_text("def f(): return 'source'\n")
    code = "import mod; print(mod.f(), mod.f.__code__.co_filename)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"compiled {tmp_path}/mod.py\n"


def test_what_does_not_compile_has_no_bytecode_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "python2.py").write_text("print 'x'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0")
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    (tmp_path / "deep.py").write_text("(" * 1000 + ")" * 1000)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    assert compiled(tmp_path, sorted(os.listdir(tmp_path)), "0").keys() == {"good.py"}


def test_a_file_name_may_hold_anything_and_nothing_to_do_is_no_error(tmp_path: Path) -> None:
    names = ["with space.py", "new\nline.py", "q'uo\"te.py"]
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / os.fsdecode(b"latin-\xe9.py")).write_text("x = 1\n")
    assert len(compiled(tmp_path, os.listdir(tmp_path), "0")) == 4
    assert compiled(tmp_path, [], "0") == {}


def test_folders_and_files_can_be_read_by_all_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("x = 1\n")
    old = os.umask(0o077)
    try:
        compiled(tmp_path, ["mod.py"], "0")
    finally:
        os.umask(old)
    (code,) = tmp_path.rglob("*.pyc")
    assert (code.stat().st_mode & 0o777, code.parent.stat().st_mode & 0o777) == (0o644, 0o755)
