"""What both sides of a measurement are given: locks, wheels in one directory, packages in one archive, the base."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import sha256
from pathlib import Path

import clones
from clones import Clone

from torchyard import groups, lock, oci
from torchyard.lock import LockedImage
from torchyard.ospin import OsPin
from torchyard.world import archive, archive_deb, boot_oci, bootstrap
from torchyard.world.archive import Archives
from torchyard.world.boot_oci import Layout
from torchyard.world.store import Store

from . import baseline, places

# What is added and changed, one for each pair: every one has to be news to the engine.
ADDED = tuple(f"tqdm=={v}" for v in ("4.66.1", "4.66.2", "4.66.4", "4.66.5", "4.66.6", "4.67.0", "4.67.1"))
MOVED = tuple(f"fsspec=={v}" for v in ("2025.3.0", "2025.3.2", "2025.5.0", "2025.5.1", "2025.7.0", "2025.9.0", "2025.10.0"))  # fmt: skip  # noqa: E501
# A package and a wheel of each image that differs a little; no package that the dev target has.
OTHERS = tuple(
    zip(
        ("file", "tree", "time", "tmux", "rsync", "unzip", "patch"),
        (f"more-itertools=={v}" for v in ("10.1.0", "10.2.0", "10.3.0", "10.4.0", "10.5.0", "10.6.0", "10.7.0")),
    )
)
MOST = len(ADDED)
# What images of Debian in registries have, so that packages that apt fetched do not stay in a layer.
DOCKER_CLEAN = """\
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""


def another(number: int) -> str:
    """The hardware entry of the image of this number that differs from `cpu` by a package and a requirement."""
    return f"another{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What is prepared in `folder`, once for all measurements: a clone in which everything is locked and fetched."""

    folder: Path
    clone: Clone
    programs: Path

    @property
    def archive(self) -> Path:
        """What is served over HTTP: debian/ and debian-security/ by path, flat/ for apt."""
        return self.folder / "archive"

    def lock(self, gpu: str) -> LockedImage:
        """The lock of the image that a hardware entry selects."""
        path = self.clone.root / "images" / self.clone.image(gpu) / "lock.yaml"
        return lock.from_text(path.read_text(), name=path.name)

    def wheels(self, gpu: str) -> Path:
        """The directory with the wheels of this image and no other file."""
        return self.folder / f"wheels-{gpu}"

    @property
    def more(self) -> Path:
        """The directory of wheels that only torchyard's dev target has, and of those that are added and changed."""
        return self.folder / "wheels-more"

    def base(self, gpu: str) -> Layout:
        """The root file system that both sides start from."""
        found = self.lock(gpu)
        key = bootstrap.key(found.group("base"), epoch=found.epoch, os=found.image.base.os, arch=found.image.arch)
        layout = boot_oci.read(self.clone.root / ".torchyard" / "bases" / key)
        assert layout is not None, f"no base for {found.id}"
        return layout


