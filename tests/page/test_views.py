"""Every view shows what the database holds, and nothing that it holds is obeyed."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobs import control
from jobs.activity import PEAK_BOUNDS_MB
from jobs.bulk import retry_matching
from jobs.finding import JobFilter
from supervisor.page import Actor, JobsPage, Role
from supervisor.page.access import Refused, ThisHost
from supervisor.page.views.jobs import JOBS
from tests.page.conftest import Insert
from tests.page.serving import Browser, heading, served
from tests.proxy import Proxy

Db = psycopg.Connection[tuple[Any, ...]]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}\u202egpj.exe\x1b[31m"
WORKER = "6f1c9d1e-8a52-4c7e-9a43-0d8a1f0c2b11"


def add(db: Db, table: str, **columns: Any) -> None:
    """A row of one of our tables."""
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier(f"background_{table}"),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(map(sql.Placeholder, columns)),
    )
    db.execute(query, columns)


def add_attempt(db: Db, job_id: int, **columns: Any) -> None:
    usual = {"claim": 1, "attempt": 1, "kind": "greet", "verdict": "failed", "charged": True, "is_kill": False}
    add(db, "attempts", job_id=job_id, **{**usual, **columns})


def text_of(html: str) -> str:
    """What stands in it, without its elements."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def add_worker(db: Db) -> None:
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until) "
        "VALUES (%s, 'host-7', 4711, '1.2.3', '{system}', '{greet}', now() + interval '1 day')",
        [WORKER],
    )
    db.execute(
        "INSERT INTO background_worker_states (worker_id, at, memory_mb, children, template_up, slots) "
        """VALUES (%s, now(), 84, 2, false, '{"system": {"used": 3, "total": 10}}')""",
        [WORKER],
    )


def test_the_overview_tells_what_needs_somebody(browser: Browser, insert: Insert, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool, kill_streak) VALUES ('greet', 'system', 2)")
    db.execute(
        "INSERT INTO background_kinds (kind, pool, paused_at, paused_by, pause_reason) "
        "VALUES ('shout', 'system', now(), 'oomph', 'five kills in a row')"
    )
    add(db, "notices", severity="critical", subject="it burns", body="at the back")
    add_worker(db)
    insert(run_after=datetime.now(UTC) - timedelta(minutes=3, seconds=30))
    insert(status="dead")
    html = browser.get("/").text
    assert re.search(r"shout</a> is paused.*five kills in a row", html, re.DOTALL)
    assert re.search(r"1 unread notice</a>, the newest: it burns", html)
    assert 'href="/jobs?kind=greet&amp;status=queued"' in html
    assert "3 min ago" in html
    assert "host-7" in html
    assert "system 3/10" in html
    assert ">down<" in html


@pytest.mark.parametrize("lives", [True, False])
def test_the_overview_tells_which_pools_with_due_jobs_nobody_serves(
    lives: bool, browser: Browser, insert: Insert, db: Db
) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system'), ('read-scan', 'ingest')")
    insert(kind="read-scan", pool="ingest")
    insert(kind="read-scan", pool="ingest")
    insert(kind="later", pool="agent", run_after="infinity")
    insert()
    if lives:
        add_worker(db)
    html = text_of(browser.get("/").text)
    next_step = (
        "Start one, or let one serve it as well" if lives else "No worker lives at all: oomph worker starts one."
    )
    assert f"No live worker serves the pool ingest , 2 jobs are due. {next_step}" in html
    assert ("No live worker serves the pool system , 1 job is due." in html) is not lives
    assert "serves the pool agent" not in html


def test_a_kind_that_no_worker_has_declared_is_in_the_overview_and_has_a_page(
    browser: Browser, insert: Insert, db: Db
) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system')")
    job_id = insert(kind="gret & co", status="dead")
    html = browser.get("/").text
    group = html[html.index('id="pool-system"') :]
    assert re.search(r"greet on .* gret &amp; co not declared 0", text_of(group))
    assert 'href="/jobs?kind=gret%20%26%20co&amp;status=dead"' in group
    (link,) = re.findall(r'href="(/kind\?name=gret[^"]+)"', html)
    assert link in browser.get(f"/jobs/{job_id}").text
    html = browser.get(link).text
    assert heading(html) == "gret &amp; co"
    assert "No worker has declared this kind." in html
    assert 'href="/jobs?kind=gret%20%26%20co&amp;status=dead"' in html
    assert "resume" not in html


