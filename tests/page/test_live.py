"""A view that somebody watches follows the database; one that nobody watches costs it nothing."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from supervisor.page import Actor, JobsPage, Role
from supervisor.page import live as live_module
from supervisor.page.access import ThisHost
from supervisor.testing.waiting import wait_for
from tests.page.conftest import Insert
from tests.page.serving import VIEWER_TOKEN, Browser, served
from tests.proxy import Proxy

WITHIN_SECONDS = 1.0
TRIES = 3  # on a busy host, one of them may be late for reasons of the host


Db = psycopg.Connection[tuple[Any, ...]]


class Stream:
    """What a browser's EventSource would be told, one event after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        self._lines = answer.iter_lines()

    def next_event(self) -> tuple[str, str]:
        name = data = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data:"):
                data = line.removeprefix("data:").strip()
            elif not line and name:
                return name, data
        return "end", ""

    def next_frame(self) -> str:
        name, data = self.next_event()
        assert name == "frame", name
        return str(json.loads(data)["html"])


@contextmanager
def watching(browser: httpx.Client, path: str) -> Iterator[Stream]:
    with browser.stream("GET", path) as answer:
        yield Stream(answer)


def test_a_change_is_seen_within_a_second(browser: Browser, insert: Insert, db: Db) -> None:
    took = []
    for job_id in [insert() for _ in range(TRIES)]:
        with watching(browser, f"/jobs/{job_id}/live") as job, watching(browser, "/jobs/live") as jobs:
            assert "queued" in job.next_frame()
            before = jobs.next_frame()
            assert f'id="job-{job_id}"' in before
            began = time.monotonic()
            db.execute("UPDATE background_jobs SET status = 'cancelled', finished_at = now() WHERE id = %s", [job_id])
            assert "cancelled" in job.next_frame()
            assert jobs.next_frame().count("cancelled") > before.count("cancelled")
            took.append(time.monotonic() - began)
        if took[-1] < WITHIN_SECONDS:
            return
    raise AssertionError(f"it took {took} seconds")


def test_what_is_sent_is_the_live_part_as_the_page_shows_it(browser: Browser, insert: Insert) -> None:
    insert(kind="<b>odd\r\nkind</b>")
    with watching(browser, "/jobs/live") as stream:
        frame = stream.next_frame()
    page = browser.get("/jobs").text
    shown = page[page.index("<table>") : page.index("</table>")]
    assert shown.split("<time")[0] == frame[frame.index("<table>") : frame.index("</table>")].split("<time")[0]
    assert "<html" not in frame
    assert "<b>" not in frame


HIDDEN = {
    "/jobs": ("UPDATE background_jobs SET priority = 2", "UPDATE background_jobs SET status = 'dead'", "dead"),
    "/workers": (
        "UPDATE background_workers SET lease_until = now() + interval '59 min'",  # as every heartbeat does
        "UPDATE background_workers SET version = '99.9'",
        "99.9",
    ),
}


@pytest.mark.parametrize("path", HIDDEN)
def test_what_a_view_does_not_show_is_not_sent(browser: Browser, insert: Insert, db: Db, path: str) -> None:
    hidden, shown, seen = HIDDEN[path]
    insert()
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until) "
        "VALUES (gen_random_uuid(), 'h', 1, '1', '{}', '{}', now() + interval '1 h')"
    )
    with watching(browser, f"{path}/live") as stream:
        assert seen not in stream.next_frame()
        db.execute(hidden)  # type: ignore[arg-type]
        looked_anew(db)
        db.execute(shown)  # type: ignore[arg-type]
        assert seen in stream.next_frame()


def test_nothing_is_sent_while_nothing_changes_and_nothing_is_asked_while_nobody_watches(
    browser: Browser, insert: Insert, db: Db
) -> None:
    insert()
    with watching(browser, "/jobs/live") as stream:
        stream.next_frame()
        looked_anew(db)
        db.execute("UPDATE background_jobs SET status = 'dead'")
        assert "dead" in stream.next_frame()
    last = settled(db)
    browser.get("/assets/nothing.css")
    assert settled(db) == last


def looked_anew(db: Db) -> None:
    """Wait until the page has begun a look after this moment, and then another: what the first found has been told."""
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    since = row[0]
    for which in ("a look", "the next look"):
        # Most of a pause later, it is no other statement of a look that was on its way.
        since += timedelta(seconds=0.9 * live_module.POLL_SECONDS)
        wait_for(lambda since=since: (at := asked(db)) is not None and at > since, which)  # type: ignore[misc]
        since = asked(db)


def asked(db: Db) -> Any:
    """When the page last asked the database anything."""
    row = db.execute(
        "SELECT max(query_start) FROM pg_stat_activity WHERE application_name = 'oomph page' "
        "AND datname = current_database()"
    ).fetchone()
    return row and row[0]


