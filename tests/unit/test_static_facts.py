"""The facts of a made-up image: who owns what, what is lost, what lies where it should not."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime

import lock_samples
import pytest

from torchyard.judge import static_facts
from torchyard.judge.static_facts import ImageFacts
from torchyard.world import image_files, image_layer
from torchyard.world.image_source import Read

SITE = "opt/venv/lib/python3.11/site-packages"
STATUS = (
    "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2\n\n"
    "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
)
BASE = {
    "var/lib/dpkg/status": (STATUS, 0o644),
    "var/lib/dpkg/info/bash.list": ("/bin\n/bin/bash\n/usr/lib/libbash.so.1\n", 0o644),
    "bin/bash": ("#!", 0o4755),
    "tmp": (None, 0o1777),
}
WHEEL = {
    f"{SITE}/one/__init__.py": ("x = 1\n", 0o644),
    f"{SITE}/one-1.0.dist-info/METADATA": ("Metadata-Version: 2.1\nName: One\nVersion: 1.0\n", 0o644),
    f"{SITE}/one-1.0.dist-info/RECORD": (
        "one/__init__.py,sha256=x,6\none/lost.py,sha256=x,9\n../../../bin/one,,\n",
        0o644,
    ),
    "opt/venv/bin/one": ("#!", 0o755),
}


def facts(
    *layers: dict[str, tuple[str | None, int]], mtime: int = 0, env: tuple[str, ...] = (), created: Sequence[str] = ()
) -> ImageFacts:
    """The facts of an image with these layers; created: the time of the image, then those of its steps."""
    history = [{"created_by": f"step {n}"} for n, _ in enumerate(layers)]
    history = [{**step, "created": text} for step, text in zip(history, created[1:])] or history
    config = {"architecture": "amd64", "config": {"Env": list(env)}, "history": history, "created": (*created, "")[0]}
    seen = tuple(image_layer.scan(io.BytesIO(_tar(layer, mtime)), "x") for layer in layers)
    read = Read(config=config, diff_ids=tuple(f"sha256:{n}" for n, _ in enumerate(layers)), layers=seen)
    return image_files.of(read, "image:tag", lock_samples.lock())


def _tar(files: dict[str, tuple[str | None, int]], mtime: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, (text, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = mode, mtime
            info.type = tarfile.DIRTYPE if text is None else tarfile.REGTYPE
            data = (text or "").encode()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def test_packages_and_distributions_are_read_with_what_they_lost() -> None:
    found = facts(BASE, WHEEL)
    assert [(p.name, p.version, p.first) for p in found.packages] == [("bash", "5.2", 0)]
    assert [(d.name, d.version, d.layer) for d in found.distributions] == [("one", "1.0", 1)]
    lost = {loss.owner: loss.first for loss in found.losses}
    assert lost == {"os bash": ("/usr/lib/libbash.so.1",), "python one": (f"/{SITE}/one/lost.py",)}


def test_a_file_of_another_length_than_its_package_says_is_a_change() -> None:
    found = facts(BASE, WHEEL, {f"{SITE}/one/__init__.py": ("x = 22222\n", 0o644)})
    assert [(c.owner, c.first, c.layer) for c in found.changes] == [("python one", (f"/{SITE}/one/__init__.py",), 2)]


def test_rights_that_a_package_brought_are_not_told_and_later_ones_are() -> None:
    assert facts(BASE, WHEEL).setuid == ()
    again = facts(BASE, WHEEL, {"bin/bash": ("#!", 0o6755), "opt/x": ("", 0o666)})
    assert [(s.path, s.what, s.layer, s.owner) for s in again.setuid] == [("/bin/bash", "6755", 2, "os bash")]
    assert [(s.path, s.what) for s in again.writable] == [("/opt/x", "0666")]


def test_what_belongs_to_no_distribution_lies_beside_the_environment() -> None:
    found = facts(
        BASE,
        WHEEL,
        {
            f"{SITE}/mine.pth": ("import os\n", 0o644),
            "root/.local/lib/python3.11/site-packages/torch/a.py": ("", 0o644),
        },
    )
    places = {spot.path: spot.what for spot in found.shadows}
    assert places == {f"/{SITE}": "mine.pth of no distribution"} | {
        "/root/.local/lib/python3.11/site-packages": "torch"
    }


def test_a_secret_in_a_layer_says_which_later_layer_hides_it() -> None:
    netrc = {"root/.netrc": ("machine a login b password c", 0o600)}
    assert [(s.path, s.hidden) for s in facts(BASE, netrc).secrets] == [("/root/.netrc", 0)]
    hidden = facts(BASE, netrc, {"etc/x": ("", 0o644)}, {"root/.wh..netrc": ("", 0o644)})
    assert [(s.path, s.layer, s.hidden) for s in hidden.secrets] == [("/root/.netrc", 1, 3)]


def test_files_younger_than_the_lock_are_counted_by_layer() -> None:
    epoch = lock_samples.lock().epoch
    assert facts(BASE, mtime=epoch).late == ()
    assert [(s.layer, s.count) for s in facts(BASE, mtime=epoch + 1).late] == [(0, len(BASE))]


def test_times_of_the_configuration_and_its_history_later_than_the_lock_are_told_with_their_layer() -> None:
    epoch = lock_samples.lock().epoch
    good, late = (datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z") for at in (epoch, epoch + 1))
    assert facts(BASE, WHEEL, created=(good, good, good)).late_documents == ()
    told = facts(BASE, WHEEL, created=(late, late, good)).late_documents
    assert [(s.path, s.what, s.layer) for s in told] == [("history[0].created", late, 0), ("created", late, 1)]
    part = good.replace("Z", ".500000000Z")
    assert [s.path for s in facts(BASE, WHEEL, created=(good, good, part)).late_documents] == ["history[1].created"]


@pytest.mark.parametrize(
    "more", [{"atime": "{}"}, {"ctime": "{}.5"}, {"mtime": "{}"}, {"LIBARCHIVE.creationtime": "{}"}]
)
def test_every_time_of_a_header_counts(more: dict[str, str]) -> None:
    epoch = lock_samples.lock().epoch
    for seconds, expected in ((epoch - 1, ()), (epoch + 1, ("/opt/x",))):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            info = tarfile.TarInfo("opt/x")
            info.pax_headers = {name: text.format(seconds) for name, text in more.items()}
            archive.addfile(info)
        seen = image_layer.Seen.from_json(image_layer.scan(io.BytesIO(stream.getvalue()), "x").to_json())
        assert seen is not None
        found = image_files.of(Read(config={}, diff_ids=("sha256:0",), layers=(seen,)), "x", lock_samples.lock())
        assert tuple(path for sample in found.late for path in sample.first) == expected


def test_the_time_in_the_header_of_a_compressor_counts() -> None:
    epoch = lock_samples.lock().epoch
    for at, expected in ((0, ()), (epoch, ()), (epoch + 1, ("(the header of its compressor)",))):
        packed = gzip.compress(_tar(BASE, 0), mtime=at)
        seen = image_layer.scan(io.BytesIO(_tar(BASE, 0)), "x", packed[:512])
        found = image_files.of(Read(config={}, diff_ids=("sha256:0",), layers=(seen,)), "x", lock_samples.lock())
        assert tuple(path for sample in found.late for path in sample.first) == expected


def test_facts_are_the_same_after_they_were_written_and_read() -> None:
    found = facts(BASE, WHEEL, {"root/.netrc": ("machine a login b password c", 0o600)}, env=("A=b=c",))
    assert static_facts.from_data(static_facts.to_data(found)) == found
    assert found.variable("A") == "b=c"
