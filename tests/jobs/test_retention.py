"""Retention: what has ended goes after its time, and nothing else; in bounded steps that hold up nobody."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from jobs import Payload, Pool, Retention, Task, retention
from jobs.database import Database
from jobs.retention import KEPT_ATTEMPTS, LAP_SECONDS, RetentionWalk, Step
from jobs.store import JobStore
from tests.jobs.lab import NOTE, Connection, Note, Worker, add, hire, scalar

DAY = timedelta(days=1)
WEEK = Retention(succeeded=7 * DAY, dead=30 * DAY, cancelled=30 * DAY)
ME, SOMEBODY = uuid4(), uuid4()


@pytest.fixture
def walk(database: Database) -> RetentionWalk:
    return RetentionWalk(database, WEEK, records=365 * DAY)


async def lap(walk: RetentionWalk) -> int:
    """Walk to the end of a lap; how many jobs were removed."""
    removed = 0
    for _ in range(1_000):
        step = await walk.step(ME)
        assert step is not None
        removed += step.removed
        if step.ended:
            return removed
    raise AssertionError("the lap does not end")


def finished(db: Connection, days: float, status: str = "succeeded", count: int = 1, **columns: Any) -> list[int]:
    """Jobs that ended so many days ago."""
    ids = add(db, count, status=status, **columns)
    db.execute(
        "UPDATE background_jobs SET created_at = now() - %(age)s, finished_at = now() - %(age)s"
        " WHERE id = ANY (%(ids)s)",
        {"age": timedelta(days=days), "ids": ids},
    )
    return ids


def left(db: Connection) -> list[int]:
    return [row[0] for row in db.execute("SELECT id FROM background_jobs ORDER BY id")]


async def test_each_status_is_kept_for_its_own_time(db: Connection, walk: RetentionWalk) -> None:
    finished(db, 7.01)
    kept = finished(db, 6.99) + finished(db, 29.9, "dead") + finished(db, 29.9, "cancelled")
    finished(db, 30.1, "dead")
    finished(db, 30.1, "cancelled")
    kept += finished(db, 400, "queued") + finished(db, 400, "running")
    assert await lap(walk) == 3
    assert left(db) == sorted(kept)
    assert await lap(walk) == 0


async def test_a_kind_says_itself_how_long_its_jobs_are_kept(
    db: Connection, store: JobStore, walk: RetentionWalk
) -> None:
    short = Task(kind="short", payload_type=Note, pool=Pool.SYSTEM, retention=Retention(succeeded=timedelta(hours=1)))
    long = Task(kind="long", payload_type=Note, pool=Pool.SYSTEM, retention=Retention(succeeded=timedelta(0)))
    await hire(store, tasks=[NOTE, short, long])
    kept = finished(db, 5_000, kind="long") + finished(db, 2, "dead", kind="short") + finished(db, 0.02, kind="short")
    finished(db, 0.05, kind="short")
    assert await lap(walk) == 1
    assert left(db) == sorted(kept)


async def test_whoever_asks_is_told_what_went(db: Connection, database: Database) -> None:
    steps: list[Step] = []
    walk = RetentionWalk(database, WEEK, records=365 * DAY, on_step=steps.append)
    finished(db, 8, count=2)
    finished(db, 31, "dead", count=3)
    finished(db, 31, "cancelled")
    endless = add(db, claim=KEPT_ATTEMPTS + 4)
    db.execute(
        "INSERT INTO background_attempts (job_id, claim, attempt, kind, verdict, charged, is_kill)"
        " SELECT %s, n, 1, 'note', 'failed', true, false FROM generate_series(1, %s) AS n",
        [endless[0], KEPT_ATTEMPTS + 4],
    )
    for days in (366, 366, 364):
        db.execute(
            "INSERT INTO background_audit (at, actor, action, target) VALUES (now() - %s, 'a', 'b', 'c')", [days * DAY]
        )
    db.execute(
        "INSERT INTO background_notices (at, severity, subject, body)"
        " VALUES (now() - interval '366 days', 'info', 's', 'b')"
    )
    while await walk.run_once(ME) < LAP_SECONDS:
        pass
    jobs, records = Counter[str](), Counter[str]()
    for step in steps:
        jobs.update(step.jobs)
        records.update(step.records)
    assert jobs == {"succeeded": 2, "dead": 3, "cancelled": 1}
    assert records == {"background_attempts": 4, "background_audit": 2, "background_notices": 1}


async def test_zero_keeps_for_ever(db: Connection, database: Database) -> None:
    finished(db, 5_000, count=3)
    never = RetentionWalk(database, Retention(succeeded=timedelta(0), dead=DAY, cancelled=DAY), records=timedelta(0))
    db.execute("INSERT INTO background_audit (at, actor, action, target) VALUES ('2001-01-01', 'ana', 'retry', '1')")
    assert await lap(never) == 0
    assert scalar(db, "SELECT count(*) FROM background_audit") == 1


async def test_the_newest_occurrence_of_a_schedule_stays_as_long_as_the_schedule(
    db: Connection, walk: RetentionWalk
) -> None:
    columns = {"schedule": "digest"}
    finished(db, 100, occurrence="2001-01-01", **columns)
    (newest,) = finished(db, 90, occurrence="2001-01-02", **columns)
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence)"
        " VALUES ('digest', 'app', 'note', '1 day', 'latest', 'skip', '1 day', now())"
    )
    assert await lap(walk) == 1
    assert left(db) == [newest]
    db.execute("DELETE FROM background_schedules")
    assert await lap(walk) == 1


async def test_the_attempts_go_with_their_job_and_a_document_forgets_it(db: Connection, walk: RetentionWalk) -> None:
    (job_id,) = finished(db, 31, "dead", kind="ingest-document", pool="ingest")
    db.execute(
        "INSERT INTO background_attempts (job_id, claim, attempt, kind, verdict, charged, is_kill)"
        " VALUES (%s, 1, 1, 'ingest-document', 'failed', true, false)",
        [job_id],
    )
    db.execute(
        "INSERT INTO background_documents (size, job_id, status, filename, sha256) VALUES (1, %s, 'FAILED', 'a', %s)",
        [job_id, "0" * 64],
    )
    assert await lap(walk) == 1
    assert scalar(db, "SELECT count(*) FROM background_attempts") == 0
    assert db.execute("SELECT job_id, status FROM background_documents").fetchall() == [(None, "FAILED")]


async def test_a_job_that_goes_on_and_on_keeps_its_newest_attempts(db: Connection, walk: RetentionWalk) -> None:
    (job_id,) = finished(db, 20, "queued", claim=KEPT_ATTEMPTS + 50)
    db.execute(
        "INSERT INTO background_attempts (job_id, claim, attempt, kind, verdict, charged, is_kill)"
        " SELECT %s, n, 1, 'note', 'snoozed', false, false FROM generate_series(1, %s) AS n",
        [job_id, KEPT_ATTEMPTS + 50],
    )
    await lap(walk)
    assert db.execute("SELECT min(claim), count(*) FROM background_attempts").fetchone() == (51, KEPT_ATTEMPTS)


async def test_notices_and_the_audit_are_kept_for_a_time_of_their_own(db: Connection, walk: RetentionWalk) -> None:
    for days in (366, 364):
        db.execute(
            "INSERT INTO background_audit (at, actor, action, target) VALUES (now() - %s, 'ana', 'retry', 'job 1')",
            [timedelta(days=days)],
        )
        db.execute(
            "INSERT INTO background_notices (at, severity, subject, body) VALUES (now() - %s, 'info', '', '')",
            [timedelta(days=days)],
        )
    await lap(walk)
    for table in ("background_audit", "background_notices"):
        assert scalar(db, f"SELECT count(*) FROM {table}") == 1


async def test_a_step_is_bounded_and_the_walk_goes_on_where_it_stood(
    db: Connection, walk: RetentionWalk, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_ROWS", 10)
    slow = RetentionWalk(database, WEEK, records=DAY)
    finished(db, 8, count=25)
    first = await slow.step(ME)
    assert first == retention.Step(10, 10, ended=False)
    other = RetentionWalk(database, WEEK, records=DAY)  # a worker that starts anew under the same id
    assert [(await other.step(ME)) for _ in range(2)] == [
        retention.Step(10, 10, ended=False),
        retention.Step(5, 5, ended=True),
    ]
    assert scalar(db, "SELECT removed FROM background_retention") == 25


async def test_the_walk_has_one_worker_until_that_is_gone(db: Connection, walk: RetentionWalk) -> None:
    assert await walk.step(ME) is not None
    assert await walk.step(SOMEBODY) is None
    assert await walk.run_once(SOMEBODY) == LAP_SECONDS
    db.execute("UPDATE background_retention SET held_until = now() - interval '1 second'")
    assert await walk.step(SOMEBODY) is not None
    assert await walk.step(ME) is None


async def test_what_somebody_holds_is_left_to_the_next_lap_and_nobody_waits(
    db: Connection, url: str, walk: RetentionWalk
) -> None:
    held, _ = finished(db, 8, count=2)
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        async with asyncio.timeout(1):
            assert await lap(walk) == 1
        assert left(db) == [held]
        other.execute("UPDATE background_jobs SET status = 'queued' WHERE id = %s", [held])  # a retry by hand
        other.commit()
    assert await lap(walk) == 0
    assert left(db) == [held]


async def test_a_lap_begins_where_the_lap_before_has_kept_the_first_and_once_a_day_at_the_first_of_all(
    db: Connection, walk: RetentionWalk
) -> None:
    finished(db, 8, count=5)
    (kept,) = finished(db, 8, "dead")
    finished(db, 8, count=5)
    assert await lap(walk) == 10
    assert scalar(db, "SELECT position FROM background_retention") == kept - 1
    below = finished(db, 8, id=kept - 3)  # by hand: no id that was given comes again
    assert await lap(walk) == 0
    db.execute("UPDATE background_retention SET whole_at = now() - interval '25 hours'")
    assert [await lap(walk), await lap(walk)] == [0, 1]
    assert below[0] not in left(db)
    assert scalar(db, "SELECT whole_at > now() - interval '1 hour' FROM background_retention")


async def test_a_wide_gap_without_jobs_is_crossed_in_few_steps(db: Connection, walk: RetentionWalk) -> None:
    finished(db, 8)
    finished(db, 8, id=1_000_000_000)
    steps = removed = 0
    while removed < 2:
        await walk.run_once(ME)
        steps += 1
        removed = scalar(db, "SELECT removed FROM background_retention")
    assert steps < 200


async def test_a_walk_over_many_jobs_takes_short_steps_and_claims_go_on(
    db: Connection, database: Database, worker: Worker
) -> None:
    """200,000 old jobs, a third of them kept: no step is long, and no claim meanwhile is late."""
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status, created_at, finished_at)"
        " SELECT 'note', 'system', CASE WHEN n % 3 = 0 THEN 'dead' ELSE 'succeeded' END,"
        " now() - interval '8 days', now() - interval '8 days' FROM generate_series(1, 200000) AS n"
    )
    walk = RetentionWalk(database, WEEK, records=DAY)
    steps: list[float] = []
    claims: list[float] = []

    async def walk_on() -> None:
        ended = False
        while not ended:
            began = time.monotonic()
            step = await walk.step(ME)
            steps.append(time.monotonic() - began)
            assert step is not None
            ended = step.ended

    walking = asyncio.create_task(walk_on())
    while not walking.done():
        add(db)
        began = time.monotonic()
        (job,) = await worker.claim()
        await worker.store.complete({job.fence: None})
        claims.append(time.monotonic() - began)
    await walking
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE finished_at < now() - interval '1 day'") == 66_666
    # Bounds for a host where others work; here, a step takes 50 ms and a claim with its outcome one.
    assert sorted(steps)[len(steps) // 2] < 0.5
    assert sorted(claims)[len(claims) * 9 // 10] < 0.5
    assert len(claims) > len(steps)


@pytest.mark.parametrize("kept", [timedelta(days=-1), timedelta(days=36_501)])
def test_a_time_that_cannot_be_meant_is_refused(kept: timedelta) -> None:
    with pytest.raises(ValueError, match=r"Retention: dead=.* is outside 0 to 36500 days"):
        Retention(dead=kept)


def test_a_retention_is_made_of_times() -> None:
    with pytest.raises(TypeError, match="Retention: succeeded must be a timedelta or None, not 7"):
        Retention(succeeded=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="note: retention must be a Retention"):
        Task(kind="note", payload_type=Payload, pool=Pool.SYSTEM, retention=7 * DAY)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [10**15, 2**63 - 10])
async def test_ids_that_were_set_far_ahead_are_reached_in_one_lap(
    db: Connection, walk: RetentionWalk, first: int
) -> None:
    finished(db, 8, count=3)
    db.execute(f"ALTER TABLE background_jobs ALTER COLUMN id RESTART WITH {first}")
    finished(db, 8, count=3)
    for _ in range(100):
        if await walk.run_once(ME) == LAP_SECONDS:
            break
    assert left(db) == []
    assert scalar(db, "SELECT removed FROM background_retention") == 6