def test_jobs_are_filtered_searched_and_turned_over(browser: Browser, insert: Insert) -> None:
    first = insert(kind="early", dedupe_key="mail 7", organization_id="acme")
    for _ in range(60):
        insert()
    last = insert(kind="late", status="dead", pool="ingest", error={"type": "ValueError", "message": "no such page"})
    page = browser.get("/jobs").text
    assert f"/jobs/{last}" in page
    assert "ValueError: no such page" in page
    older = re.search(r'rel="next" href="([^"]+)"', page)
    assert older is not None
    assert f'"/jobs/{first}"' in browser.get(older[1].replace("&amp;", "&")).text
    for query, hit in {
        "status=dead": last,
        "kind=early": first,
        "pool=ingest": last,
        "organization_id=acme": first,
        f"search={first}": first,
        "search=mail+7": first,
        "created_from=2020-01-01T00:00&kind=late": last,
    }.items():
        found = set(re.findall(r'<tr id="job-(\d+)"', browser.get(f"/jobs?{query}").text))
        assert found == {str(hit)}, query
    assert "No such jobs." in browser.get("/jobs?created_until=2020-01-01T00:00").text


@pytest.mark.parametrize(
    "query", ["status=odd", "pool=odd", "before=-1", "worker_id=7", "created_from=soon", f"kind={'x' * 501}"]
)
def test_a_question_that_cannot_be_meant_is_answered_as_such(query: str) -> None:
    name, _, value = query.partition("=")
    with pytest.raises(Refused) as caught:
        JOBS.ask({name: value})
    assert caught.value.status == 400
    assert name in str(caught.value)


def test_a_job_tells_its_whole_story(browser: Browser, insert: Insert, db: Db) -> None:
    add(db, "kinds", kind="greet", pool="ingest", secret_paths=[])
    started = datetime.now(UTC) - timedelta(minutes=10)
    job_id = insert(
        status="dead",
        pool="ingest",
        payload={"document_id": 7},
        attempt=2,
        created_at=started,
        started_at=started,
        finished_at=started + timedelta(seconds=90),
        worker_id=WORKER,
        error={"type": "MemoryError", "message": "too much", "frames": 'File "handlers.py", line 8'},
    )
    add_attempt(
        db,
        job_id,
        verdict="oom_killed",
        is_kill=True,
        signal="SIGKILL",
        host="host-7",
        started_at=started,
        finished_at=started + timedelta(seconds=61),
        peak_memory_mb=1023.5,
        memory_limit_mb=1024,
        evidence='{"certainty": "certain", "oom_kills_after": 1}',
        output_tail="reading page 17\n",
    )
    html = browser.get(f"/jobs/{job_id}").text
    for told in (
        "MemoryError: too much",
        "&#34;document_id&#34;: 7",
        "oom_killed",
        "SIGKILL",
        "1 min 1 s",
        "1,024 MB of 1 GB",
        "certain",
        "reading page 17",
        'class="timeline"',
        "handlers.py",
        f"/jobs?worker_id={WORKER}",
    ):
        assert told in html, told


