"""Every action is asked about, takes a reason, is audited under the actor's name, and says what came of it."""

from typing import Any

import psycopg

from tests.page.conftest import Insert
from tests.page.serving import Browser, heading, hidden_fields

Db = psycopg.Connection[tuple[Any, ...]]


def audit(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT actor, action, target, reason FROM background_audit ORDER BY id").fetchall()


def status(db: Db, job_id: int) -> Any:
    row = db.execute("SELECT status FROM background_jobs WHERE id = %s", [job_id]).fetchone()
    assert row is not None
    return row[0]


def test_a_job_is_retried(owner: Browser, insert: Insert, db: Db) -> None:
    job_id = insert(status="dead")
    assert f'href="/jobs/{job_id}/retry"' in owner.get(f"/jobs/{job_id}").text
    shown = owner.get(f"/jobs/{job_id}/retry").text
    assert heading(shown) == f"Retry job {job_id}"
    done = owner.submit(f"/jobs/{job_id}/retry", reason="the disk is free again")
    assert done.url.path == f"/jobs/{job_id}"
    assert "The job is queued again." in done.text
    assert status(db, job_id) == "queued"
    assert audit(db) == [("ada", "retry", f"job {job_id}", "the disk is free again")]


def test_a_job_is_cancelled(owner: Browser, insert: Insert, db: Db) -> None:
    job_id = insert()
    done = owner.submit(f"/jobs/{job_id}/cancel", reason="not needed")
    assert "The job is cancelled" in done.text
    assert status(db, job_id) == "cancelled"
    assert audit(db) == [("ada", "cancel", f"job {job_id}", "not needed")]


def test_a_kind_is_paused_resumed_and_probed(owner: Browser, db: Db) -> None:
    name = "a kind/with \u00e4 &name"
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES (%s, 'system')", [name])
    target = "name=a%20kind%2Fwith%20%C3%A4%20%26name"
    paused = owner.submit(f"/kind/pause?{target}", reason="it eats everything")
    assert "The kind is paused." in paused.text
    assert "it eats everything" in paused.text
    probed = owner.submit(f"/kind/probe?{target}", reason="perhaps it is mended")
    assert "The next job goes first" in probed.text
    resumed = owner.submit(f"/kind/resume?{target}", reason="it is mended")
    assert "The kind runs again." in resumed.text
    assert [row[1] for row in audit(db)] == ["pause", "resume", "resume"]
    assert {row[2] for row in audit(db)} == {name}


def test_a_schedule_is_run_now(owner: Browser, db: Db) -> None:
    db.execute(
        "INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout) "
        "VALUES ('digest', 'system', 1, 3, '5 minutes')"
    )
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) VALUES "
        "('nightly', 'app', 'digest', '1 day', 'latest', 'skip', '1 hour', now() + interval '2 hours')"
    )
    assert 'href="/schedule/run?name=nightly"' in owner.get("/schedules").text
    done = owner.submit("/schedule/run?name=nightly", reason="the night was missed")
    assert "This is the job that was made." in done.text
    assert "digest" in heading(done.text)
    again = owner.submit("/schedule/run?name=nightly", reason="once more")
    assert again.status_code == 409
    assert "its overlap is to skip" in again.text


def test_a_form_that_is_sent_twice_is_done_once(owner: Browser, db: Db) -> None:
    """As by two clicks; a schedule whose occurrences may overlap would be run twice."""
    db.execute(
        "INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout) "
        "VALUES ('digest', 'system', 1, 3, '5 minutes')"
    )
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) VALUES "
        "('nightly', 'app', 'digest', '1 day', 'latest', 'allow', '1 hour', now() + interval '2 hours')"
    )
    path = "/schedule/run?name=nightly"
    form = {**hidden_fields(owner.get(path).text), "reason": "the night was missed"}
    assert owner.post(path, data={**form, "reason": ""}).status_code == 400
    form = {**hidden_fields(owner.get(path).text), "reason": "the night was missed"}
    assert "This is the job that was made." in owner.post(path, data=form).text
    again = owner.post(path, data=form)
    assert again.status_code == 409
    assert "This form was sent already" in again.text
    assert db.execute("SELECT count(*) FROM background_jobs").fetchone() == (1,)
    assert owner.submit(path, reason="once more").status_code == 200


def test_a_form_that_met_a_lock_may_be_sent_again(owner: Browser, insert: Insert, db: Db, url: str) -> None:
    job_id = insert(status="dead")
    path = f"/jobs/{job_id}/retry"
    form = {**hidden_fields(owner.get(path).text), "reason": "the disk is free again"}
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [job_id])
        assert "Nothing was changed; try again" in owner.post(path, data=form).text
        other.rollback()
    assert "The job is queued again." in owner.post(path, data=form).text


