"""One file from the first address that has it, checked, into the store."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
import urllib3.exceptions

from torchyard.errors import Surroundings
from torchyard.world import disks
from torchyard.world.store import Store

CHUNK = 1 << 18
ATTEMPTS = 6  # in a row without real progress, for one address
PROGRESS = 1 << 20  # an attempt that brought this much does not count
LONGEST_PAUSE = 30.0
TIMEOUT = (20.0, 60.0)  # seconds to connect, seconds between two pieces
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class DownloadError(Surroundings):
    """A file that could not be had; `url` is the last address that was asked, without credentials."""

    def __init__(self, what: str, *, url: str, hint: str = "") -> None:
        super().__init__(what, where=url, hint=hint)
        self.url = url


class NotThere(DownloadError):
    """No address has the file (404, 410, or access refused)."""


class Changed(DownloadError):
    """An address has something else under that name; `seen_sha256` is empty where the size alone told."""

    def __init__(self, what: str, *, url: str, seen_size: int, seen_sha256: str = "", hint: str = "") -> None:
        super().__init__(what, url=url, hint=hint)
        self.seen_size = seen_size
        self.seen_sha256 = seen_sha256


class CutOff(DownloadError):
    """The transfer failed again and again, or the address cannot be reached."""


class _Retry(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


def download(
    urls: Sequence[str],
    *,
    sha256: str,
    size: int | None,
    store: Store,
    session: requests.Session,
    on_progress: Callable[[int], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Have the file of this hash in the store, from the first of `urls` (http, https, file, copy) that serves it.

    `on_progress` is called with the bytes that just arrived; the number is negative where a fresh start throws some
    away. Any number of processes may fetch the same file at once. Raises `Changed`, `CutOff` or `NotThere`: the
    gravest thing that happened, in this order.
    """
    if store.has(sha256, size):
        return
    told: list[DownloadError] = []
    with store.incoming() as stream:
        target = _Target(stream, on_progress or (lambda _: None))
        for url in urls:
            try:
                _from_one(url, target, sha256=sha256, size=size, session=session, pause=pause)
            except DownloadError as error:
                told.append(error)
                target.restart()
                continue
            stream.flush()
            store.keep(Path(stream.name))
            return
    for kind in (Changed, CutOff, NotThere):
        for failure in told:
            if isinstance(failure, kind):
                raise failure
    raise NotThere("there is no address to fetch this file from", url="", hint="name a mirror or an index that has it")


class _Target:
    """The growing file: its bytes, their number, and their hash so far."""

    def __init__(self, stream: IO[bytes], told: Callable[[int], None]) -> None:
        self.stream = stream
        self.told = told
        self.have = 0
        self.digest = hashlib.sha256()
        self.validator = ""  # of the server's file that the bytes so far belong to
        self.resumed = False

    def add(self, block: bytes) -> None:
        try:
            self.stream.write(block)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Surroundings(
                    "the disk is full while a file is fetched into the store",
                    where=str(Path(self.stream.name).parent),
                    hint=f"{disks.FREE}; then run the command again: files already fetched are kept",
                ) from error
            raise
        self.digest.update(block)
        self.have += len(block)
        self.told(len(block))

    def restart(self) -> None:
        self.stream.seek(0)
        self.stream.truncate()
        if self.have:
            self.told(-self.have)
        self.have = 0
        self.digest = hashlib.sha256()
        self.validator = ""
        self.resumed = False


def _from_one(
    url: str,
    target: _Target,
    *,
    sha256: str,
    size: int | None,
    session: requests.Session,
    pause: Callable[[float], None],
) -> None:
    failures = 0
    started_afresh = False
    while True:
        before = target.have
        try:
            if local := local_path(url):
                _copy(local, url, target)
            else:
                _transfer(url, target, size=size, session=session)
        except _Retry as retry:
            failures = 1 if target.have - before >= PROGRESS else failures + 1
            if failures >= ATTEMPTS:
                raise CutOff(
                    f"the transfer failed {failures} times: {retry}",
                    url=without_credentials(url),
                    hint="check the network and the proxy settings, then run the command again",
                ) from retry
            pause(min(LONGEST_PAUSE, retry.pause if retry.pause is not None else 0.5 * 2 ** (failures - 1)))
            continue
        seen = target.digest.hexdigest()
        if seen == sha256:
            return
        if target.resumed and not started_afresh:  # the pieces may be of two files: a whole one decides
            started_afresh = True
            target.restart()
            continue
        raise Changed(
            f"the file there is another one: expected sha256 {sha256}"
            + (f" ({size} bytes)" if size is not None else "")
            + f", seen {seen} ({target.have} bytes)",
            url=without_credentials(url),
            seen_size=target.have,
            seen_sha256=seen,
        )


