"""Reading YAML as located nodes."""

from __future__ import annotations

import pytest

from torchyard import yaml_source
from torchyard.errors import InputError
from torchyard.yaml_source import Mapping, Scalar


def mistakes(text: str) -> list[str]:
    """`LINE:COL what` of each mistake."""
    _, source = yaml_source.read(text, "env.yaml")
    return [f"{p.mark.line}:{p.mark.col} {p.what}" for p in source.problems()]


def value(text: str) -> Scalar:
    """The value of the only key."""
    root, _ = yaml_source.read(text, "env.yaml")
    assert isinstance(root, Mapping)
    found = root.entries[0][1]
    assert isinstance(found, Scalar)
    return found


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("3.10", "float"), ("12", "int"), ("0o17", "float"), ("1_000", "int"), ("1:30", "int"), ("1e5", "float"),
        (".5", "float"), (".inf", "float"), ("yes", "bool"), ("off", "bool"), ("~", "null"), ("", "null"),
        ("2026-11-30", "date"), ("2.14.1", "text"), ("580.65.06", "text"), ("'3.10'", "text"), ('"yes"', "text"),
        ("x86-64-v3", "text"), ("0x1F", "int"), ("y", "text"),
    ],
)  # fmt: skip
def test_a_value_is_known_for_what_yaml_makes_of_it(written: str, kind: str) -> None:
    assert value(f"key: {written}\n").kind == kind


def test_every_value_keeps_its_text_and_place() -> None:
    found = value("\n\n  key:   3.10\n")
    assert (found.text, found.mark.line, found.mark.col) == ("3.10", 3, 10)


def test_a_value_that_is_not_there_stands_at_its_key() -> None:
    assert value("a:\nb: 1\n").mark.line == 1


def test_byte_order_mark_and_windows_line_ends_are_told_together_with_the_rest() -> None:
    told = mistakes("\ufeffa: 1\r\na: 2\r\nb: *x\n")
    assert told == [
        "1:1 the file starts with a byte order mark (U+FEFF)",
        "1:1 2 lines end with CR LF; the file is read with LF only",
        "2:1 the key 'a' is here twice; first on line 1",
        "3:4 the alias '*x' is not allowed",
    ]


@pytest.mark.parametrize("odd", ["\x00", "\x1b", "\u202e", "\u2028", "\x85", "\r"])
def test_what_cannot_be_seen_is_told_with_its_code_point(odd: str) -> None:
    assert mistakes(f"a: 1\nb: x{odd}y\n") == [f"2:5 the character U+{ord(odd):04X} cannot be seen and is not allowed"]


def test_a_broken_block_costs_one_message_and_the_others_are_read() -> None:
    root, source = yaml_source.read("a: [1, 2\nb: 1\nc: 'x\nd: 2\n", "env.yaml")
    assert isinstance(root, Mapping)
    assert [key.text for key, _ in root.entries] == ["b", "d"]
    assert [p.mark.line for p in source.problems()] == [1, 3]


def test_nesting_ends_at_the_limit() -> None:
    assert "nested deeper" in mistakes("a: " + "[" * 41 + "]" * 41)[0]
    assert mistakes("a: " + "[" * 38 + "]" * 38) == []


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 50_000, "a: &a [*a]\n" * 20_000])
def test_a_bomb_is_told_and_not_built(text: str) -> None:
    assert 0 < len(mistakes(text)) <= yaml_source.MAX_PROBLEMS + 1


def test_bytes_that_are_no_text_are_told_with_their_place() -> None:
    with pytest.raises(InputError) as caught:
        yaml_source.decode(b"a: 1\nb: caf\xe9\n", "env.yaml")
    assert (caught.value.where, caught.value.what) == ("env.yaml:2:7", "byte 0xe9 is not UTF-8")


def test_a_file_in_utf_16_is_told_so() -> None:
    with pytest.raises(InputError, match="not UTF-8") as caught:
        yaml_source.decode("a: 1".encode("utf-16"), "env.yaml")
    assert "UTF-16" in caught.value.hint


def test_a_huge_file_is_refused_by_its_size() -> None:
    with pytest.raises(InputError, match="the limit, which is 262,144"):
        yaml_source.decode(b"#" * (yaml_source.MAX_BYTES + 1), "env.yaml")


def test_a_shown_line_holds_no_control_characters_and_fits() -> None:
    _, source = yaml_source.read("a: \x1b[31m" + "x" * 500 + "\na: 1\n", "env.yaml")
    for problem in source.problems():
        assert problem.shown.replace("\n", "").isprintable()
        assert max(map(len, problem.shown.split("\n"))) < 140
