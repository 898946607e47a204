"""The named contexts of a build: what the lock pins, nothing else, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from lock_samples import lock, package
from wheel_samples import File, make

from torchyard import oci, render
from torchyard.lock import LockedImage, Tools
from torchyard.oci import Layer, Start
from torchyard.ospin import OsPin
from torchyard.wheelpin import WheelPin
from torchyard.world import context, workspace
from torchyard.world.workspace import Workspace

UV = {"uv-0.13.9.data/scripts/uv": File(data=b"\x7fELF uv", mode=0o755)}


def keep(work: Workspace, data: bytes) -> tuple[str, int]:
    """Put bytes into the store; their hash and length."""
    with work.store.incoming() as stream:
        stream.write(data)
        stream.flush()
        return work.store.keep(Path(stream.name)), len(data)


def wheel(work: Workspace, name: str, version: str = "1.0", files: dict[str, File] | None = None) -> WheelPin:
    """A real wheel in the store, pinned."""
    path = make(work.root / "made", name.replace("-", "_"), files or {f"{name}.py": File(data=b"1")}, version=version)
    sha256, size = keep(work, path.read_bytes())
    return WheelPin(name=name, version=version, file=path.name, sha256=sha256, size=size, index="pypi")


def deb(work: Workspace, name: str, group: str) -> OsPin:
    """A file in the store that is pinned as a package."""
    sha256, size = keep(work, f"{name} deb".encode())
    return replace(package(name, group), sha256=sha256, size=size)


def ready(root: Path) -> tuple[Workspace, LockedImage, Start]:
    """A project whose store has all that its lock pins."""
    root.mkdir(parents=True, exist_ok=True)
    work = Workspace(root)
    uv = wheel(work, "uv", "0.13.9", UV)
    made = lock(
        os=(deb(work, "bash", "base"), deb(work, "gcc", "os"), deb(work, "git", "user"), deb(work, "gdb", "dev")),
        wheels=(*(wheel(work, name) for name in ("numpy", "nvidia-nvtx", "torch", "torchvision")), uv),
        dev_wheels=(wheel(work, "py-spy"),),
        tools=Tools(base_format="1", layer_format="1", uv=uv, buildkit_min="0.12"),
    )
    tar = bytes(10240)
    sha256, size = keep(work, gzip.compress(tar, mtime=0))
    base = Layer(digest=f"sha256:{sha256}", size=size, diff_id=oci.digest_of(tar), unpacked=len(tar))
    return work, made, Start(layers=(base,), words="a base")


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lay(work: Workspace, made: LockedImage, base: Start) -> list[str]:
    said: list[str] = []
    context.lay_out(made, base, work, say=said.append)
    return said


def test_each_context_has_what_the_lock_pins_for_it_and_nothing_else(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    lay(work, made, base)
    where = {name: work.root / path for name, path in render.contexts(made).items()}
    assert where.keys() == {
        "base",
        "steps",
        "debs-os",
        "debs-user",
        "debs-dev",
        "wheels-small",
        "wheels-own",
        "wheels-dev",
    }
    assert files(where["debs-os"]) == {"gcc_2.0-1+b2_amd64.deb": b"gcc deb"}
    assert files(where["debs-user"]) == {"git_2.0-1+b2_amd64.deb": b"git deb"}
    assert files(where["debs-dev"]) == {"gdb_2.0-1+b2_amd64.deb": b"gdb deb"}
    for name, wheels in (("wheels-small", ("numpy", "uv")), ("wheels-own", ("torchvision",))):
        wanted = {w.file for w in made.wheels if w.name in wheels}
        assert files(where[name]).keys() == {*wanted, "requirements.txt", "held.txt"}
    assert b"torchvision" in files(where["wheels-own"])["held.txt"]
    assert b"torchvision" not in files(where["wheels-small"])["held.txt"]  # an image with another one shares this layer
    assert files(where["wheels-dev"]).keys() == {made.dev_wheels[0].file, "requirements.txt", "held.txt"}
    assert files(where["steps"]).keys() == {*workspace.step_names(), "uv", "uv.from"}
    assert files(where["steps"])["uv"] == b"\x7fELF uv"


def test_the_base_is_a_layout_in_which_every_blob_is_named_by_its_hash(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    lay(work, made, base)
    folder = work.root / render.contexts(made)["base"]
    blobs = {path.name: path.read_bytes() for path in (folder / "blobs" / "sha256").iterdir()}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    layers = [blobs[each["digest"].removeprefix("sha256:")] for each in manifest["layers"]]
    assert [oci.digest_of(gzip.decompress(data)) for data in layers] == config["rootfs"]["diff_ids"]
    assert [each["created_by"] for each in config["history"]] == [
        "a base", "wheels: nvidia-nvtx==1.0", "wheels: torch==1.0",
    ]  # fmt: skip
    assert len(blobs) == len(layers) + 2


def test_laying_out_twice_touches_nothing_and_says_nothing(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    assert lay(work, made, base)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in work.local.rglob("*")}
    assert lay(work, made, base) == []
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in work.local.rglob("*")} == before


def test_what_left_the_lock_leaves_the_context(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    lay(work, made, base)
    fewer = replace(made, wheels=tuple(w for w in made.wheels if w.name not in ("numpy", "nvidia-nvtx")))
    lay(work, fewer, base)
    assert not [name for name in files(work.root / render.contexts(made)["wheels-small"]) if name.startswith("numpy")]
    layout = work.root / render.contexts(made)["base"]
    assert len(list((layout / "blobs" / "sha256").iterdir())) == 2 + 2


def test_two_projects_lay_out_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for name in ("one", "größe, with: spaces%"):
        work, made, base = ready(tmp_path / name)
        lay(work, made, base)
        trees.append(files(work.local / "context"))
    assert trees[0] == trees[1]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_have_the_same_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """B118; more of it is in test_reported_images.py."""
    old = os.umask(umask)
    try:
        work, made, base = ready(tmp_path / "x")
        lay(work, made, base)
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (work.local / "context").rglob("*") if path.is_file()}
    assert {name for name, mode in modes.items() if mode != 0o644} == {"uv"}
    assert modes["uv"] == 0o755


def test_what_a_killed_command_left_is_gone_after_the_next(tmp_path: Path) -> None:
    work, made, base = ready(tmp_path)
    half = work.root / render.contexts(made)["wheels-small"]
    rest = half.with_name(".wheels-small.unfinished-abcd1234")
    rest.mkdir(parents=True)
    (rest / "half.whl").touch()
    half.mkdir()
    (half / "stray").touch()
    note = work.local / "layers" / "x.json"
    note.parent.mkdir()
    note.write_text("")
    lay(work, made, base)
    assert not rest.exists() and not (half / "stray").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"digest": 1}', "\0"])
def test_a_note_of_a_layer_that_is_not_ours_makes_the_layer_again(tmp_path: Path, text: str) -> None:
    work, made, base = ready(tmp_path)
    lay(work, made, base)
    before = files(work.local / "context")
    for note in (work.local / "layers").iterdir():
        note.write_text(text)
    assert lay(work, made, base)
    assert files(work.local / "context") == before


def test_the_store_may_lie_on_another_disk_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "p" / ".torchyard").mkdir(parents=True)
    (tmp_path / "p" / ".torchyard" / "store").symlink_to(tmp_path / "big")
    work, made, base = ready(tmp_path / "p")
    lay(work, made, base)
    assert files(work.root / render.contexts(made)["wheels-small"])


def test_torch_what_is_bound_to_it_and_cuda_are_held_and_nothing_else(tmp_path: Path) -> None:
    _, made, _ = ready(tmp_path)
    assert context.constraints_of(made.wheels) == "nvidia-nvtx==1.0\ntorch==1.0\ntorchvision==1.0\n"
