"""Without a mouse: everything is reached in the order of the page, and each action is done."""

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.browser.conftest import Site
from tests.browser.test_actions import audited, make, status

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  return {
    told: (at.getAttribute("aria-label") || at.innerText || at.name || at.tagName).trim(),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    seen: box.right > 0 && box.bottom > 0 && box.width > 1 && box.height > 1,
    top: box.top + window.scrollY, left: box.left,
  };
}"""


def focused(tab: "Page") -> str:
    return str(tab.evaluate(FOCUSED)["told"])


def press_until(tab: "Page", told: str, key: str = "Tab", most: int = 60) -> None:
    for _ in range(most):
        tab.keyboard.press(key)
        if focused(tab) == told:
            return
    raise AssertionError(f"{told!r} is not reached by {most} times {key}")


def test_the_first_key_leads_past_the_navigation(tab: "Page", site: Site) -> None:
    tab.goto(site.path("jobs"))
    tab.keyboard.press("Tab")
    assert tab.evaluate(FOCUSED) | {"top": 0, "left": 0} == {
        "told": "Skip to the content", "outlined": True, "seen": True, "top": 0, "left": 0,
    }  # fmt: skip
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_the_focus_follows_the_order_of_the_page_and_is_always_seen(tab: "Page", site: Site) -> None:
    tab.goto(site.path("paused kind"))
    places, told = [], []
    for _ in range(16):
        tab.keyboard.press("Tab")
        at = tab.evaluate(FOCUSED)
        assert at["seen"], at
        assert at["outlined"], at
        places.append(at["top"])
        told.append(at["told"])
    assert told[1:9] == [
        "Background jobs", "Overview", "Jobs", "Kinds", "Schedules", "Workers", "Notices", "Audit",
    ]  # fmt: skip
    # Never back up the page by more than a row of it.
    assert all(later >= earlier - 40 for earlier, later in pairwise(places)), places


def test_a_job_is_cancelled_by_keys_alone(tab: "Page", site: Site) -> None:
    job_id = make(site)
    tab.goto(f"{site.address}/jobs/{job_id}")
    press_until(tab, "Cancel…")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/cancel")
    reason = f"keys {uuid.uuid4()}"
    tab.locator("#reason:focus").wait_for()  # it has the focus, once the page is there
    tab.keyboard.type(reason)
    press_until(tab, "Cancel the job", most=2)
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/jobs/{job_id}?done=cancel")
    assert status(site, job_id) == "cancelled"
    assert len(audited(site, reason)) == 1


def test_a_live_view_leaves_the_focus_where_it_is(tab: "Page", site: Site) -> None:
    job_id = make(site)
    tab.goto(f"{site.address}/jobs/{job_id}")
    press_until(tab, "Cancel…")
    site.db.execute("UPDATE background_jobs SET organization_id = 'seen live' WHERE id = %s", [job_id])
    tab.get_by_text("seen live").wait_for()
    assert focused(tab) == "Cancel…"


def test_filters_and_long_texts_are_reached(tab: "Page", site: Site) -> None:
    tab.goto(site.path("jobs"))
    press_until(tab, "search")
    tab.keyboard.type("no such key")
    tab.keyboard.press("Enter")
    tab.get_by_text("No such jobs.").wait_for()
    tab.goto(site.path("dead job"))
    press_until(tab, "Payload")  # what may be scrolled takes the focus, or its end could not be read
