"""The base image of kind `archive`: bootstrapped from locked package files, the same bytes each time."""

from __future__ import annotations

import contextlib
import hashlib
import os as system
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.errors import Surroundings
from torchyard.ospin import OsPin
from torchyard.world import archive_data, boot_normal, boot_oci, process, seed
from torchyard.world.boot_oci import Layout
from torchyard.world.store import Store

RECIPE = "1"  # goes up with any change here that changes the bytes of a base

_DOCKERFILE = """\
FROM scratch
ADD seed.tar /
RUN --network=none --mount=type=bind,source=step,target=/run/step sh /run/step/install.sh
"""

# base-passwd and base-files first: they bring the users and the directories that the scripts of all others expect.
# The rest in one go: every program is there already, from the seed, so the order in which they are unpacked is free.
_INSTALL = """\
set -eu
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true DEBCONF_NOWARNINGS=yes
export LC_ALL=C.UTF-8 TZ=UTC HOME=/root SOURCE_DATE_EPOCH={epoch}
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
if [ "$(date +%s)" -le {epoch} ]; then # then what the scripts write is not told from what the packages brought
    echo "this machine's clock says $(date -u '+%F %T UTC'), which is before the lock's archive was made" \
        "($(date -u -d @{epoch} '+%F %T UTC')): set it" >&2
    exit 1
fi
cd /run/step
dpkg --force-depends --install base-passwd.deb
dpkg --force-depends --install base-files.deb
dpkg --force-depends --skip-same-version --install ./*.deb
dpkg --configure -a
dpkg --audit
test -z "$(dpkg --audit)"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Builder:
    """How buildx is called: its argv so far (`docker buildx`) and the environment that reaches the engine."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def key(pins: Sequence[OsPin], *, epoch: int, os: str, arch: str) -> str:
    """One name for everything that the bytes of a base depend on."""
    files = sorted(f"{pin.name} {pin.sha256}" for pin in pins)
    return hashlib.sha256("\n".join([RECIPE, os, arch, str(epoch), *files]).encode()).hexdigest()


def build_base(
    pins: Sequence[OsPin],
    *,
    store: Store,
    epoch: int,
    os: str,
    arch: str,
    builder: Builder,
    cache: Path,
    say: Callable[[str], None],
    no_cache: bool = False,
) -> Layout:
    """The base of these pins as an OCI layout below `cache`; one that is there already is taken as it is."""
    folder = cache / key(pins, epoch=epoch, os=os, arch=arch)
    if not no_cache and (there := boot_oci.read(folder)):
        return there
    cache.mkdir(parents=True, exist_ok=True)
    _sweep(cache)
    say(f"bootstrapping {os} ({arch}) from {len(pins)} packages")
    with tempfile.TemporaryDirectory(
        dir=cache, prefix=f"making-{system.getpid()}-", ignore_cleanup_errors=True
    ) as work:
        root = Path(work)
        raw, tar = root / "raw.tar", root / "base.tar"
        _run_dpkg(pins, raw, root / "context", store=store, epoch=epoch, arch=arch, builder=builder, no_cache=no_cache)
        boot_normal.normalise(raw, tar, epoch=epoch)
        raw.unlink()
        boot_oci.write(tar, root / "oci", epoch=epoch, arch=arch, words=f"{os} from its package archive")
        if no_cache:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster: its bytes are the same
            system.rename(root / "oci", folder)
    made = boot_oci.read(folder)
    if made is None:
        raise Surroundings("the base could not be written", where=str(folder), hint="check the disk and its rights")
    return made


def _sweep(cache: Path) -> None:
    """Remove what a killed process left half-made."""
    for folder in cache.glob("making-*"):
        pid = folder.name.split("-")[1]
        if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
            shutil.rmtree(folder, ignore_errors=True)


def _run_dpkg(
    pins: Sequence[OsPin],
    target: Path,
    context: Path,
    *,
    store: Store,
    epoch: int,
    arch: str,
    builder: Builder,
    no_cache: bool,
) -> None:
    """Let dpkg install the pins inside the seed, without a network, and write the file system that results."""
    step = context / "step"
    step.mkdir(parents=True)
    ordered = sorted(pins, key=lambda pin: pin.name)
    for pin in ordered:
        store.link(pin.sha256, step / f"{pin.name}.deb")
    seed.write([step / f"{pin.name}.deb" for pin in ordered], context / "seed.tar", epoch=epoch)
    (step / "install.sh").write_text(_INSTALL.format(epoch=epoch), encoding="utf-8")
    (context / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
    for path in (step / "install.sh", context / "Dockerfile", context / "seed.tar"):
        path.chmod(0o644)
    platform = f"linux/{archive_data.deb_architecture(arch)}"
    argv = [*builder.argv, "build", "--progress=plain", "--provenance=false", "--platform", platform]
    argv += ["--no-cache"] if no_cache else []
    process.run(
        [*argv, "--output", f"type=tar,dest={target}", str(context)],
        env=dict(builder.env),
        hint="its last lines tell which package failed; ./yard engine --status tells whether the engine is well",
    )
