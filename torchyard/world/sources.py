"""The source of torch in the store: a commit of the repository with its submodules, or the release's archive."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import IO

import requests
import yaml

from torchyard.errors import CheckFailed, InputError, Surroundings
from torchyard.sourcepin import SourceKind, SourcePin
from torchyard.world import process, unfinished
from torchyard.world.download import Changed, CutOff, NotThere, download
from torchyard.world.store import Store

Say = Callable[[str], None]
MIRROR = "git"  # the key of a mirrors file: {an address begins with: begins with instead}
_TOP = "pytorch"  # the one folder at the top of the tar
# Nothing that a user's git does to files on their way out may change the bytes of the source.
_PLAIN = (
    "-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", f"core.attributesFile={os.devnull}",
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.symlinks=true", "-c", "advice.detachedHead=false",
)  # fmt: skip
_HINT = (
    "where the repository cannot be reached, name a mirror: mirrors: {git: {ADDRESS-OF-THE-REPOSITORY: OTHER}} in the"
    " mirrors file, or give source.archive"
)


def shipped() -> dict[str, str]:
    """The addresses that torchyard/data/source.yaml has: `repository`, and `archive` with `{ref}` in it."""
    raw = yaml.safe_load(resources.files("torchyard.data").joinpath("source.yaml").read_text("utf-8"))
    return {name: str(raw[name]) for name in ("repository", "archive")}


def read_mirrors(files: Sequence[Path]) -> dict[str, str]:
    """What the mirrors files put in the place of addresses of git and of source archives; an earlier file wins."""
    found: dict[str, str] = {}
    for file in files:
        raw = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        table = raw.get("mirrors", {}).get(MIRROR, {}) if isinstance(raw, dict) else {}
        if not isinstance(table, dict) or not all(isinstance(v, str) for row in table.items() for v in row):
            raise InputError(
                "a table from address to address is needed",
                where=f"{file}  mirrors.{MIRROR}",
                hint="write git: {https://github.com/: https://mirror.example.com/}",
            )
        found = table | found
    return found


def pin_git(ref: str, commit: str, store: Store, mirrors: Mapping[str, str], say: Say) -> SourcePin:
    """A commit of the repository with every submodule, as one tar in the store that depends on the commit alone."""
    with store.incoming() as stream:
        _export(ref, commit, stream, mirrors, say)
        stream.flush()
        size = Path(stream.name).stat().st_size
        sha256 = store.keep(Path(stream.name))
    return SourcePin(kind=SourceKind.GIT, ref=ref, commit=commit, sha256=sha256, size=size)


def pin_archive(
    ref: str, commit: str, sha256: str, store: Store, session: requests.Session, mirrors: Mapping[str, str], say: Say
) -> SourcePin:
    """The release's source archive in the store, which has this hash."""
    _archive(ref, sha256, None, store, session, mirrors, say)
    size = store.path(sha256).stat().st_size
    return SourcePin(kind=SourceKind.ARCHIVE, ref=ref, commit=commit, sha256=sha256, size=size)


def fetch(pin: SourcePin, store: Store, session: requests.Session, mirrors: Mapping[str, str], say: Say) -> None:
    """Have a pinned source in the store; a source that comes out otherwise is told with both hashes."""
    if store.has(pin.sha256, pin.size):
        return
    if pin.kind is SourceKind.ARCHIVE:
        return _archive(pin.ref, pin.sha256, pin.size, store, session, mirrors, say)
    seen = pin_git(pin.ref, pin.commit, store, mirrors, say)
    if seen.sha256 != pin.sha256:
        raise CheckFailed(
            f"the source of commit {pin.commit} is not what was locked: expected sha256 {pin.sha256}"
            f" ({pin.size} bytes), seen {seen.sha256} ({seen.size} bytes)",
            where=f"source {pin.ref}",
            hint="a submodule that it names is another one there: take another mirror, or lock again",
        )
    return None


def _archive(
    ref: str,
    sha256: str,
    size: int | None,
    store: Store,
    session: requests.Session,
    mirrors: Mapping[str, str],
    say: Say,
) -> None:
    address = shipped()["archive"].format(ref=ref)
    place = next((new + address.removeprefix(old) for old, new in mirrors.items() if address.startswith(old)), address)
    say(f"fetching the source archive of {ref}")
    try:
        download([place], sha256=sha256, size=size, store=store, session=session)
    except Changed as error:
        raise CheckFailed(
            f"the source archive of {ref} is another one: {error.what}",
            where=error.url,
            hint="put the hash of the archive that is meant into source.archive of env.yaml",
        ) from error
    except (CutOff, NotThere) as error:
        raise Surroundings(f"the source archive of {ref}: {error.what}", where=error.url, hint=_HINT) from error


def _export(ref: str, commit: str, out: IO[bytes], mirrors: Mapping[str, str], say: Say) -> None:
    repository = shipped()["repository"]
    with unfinished.directory(Path(out.name).parent.parent, "torchyard-source-") as made:
        folder = str(made)
        say(f"fetching the source of {ref} at {commit}, with its submodules")
        _git(folder, mirrors, "init", "--quiet")
        _git(folder, mirrors, "remote", "add", "origin", repository)
        _fetch(folder, mirrors, ref, commit)
        _git(folder, mirrors, "checkout", "--quiet", "--force", commit)
        _git(folder, mirrors, "submodule", "--quiet", "sync", "--recursive")
        _git(folder, mirrors, "submodule", "--quiet", "update", "--init", "--recursive", "--force", "--depth", "1")
        _tar(Path(folder), out)


def _fetch(folder: str, mirrors: Mapping[str, str], ref: str, commit: str) -> None:
    """The commit by its name; by the reference where a server gives out references only."""
    alone = _git(folder, mirrors, "fetch", "--quiet", "--depth", "1", "origin", commit, check=False)
    if alone.code == 0:
        return
    _git(folder, mirrors, "fetch", "--quiet", "--tags", "origin", ref)
    if _git(folder, mirrors, "cat-file", "-e", f"{commit}^{{commit}}", check=False).code != 0:
        raise CheckFailed(
            f"the repository has no commit {commit} in {ref}",
            where=f"source {ref}",
            hint="give the commit that is meant with source.commit, or the reference that has it with source.ref",
        )


def _git(folder: str, mirrors: Mapping[str, str], *arguments: str, check: bool = True) -> process.Completed:
    instead = [part for old, new in mirrors.items() for part in ("-c", f"url.{new}.insteadOf={old}")]
    local = (
        ["-c", "protocol.file.allow=always"] if any(new.startswith(("file:", "/")) for new in mirrors.values()) else []
    )
    return process.run(
        ["git", *_PLAIN, *local, *instead, *arguments],
        cwd=folder,
        env={"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_DIR": None, "GIT_WORK_TREE": None},
        check=check,
        hint=_HINT,
    )


def _tar(root: Path, out: IO[bytes]) -> None:
    """Every file below a folder, sorted, without git's own, owners, times and other rights than to execute."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
            name = path.relative_to(root)
            if ".git" in name.parts:
                continue
            entry = tar.gettarinfo(path, arcname=f"{_TOP}/{name.as_posix()}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o777 if entry.issym() else 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            if entry.islnk():  # git knows no hard links; a file is told whole
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            if entry.isreg():
                with path.open("rb") as stream:
                    tar.addfile(entry, stream)
            else:
                tar.addfile(entry)
