"""What goes into a registry beside an image's bytes: its tags, whether it may go, and the record of its going."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from . import ids, proven
from .errors import CheckFailed, InputError
from .finding import State
from .lock import LockedImage, flow
from .plain import from_plain, to_plain
from .plan import Plan
from .receipt import Receipt

SCHEMA = 1
LONGEST_TAG = 128
_DIGITS = 8  # of the digest, in a tag


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """images/<id>/published.yaml: what was put into registries, by the names of these, never by their addresses.

    digest: of the manifest; layers: uncompressed layer ids, lowest first; lock: sha256 of lock.yaml.
    """

    image: str
    digest: str
    layers: tuple[str, ...]
    lock: str
    fingerprint: str
    buildkit: str
    level: str
    repository: str  # below the registry's own path
    tag: str  # the one that never moves
    registries: tuple[str, ...]  # sorted names
    override: str = ""  # why it went although its findings do not let it


def path(image_id: str) -> PurePosixPath:
    """Where the record of an image is, from the repository's top."""
    return PurePosixPath("images") / image_id / "published.yaml"


def tag(image_id: str, digest: str, epoch: int) -> str:
    """The tag that never moves: id, the day of the lock's archives, and the start of the digest."""
    day = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y%m%d")
    ending = f"-{day}-{digest.removeprefix('sha256:')[:_DIGITS]}"
    room = LONGEST_TAG - len(ending)
    if len(image_id) > room:
        image_id = f"{image_id[: room - 9]}-{ids.short_hash(image_id)}"
    return image_id + ending


def base_tag(digest: str) -> str:
    """The tag of a registry image that ours start from, kept beside them."""
    return f"base-{digest.removeprefix('sha256:')[:12]}"


def aliases(plan: Plan, image_id: str) -> tuple[str, ...]:
    """The tags that move: one for each hardware entry whose default cell selects this image."""
    return tuple(cell.hardware for cell in plan.cells if cell.default and cell.image == image_id)


def check(lock: LockedImage, lock_sha256: str, receipt: Receipt | None, override: str) -> Receipt:
    """The receipt, where the image may go into a registry: built from just this lock, and good or overridden."""
    build = f"./yard build --id {lock.id}"
    if receipt is None:
        raise CheckFailed(f"{lock.id} has no receipt: it was not built and checked here", hint=build)
    if receipt.lock != lock_sha256 or receipt.fingerprint != lock.fingerprint:
        raise CheckFailed(
            f"{lock.id} was built from another lock: sha256 {receipt.lock[:16]}, the lock is {lock_sha256[:16]} now",
            where=f"images/{lock.id}/lock.yaml",
            hint=build,
        )
    if not receipt.good and not override:
        raise CheckFailed(
            f"{lock.id} is not pushed: {_why(receipt)}",
            where=f"level {receipt.level}",
            hint=f"mend it, then ./yard verify --id {lock.id}; or push it all the same: --override REASON, which is"
            " kept in the record",
        )
    return receipt


def _why(receipt: Receipt) -> str:
    failed = [f for f in receipt.findings if f.state is State.FAIL]
    if not failed:
        return "it has no finding that passed" if receipt.findings else "it has no findings"
    first = failed[0]
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{first.rule} failed: expected {first.expected or '-'}, seen {first.seen or first.because or '-'}{more}"


def record(
    receipt: Receipt, *, digest: str, epoch: int, repository: str, registries: Sequence[str], override: str
) -> Published:
    """The record of an image that now is in these registries."""
    return Published(
        image=receipt.image,
        digest=digest,
        layers=receipt.layers,
        lock=receipt.lock,
        fingerprint=receipt.fingerprint,
        buildkit=receipt.buildkit,
        level=proven.level(receipt),
        repository=repository,
        tag=tag(receipt.image, digest, epoch),
        registries=tuple(sorted(set(registries))),
        override="" if receipt.good else override,
    )


def joined(now: Published, before: Published | None) -> Published:
    """The record of now, with the registries that have the very same image from an earlier push."""
    if before is None or (before.digest, before.repository) != (now.digest, now.repository):
        return now
    return dataclasses.replace(now, registries=tuple(sorted({*now.registries, *before.registries})))


def to_text(published: Published) -> str:
    """The text of published.yaml."""
    lines = [f"# Where {published.image} is in registries. Made by `torchyard push`; do not edit.", f"schema: {SCHEMA}"]
    for name, value in to_plain(published).items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"  - {flow(item)}" for item in value)]
        else:
            lines.append(f"{name}: {flow(value)}")
    return "\n".join(lines) + "\n"


def from_text(text: str, *, name: str) -> Published:
    """The record that `to_text` wrote; raises InputError when it is none."""
    try:
        data: Mapping[str, Any] = yaml.safe_load(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, this torchyard reads {SCHEMA}")
        return from_plain(Published, {key: value for key, value in data.items() if key != "schema"})
    except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise InputError(
            f"{name} is not a record that torchyard wrote: {error}",
            where=name,
            hint="restore it from git, or push the image again",
        ) from error
