"""The project on disk: found from below, read whole, written whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path, PurePosixPath

import pytest

from torchyard.errors import InputError, Surroundings
from torchyard.world import workspace
from torchyard.world.workspace import Workspace, write_whole

ODD = ["with space", "colon:comma,percent%25", "größe-\U0001f525", "quote'\"", "-dash", "a" * 200, "new\nline"]


def test_the_nearest_env_file_upwards_makes_the_root(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / "env.yaml").touch()
    assert workspace.find(inner).root == tmp_path
    (tmp_path / "a" / "env.yaml").touch()
    assert workspace.find(inner).root == tmp_path / "a"


def test_a_project_is_found_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "env.yaml").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert workspace.find(tmp_path / "link").root == tmp_path / "real"


def test_without_an_env_file_the_message_names_init(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        workspace.find(tmp_path)
    assert "init" in caught.value.hint


@pytest.mark.parametrize("name", ODD)
def test_a_project_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    (root / "env.yaml").touch()
    work = workspace.find(root)
    path = PurePosixPath("images/x/lock.yaml")
    assert work.write_tree({path: "1"}) == [path]
    assert work.generated() == {path: "1"}


def test_only_files_whose_text_changed_are_written(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    one, two = PurePosixPath("images/a"), PurePosixPath("images/b")
    assert work.write_tree({one: "1", two: "2"}) == [one, two]
    os.utime(tmp_path / one, (1, 1))
    assert work.write_tree({one: "1", two: "3"}) == [two]
    assert (tmp_path / one).stat().st_mtime == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_file_has_its_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        write_whole(tmp_path / "file", b"x")
        write_whole(tmp_path / "program", b"x", mode=0o755)
    finally:
        os.umask(old)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "program")] == [0o644, 0o755]


def test_a_reader_sees_the_old_or_the_new_bytes_and_nothing_between(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"0" * 100_000)
    done = threading.Event()

    def write() -> None:
        for number in range(200):
            write_whole(path, str(number % 10).encode() * 100_000)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        data = path.read_bytes()
        assert len(data) == 100_000 and data == data[:1] * 100_000
    writer.join()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    write_whole(tmp_path / "link", b"new")
    assert target.read_text() == "mine" and not (tmp_path / "link").is_symlink()


def test_a_file_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Surroundings) as caught:
        write_whole(tmp_path / "file" / "below", b"x")
    assert caught.value.where and caught.value.hint
    (tmp_path / "folder").mkdir()
    with pytest.raises(Surroundings):
        write_whole(tmp_path / "folder", b"x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_that_is_not_text_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "lock.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    for name in ("lock.yaml", "folder"):
        with pytest.raises(InputError) as caught:
            Workspace(tmp_path).read(name)
        assert caught.value.where == name and caught.value.hint
    assert Workspace(tmp_path).read("gone") is None
    assert Workspace(tmp_path).read("lock.yaml/below") is None


def test_removing_a_generated_file_takes_its_empty_folder_with_it(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write_tree({PurePosixPath("images/a/Dockerfile"): "1", PurePosixPath("images/b/Dockerfile"): "1"})
    (tmp_path / "images" / "b" / "mine").touch()
    for name in ("a", "b"):
        work.remove(PurePosixPath(f"images/{name}/Dockerfile"))
    work.remove(PurePosixPath("images/a/Dockerfile"))
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["b"]


def test_a_projects_own_template_goes_before_the_packaged_one(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    assert work.template("parts/head.j2") == workspace.packaged_template("parts/head.j2")
    (tmp_path / "templates" / "parts").mkdir(parents=True)
    (tmp_path / "templates" / "parts" / "head.j2").write_text("# mine")
    assert work.template("parts/head.j2") == "# mine"
    assert work.template("parts/nothing.j2") is None


def test_commands_that_write_take_turns(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with Workspace(tmp_path).alone(said.append):
            order.append("second")

    with work.alone(said.append):
        other = threading.Thread(target=second)
        other.start()
        while not said:
            other.join(0.01)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert "waiting" in said[0]
