"""Every view, as people with a mouse, a phone, a dark room or a screen reader meet it."""

from typing import TYPE_CHECKING, Any

import pytest

from scripts.showroom import CARD_NUMBER
from tests.browser.conftest import DESKTOP, PHONE, Site, Tabs

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = {
    "overview": "Overview",
    "jobs": "Jobs",
    "dead jobs": "Jobs",
    "dead job": "extract-tables",
    "running job": "ingest-document",
    "secret job": "charge-card",
    "blocked job": "ingest-document",
    "retry": "Retry job",
    "kinds": "Kinds",
    "kind": "ask-agent",
    "paused kind": "extract-tables",
    "pause": "Pause ask-agent",
    "schedules": "Schedules",
    "workers": "Workers",
    "notices": "Notices",
    "audit": "Audit",
}
SERIOUS = {"serious", "critical"}

# The widest element that sticks out of the window, if any does.
WIDEST = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return null;
  const out = [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > room + 1);
  return out.length ? out.at(-1).outerHTML.slice(0, 300) : "the page itself";
}"""


def faults(tab: "Page") -> list[dict[str, Any]]:
    """What axe finds that keeps somebody from using the page."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(tab).response["violations"]
    return [
        {"rule": each["id"], "help": each["help"], "nodes": [node["html"][:200] for node in each["nodes"]]}
        for each in found
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_says_what_it_is_and_fits_a_desktop_and_a_phone(tabs: Tabs, site: Site, name: str) -> None:
    tab = tabs.open()
    for viewport in (DESKTOP, PHONE):
        tab.set_viewport_size(viewport)
        tab.goto(site.path(name))
        assert VIEWS[name] in tab.get_by_role("heading", level=1).inner_text()
        assert VIEWS[name] in tab.title()
        assert tab.get_by_role("main").count() == tab.get_by_role("heading", level=1).count() == 1
        assert tab.evaluate(WIDEST) is None, viewport


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*VIEWS, "nothing"])
def test_axe_finds_nothing_serious(tabs: Tabs, site: Site, name: str, scheme: str) -> None:
    # Axe is a script of its own, which the page's policy would not let in.
    tab = tabs.open(color_scheme=scheme, bypass_csp=True)
    tabs.forgive("status of 404")
    tab.goto(site.path(name))
    assert faults(tab) == []
    if scheme == "light":
        tab.set_viewport_size(PHONE)
        assert faults(tab) == []


def test_dark_is_dark_and_light_is_light(tabs: Tabs, site: Site) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        tab = tabs.open(color_scheme=scheme)
        tab.goto(site.path("overview"))
        color = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds[scheme] = sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(",")))
    assert grounds["dark"] < 3 * 60 < 3 * 220 < grounds["light"]


def test_a_secret_of_a_payload_is_shown_nowhere(tab: "Page", site: Site) -> None:
    for name in VIEWS:
        tab.goto(site.path(name))
        assert CARD_NUMBER not in tab.content()
    tab.goto(site.path("secret job"))
    assert '"number": "**********"' in tab.get_by_role("main").inner_text()
    with tab.expect_download() as saved:
        tab.get_by_role("link", name="Save the text").first.click()
    assert '"holder": "**********"' not in (text := saved.value.path().read_text())
    assert '"number": "**********"' in text


def test_the_views_are_linked_with_each_other(tab: "Page", site: Site) -> None:
    tab.goto(site.path("overview"))
    for name in ("Jobs", "Kinds", "Schedules", "Workers", "Notices", "Audit", "Overview"):
        tab.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        assert tab.get_by_role("heading", level=1).inner_text() == name
        assert tab.locator("nav a[aria-current=page]").inner_text() == name


def test_everything_is_there_without_javascript(tabs: Tabs, site: Site) -> None:
    tab = tabs.open(java_script_enabled=False)
    for name, heading in VIEWS.items():
        tab.goto(site.path(name))
        assert heading in tab.get_by_role("heading", level=1).inner_text()