def test_a_queued_job_tells_what_it_waits_for(browser: Browser, insert: Insert, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system')")
    add_worker(db)
    holder = insert(status="running", concurrency_key="customer 7", worker_id=WORKER)
    before = insert(concurrency_key="customer 7", blocked=True)
    job_id = insert(concurrency_key="customer 7", blocked=True)
    html = browser.get(f"/jobs/{job_id}").text
    assert "It waits for the running job of its concurrency key" in html
    assert f'<a href="/jobs/{holder}">' in html
    assert f'<a href="/jobs/{before}">' in html


def test_a_queued_job_tells_that_nobody_serves_its_pool(browser: Browser, insert: Insert, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'ingest')")
    add_worker(db)
    html = browser.get(f"/jobs/{insert(pool='ingest')}").text
    assert "It waits for a worker that serves its pool. Start one" in html


def test_a_running_job_says_where_it_can_be_found(browser: Browser, insert: Insert, db: Db) -> None:
    add_worker(db)
    child = insert(status="running", pool="ingest", attempt=2, worker_id=WORKER)
    title = f"oomph: greet job {child} attempt 2"
    assert f"on host-7, its process is called &#34;{title}&#34;" in browser.get(f"/jobs/{child}").text
    coroutine = insert(status="running", pool="agent", attempt=1, worker_id=WORKER)
    assert "own process, pid 4711" in browser.get(f"/jobs/{coroutine}").text
    assert "<dt>Runs</dt>" not in browser.get(f"/jobs/{insert()}").text


def test_kinds_schedules_workers_the_audit_and_notices_are_listed(browser: Browser, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool, important) VALUES ('greet', 'system', true)")
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) VALUES "
        "('nightly', 'app', 'greet', '1 day', 'latest', 'skip', '1 hour', now() + interval '2 hours 1 minute')"
    )
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, cron, timezone, misfire, overlap, grace, next_occurrence) "
        "VALUES ('local', 'app', 'greet', '30 2 * * *', 'Europe/Berlin', 'latest', 'skip', '1 hour', now())"
    )
    db.execute("INSERT INTO background_audit (actor, action, target, reason) VALUES ('ada', 'retry', 'job 7', 'asked')")
    db.execute("INSERT INTO background_notices (severity, subject, body) VALUES ('warning', 'it burns', 'at the back')")
    add_worker(db)
    assert "important" in browser.get("/kinds").text
    schedules = browser.get("/schedules").text
    assert "nightly" in schedules
    assert "30 2 * * * Europe/Berlin" in schedules
    assert "in 2 h" in schedules
    assert "never" in schedules
    assert "4711" in browser.get("/workers").text
    audit = browser.get("/audit").text
    assert "asked" in audit
    assert 'job <a href="/jobs/7">7</a>' in audit
    assert "at the back" in browser.get("/notices").text
    assert "No unread notices." not in browser.get("/notices?unread=yes").text


def by_hand(html: str) -> list[list[str]]:
    """The section's rows: when, who, what, why."""
    section = html.partition('id="by-hand-title"')[2].partition("</section>")[0]
    rows = re.findall(r"<tr id=.*?</tr>", section, re.DOTALL)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in rows]


def test_a_job_says_what_was_done_to_it_by_hand_alone_and_with_others(browser: Browser, insert: Insert, db: Db) -> None:
    job_id, other = insert(status="dead"), insert(status="dead", kind="shout")
    retry_matching(db, JobFilter(status="dead", kind="greet"), actor="ada", reason="the disk is free")
    control.cancel(db, job_id, actor="bo")
    told = by_hand(browser.get(f"/jobs/{job_id}").text)
    assert [row[1:] for row in told] == [
        ["bo", "cancel", ""],
        ["ada", "retry of kind greet, status dead", "the disk is free"],
    ]
    assert "Nothing so far." in browser.get(f"/jobs/{other}").text.partition('id="by-hand-title"')[2]


def test_a_kind_says_what_was_done_to_it_by_hand_and_where_the_rest_is(browser: Browser, db: Db) -> None:
    kind = "a kind & more"
    for number in range(11):
        control.pause(db, kind, actor="ada", reason=f"pause {number}")
        control.resume(db, kind, actor="bo", probe=number == 10)
    control.pause(db, "another", actor="ada")
    shown = browser.get("/kind?name=a+kind+%26+more").text
    told = by_hand(shown)
    assert len(told) == 20
    assert [row[1:] for row in told[:2]] == [["bo", "resume with a probe", ""], ["ada", "pause", "pause 10"]]
    assert "/audit?target=" not in browser.get("/kind?name=another").text
    (rest,) = re.findall(r'href="(/audit\?target=[^"]+)"', shown)
    assert browser.get(rest).text.count('<tr id="audit-') == 22