def prepare(gpus: Sequence[str], *, others: int = 0) -> Inputs:
    """Have everything that the images of these entries need on this machine; the network is used here and nowhere else.

    others: how many images that differ a little from the one of `cpu` are locked beside it.
    """
    folder = places.home()
    clone = Clone(
        root=folder / "clone",
        engine=folder / "engine",
        home=_new_home(folder / "home"),
        env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    _renew(clone)
    source = Path.home() / ".cache" / "torchyard" / "engine"
    if not clone.engine.exists() and (source / "root").is_dir():
        clones.programs(source, clone.engine)
    _entries(clone, others)
    clones.seed(clone, clones.ROOT / ".torchyard" / "store")
    names = [*gpus, *(another(number) for number in range(others))]
    for gpu in names:
        _fetch(clone, gpu)
    clone.git("add", "--all")
    clone.git("commit", "--quiet", "--allow-empty", "--message", "as it is measured")
    made = Inputs(folder=folder, clone=clone, programs=clone.engine / "root")
    _wheels(made, gpus, [made.lock(gpu) for gpu in names])
    _archive(made, [made.lock(gpu) for gpu in names])
    clone.yard("engine", "--down").good()
    return made


def _new_home(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    return clones.new_home(path)


def _renew(clone: Clone) -> None:
    """The checkout as it is now, with what an earlier preparation fetched."""
    local, kept = clone.root / ".torchyard", clone.root.with_name("kept")
    if local.is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        local.rename(kept)
    shutil.rmtree(clone.root, ignore_errors=True)
    clones.copy_checkout(clones.ROOT, clone.root)
    if kept.is_dir():
        kept.rename(local)


def _entries(clone: Clone, others: int) -> None:
    """The hardware entries of images that differ a little from the one of `cpu`."""
    path = clone.root / "env.yaml"
    rows = "".join(
        f"  {another(n)}: {{torch: {json.dumps(_torch(path))}, packages: {{name: {another(n)}, apt: [{package}],"
        f" pip: [numpy, {wheel}]}}}}\n"
        for n, (package, wheel) in enumerate(OTHERS[:others])
    )
    path.write_text(path.read_text().replace("\nhardware:\n", f"\nhardware:\n{rows}", 1))


def _torch(path: Path) -> str:
    found = re.search(r'^  cpu: \{torch: "([^"]+)"', path.read_text(), re.MULTILINE)
    assert found, "env.yaml has no entry cpu with a torch of its own"
    return found[1]


def _fetch(clone: Clone, gpu: str) -> None:
    """Lock what has no lock and fetch it; where the archive has moved since, lock its packages anew."""
    clone.yard("lock", "--gpu", gpu).good()
    done = clone.yard("fetch", "--gpu", gpu)
    if done.code and "lock --upgrade os" in done.err:
        clone.yard("lock", "--upgrade", "os", "--gpu", gpu).good()
        done = clone.yard("fetch", "--gpu", gpu)
    done.good()


def _wheels(made: Inputs, gpus: Iterable[str], locks: Sequence[LockedImage]) -> None:
    store = Store(made.clone.store)
    for gpu in gpus:
        shutil.rmtree(made.wheels(gpu), ignore_errors=True)
        for pin in made.lock(gpu).wheels:
            store.link(pin.sha256, made.wheels(gpu) / pin.file)
    made.more.mkdir(exist_ok=True)
    for pin in {pin.sha256: pin for each in locks for pin in each.dev_wheels}.values():
        store.link(pin.sha256, made.more / pin.file)
    asked = (*ADDED, *MOVED, *(wheel for _, wheel in OTHERS))
    missing = [each for each in asked if not list(made.more.glob(_file(each)))]
    for each in missing:
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(made.more)]
        places.run([sys.executable, "-m", "pip", "download", *options, each])


def _file(requirement: str) -> str:
    """The pattern of the file names of a pinned requirement."""
    name, _, version = requirement.partition("==")
    return f"{name.replace('-', '_')}-{version}-*.whl"


def _archive(made: Inputs, locks: Sequence[LockedImage]) -> None:
    """The archive on disk: every package of the locks, and what the hand-written files install beside them."""
    shutil.rmtree(made.archive, ignore_errors=True)
    store = Store(made.clone.store)
    pins = {pin.sha256: pin for each in locks for pin in each.os}
    for pin in pins.values():
        top = "debian-security" if pin.archive == "security" else "debian"
        store.link(pin.sha256, made.archive / top / pin.path)
    first = locks[0]
    means = Archives(store=store, cache=made.clone.root / ".torchyard" / "archives", mirrors=[], say=lambda _: None)
    wanted = {**{name: groups.wanted(first.image)[name] for name in ("base", "os")}, "baseline": baseline.INSTALLED}
    known = {(pin.name, pin.architecture): pin for each in locks for pin in each.os}
    answer = archive.resolve(first.image.base.os, first.image.arch, wanted, archives=means, prefer=list(known.values()))
    archive.fetch(answer.pins, os=first.image.base.os, arch=first.image.arch, archives=means, dates=answer.dates)
    _flat(made.archive / "flat", {**pins, **{pin.sha256: pin for pin in answer.pins}}.values(), store)


def _flat(folder: Path, pins: Iterable[OsPin], store: Store) -> None:
    """A folder that apt takes packages from: the files, their list, and the list's hash."""
    paragraphs = []
    for pin in sorted(pins, key=lambda pin: (pin.name, pin.version, pin.sha256)):
        file = Path(pin.path).name
        store.link(pin.sha256, folder / file)
        control = archive_deb.control(store.path(pin.sha256)).strip()
        paragraphs.append(f"{control}\nFilename: ./{file}\nSize: {pin.size}\nSHA256: {pin.sha256}\n")
    data = "\n".join(paragraphs).encode()
    (folder / "Packages").write_bytes(data)
    stamp = formatdate(0, usegmt=True)
    (folder / "Release").write_text(f"Date: {stamp}\nSHA256:\n {sha256(data).hexdigest()} {len(data)} Packages\n")


def base_with_source(layout: Layout, target: Path, address: str) -> str:
    """A named context of this base with one layer more: an apt source, and apt's settings in Docker's images."""
    shutil.rmtree(target, ignore_errors=True)
    files = {
        "etc/apt/apt.conf.d/docker-clean": DOCKER_CLEAN,
        "etc/apt/sources.list": f"deb [trusted=yes] {address}/flat ./\n",
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    packed = gzip.compress(stream.getvalue(), mtime=0)
    layer = oci.Layer(
        digest=oci.digest_of(packed),
        size=len(packed),
        diff_id=oci.digest_of(stream.getvalue()),
        unpacked=len(stream.getvalue()),
    )
    documents = oci.documents(
        oci.Start(layers=(layout.layer,), words="base"), [(layer, "apt source")], arch=_arch(), epoch=0
    )
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    shutil.copyfile(layout.blob, blobs / layout.layer.digest.removeprefix("sha256:"))
    for data in (packed, documents.config, documents.manifest):
        (blobs / oci.digest_of(data).removeprefix("sha256:")).write_bytes(data)
    (target / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (target / "index.json").write_bytes(documents.index)
    return f"oci-layout://{target}@{documents.digest}"


def _arch() -> str:
    return os.uname().machine