def settled(db: Db) -> Any:
    """The same, once it has not asked for longer than it ever pauses while somebody watches."""
    quiet_for = 3 * live_module.POLL_SECONDS

    def quiet() -> Any:
        row = db.execute("SELECT extract(epoch FROM clock_timestamp() - %s) > %s", [asked(db), quiet_for]).fetchone()
        return row and row[0]

    wait_for(quiet, "the page asks nothing any more")
    return asked(db)


def test_many_who_look_at_one_thing_ask_once(address: str, insert: Insert, db: Db, url: str) -> None:
    insert()
    with Browser(address) as first:
        first.get("/kinds")  # the page has its connections
    answers: list[httpx.Response] = []

    def look() -> None:
        with Browser(address) as browser:
            answers.append(browser.get("/jobs"))

    lookers = [threading.Thread(target=look) for _ in range(10)]
    with psycopg.connect(url) as locking:
        locking.execute("LOCK TABLE background_jobs")
        for looker in lookers:
            looker.start()
        wait_for(lambda: waiting(db), "somebody asks")
        most = max(waiting(db) for _ in range(20))
    for looker in lookers:
        looker.join()
    assert most == 1
    assert [answer.status_code for answer in answers] == [200] * len(lookers)


def waiting(db: Db) -> int:
    """How many looks of the page wait for a lock."""
    row = db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oomph page' "
        "AND datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_each_is_sent_what_their_role_may_see(guarded: str, owner: Browser, insert: Insert) -> None:
    job_id = insert(status="dead")
    with Browser(guarded) as viewer:
        viewer.sign_in(VIEWER_TOKEN)
        with (
            watching(owner, f"/jobs/{job_id}/live") as owners,
            watching(viewer, f"/jobs/{job_id}/live") as viewers,
        ):
            assert "Retry…" in owners.next_frame()
            assert "Retry…" not in viewers.next_frame()


def test_there_are_only_so_many_viewers(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_STREAMS", 2)
    with watching(browser, "/live") as one, watching(browser, "/live"):
        one.next_frame()
        answer = browser.get("/live")
        assert answer.status_code == 503
        assert "Too many" in answer.text

    def has_room() -> bool:
        with browser.stream("GET", "/live") as answer:
            return answer.status_code == 200

    wait_for(has_room, "who left makes room")


def test_who_only_asks_for_the_head_is_not_kept(browser: Browser) -> None:
    answer = browser.head("/live")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_stream_ends_after_a_while(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser comes back, and is asked again who it is."""
    monkeypatch.setattr(live_module, "LIFE_SECONDS", 0.3)
    with watching(browser, "/live") as stream:
        while stream.next_event() != ("end", ""):
            pass  # on a busy host, the first look comes later than the end


def test_what_is_gone_ends_its_stream(browser: Browser, insert: Insert, db: Db) -> None:
    job_id = insert()
    with watching(browser, f"/jobs/{job_id}/live") as stream:
        stream.next_frame()
        db.execute("DELETE FROM background_jobs WHERE id = %s", [job_id])
        while stream.next_event() != ("end", ""):
            pass  # a look that the deletion fell into
    with watching(browser, "/jobs/99/live") as stream:
        assert stream.next_event() == ("end", "")


def test_a_viewer_who_takes_nothing_is_let_go(
    address: str, browser: Browser, insert: Insert, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MAX_STREAMS", 1)
    monkeypatch.setattr(live_module, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(live_module, "POLL_SECONDS", 0.01)
    db.execute("INSERT INTO background_kinds (kind, pool, secret_paths) VALUES ('greet', 'system', '{}')")
    job_id = insert(status="running", payload={"text": "&" * 19_000})
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(f"GET /jobs/{job_id}/live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        wait_for(lambda: browser.get("/live").status_code == 503, "the one place is taken")

        def is_let_go() -> bool:
            db.execute("UPDATE background_jobs SET progress = random() WHERE id = %s", [job_id])
            with browser.stream("GET", "/live") as answer:
                return answer.status_code == 200

        wait_for(is_let_go, "the one who takes nothing is let go", seconds=60)


def test_a_database_that_is_away_is_told_and_comes_back(url: str, insert: Insert) -> None:
    insert()
    with Proxy(url) as proxy:
        page = JobsPage(proxy.url, authenticate=ThisHost(Actor("somebody here", Role.OWNER)))
        with served(page) as address, Browser(address) as browser, watching(browser, "/jobs/live") as stream:
            stream.next_frame()
            proxy.cut()
            assert stream.next_event() == ("away", "")
            proxy.heal()
            assert "greet" in stream.next_frame()