def test_the_audit_is_filtered_and_its_pages_keep_the_filter(browser: Browser, insert: Insert, db: Db) -> None:
    job_id = insert()
    control.cancel(db, job_id, actor="ada", reason="not needed")
    for number in range(60):
        control.pause(db, "greet", actor="bo", reason=f"pause {number}")
    assert browser.get("/audit?actor=ada").text.count('<tr id="audit-') == 1
    assert browser.get(f"/audit?job_id={job_id}").text.count('<tr id="audit-') == 1
    assert browser.get("/audit?action=cancel").text.count('<tr id="audit-') == 1
    assert "Nothing like that was done by hand yet." in browser.get("/audit?actor=ada&action=pause").text
    first = browser.get("/audit?actor=bo&target=greet").text
    assert first.count('<tr id="audit-') == 50
    assert 'value="greet"' in first
    (older,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = browser.get(older.replace("&amp;", "&")).text
    assert second.count('<tr id="audit-') == 10
    assert "pause 9<" in second
    assert browser.get("/audit?job_id=first").status_code == 400


def test_a_kind_shows_its_memory_against_its_limit(browser: Browser, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('read-scan', 'ingest')")
    peaks = [0] * (len(PEAK_BOUNDS_MB) + 1)
    peaks[10], peaks[12] = 7, 2
    db.execute(
        "INSERT INTO background_activity (seconds, at, kind, limit_mb, peak_mb, verdicts, waits, runs, peaks) "
        "SELECT 900, date_bin('15 minutes', now(), 'epoch'), 'read-scan', 1024, 900, %s, %s, %s, %s",
        [[9, 1, 1], [4, 7], [0, 9, 2], peaks],
    )
    html = browser.get("/kind?name=read-scan").text
    assert "Peak memory: 9 attempts. The limit is 1 GB." in html
    assert "Attempts that ended: 11 attempts ended, 2 of them in vain." in html
    assert 'class="kill"' in html
    assert browser.get("/kind?name=read-scan&hours=3").status_code == 200
    assert browser.get("/kind?name=read-scan&hours=5").status_code == 400


def test_a_kind_shows_what_it_declares_of_organisations_and_retention(browser: Browser, db: Db) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('plain', 'agent')")
    html = browser.get("/kind?name=plain").text
    assert "Of one organisation" not in html
    assert "Kept when" not in html
    db.execute(
        "INSERT INTO background_kinds (kind, pool, max_per_organization, keep_succeeded, keep_dead)"
        " VALUES ('bounded', 'agent', 2, '36 hours', '0')"
    )
    html = re.sub(r"<[^>]+>|\s+", " ", browser.get("/kind?name=bounded").text)
    for fact in ("Of one organisation +2 at once", "Kept when succeeded +(36 h|1 d 12 h)", "Kept when dead +for ever"):
        assert re.search(fact, html), html
    assert "Kept when cancelled" not in html


def test_what_does_not_exist_is_said(browser: Browser) -> None:
    for path in (
        "/jobs/99",
        "/jobs/99999999999999999999",
        "/kind",
        "/nowhere",
        "/jobs/1/files/x.txt",
    ):
        answer = browser.get(path)
        assert answer.status_code == 404, path
        assert heading(answer.text) == "Not found"


def test_nothing_of_a_job_is_obeyed_or_hidden(browser: Browser, insert: Insert, db: Db) -> None:
    kind = HOSTILE[:90]
    paused = {"paused_at": datetime.now(UTC), "paused_by": HOSTILE, "pause_reason": HOSTILE}
    add(db, "kinds", kind=kind, pool="system", **paused)
    job_id = insert(
        kind=kind,
        status="dead",
        payload={HOSTILE: HOSTILE},
        organization_id=HOSTILE,
        dedupe_key=HOSTILE,
        concurrency_key=HOSTILE,
        error={"type": HOSTILE, "message": HOSTILE, "frames": HOSTILE},
    )
    add_attempt(
        db, job_id, kind=kind, verdict=HOSTILE, host=HOSTILE, evidence="[1, {}]", output_tail=HOSTILE, error='"odd"'
    )
    odd = insert(status="dead", error=["not", "a", "mapping"], payload=[1])
    add(db, "audit", actor=HOSTILE, action=HOSTILE, target=HOSTILE, reason=HOSTILE, detail="[1]")
    add(db, "notices", severity="critical", subject=HOSTILE, body=HOSTILE)
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) VALUES "
        "(%s, %s, %s, '1 day', 'latest', 'skip', '1 hour', now())",
        [HOSTILE, HOSTILE, kind],
    )
    listed = browser.get("/kinds").text
    (link,) = re.findall(r'<a href="(/kind\?name=[^"]+)"', listed)
    add(db, "audit", actor=HOSTILE, action=HOSTILE, target=f"job {job_id}", reason=HOSTILE, detail='{"filter": [1]}')
    add(db, "audit", actor=HOSTILE, action=HOSTILE, target=kind, reason=HOSTILE, detail='"a text"')
    for path in ("/", "/jobs", f"/jobs/{job_id}", f"/jobs/{odd}", "/kinds", link, "/schedules", "/audit", "/notices"):
        answer = browser.get(path)
        assert answer.status_code == 200, path
        html = answer.text
        assert "<script>alert" not in html, path
        assert "<img src=x" not in html, path
        assert ">49" not in html
        assert "\u202e" not in html, path
        assert "\x1b" not in html, path
    assert "\u27e8U+202E\u27e9gpj.exe" in browser.get(f"/jobs/{job_id}").text
    assert browser.get(link).text.count("&lt;script&gt;alert") >= 2


