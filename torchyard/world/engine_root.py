"""The private engine's programs: unpacked from the distribution's own packages into a directory of their own.

Nothing is installed on the host and no maintainer script runs: apt's own configuration (proxy, certificates,
credentials, mirror) fetches the packages into a directory, dpkg-deb unpacks them, a rename makes the result whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torchyard.errors import Surroundings
from torchyard.world import process
from torchyard.world.engine_sources import Host, Recipe, read_sources, recipe, sources_text, stamp

MARKER = "torchyard-root"
NEEDED = 1200 << 20  # bytes on disk while it is made: archives, lists and what is unpacked
MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


def apt_configuration(folder: Path, architecture: str) -> str:
    """What is laid over the host's apt configuration, so that apt works in `folder` and nowhere else."""
    cleared = ("APT::Architectures", "APT::Update::Pre-Invoke", "APT::Update::Post-Invoke",
               "APT::Update::Post-Invoke-Success", "DPkg::Pre-Install-Pkgs", "DPkg::Pre-Invoke",
               "DPkg::Post-Invoke")  # fmt: skip
    values = {
        "APT::Architecture": architecture,
        "APT::Default-Release": "",
        "APT::Install-Recommends": "false",
        "APT::Install-Suggests": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "3",
        "Dir::Cache": folder / "cache",
        "Dir::Cache::archives": "archives",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": folder / "sources",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
    }
    lines = [f"#clear {name};" for name in cleared]
    lines += [f'{name} "{value}";' for name, value in values.items()]
    lines.append(f'APT::Architectures {{ "{architecture}"; }};')
    return "\n".join(lines) + "\n"


def made(root: Path) -> str:
    """The stamp of a finished root; empty where there is none or a half-made one."""
    marker = root / MARKER
    return marker.read_text() if marker.is_file() else ""


def make(root: Path, host: Host, *, say: Callable[[str], None], lock: int) -> None:
    """Make the root anew beside its place and move it there when it is whole.

    lock is a descriptor that the children inherit: while one of them outlives a killed parent, the lock stays held.
    """
    for rest in root.parent.glob("making-*"):
        remove_tree(rest)
    wanted = recipe(host, read_sources())
    free = shutil.disk_usage(root.parent).free
    if free < NEEDED:
        raise Surroundings(
            f"the engine's programs need {NEEDED >> 20} MiB in {root.parent}, and {free >> 20} MiB are free there",
            hint="make room, or set TORCHYARD_ENGINE_HOME to a directory on another disk",
        )
    say(f"fetching the engine's programs: packages of {wanted.distribution} {wanted.suite} into {root}")
    room = Path(tempfile.mkdtemp(prefix="making-", dir=root.parent))
    try:
        archives = _download(room / "apt", wanted, lock=lock)
        say(f"unpacking {len(archives)} packages of {wanted.distribution} {wanted.suite}")
        fresh = room / "root"
        unpack(archives, fresh, lock=lock)
        (fresh / MARKER).write_text(stamp(host))
        remove_tree(root)
        os.rename(fresh, root)
    finally:
        remove_tree(room)


def _download(folder: Path, wanted: Recipe, *, lock: int) -> list[Path]:
    for name in ("cache/archives/partial", "sources", "state/lists/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources" / "engine.sources").write_text(sources_text(wanted.sources))
    architecture = process.run(["dpkg", "--print-architecture"]).out.strip()
    (folder / "conf").write_text(apt_configuration(folder, architecture))
    apt = ("apt-get", "--config-file", str(folder / "conf"), "--quiet", "--yes")
    hint = (
        f"the packages come from the mirror of your own apt sources; where a key is missing, upgrade the package "
        f"{wanted.distribution}-archive-keyring, then try again"
    )
    process.run([*apt, "--error-on=any", "update"], pass_fds=(lock,), hint=hint)
    process.run([*apt, "--download-only", "install", *wanted.packages], pass_fds=(lock,), hint=hint)
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def unpack(archives: Sequence[Path], root: Path, *, lock: int) -> None:
    """Unpack .deb files into a root whose /bin, /lib and /sbin are those of /usr; then name what scripts would have."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for archive in archives:
        process.run(["dpkg-deb", "--extract", str(archive), str(root)], pass_fds=(lock,))
    for name in MERGED:
        _merge(root / name, root / "usr" / name)
        if not any((root / "usr" / name).iterdir()):
            (root / "usr" / name).rmdir()
            (root / name).unlink()
    link = root / "usr" / "bin" / "sh"
    if not link.exists():
        link.symlink_to("dash")
    release = Path("/usr/lib/os-release")  # this root stands in for the host's /usr, so it answers as the host
    if release.is_file():
        (root / "usr" / "lib" / "os-release").write_bytes(release.read_bytes())
    (root / "tmp").mkdir(exist_ok=True)
    (root / "run").mkdir(exist_ok=True)


def _merge(top: Path, usr: Path) -> None:
    """Where a package replaced the link /lib by a directory, move what is in it to /usr/lib."""
    if top.is_symlink():
        return
    shutil.copytree(top, usr, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(top)
    top.symlink_to(f"usr/{usr.name}")


def remove_tree(path: Path) -> None:
    """Remove a directory of ours; refused while something is mounted below it, which would be emptied too."""
    if not path.exists():
        return
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [m for m in mounts if m == str(path) or m.startswith(f"{path}/")]
    if below:
        raise Surroundings(
            f"something is mounted at {below[0]}, so {path} is not removed",
            hint=f"unmount it first: umount {below[0]}",
        )
    shutil.rmtree(path)
