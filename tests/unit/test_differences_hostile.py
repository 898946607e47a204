"""Images made to harm who compares them: nothing hangs, nothing steers a terminal, no file outside is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from difference_samples import Item, config, layer, layout

from torchyard import json_text, report
from torchyard.errors import InputError
from torchyard.verbs import comparison, differences_shown

LAYERS = [layer([Item(path="a", data=b"1")])]
GZIP = b"\x1f\x8b"


def blob(folder: Path) -> Path:
    """The file of the only layer."""
    return next(path for path in (folder / "blobs" / "sha256").iterdir() if path.read_bytes()[:2] == GZIP)


def pipe(folder: Path) -> None:
    path = blob(folder)
    path.unlink()
    os.mkfifo(path)


def endless(folder: Path) -> None:
    path = blob(folder)
    path.unlink()
    path.symlink_to("/dev/zero")


def deep(folder: Path) -> None:
    (folder / "index.json").write_text('{"manifests":' + "[" * 100_000)


def outside(folder: Path) -> None:
    (folder.parent / "secret").write_bytes(LAYERS[0])
    (folder / "index.json").unlink()
    (folder / "c.json").write_text(json.dumps(config(LAYERS)))
    told = [{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["../secret"]}]
    (folder / "manifest.json").write_text(json.dumps(told))


@pytest.mark.parametrize("spoil", [pipe, endless, deep, outside])
def test_a_spoilt_image_is_refused_with_its_place(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    good = layout(tmp_path / "good", [layer([Item(path="b")])])
    bad = layout(tmp_path / "bad", LAYERS)
    spoil(Path(bad))
    with pytest.raises(InputError) as caught:
        comparison.compare(good, bad, epoch=None, say=lambda _: None)
    assert "bad" in caught.value.what
    assert caught.value.hint


def test_names_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\x1b[31mred\x07", "new\nline: equal", "\u202etxt.exe", "c1\x9b31m"]
    first = layout(tmp_path / "first", LAYERS)
    second = layout(tmp_path / "second", [layer([Item(path=name, data=b"x") for name in names])])
    found = comparison.compare(first, second, epoch=None, say=report.say)
    differences_shown.compared(found, as_json=False)
    differences_shown.compared(found, as_json=True)
    printed = "".join(capsys.readouterr())
    assert not set(printed) & set("\x1b\x07\u202e\x9b")
    assert not any(line.startswith("line: equal") for line in printed.splitlines())
    assert "/a\\x1b[31mred\\x07" in printed
    assert "/new\\nline: equal" in printed


def test_json_that_is_nested_too_deep_is_not_json() -> None:
    with pytest.raises(json.JSONDecodeError, match="nested too deep"):
        json_text.loads("[" * 100_000)


@pytest.mark.parametrize(
    ("text", "shown"), [("a\tb\nc", "a\tb\nc"), ("\r\x1b]0;x\x07", "\\r\\x1b]0;x\\x07"), ("ü\u2066", "ü\\u2066")]
)
def test_what_would_steer_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert report.tame(text) == shown
