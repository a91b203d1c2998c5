"""A real browser on a real `instep serve`: one of each for all tests of a process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from tests.web import scene
from tests.web.browsing import chromium, running_browser
from tests.web.serving import Site

#: How long a page may take on a busy machine. Nothing waits this long unless it is broken.
TIMEOUT_MS: Final = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        assert not os.environ.get("CI"), "no Chromium: .ci/run installs it"
        pytest.skip("no Chromium is installed")
    expect.set_options(timeout=TIMEOUT_MS)
    with running_browser() as found:
        yield found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("page")
    scene.make_small(folder)
    with Site(folder).served() as found:
        yield found
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Watched:
    """A page and what it did. `expected`: what may stand in a console message, where a test provokes it."""

    page: Page
    site: Site
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.console.append(message.text)

    def on_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def go(self, way: str) -> Page:
        """To a view of the page, which has been drawn then."""
        self.page.goto(f"{self.site.address}/#{way}")
        expect(self.page.locator("#search")).to_be_attached()
        return self.page

    def check(self) -> None:
        """The page logged no errors, and called no other host."""
        assert [each for each in self.console if not any(part in each for part in self.expected)] == []
        assert [each for each in self.requests if not each.startswith((self.site.address, "data:"))] == []


@pytest.fixture
def watched(browser: Browser, site: Site) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    found = Watched(page, site)
    page.on("console", found.on_console)
    page.on("pageerror", lambda error: found.console.append(str(error)))
    page.on("request", found.on_request)
    page.on("websocket", lambda socket: found.requests.append(socket.url.replace("ws:", "http:")))
    yield found
    context.close()
    found.check()


@pytest.fixture
def folder(site: Site) -> Path:
    return site.folder
