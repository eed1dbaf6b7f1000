"""Every action, by clicking: each asks for a reason, does what it says, and is audited under that reason."""

import re
import uuid
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from tests.browser.conftest import Site, Tabs

if TYPE_CHECKING:
    from playwright.sync_api import Page


def make(site: Site, **columns: Any) -> int:
    """A job of its own for one test; its id."""
    given = {"kind": "made-here", "pool": "system", "status": "queued", "payload": Jsonb({}), **columns}
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    row = site.db.execute(f"INSERT INTO background_jobs ({names}) VALUES ({values}) RETURNING id", given).fetchone()
    assert row is not None
    return int(row[0])


def declare(site: Site, **columns: Any) -> str:
    """A kind of its own for one test."""
    kind = f"kind-{uuid.uuid4().hex[:8]}"
    given = {"kind": kind, "pool": "system", "secret_paths": [], **columns}
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    site.db.execute(f"INSERT INTO background_kinds ({names}) VALUES ({values})", given)
    return kind


def confirm(tab: "Page", button: str) -> str:
    """Give a reason, which nobody else gives, and go on; the reason."""
    reason = f"because of {uuid.uuid4()}"
    tab.get_by_label("Reason, for the audit").fill(reason)
    tab.get_by_role("button", name=button).click()
    return reason


def audited(site: Site, reason: str) -> list[tuple[Any, ...]]:
    return site.db.execute(
        "SELECT action, target, actor FROM background_audit WHERE reason = %s ORDER BY id", [reason]
    ).fetchall()


def status(site: Site, job_id: int) -> str:
    return str(site.db.execute("SELECT status FROM background_jobs WHERE id = %s", [job_id]).fetchall()[0][0])


def test_a_dead_job_is_retried(tab: "Page", site: Site) -> None:
    job_id = make(site, status="dead", attempt=5, claim=5)
    tab.goto(f"{site.address}/jobs/{job_id}")
    tab.get_by_role("link", name="Retry").click()
    reason = confirm(tab, "Retry the job")
    assert tab.get_by_role("status").first.inner_text() == "The job is queued again."
    assert status(site, job_id) == "queued"
    assert audited(site, reason) == [("retry", f"job {job_id}", "this host")]


def test_two_clicks_do_it_once_and_show_what_came_of_it(tab: "Page", site: Site) -> None:
    job_id = make(site, status="dead", attempt=5, claim=5)
    tab.goto(f"{site.address}/jobs/{job_id}/retry")
    reason = f"because of {uuid.uuid4()}"
    tab.get_by_label("Reason, for the audit").fill(reason)
    tab.get_by_role("button", name="Retry the job").dblclick()
    tab.wait_for_url(f"{site.address}/jobs/{job_id}?*")
    assert tab.get_by_role("status").first.inner_text() == "The job is queued again."
    assert audited(site, reason) == [("retry", f"job {job_id}", "this host")]


def test_a_queued_job_is_cancelled(tab: "Page", site: Site) -> None:
    job_id = make(site)
    tab.goto(f"{site.address}/jobs/{job_id}")
    tab.get_by_role("link", name="Cancel").click()
    reason = confirm(tab, "Cancel the job")
    assert status(site, job_id) == "cancelled"
    assert audited(site, reason) == [("cancel", f"job {job_id}", "this host")]


def test_nothing_is_done_without_a_reason_or_on_the_way_back(tab: "Page", tabs: Tabs, site: Site) -> None:
    tabs.forgive("status of 400")
    job_id = make(site)
    tab.goto(f"{site.address}/jobs/{job_id}/cancel")
    reason = tab.get_by_label("Reason, for the audit")
    assert reason.evaluate("each => each === document.activeElement")
    tab.get_by_role("button", name="Cancel the job").click()
    assert tab.url.endswith("/cancel")  # the browser asks for what is required
    reason.fill("   ")
    tab.get_by_role("button", name="Cancel the job").click()
    assert "A reason is needed" in tab.get_by_role("alert").inner_text()
    tab.get_by_role("link", name="Back", exact=True).click()
    assert tab.url.endswith(f"/jobs/{job_id}")
    assert status(site, job_id) == "queued"


def test_what_does_not_apply_any_more_is_said_and_the_reason_is_kept(tab: "Page", tabs: Tabs, site: Site) -> None:
    tabs.forgive("status of 409")
    job_id = make(site)
    tab.goto(f"{site.address}/jobs/{job_id}/cancel")
    site.db.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [job_id])
    reason = confirm(tab, "Cancel the job")
    assert "Nothing was done" in tab.get_by_role("alert").inner_text()
    assert tab.get_by_label("Reason, for the audit").input_value() == reason


