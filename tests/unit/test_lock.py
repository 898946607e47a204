"""The lock: text and back, what makes it stale, and what is said of one that is broken."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from lock_samples import ID, image, lock, locks

from torchyard import catalog, matrix, resolve
from torchyard import lock as locking
from torchyard.errors import Exit, InputError
from torchyard.lock import LockedImage
from torchyard.plan import Base, BaseKind, BuildKind, Compression, PackageSet, SourceBuild

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "images").glob("*/lock.yaml"))
UNRELATED = """\
gpus:
- {id: rtx-6090, name: NVIDIA GeForce RTX 6090, kind: consumer, arch: Rubin, cc: '13.0', memory_gb: [48], memory: GDDR7,
   nvlink: false, host: [x86_64], precision: [fp16], source: [the box], checked: '2027-01-01'}
"""


def read(text: str) -> LockedImage:
    return locking.from_text(text, name="images/x/lock.yaml")


def refusal(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=80)
@given(locks)
def test_reading_what_was_written_changes_nothing(made: LockedImage) -> None:
    assert read(locking.to_text(made)) == made


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
@given(locks)
def test_a_lock_is_ascii_and_plain_yaml_for_every_reader(made: LockedImage) -> None:
    text = locking.to_text(made)
    assert text.isascii()
    assert all(character == "\n" or character.isprintable() for character in text)
    assert yaml.load(text, Loader=yaml.SafeLoader) == yaml.load(text, Loader=yaml.CSafeLoader)


@pytest.mark.parametrize(
    "value", ["\U0001f525", "\"'", "\\n", "\n", "\t\x00\x1b\x7f\x85", "\u2028", "no", "1e3", "#", ""]
)
def test_a_value_of_an_environment_variable_survives(value: str) -> None:
    made = lock(image=image(packages=PackageSet(env=(("A", value),))))
    assert read(locking.to_text(made)) == made


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_a_committed_lock_is_what_would_be_written(path: Path) -> None:
    found = read(path.read_text())
    assert locking.to_text(found) == path.read_text()
    assert found.id == path.parent.name


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_the_rows_of_a_committed_lock_are_sorted(path: Path) -> None:
    found = read(path.read_text())
    groups = list(dict.fromkeys(pin.group for pin in found.os))
    assert list(found.os) == sorted(found.os, key=lambda pin: (groups.index(pin.group), pin.name, pin.architecture))
    assert list(found.wheels) == sorted(found.wheels, key=lambda w: w.name)
    assert list(found.dev_wheels) == sorted(found.dev_wheels, key=lambda w: w.name)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_a_committed_lock_names_no_place(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "/home/" not in text and "/root" not in text


def test_a_gpu_that_nobody_owns_changes_no_fingerprint() -> None:
    text = (ROOT / "env.yaml").read_text()
    plans = [
        resolve.plan(matrix.parse(text, known=resolve.names(known)), known)
        for known in (catalog.load(), catalog.load([("catalog.d/mine.yaml", UNRELATED)]))
    ]
    before, after = [{i.id: locking.fingerprint(i) for i in plan.images} for plan in plans]
    assert before == after and before


OTHER: dict[str, Any] = {
    "id": "other",
    "torch": "2.14.2",
    "torch_requirement": "2.14.1+cu130",
    "allowed": (("gpu-code", "a build of our own"),),
    "cuda_tag": "cu131",
    "cuda": "13.1",
    "cudnn": "9.24.0.44",
    "sass": ("8.0",),
    "ptx": (),
    "python": "3.12",
    "python_from": "standalone",
    "base": Base(kind=BaseKind.IMAGE, os="debian-12", ref="debian:12"),
    "arch": "aarch64",
    "index": "pytorch-cu130",
    "blas": "openblas",
    "driver_require": "cuda>=13.1",
    "pairs": (("torchvision", "0.29.1"),),
    "source": SourceBuild(ref="v2.14.1"),
    "compression": Compression.ZSTD,
}
OTHER_SETS = [
    PackageSet(pip=("numpy",), name="a"),
    PackageSet(pip=("numpy",), apt=("git",)),
    PackageSet(pip=("numpy", "scipy")),
    PackageSet(pip=("numpy",), env=(("A", "1"),)),
    PackageSet(pip=("numpy",), extend="RUN true"),
]


def test_every_field_of_an_image_is_in_its_fingerprint() -> None:
    assert OTHER.keys() | {"packages", "build"} == {field.name for field in dataclasses.fields(image())}
    seen = {locking.fingerprint(image())}
    seen |= {locking.fingerprint(image(**{name: value})) for name, value in OTHER.items()}
    seen |= {locking.fingerprint(image(packages=packages)) for packages in OTHER_SETS}
    seen.add(locking.fingerprint(image(build=BuildKind.SOURCE, source=OTHER["source"])))
    assert len(seen) == 2 + len(OTHER) + len(OTHER_SETS)


GOOD = locking.to_text(lock())
BROKEN = {
    "empty": "",
    "a-text": "lock",
    "a-list": "- 1\n",
    "a-number": "17\n",
    "truncated-in-a-row": GOOD[: GOOD.index("wheels:") + 60],
    "truncated-between-sections": GOOD[: GOOD.index("wheels:")],
    "another-schema": GOOD.replace("schema: 1", "schema: 2"),
    "no-schema": GOOD.replace("schema: 1\n", ""),
    "merge-conflict": GOOD.replace("epoch:", "<<<<<<< HEAD\nepoch: 1\n=======\nepoch:", 1),
    "binary": "\x00\x01",
    "tabs": "schema:\t1\n\tx: 2\n",
    "an-unknown-field": GOOD.replace('{"name": "torch"', '{"names": "x", "name": "torch"'),
    "a-size-that-is-a-word": GOOD.replace('"size": 100', '"size": "100"', 1),
    "a-size-that-is-true": GOOD.replace('"size": 100', '"size": true', 1),
    "a-size-below-zero": GOOD.replace('"size": 100', '"size": -100', 1),
    "an-epoch-without-end": GOOD.replace("epoch: 1783764997", "epoch: .inf"),
    "an-epoch-before-1970": GOOD.replace("epoch: 1783764997", "epoch: -1"),
    "archives-as-a-list": GOOD.replace("archives:\n  release: 1783764997\n  security: 1783764990", "archives: [a]"),
    "a-base-of-no-kind": GOOD.replace('kind: "archive"', 'kind: "floppy"'),
    "rows-that-are-none": GOOD[: GOOD.index("os:\n")] + "os:\n",
    "a-python-object": "schema: !!python/object/apply:os.system ['true']\n",
    "endless-nesting": "[" * 5000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_lock_is_told_with_its_place_and_what_helps(name: str) -> None:
    assert BROKEN[name] != GOOD
    error = refusal(BROKEN[name])
    assert error.code is Exit.INPUT
    assert "images/x/lock.yaml" in error.what and error.where == "images/x/lock.yaml"
    assert "remove images/x/lock.yaml" in error.hint


TAMPERED = {
    "a-wheel-outside-its-folder": ('"file": "torch-2.14.1-py3-none-any.whl"', '"file": "../../torch.whl"'),
    "a-wheel-with-a-path": ('"file": "torch-2.14.1-py3-none-any.whl"', '"file": "/etc/torch.whl"'),
    "a-package-outside-its-folder": ('"path": "pool/main/g/gcc/', '"path": "../../g/gcc/'),
    "a-package-that-goes-up": ('"path": "pool/main/g/gcc/', '"path": "pool/main/../../gcc/'),
    "a-package-at-the-root": ('"path": "pool/main/g/gcc/', '"path": "/etc/g/gcc/'),
    "a-package-that-is-no-deb": ('gcc_2.0-1+b2_amd64.deb"', 'gcc_2.0-1+b2_amd64.sh"'),
    "an-address": ('"path": "pool/main/g/gcc/', '"path": "https://example.com/g/gcc/'),
    "a-hash-that-is-a-path": ('"sha256": "746f7263', '"sha256": "../../63'),
    "a-name-with-a-line-break": ('"name": "torch", ', r'"name": "torch\n--index-url x", '),
    "a-version-with-an-option": ('"version": "2.14.1"', r'"version": "2.14.1 --index-url x"'),
    "a-requirement-with-a-line-break": ('"requires": ["markupsafe"]', r'"requires": ["a\nb"]'),
    "an-id-outside-images": (f'id: "{ID}"', 'id: "../../x"'),
    "a-python-that-is-a-path": ('python: "3.11"', 'python: "../3"'),
    "a-system-that-is-a-path": ('"os": "debian-12"', '"os": "../debian"'),
    "an-unknown-machine": ('arch: "x86_64"', 'arch: "vax"'),
    "a-variable-with-a-line-break": ('packages: {"pip"', r'packages: {"env": [["A\nRUN x", "1"]], "pip"'),
    "a-driver-rule-with-a-line-break": ('driver_require: "cuda>=13.0"', r'driver_require: "cuda\nRUN x"'),
    "a-base-that-is-no-hash": (f'tar: "{"a" * 64}"', 'tar: "x"'),
    "an-archive-that-is-a-path": ("  release: 17", "  ../x: 17"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_lock_that_would_reach_beyond_its_folder_or_line_is_refused(name: str) -> None:
    good, bad = TAMPERED[name]
    assert good in GOOD
    error = refusal(GOOD.replace(good, bad))
    assert error.hint and error.where


def test_what_all_images_share_is_told_once_and_sorted() -> None:
    arm = lock(image=image(arch="aarch64", id="a"))
    text = locking.shared_text([lock(), arm, lock()])
    data = yaml.safe_load(text)
    assert list(data["archives"]) == ["debian-12-aarch64", "debian-12-x86_64"]
    assert data["tools"] == [{"base_format": "1", "layer_format": "1", "uv": "0.13.9", "buildkit_min": "0.12"}]


def test_requirements_have_one_exact_version_and_hash_a_line() -> None:
    made = lock()
    lines = locking.requirements_text(made.wheels[::-1], "All").splitlines()[1:]
    assert lines == sorted(lines)
    assert lines[-2] == f"torch==2.14.1 --hash=sha256:{made.wheel('torch').sha256}"  # type: ignore[union-attr]
