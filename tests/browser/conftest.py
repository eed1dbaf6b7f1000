"""The page in a real browser. Without one (`scripts/test --browser` brings it) all of this is skipped, and says so."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from scripts.browsing import launch_chromium, running_page
from scripts.showroom import Showroom, furnish
from supervisor.testing.plugin import _fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

HERE = Path(__file__).parent
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
OWNER_TOKEN, VIEWER_TOKEN = "owner-token-of-these-tests", "viewer-token-of-these-tests"
WAIT_MS = 5_000  # for what should be there at once


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("OOMPH_BROWSER"):
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason="needs a browser: scripts/test --browser"))


@dataclass(frozen=True, slots=True)
class Site:
    """A page of a furnished database: its address, the database, and what is worth looking at there."""

    address: str
    url: str
    db: psycopg.Connection[tuple[Any, ...]]
    room: Showroom

    def path(self, name: str) -> str:
        """The address of a view by a name that all tests share."""
        paths = {
            "overview": "/",
            "jobs": "/jobs",
            "dead jobs": "/jobs?status=dead",
            "dead job": f"/jobs/{self.room.dead}",
            "running job": f"/jobs/{self.room.running}",
            "secret job": f"/jobs/{self.room.secret}",
            "blocked job": f"/jobs/{self.room.blocked}",
            "retry": f"/jobs/{self.room.dead}/retry",
            "kinds": "/kinds",
            "kind": "/kind?name=ask-agent",
            "paused kind": "/kind?name=extract-tables",
            "pause": "/kind/pause?name=ask-agent",
            "schedules": "/schedules",
            "workers": "/workers",
            "notices": "/notices",
            "audit": "/audit",
            "nothing": "/there-is-no-such-page",
        }
        return self.address + paths[name]


@pytest.fixture(scope="session")
def site(oomph_server: str, _oomph_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the whole run: a test that changes something makes it first."""
    with ExitStack() as stack:
        name = stack.enter_context(_fresh_database(oomph_server, copy_of=_oomph_template))
        url = make_conninfo(oomph_server, dbname=name)
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        room = furnish(db)
        log = tmp_path_factory.mktemp("page") / "log"
        yield Site(stack.enter_context(running_page(url, log)), url, db, room)


@pytest.fixture(scope="session")
def guarded(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the same page where one must sign in."""
    tokens = f"owner ada {OWNER_TOKEN},viewer grace {VIEWER_TOKEN}"
    log = tmp_path_factory.mktemp("guarded") / "log"
    with running_page(site.url, log, {"OOMPH_PAGE_TOKENS": tokens}) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launch_chromium(playwright)
        yield started
        started.close()


class Tabs:
    """Opens tabs, and hears what their pages complain of and whom they ask."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []
        self._hosts: set[str | None] = set()
        self._forgiven: list[str] = []

    def open(self, **options: Any) -> "Page":
        """A tab with cookies of its own; options are those of `browser.new_context`."""
        context = self._browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
        self._contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self._complaints.append(str(error.error)))
        context.on("request", lambda request: self._hosts.add(urlsplit(request.url).hostname))
        return context.new_page()

    def forgive(self, *words: str) -> None:
        """A complaint with one of these is what the test is about."""
        self._forgiven += words

    def check(self) -> None:
        """No page has asked another host, or complained."""
        assert [told for told in self._complaints if not any(word in told for word in self._forgiven)] == []
        assert self._hosts <= {"127.0.0.1", *self._forgiven}

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _hear(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"{message.text} at {message.location}")


@pytest.fixture
def tabs(browser: "Browser") -> Iterator[Tabs]:
    opened = Tabs(browser)
    yield opened
    opened.close()
    opened.check()


@pytest.fixture
def tab(tabs: Tabs) -> "Page":
    return tabs.open()