def test_a_kind_is_paused_and_resumed_and_probed(tab: "Page", site: Site) -> None:
    kind = declare(site)

    def paused() -> tuple[Any, ...]:
        return site.db.execute(
            "SELECT paused_at IS NOT NULL, probe FROM background_kinds WHERE kind = %s", [kind]
        ).fetchall()[0]

    tab.goto(f"{site.address}/kind?name={kind}")
    reasons = []
    for link, button, now in [
        ("Pause…", "Pause the kind", (True, False)),
        ("Resume with a probe…", "Let one job through", (True, True)),
        ("Resume…", "Resume the kind", (False, False)),
    ]:
        tab.get_by_role("link", name=link, exact=True).click()
        reasons.append(confirm(tab, button))
        assert paused() == now
        assert tab.url.startswith(f"{site.address}/kind?name={kind}")
    assert [audited(site, reason) for reason in reasons] == [
        [("pause", kind, "this host")],
        [("resume", kind, "this host")],
        [("resume", kind, "this host")],
    ]


def test_a_schedule_is_run_now(tab: "Page", site: Site) -> None:
    before = site.db.execute("SELECT count(*) FROM background_jobs WHERE kind = 'send-digest'").fetchall()[0][0]
    tab.goto(site.path("schedules"))
    tab.get_by_role("link", name="Run send-digest now").click()
    reason = confirm(tab, "Run it now")
    assert tab.get_by_role("heading", level=1).inner_text().endswith("send-digest")
    after = site.db.execute("SELECT count(*) FROM background_jobs WHERE kind = 'send-digest'").fetchall()[0][0]
    assert (after - before, len(audited(site, reason))) == (1, 1)


def test_many_jobs_are_retried_and_cancelled_after_a_count(tab: "Page", site: Site) -> None:
    kind = declare(site)
    ids = [make(site, kind=kind, status="dead") for _ in range(3)]
    tab.goto(f"{site.address}/jobs")
    tab.get_by_label("Kind", exact=True).fill(kind)
    tab.get_by_label("Status", exact=True).select_option("dead")
    tab.get_by_role("button", name="Filter").click()
    tab.get_by_role("link", name="Retry all of these").click()
    assert tab.get_by_role("heading", level=1).inner_text() == "Retry 3 jobs"
    confirm(tab, "Retry 3 jobs")
    assert tab.get_by_role("heading", level=1).inner_text().startswith("3 jobs")
    assert {status(site, job_id) for job_id in ids} == {"queued"}

    tab.goto(f"{site.address}/jobs?kind={kind}&status=queued")
    tab.get_by_role("link", name="Cancel all of these").click()
    confirm(tab, "Cancel 3 jobs")
    assert {status(site, job_id) for job_id in ids} == {"cancelled"}


def test_notices_are_marked_as_read(tab: "Page", site: Site) -> None:
    site.db.execute("INSERT INTO background_notices (severity, subject, body) VALUES ('info', 'one to read', 'b')")
    tab.goto(site.path("notices"))
    notice = tab.get_by_role("article").filter(has_text="one to read")
    notice.get_by_role("button", name="Mark as read").click()
    tab.get_by_role("article").filter(has_text="one to read").filter(has_not_text="unread").wait_for()
    tab.get_by_role("button", name="Mark all as read").click()
    tab.get_by_role("link", name="Only unread ones").click()
    tab.get_by_text("No unread notices.").wait_for()
    unread = site.db.execute("SELECT count(*) FROM background_notices WHERE read_at IS NULL").fetchall()
    assert unread == [(0,)]


def test_jobs_are_found_by_id_and_key_and_page_by_page(tab: "Page", site: Site) -> None:
    kind = declare(site)
    ids = [make(site, kind=kind, dedupe_key=f"{kind}-{number}") for number in range(60)]
    tab.goto(site.path("jobs"))
    for words in (f"{kind}-7", str(ids[7])):
        tab.get_by_label("ID or key").fill(words)
        tab.get_by_label("ID or key").press("Enter")
        assert tab.get_by_role("row").nth(1).get_by_role("link").first.inner_text() == str(ids[7])
    tab.goto(f"{site.address}/jobs?kind={kind}")
    seen = []
    while True:
        seen += [int(link) for link in tab.locator("tbody th a").all_inner_texts()]
        if not (older := tab.get_by_role("link", name="Older")).count():
            break
        older.click()
        tab.wait_for_url(re.compile(r"before="))
    assert seen == sorted(ids, reverse=True)
