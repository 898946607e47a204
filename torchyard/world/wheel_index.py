"""Named indexes of wheels: what each place that serves a build offers, asked over the network or read from disk."""

from __future__ import annotations

import hashlib
import re
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import requests

from torchyard.errors import CheckFailed, Surroundings
from torchyard.world import pipconf, wheel_metadata, wheel_mirrors, wheel_pages
from torchyard.world.download import local_path, without_credentials
from torchyard.world.pipconf import PipSettings
from torchyard.world.store import sha256_of
from torchyard.world.wheel_mirrors import PYPI
from torchyard.world.wheel_pages import Page, WheelFile

CONNECT = 10.0  # seconds; pip's time-out is for a slow answer, not for a host that is not there
BUSY = frozenset({429, 500, 502, 503, 504, 520, 527})


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One wheel, and every place that has a file of this name; the first place is the one that is believed."""

    wheel: WheelFile
    copies: tuple[WheelFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Offers:
    """What all places of a build offer of a project, by file name; `silent` are the places that did not answer."""

    project: str
    wheels: dict[str, Offer]
    sources: tuple[str, ...]
    silent: tuple[Surroundings, ...] = ()
    fallback: bool = False  # the user's indexes have nothing of it, so the build's own was asked


class WheelIndex:
    """The places that wheels come from on this machine; every page is asked for once."""

    def __init__(
        self,
        settings: PipSettings,
        mirrors: Mapping[str, str] | None = None,
        *,
        session: requests.Session | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.mirrors = dict(mirrors or {})
        self.session = session or pipconf.session(settings)
        self._pause = pause
        self._known: dict[tuple[str, str], Page | Surroundings] = {}
        self._dead: dict[str, Surroundings] = {}
        self._bodies: dict[str, tuple[bytes, str]] = {}
        self._table = wheel_mirrors.shipped()
        self.bound = self._table.bound  # the distributions that must all be of torch's build

    def home(self, index: str, project: str) -> str:
        """The name of the index that the lock gives for this project of a build."""
        return index if project in self.bound else PYPI

    def address(self, index: str) -> str:
        """Where the named index is; empty for `pypi` where pip is told to ask none."""
        return wheel_mirrors.address(index, self.settings.index_url, self.mirrors, self._table)

    def offers(self, project: str, index: str, *, strict: bool = False, anywhere: bool = False) -> Offers:
        """Every wheel of a project that a build may take, from the user's indexes and directories and its own index.

        The build's own index is asked for the distributions that are bound to a build (with `strict`, no other index
        is), and for those that are nowhere else. It may be silent; the user's may only be so with `anywhere`, which is
        for files whose hash is known.
        """
        own = "" if index == PYPI else self.address(index)
        bound = project in self.bound
        places = [own] if own and bound else []
        if not (strict and own and bound):
            places += [each for each in (self.address(PYPI), *self.settings.extra_index_urls) if each]
        pages: list[Page] = []
        silent: list[Surroundings] = []

        def ask(place: str, patient: bool) -> None:
            try:
                pages.append(self._page(place, project, patient=patient))
            except Surroundings as error:
                if patient and not anywhere:
                    raise
                silent.append(error)

        for place in places:
            ask(place, place != own)
        pages += [self._links(place, project) for place in self.settings.find_links]
        fallback = bool(own) and not bound and not any(page.wheels or page.sources for page in pages)
        if fallback:
            ask(own, False)
        return _merged(project, pages, tuple(silent), fallback)

    def here(self, project: str) -> tuple[WheelFile, ...]:
        """The wheels of a project that lie on this machine, in the user's directories and indexes on disk."""
        places = [self.address(PYPI), *self.settings.extra_index_urls]
        roots = [place for place in places if (path := local_path(place)) is not None and path.is_dir()]
        links = [place for place in self.settings.find_links if local_path(place) is not None or ":" not in place]
        pages = [
            *(self._page(root, project, patient=True) for root in roots),
            *(self._links(link, project) for link in links),
        ]
        return tuple(wheel for page in pages for wheel in page.wheels)

    def metadata(self, offer: Offer) -> bytes:
        """The METADATA of an offered wheel, from the nearest copy of the same bytes."""
        wheel = offer.wheel
        try:
            for copy in offer.copies:
                path = local_path(copy.url)
                if path is not None and copy.sha256 == wheel.sha256:
                    with path.open("rb") as stream:
                        return wheel_metadata.metadata_of(stream)
            if wheel.metadata:
                answer = self._ask("GET", wheel.metadata, patient=True)
                if answer.ok:
                    return answer.content
            return wheel_metadata.remote_metadata(wheel.url, session=self.session, timeout=self._timeout(True))
        except requests.RequestException as error:
            raise _unreachable(wheel.url, error) from error
        except (zipfile.BadZipFile, KeyError, OSError) as error:
            raise CheckFailed(
                f"{wheel.file} cannot be read as a wheel: {error}",
                where=without_credentials(wheel.url),
                hint="tell whoever runs this index, or ask for another version of it",
            ) from error

    def complete(self, wheel: WheelFile) -> WheelFile:
        """The wheel with its hash and size, which are found out where its page did not say them."""
        path = local_path(wheel.url)
        if path is not None:
            return replace(wheel, sha256=wheel.sha256 or sha256_of(path), size=path.stat().st_size)
        if wheel.sha256 and wheel.size is not None:
            return wheel
        if wheel.sha256:
            answer = self._ask("HEAD", wheel.url, patient=True)
            length = answer.headers.get("Content-Length", "")
            if answer.ok and length.isdigit():
                return replace(wheel, size=int(length))
        return self._measured(wheel)

    def _page(self, place: str, project: str, *, patient: bool) -> Page:
        key = (place, project)
        known = self._known.get(key)
        if known is None:
            known = self._dead.get(place) or self._fetched(place, project, patient=patient)
            self._known[key] = known
        if isinstance(known, Surroundings):
            raise known
        return known

    def _fetched(self, place: str, project: str, *, patient: bool) -> Page | Surroundings:
        try:
            if (root := local_path(place)) is not None:
                return self._local(root, project)
            return self._remote(f"{place.rstrip('/')}/{quote(project)}/", project, patient=patient)
        except Surroundings as error:
            if not patient:
                self._dead[place] = error
            return error

    def _remote(self, address: str, project: str, *, patient: bool) -> Page:
        answer = self._ask("GET", address, patient=patient, headers={"Accept": wheel_pages.ACCEPT})
        # A bucket without listings answers 403 for what it has not; PyTorch's index is one.
        if answer.status_code in ((404, 410) if patient else (403, 404, 410)):
            return Page()
        if not answer.ok:
            raise Surroundings(
                f"the index answers {answer.status_code} {answer.reason} for {project}",
                where=without_credentials(address),
                hint="check the index address, the user name and the password in pip's configuration (or ~/.netrc)",
            )
        kind = answer.headers.get("Content-Type", "text/html")
        try:
            return wheel_pages.parse(
                answer.content, kind, wheel_pages.inherit_credentials(answer.url, address), project
            )
        except (ValueError, KeyError) as error:
            raise Surroundings(
                f"the page of {project} is not one of a package index: {error}",
                where=without_credentials(address),
                hint="check the index address that pip is configured with: `python3 -m pip config list`",
            ) from error

    def _local(self, root: Path, project: str) -> Page:
        """A page of an index in a directory: `<root>/<project>/index.html`, or simply the wheels in that folder."""
        if not root.is_dir():
            raise Surroundings(
                "the directory of this package index is not there",
                where=str(root),
                hint="make it again, or take it out of pip's configuration: `python3 -m pip config list` names it",
            )
        folder = root / project
        written = folder / "index.html"
        if written.is_file():
            return wheel_pages.parse(written.read_bytes(), "text/html", written.as_uri(), project)
        return _listing(folder, project) if folder.is_dir() else Page()

    def _links(self, place: str, project: str) -> Page:
        """What a find-links entry has: a directory of wheels, a page on disk, or a page on a server."""
        path = local_path(place) if ":" in place else Path(place)
        if path is None:
            return self._linked_page(place, project)
        if path.is_dir():
            return _listing(path, project)
        if path.is_file():
            return wheel_pages.parse(path.read_bytes(), "text/html", path.absolute().as_uri(), project)
        return Page()  # as pip: an entry that is not there offers nothing

    def _linked_page(self, place: str, project: str) -> Page:
        body, address = self._bodies.get(place) or (b"", "")
        if not address:
            answer = self._ask("GET", place, patient=True, headers={"Accept": "text/html"})
            if not answer.ok:
                raise Surroundings(
                    f"the page that find-links names answers {answer.status_code} {answer.reason}",
                    where=without_credentials(place),
                    hint="check find-links in pip's configuration: `python3 -m pip config list`",
                )
            body, address = answer.content, wheel_pages.inherit_credentials(answer.url, place)
            self._bodies[place] = (body, address)
        return wheel_pages.parse(body, "text/html", address, project)

    def _ask(
        self, method: str, url: str, *, patient: bool, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        tries = 1 + (self.settings.retries if patient else 0)
        for attempt in range(1, tries + 1):
            try:
                answer = self.session.request(
                    method, url, headers=dict(headers or {}), timeout=self._timeout(patient), allow_redirects=True
                )
            except requests.RequestException as error:
                if attempt == tries or isinstance(error, requests.exceptions.SSLError):
                    raise _unreachable(url, error) from error
            else:
                if answer.status_code not in BUSY or attempt == tries:
                    return answer
            self._pause(min(0.25 * 2**attempt, 10.0))
        raise AssertionError("at least one attempt is made")

    def _timeout(self, patient: bool) -> tuple[float, float]:
        longest = self.settings.timeout
        return (min(CONNECT, longest), longest if patient else min(longest, 20.0))

    def _measured(self, wheel: WheelFile) -> WheelFile:
        """Hash and size of a file on a server whose page does not say them: it is read through once."""
        digest, size = hashlib.sha256(), 0
        try:
            with self.session.get(wheel.url, stream=True, timeout=self._timeout(True)) as answer:
                answer.raise_for_status()
                for block in answer.iter_content(1 << 18):
                    digest.update(block)
                    size += len(block)
        except requests.RequestException as error:
            raise _unreachable(wheel.url, error) from error
        return replace(wheel, sha256=digest.hexdigest(), size=size)


def _merged(project: str, pages: Sequence[Page], silent: tuple[Surroundings, ...], fallback: bool) -> Offers:
    """The wheels of several places by file name; of copies, the first whose hash is known is believed."""
    copies: dict[str, list[WheelFile]] = {}
    for wheel in (wheel for page in pages for wheel in page.wheels):
        copies.setdefault(wheel.file, []).append(wheel)
    sources = sorted({version for page in pages for version in page.sources})
    return Offers(
        project=project,
        wheels={
            file: Offer(wheel=next((each for each in found if each.sha256), found[0]), copies=tuple(found))
            for file, found in copies.items()
        },
        sources=tuple(str(version) for version in sources),
        silent=silent,
        fallback=fallback,
    )


def _listing(folder: Path, project: str) -> Page:
    """The wheels and source archives of a project that lie in a directory."""
    entries = [
        {"file": path.name, "url": path.absolute().as_uri(), "size": path.stat().st_size}
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]
    return wheel_pages.page(entries, project)


def _unreachable(url: str, error: requests.RequestException) -> Surroundings:
    innermost: BaseException = error
    while (inner := innermost.__cause__ or innermost.__context__) is not None:
        innermost = inner
    certificate = isinstance(error, requests.exceptions.SSLError)
    return Surroundings(
        f"the index of wheels cannot be reached: {re.sub(r'<[^>]* at 0x[0-9a-f]+>:? ?', '', str(innermost))}",
        where=without_credentials(url),
        hint="name the certificate bundle of your network: `python3 -m pip config --user set global.cert FILE`"
        if certificate
        else "check the network, and the index and proxy that pip is configured with: `python3 -m pip config list`",
    )
