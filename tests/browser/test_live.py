"""A view that somebody looks at is true within a second of a commit."""

import time
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from tests.browser.conftest import Site, Tabs
from tests.browser.test_actions import declare, make

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Takes the moment at which a text stands in the live part, by the host's clock, in seconds.
SEEN_AT = """(text) => new Promise((resolve) => {
  const live = document.getElementById("live");
  const look = () => live.innerText.includes(text) && (watch.disconnect(), resolve(Date.now() / 1000));
  const watch = new MutationObserver(look);
  watch.observe(live, { subtree: true, childList: true, characterData: true });
  look();
})"""
WITHIN_SECONDS = 1.0
TRIES = 3  # on a busy host, one of them may be late for reasons of the host


def delay(tab: "Page", site: Site, statement: str, parameters: list[Any], text: str) -> float:
    """Seconds from the commit until the text is seen."""
    tab.evaluate(f"window.seen = ({SEEN_AT})({text!r}).then((at) => at); null")
    site.db.execute(statement, parameters)
    committed = time.time()
    return float(tab.evaluate("window.seen")) - committed


def go_live(tab: "Page", address: str) -> None:
    tab.goto(address)
    tab.locator("#liveness").filter(has_text="Live.").wait_for()


def test_a_job_is_seen_to_start_and_to_end_within_a_second(tab: "Page", site: Site) -> None:
    start = "UPDATE background_jobs SET status = 'running', attempt = 1, progress = 0.4 WHERE id = %s"
    end = "UPDATE background_jobs SET status = 'succeeded', result = %s WHERE id = %s"
    slowest = []
    for _ in range(TRIES):
        job_id = make(site)
        go_live(tab, f"{site.address}/jobs/{job_id}")
        started = delay(tab, site, start, [job_id], "40 %")
        ended = delay(tab, site, end, [Jsonb({"said": "it is done"}), job_id], "it is done")
        slowest.append(max(started, ended))
        if slowest[-1] < WITHIN_SECONDS:
            return
    raise AssertionError(f"the slower of both took {slowest} seconds")


def test_lists_and_the_overview_are_live_too(tabs: Tabs, site: Site) -> None:
    kind = declare(site)
    tabs = [tabs.open(), tabs.open()]
    go_live(tabs[0], f"{site.address}/jobs?kind={kind}")
    go_live(tabs[1], site.path("overview"))
    tabs[0].get_by_text("No such jobs.").wait_for()
    job_id = make(site, kind=kind)
    tabs[0].get_by_role("link", name=str(job_id), exact=True).wait_for()
    row = tabs[1].get_by_role("row").filter(has_text=kind)
    row.locator("td[data-label=Queued]").filter(has_text="1").wait_for()


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_tab_asks_for_nothing(tab: "Page", site: Site) -> None:
    go_live(tab, site.path("jobs"))
    with tab.expect_event("requestfailed"):  # the page itself has closed its stream
        tab.evaluate(HIDE, True)
    with tab.expect_request("**/live*"):
        tab.evaluate(HIDE, False)