def test_notices_are_marked_as_read_one_and_all(owner: Browser, db: Db) -> None:
    for subject in ("one", "two", "three"):
        db.execute("INSERT INTO background_notices (severity, subject, body) VALUES ('info', %s, '')", [subject])
    words = hidden_fields(owner.get("/notices").text)
    del words["which"]
    assert "Marked as read." in owner.post("/notices/read", data={**words, "id": "1"}).text
    assert db.execute("SELECT id FROM background_notices WHERE read_at IS NOT NULL").fetchall() == [(1,)]
    assert owner.post("/notices/read", data={**words, "id": "99"}).status_code == 404
    assert owner.post("/notices/read", data={**words, "id": "odd"}).status_code == 400
    owner.post("/notices/read", data={**words, "which": "all"})
    assert "No unread notices." in owner.get("/notices?unread=yes").text


def test_without_a_reason_nothing_is_done(owner: Browser, insert: Insert, db: Db) -> None:
    job_id = insert(status="dead")
    for path in (f"/jobs/{job_id}/retry", "/jobs/retry?status=dead"):
        answer = owner.submit(path, reason="  ")
        assert answer.status_code == 400
        assert "A reason is needed" in answer.text
    assert audit(db) == []


def test_what_does_not_apply_is_said_and_the_reason_is_kept(owner: Browser, insert: Insert, db: Db) -> None:
    job_id = insert(status="succeeded")
    answer = owner.submit(f"/jobs/{job_id}/retry", reason="I want it again")
    assert answer.status_code == 409
    assert "only a dead or cancelled job can be retried" in answer.text
    assert "I want it again</textarea>" in answer.text
    assert owner.submit("/kind/resume?name=odd", reason="because").status_code == 409
    assert owner.submit("/kind/pause", reason="because").status_code == 409
    assert audit(db) == []


def test_the_address_cannot_put_words_into_our_mouth(owner: Browser) -> None:
    assert '<p class="done"' not in owner.get("/jobs?done=The+bank+has+called").text


def test_many_jobs_are_counted_and_then_retried(owner: Browser, insert: Insert, db: Db) -> None:
    for _ in range(30):
        insert(status="dead")
    other = insert(status="dead", kind="other")
    insert(kind="greet", dedupe_key="mail 1", status="dead")
    insert(kind="greet", dedupe_key="mail 1")
    listed = owner.get("/jobs?status=dead&kind=greet").text
    assert "/jobs/retry?status=dead&amp;kind=greet" in listed
    assert heading(owner.get("/jobs/retry?status=dead&kind=greet").text) == "Retry 31 jobs"
    done = owner.submit("/jobs/retry?status=dead&kind=greet", reason="the disk is free again")
    assert heading(done.text) == "30 jobs queued again"
    assert "1: a job with its dedupe key is queued" in done.text
    assert status(db, other) == "dead"
    assert audit(db) == [("ada", "retry", "30 jobs", "the disk is free again")]
    assert "of kind greet, status dead; not done: 1 because" in owner.get("/audit").text.replace("&#39;", "'")


def test_many_jobs_are_cancelled(owner: Browser, insert: Insert, db: Db) -> None:
    jobs = [insert(organization_id="acme") for _ in range(3)]
    done = owner.submit("/jobs/cancel?status=queued&organization_id=acme", reason="they left us")
    assert heading(done.text).startswith("3 jobs cancelled")
    assert {status(db, job_id) for job_id in jobs} == {"cancelled"}


def test_many_jobs_of_no_status_are_not_touched(owner: Browser) -> None:
    for path in ("/jobs/retry", "/jobs/retry?status=succeeded", "/jobs/cancel?status=dead"):
        answer = owner.get(path)
        assert answer.status_code == 400
        assert "Choose jobs of one status first" in answer.text


def test_more_than_one_request_may_do_is_gone_on_with(owner: Browser, db: Db) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status) "
        "SELECT 'greet', 'system', 'dead' FROM generate_series(1, 10100)"
    )
    shown = owner.get("/jobs/retry?status=dead").text
    assert "at least 10,000" in heading(shown)
    done = owner.submit("/jobs/retry?status=dead", reason="all of them")
    assert heading(done.text) == "10,000 jobs queued again"
    words = hidden_fields(done.text)
    assert words["reason"] == "all of them"
    rest = owner.post("/jobs/retry?status=dead", data=words)
    assert heading(rest.text) == "100 jobs queued again"
    assert db.execute("SELECT count(*) FROM background_jobs WHERE status = 'dead'").fetchone() == (0,)
