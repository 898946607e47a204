"""A headless Chromium, driven through ChromeDriver by the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from torchyard.world import engine_sources

PACKAGES = ("chromium", "chromium-driver")  # Debian's; Ubuntu has them as snaps only
LIMIT = 300.0  # seconds for whatever a page has to do: many times what it takes on an idle machine
ENTER, SHIFT = "\ue007", "\ue008"
QUIET = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--window-size=1280,900",
)  # fmt: skip


class NotNow(Exception):
    """What the browser could not do; the page may not be that far yet."""


@dataclass(frozen=True, kw_only=True)
class Browser:
    """One window."""

    session: str  # the address of its WebDriver session

    def open(self, url: str) -> None:
        """Load a page, as soon as somebody answers."""
        self.until(f"loading {url}", lambda: self._call("POST", "url", url=url) is None)

    def do(self, script: str, *arguments: Any) -> Any:
        """What JavaScript returns in the page."""
        return self._call("POST", "execute/sync", script=script, args=list(arguments))

    def text(self) -> str:
        """What the page shows, as a reader would see it."""
        return str(self.do("return document.body ? document.body.innerText : ''"))

    def until(self, what: str, look: Callable[[], Any], within: float = LIMIT) -> Any:
        """What `look` answers, as soon as it is something."""
        end = time.monotonic() + within
        why = ""
        while True:
            try:
                if found := look():
                    return found
            except NotNow as reason:
                why = f" ({reason})"
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {within:.0f} s{why}; the page shows\n{self._excerpt()}")
            time.sleep(0.2)

    def shows(self, *words: str) -> str:
        """The text of the page, once it has all these words."""

        def look() -> str:
            text = self.text()
            return text if all(word in text for word in words) else ""

        return str(self.until(f"page with {words}", look))

    def press(self, *keys: str) -> None:
        """Press keys together, then let go."""
        down = [{"type": "keyDown", "value": key} for key in keys]
        up = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._call("POST", "actions", actions=[{"type": "key", "id": "keyboard", "actions": [*down, *up]}])

    def click(self, css: str) -> None:
        """Click on the first element of a selector, once it can be clicked on."""

        def clicked() -> bool:
            (found,) = self._call("POST", "element", using="css selector", value=css).values()
            self._call("POST", f"element/{found}/click")
            return True

        self.until(f"click on {css}", clicked)

    def picture(self, path: Path) -> None:
        """Keep what the window shows."""
        path.write_bytes(base64.b64decode(self._call("GET", "screenshot")))

    def _excerpt(self) -> str:
        try:
            return self.text()[:3000]
        except NotNow as reason:
            return f"nothing: {reason}"

    def _call(self, method: str, command: str, **body: Any) -> Any:
        return _call(method, f"{self.session}/{command}", body)


def _call(method: str, url: str, body: dict[str, Any]) -> Any:
    """What a WebDriver server answers."""
    with requests.Session() as session:
        session.trust_env = False  # a proxy is not for loopback
        sent = {"json": body} if method == "POST" else {}
        told = session.request(method, url, timeout=LIMIT, **sent).json()["value"]  # type: ignore[arg-type]
    if isinstance(told, dict) and "error" in told:
        raise NotNow(f"{told['error']}: {str(told.get('message', '')).partition(chr(10))[0]}")
    return told


def install() -> None:
    """Have the browser on this machine: as root on Debian it is installed, elsewhere the tests are skipped."""
    if all(map(shutil.which, ("chromium", "chromedriver"))):
        return
    if os.geteuid() != 0 or engine_sources.read_host().id != "debian":
        pytest.skip(f"no {' and '.join(PACKAGES)} here; they are installed as root on Debian only")
    if _apt("install", "--no-install-recommends", *PACKAGES).returncode:  # the lists are missing, or old
        _apt("update").check_returncode()
        _apt("install", "--no-install-recommends", *PACKAGES).check_returncode()


def _apt(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["apt-get", "--yes", "--quiet", "-o", "DPkg::Lock::Timeout=600", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """A new window with a profile of its own, closed at the end."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder, _driver() as server:
        window = Browser(session=f"{server}/session/{_window(server, Path(folder))}")
        try:
            yield window
        finally:
            _call("DELETE", window.session, {})


def _window(server: str, folder: Path) -> str:
    """The name of a new session; on a busy machine the browser may be too slow for ChromeDriver at first."""
    attempts = 3
    for attempt in range(1, attempts + 1):
        chrome = {"args": [*QUIET, f"--user-data-dir={folder / str(attempt)}"]}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": chrome}}
        try:
            return str(_call("POST", f"{server}/session", {"capabilities": wanted})["sessionId"])
        except NotNow:
            if attempt == attempts:
                raise
    raise AssertionError("no attempt")


@contextlib.contextmanager
def _driver() -> Iterator[str]:
    """The address of a ChromeDriver on a port that it chose."""
    child = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert child.stdout is not None
        said = ""
        for line in child.stdout:
            said += line
            if port := re.search(r"started successfully on port (\d+)", line):
                yield f"http://127.0.0.1:{port[1]}"
                return
        raise AssertionError(f"ChromeDriver did not start\n{said}")
    finally:
        child.terminate()
        child.communicate()
