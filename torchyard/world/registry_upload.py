"""Blobs and manifests into one repository of a registry: what is there is not sent, what is cut off goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import requests

from .. import oci
from ..errors import CheckFailed, Surroundings
from . import registry_session
from .download import BUSY, TIMEOUT, innermost, retry_after
from .registry_read import plain_hex
from .registry_session import ATTEMPTS, Busy, Registry, said
from .registry_taking import Blob
from .store import Store, sha256_of

AT_ONCE = 3
CHUNK = 16 << 20  # bytes of one request; a registry that wants larger ones says so
WITHOUT_CHUNKS = (404, 405, 411, 416, 501)  # what a registry answers that takes a blob in one piece only
AGAIN = "run the command again: what is there already is not sent again"


class How(StrEnum):
    """How a blob came to be in the repository."""

    THERE = "there"
    MOUNTED = "mounted"  # from another repository of the registry
    SENT = "sent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One blob that is in the repository now."""

    blob: Blob
    how: How


class _Cut(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


def blobs(
    registry: Registry,
    wanted: Iterable[Blob],
    store: Store,
    *,
    mounts: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> list[Sent]:
    """Have these blobs of the store in the repository, a few at once; mounts are repositories that may have them."""
    _there(registry, f"sha256:{'0' * 64}")  # logs in, once for all threads
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            return list(
                pool.map(lambda b: _one(registry, b, store.path(plain_hex(b.digest)), mounts, progress), wanted)
            )
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def manifest(registry: Registry, reference: str, data: bytes, kind: str) -> requests.Response:
    """Put a manifest or an index under a tag or its digest; raises CheckFailed where the registry reads another one."""
    url, digest = registry.url(f"manifests/{reference}"), oci.digest_of(data)
    head = {"Content-Type": kind}
    for attempt in range(1, ATTEMPTS + 1):
        answer = registry.patiently(lambda: registry.session.put(url, data=data, headers=head, timeout=TIMEOUT))
        if answer.status_code != 400 or "digest" not in said(answer) or attempt == ATTEMPTS:
            break
        registry_session.rest(attempt, None)  # it reads what another push of the same manifest has half written
    _check(registry, answer, (200, 201), f"the manifest {reference}")
    seen = answer.headers.get("Docker-Content-Digest", digest)
    if seen != digest:
        raise CheckFailed(
            f"the registry {registry.ref.host} took the manifest as {seen}, it is {digest}",
            where=f"{registry.ref.host}/{registry.ref.repository}",
            hint="a proxy or the registry is at fault: tell who runs it",
        )
    return answer


def digest_at(registry: Registry, tag: str, accept: Sequence[str]) -> str:
    """The digest that a tag has now; empty where the registry has no such tag."""
    answer = registry.get(f"manifests/{tag}", tuple(accept))
    if answer.status_code == 404:
        return ""
    _check(registry, answer, (200,), f"the tag {tag}")
    return oci.digest_of(answer.content)


def _one(registry: Registry, blob: Blob, path: Path, mounts: Sequence[str], progress: Callable[[int], None]) -> Sent:
    if _there(registry, blob.digest):
        progress(blob.size)
        return Sent(blob=blob, how=How.THERE)
    upload = _Upload(registry, blob, path, progress)
    for repository in mounts:
        if upload.mounted(repository):
            progress(blob.size)
            return Sent(blob=blob, how=How.MOUNTED)
    upload.run()
    return Sent(blob=blob, how=How.SENT)


def _there(registry: Registry, digest: str) -> bool:
    """Whether the repository has the blob; a registry that cannot even tell is sent the blob.

    A registry whose disk was full keeps an emptied note of the blob and answers 500 until the blob is sent anew.
    """
    url = registry.url(f"blobs/{digest}")
    try:
        answer = registry.patiently(lambda: registry.session.head(url, timeout=TIMEOUT, allow_redirects=True))
    except Busy:
        return False
    if answer.status_code in (401, 403):
        raise registry.refused(answer)
    return answer.status_code == 200


class _Upload:
    """One blob on its way: where it goes, and how much of it is there."""

    def __init__(self, registry: Registry, blob: Blob, path: Path, progress: Callable[[int], None]) -> None:
        self.registry, self.blob, self.path, self.progress = registry, blob, path, progress
        self.place = ""  # of the running upload
        self.least = 0  # bytes that the registry wants in a request
        self.done = 0
        self.told = 0
        self.chunked = True

    def mounted(self, repository: str) -> bool:
        """Whether the registry took the blob over from another of its repositories; else an upload may have begun."""
        url = self.registry.url(f"blobs/uploads/?mount={quote(self.blob.digest)}&from={quote(repository, safe='')}")
        try:
            answer = self.registry.patiently(lambda: self.registry.session.post(url, timeout=TIMEOUT))
        except Busy:
            return False
        if answer.status_code == 201:
            return True
        if answer.status_code == 202:
            self._begun(answer)
        return False

    def run(self) -> None:
        """Send the blob, going on where it was cut off; raises Surroundings after several attempts without progress."""
        failures = 0
        while True:
            before = self.done
            try:
                self._go_on(fresh=failures == 0)
                self._finish()
                return
            except _Cut as cut:
                failures = 1 if self.done > before else failures + 1
                if failures >= ATTEMPTS:
                    raise Surroundings(
                        f"the registry {self.registry.ref.host} does not take the blob {self.blob.digest}"
                        f" ({self.blob.size} bytes): {cut}",
                        where=f"{self.registry.ref.host}/{self.registry.ref.repository}",
                        hint=f"its disk may be full, or a proxy in between limits sizes; {AGAIN}",
                    ) from cut
                registry_session.rest(failures, cut.pause)

    def _go_on(self, *, fresh: bool) -> None:
        """Begin an upload where none runs, ask how far it is where one was cut, then send the rest."""
        if self.place and not fresh and not self._asked():
            self.place = ""
        if not self.place:
            answer = self._ask("POST", self.registry.url("blobs/uploads/"))
            _check(self.registry, answer, (202,), f"the blob {self.blob.digest}")
            self._begun(answer)
        with self.path.open("rb") as file:
            while self.chunked and self.done < self.blob.size:
                file.seek(self.done)
                self._send(file.read(max(CHUNK, self.least)))

    def _send(self, data: bytes) -> None:
        end = self.done + len(data) - 1
        head = {"Content-Type": "application/octet-stream", "Content-Range": f"{self.done}-{end}"}
        answer = self._ask("PATCH", self.place, data=data, headers=head)
        if answer.status_code in WITHOUT_CHUNKS and not self.done:
            self.chunked, self.place = False, ""
            raise _Cut("it takes no parts of a blob", 0.0)
        if answer.status_code == 416:
            raise _Cut("it lost count of the upload", 0.0)
        if answer.status_code == 404:
            self.place, self.done = "", 0
            raise _Cut(f"it lost the upload: {said(answer)}")
        _check(self.registry, answer, (202, 204), f"the blob {self.blob.digest}")
        self._reached(answer, end + 1)

    def _finish(self) -> None:
        """Close the upload; the whole blob goes along where the registry takes no parts."""
        parts = urlsplit(self.place)
        query = f"{parts.query}&" if parts.query else ""
        url = urlunsplit((*parts[:3], f"{query}digest={quote(self.blob.digest, safe='')}", ""))
        head = {"Content-Type": "application/octet-stream"}
        try:
            if self.chunked:
                answer = self._ask("PUT", url, headers={**head, "Content-Length": "0"})
            else:
                with self.path.open("rb") as file:
                    answer = self._ask("PUT", url, data=file, headers=head)
        except _Cut:
            if _there(self.registry, self.blob.digest):
                return
            raise
        if answer.status_code in (400, 404, 416):
            self._restart(said(answer))
        _check(self.registry, answer, (201, 204), f"the blob {self.blob.digest}")
        self._tell(self.blob.size)

    def _restart(self, why: str) -> None:
        """The registry does not know or does not believe what it got: see whose fault it is, and begin anew."""
        seen = sha256_of(self.path)
        if seen != plain_hex(self.blob.digest):
            raise CheckFailed(
                f"a file of the store is not what its name says: expected {self.blob.digest}, seen sha256:{seen}",
                where=str(self.path),
                hint=f"remove {self.path}, then run the command again",
            )
        self.place, self.done = "", 0
        raise _Cut(why)

    def _asked(self) -> bool:
        """Whether the registry still knows the upload; then it also says how far it is."""
        try:
            answer = self.registry.session.get(self.place, timeout=TIMEOUT)
        except requests.exceptions.RequestException:
            return False
        if answer.status_code != 204 or not answer.headers.get("Location"):
            return False
        self._reached(answer, 0)
        return True

    def _ask(self, method: str, url: str, **how: object) -> requests.Response:
        try:
            answer: requests.Response = self.registry.session.request(method, url, timeout=TIMEOUT, **how)  # type: ignore[arg-type]  # options of requests
        except requests.exceptions.SSLError as error:
            raise self.registry.untrusted(error) from error
        except requests.exceptions.RequestException as error:
            raise _Cut(innermost(error)) from error
        if answer.status_code in BUSY:
            raise _Cut(said(answer), retry_after(answer))
        return answer

    def _begun(self, answer: requests.Response) -> None:
        self.least = int(answer.headers.get("OCI-Chunk-Min-Length") or 0)
        self.done = 0
        self.place = urljoin(str(answer.url), answer.headers["Location"])

    def _reached(self, answer: requests.Response, otherwise: int) -> None:
        """Take over where the upload goes on, and how far the registry says that it is (`Range: 0-1023`)."""
        self.place = urljoin(str(answer.url), answer.headers.get("Location") or self.place)
        _, dash, last = answer.headers.get("Range", "").rpartition("-")
        number = int(last) + 1 if dash and last.isdigit() else otherwise
        self.done = 0 if number == 1 and otherwise == 0 else min(number, self.blob.size)
        self._tell(self.done)

    def _tell(self, done: int) -> None:
        if done > self.told:
            self.progress(done - self.told)
            self.told = done


def _check(registry: Registry, answer: requests.Response, good: Sequence[int], what: str) -> None:
    if answer.status_code in (401, 403):
        raise registry.refused(answer)
    if answer.status_code not in good:
        raise Surroundings(
            f"the registry {registry.ref.host} does not take {what}: {said(answer)}",
            where=f"{registry.ref.host}/{registry.ref.repository}",
            hint=AGAIN,
        )
