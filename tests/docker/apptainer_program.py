"""Debian's own Apptainer for tests, unpacked into a folder that is the root of the mount namespace it runs in."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import other_release

RELEASE = "sid"  # the only one that has it
WANTED = ("apptainer",)
OTHERS = ("coreutils", "dash", "mount", "squashfuse", "tzdata", "util-linux")
USER = 4321
ENTER = """\
#!/bin/sh
# $1 the root, $2 a folder; then a command that sees that folder at its own path, and else this root's files.
set -eu
root=$1 folder=$2 here=$(pwd)
shift 2
mount --bind "$root" "$root"
for each in /proc /sys /dev; do
    mkdir -p "$root$each"
    mount --rbind "$each" "$root$each"
done
for each in "$folder" /tmp; do # not what is mounted below: this root is
    mkdir -p "$root$each"
    mount --bind "$each" "$root$each"
done
if [ -e "$root/fuse" ]; then
    mount --bind "$root/fuse" "$root/dev/fuse"
fi
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount --lazy /old
cd "$here"
exec "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Apptainer:
    """programs: a folder for PATH that has `apptainer`, run as who calls it; home: a folder of the ordinary user."""

    programs: Path
    home: Path
    enter: tuple[str, ...]

    def as_user(self, *arguments: str) -> list[str]:
        """The command line of `apptainer` as an ordinary user who cannot become another."""
        become = [
            "setpriv",
            f"--reuid={USER}",
            f"--regid={USER}",
            "--clear-groups",
            "--no-new-privs",
            "--inh-caps=-all",
        ]
        environment = ["env", "-i", "PATH=/usr/bin", f"HOME={self.home}", f"APPTAINER_TMPDIR={self.home}"]
        return [*self.enter, *become, *environment, "apptainer", *arguments]


def made(folder: Path, data: Path) -> Apptainer:
    """Apptainer in a new folder; it sees what is in `data`. Everybody has to be able to reach both.

    Skips, with what apt said, where it cannot be had.
    """
    folder.mkdir()
    root = other_release.unpacked(folder, RELEASE, WANTED, OTHERS)
    _finish(root)
    home, programs = folder / "home", folder / "bin"
    home.mkdir()
    os.chown(home, USER, USER)
    (folder / "enter").write_text(ENTER)
    enter = ("unshare", "--mount", "--propagation", "private", "sh", str(folder / "enter"), str(root), str(data))
    programs.mkdir()
    (programs / "apptainer").write_text(f'#!/bin/sh\nexec {shlex.join(enter)} /usr/bin/apptainer "$@"\n')
    (programs / "apptainer").chmod(0o755)
    return Apptainer(programs=programs, home=home, enter=enter)


def _finish(root: Path) -> None:
    """What the packages' scripts and the machine would have put there."""
    for name in ("hosts", "resolv.conf"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\nuser:x:{USER}:{USER}::/:/bin/sh\n")
    (root / "etc" / "group").write_text(f"root:x:0:\nuser:x:{USER}:\n")
    shutil.copy(root / "usr" / "share" / "zoneinfo" / "Etc" / "UTC", root / "etc" / "localtime")
    fuse = root / "fuse"
    try:  # everybody may open it on most machines, not on all
        os.mknod(fuse, stat.S_IFCHR | 0o666, os.makedev(10, 229))
        fuse.chmod(0o666)
        os.close(os.open(fuse, os.O_RDWR))
    except OSError:  # then Apptainer unpacks what it cannot mount
        fuse.unlink(missing_ok=True)
        for program in (root / "usr" / "bin").glob("squashfuse*"):
            program.unlink()