def _copy(path: Path, url: str, target: _Target) -> None:
    target.restart()
    try:
        with path.open("rb") as source:
            while block := source.read(CHUNK):
                target.add(block)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise NotThere(f"cannot be read: {error.strerror}", url=url) from error


def _transfer(url: str, target: _Target, *, size: int | None, session: requests.Session) -> None:
    """One request: the rest of the file, or all of it; returns when the server says that it is whole."""
    headers = {"Accept-Encoding": "identity"}
    if target.have and target.validator:
        headers |= {"Range": f"bytes={target.have}-", "If-Range": target.validator}
    elif target.have:
        target.restart()
    try:
        with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            whole = _begin(response, url, target, size)
            for block in _blocks(response):
                target.add(block)
    except requests.exceptions.SSLError as error:
        raise CutOff(
            f"the server's certificate is not trusted: {innermost(error)}",
            url=without_credentials(url),
            hint="name the certificate bundle of your network in REQUESTS_CA_BUNDLE",
        ) from error
    except (requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL) as error:
        raise NotThere(f"not an address that can be fetched: {error}", url=without_credentials(url)) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _Retry(innermost(error)) from error
    end = whole if whole is not None else size
    if end is not None and target.have < end:
        raise _Retry(f"cut after {target.have} of {end} bytes")


def _begin(response: requests.Response, url: str, target: _Target, size: int | None) -> int | None:
    """Judge the answer's head; the size of the whole file where the server says it."""
    status = response.status_code
    if status in BUSY:
        raise _Retry(f"the server answers {status} {response.reason}", retry_after(response))
    if status == 416:
        target.restart()
        raise _Retry("the server cannot go on where the transfer was cut", 0.0)
    if status not in (200, 206):
        raise NotThere(f"the server answers {status} {response.reason}", url=without_credentials(url))
    length = response.headers.get("Content-Length", "")
    rest = int(length) if length.isdigit() else None
    if status == 206:
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if start is None or int(start[1]) != target.have:
            target.restart()
            raise _Retry("the server goes on at another place than asked", 0.0)
        target.resumed = True
    elif target.have:
        target.restart()
    whole = None if rest is None else target.have + rest
    if size is not None and whole is not None and whole != size and not target.resumed:
        raise Changed(
            f"the file there is another one: expected {size} bytes, seen {whole} bytes",
            url=without_credentials(url),
            seen_size=whole,
        )
    etag = response.headers.get("ETag", "")
    target.validator = (etag if not etag.startswith("W/") else "") or response.headers.get("Last-Modified", "")
    return whole


def _blocks(response: requests.Response) -> Iterator[bytes]:
    """The body as it is stored on the server: a label like `Content-Encoding: x-gzip` on a .gz is not undone."""
    yield from response.raw.stream(CHUNK, decode_content=False)


def retry_after(response: requests.Response) -> float | None:
    """The seconds that the server asks to wait, or None where it does not say."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isdigit() else None


def innermost(error: BaseException) -> str:
    """The reason at the bottom of a chain of network errors, without the addresses of objects."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>:? ?", "", str(error)) or type(error).__name__


def local_path(url: str) -> Path | None:
    """The file that a `file:` or `copy:` address names, or None for any other address."""
    parts = urlsplit(url)
    return Path(os.fsdecode(unquote(parts.path))) if parts.scheme in ("file", "copy") else None


def without_credentials(url: str) -> str:
    """The address as it may be shown: without a user's name, password, or query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