def test_secret_fields_are_nowhere_on_the_page(browser: Browser, insert: Insert, db: Db) -> None:
    add(db, "kinds", kind="greet", pool="system", secret_paths=["password"])
    job_id = insert(payload={"user": "ada", "password": "hunter2"})
    unknown = insert(kind="undeclared", payload={"user": "ben", "password": "hunter2"})
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/files/payload.txt", f"/jobs/{unknown}", "/jobs", "/"):
        assert "hunter2" not in browser.get(path).text, path
    assert "ada" in browser.get(f"/jobs/{job_id}").text
    assert "ben" not in browser.get(f"/jobs/{unknown}").text


def test_a_long_text_is_cut_and_can_be_saved_whole(browser: Browser, insert: Insert, db: Db) -> None:
    add(db, "kinds", kind="greet", pool="system", secret_paths=[])
    job_id = insert(payload={"text": "z" * 50_000 + "\u202e"})
    html = browser.get(f"/jobs/{job_id}").text
    assert len(html) < 40_000
    assert "the first 20,000 of its 50,0" in html
    answer = browser.get(f"/jobs/{job_id}/files/payload.txt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="job-{job_id}-payload.txt"'
    assert answer.text.count("z") == 50_000


def test_a_database_that_is_away_is_said_and_comes_back(url: str) -> None:
    with Proxy(url) as proxy:
        page = JobsPage(proxy.url, authenticate=ThisHost(Actor("somebody here", Role.OWNER)))
        with served(page) as address, Browser(address) as browser:
            assert browser.get("/jobs").status_code == 200
            proxy.cut()
            answer = browser.get("/audit")
            assert answer.status_code == 503
            assert "The database does not answer" in answer.text
            assert 'http-equiv="refresh"' in answer.text
            assert browser.get("/assets/nothing.css").status_code == 404
            proxy.heal()
            while browser.get("/jobs").status_code == 503:
                pass  # each waits for a connection itself; the test's own time-out bounds this


def test_a_database_without_our_tables_is_said(server: str) -> None:
    page = JobsPage(server, authenticate=ThisHost(Actor("somebody here", Role.OWNER)))
    with served(page) as address, Browser(address) as browser:
        assert browser.get("/jobs").status_code == 503
