"""A session that holds a snapshot keeps every finished job's entry in the queue's index: nobody waits behind those."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from jobs.claim import ClaimedJob, Mark
from jobs.outcome import Verdict
from jobs.store import JobStore
from supervisor.claiming.claims import DEAR_ENTRIES
from supervisor.claiming.reach import LATE_SECONDS, MARK_SECONDS, Reach
from tests.jobs.lab import Connection, Worker, add, hire, job, returned, until
from tests.jobs.test_plans import plans_inside, walk
from tests.worker.app import AGENT
from tests.worker.conftest import Bench
from tests.worker.desk import Desk

FINISHED = DEAR_ENTRIES + 1_000
LONG_AGO = "2020-02-03"


@contextmanager
def snapshot(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session that has looked at the jobs, as a long report does, until it ends or is rolled back."""
    with psycopg.connect(url) as report:
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.execute("SELECT count(*) FROM background_jobs")
        yield report
        report.rollback()


def churn(db: Connection, kind: str = "note", pool: str = "system", count: int = FINISHED) -> None:
    """So many jobs that came and went."""
    add(db, count, kind=kind, pool=pool, run_after=LONG_AGO)
    db.execute("UPDATE background_jobs SET status = 'succeeded'")


async def test_without_an_old_snapshot_every_claim_looks_at_the_whole_queue(db: Connection, desk: Desk) -> None:
    churn(db)
    assert (await desk.store.look(["note"])).walked > DEAR_ENTRIES  # once: those entries are marked as dead now
    assert await desk.claim() == []
    (old,) = add(db, run_after=LONG_AGO)
    assert await desk.claim() == [old]


async def test_under_an_old_snapshot_a_claim_looks_at_what_the_one_before_cannot_have_seen(
    db: Connection, url: str, desk: Desk
) -> None:
    with snapshot(url):
        churn(db)
        (first,) = add(db, run_after=LONG_AGO)
        assert await desk.claim() == [first]  # the first one knows of none before
        for _ in range(3):
            (fresh,) = add(db)
            (late,) = add(db, run_after=datetime.now(UTC) - timedelta(seconds=LATE_SECONDS / 2))
            assert await desk.claim() == [late, fresh]
        (old,) = add(db, run_after=LONG_AGO)
        assert await desk.claim() == []
        await desk.claims.look_once()  # of the whole queue
        assert await desk.take() == [old]


async def test_a_job_that_is_said_to_come_earlier_is_found_at_once(db: Connection, url: str, desk: Desk) -> None:
    with snapshot(url):
        churn(db)
        assert await desk.claim() == []
        (old,) = add(db, run_after=LONG_AGO)
        assert await desk.claim() == []
        assert desk.claims.hear("earlier", "note")
        assert await desk.take() == [old]
        (old,) = add(db, run_after=LONG_AGO)
        assert await desk.claim() == []


async def test_under_an_old_snapshot_a_retry_still_starts_when_it_is_due(db: Connection, url: str, desk: Desk) -> None:
    with snapshot(url):
        churn(db)
        assert await desk.claim() == []
        (retried,) = add(db, payload='{"text": "fail once"}')
        assert await desk.claim() == [retried]
        while len(desk.ran) < 2:  # what wakes these claims is the freed slot, then a timer
            await desk.take()
        assert desk.ran == [retried, retried]
        await until(lambda: job(db, retried) == "succeeded")


async def test_under_an_old_snapshot_only_a_look_at_the_whole_queue_says_that_nothing_is_left(
    db: Connection, url: str, desk: Desk
) -> None:
    with snapshot(url):
        churn(db)
        assert await desk.claim() == []
        await desk.claim()
        assert not desk.claims.idle
        await desk.claims.look_once()
        assert desk.claims.idle


async def test_what_a_claim_and_a_look_cannot_reach_costs_them_no_pages(
    db: Connection, url: str, store: JobStore
) -> None:
    worker = await hire(store)
    with snapshot(url):
        churn(db)
        (fresh,) = add(db)
        near, found, walked = look_and_claim(db, worker, 10.0)
        assert (found, walked) == ([fresh], 1)
        far, found, walked = look_and_claim(db, worker, math.inf)
        assert found == []
        assert walked > FINISHED
        assert near < 30 < 200 < far
    assert (await store.look(["note"])).walked > FINISHED  # which marks them as dead, now that nobody can see them
    assert (await store.look(["note"])).walked < DEAR_ENTRIES


def look_and_claim(db: Connection, worker: Worker, reach: float) -> tuple[int, list[int], int]:
    """The pages that both touch through the index, the jobs that were taken, the entries that the look walked over."""
    with plans_inside(db) as plans:
        *_, walked = db.execute("SELECT * FROM background_look(%s, %s)", [["note"], reach]).fetchall()[-1]
        taken = db.execute("SELECT id FROM background_claim(%s, 'system', %s, 10, %s)", [worker.id, ["note"], reach])
        ids = [row[0] for row in taken]
    scans = [
        node for shown in plans for node in walk(shown["Plan"]) if node.get("Index Name") == "background_jobs_claim"
    ]
    return sum(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] for scan in scans), ids, walked


async def test_what_is_given_back_is_said_to_come_earlier(db: Connection, url: str, store: JobStore) -> None:
    worker = await hire(store)
    add(db)
    running = await worker.claim_one()
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        await store.finish(running.fence, returned(Verdict.RELEASED))
        assert [notice.payload for notice in listener.notifies(timeout=10, stop_after=1)] == ["earlier note"]


def test_a_worker_hears_that_a_job_came_earlier(bench: Bench) -> None:
    """Jobs of one key, due long ago; the worker looks at the whole queue once a minute, so each needs its notice."""
    with snapshot(bench.url):
        churn(bench.db, AGENT.kind, "agent")
        due = datetime(2020, 2, 3, tzinfo=UTC)
        jobs = [bench.put(AGENT, "wait", 0.5, concurrency_key="one at a time", run_after=due) for _ in range(4)]
        bench.start(WORKER_POLL_SECONDS="60", WORKER_POOLS="agent")
        for job_id in jobs:
            bench.wait(job_id, "succeeded")


# The arithmetic.


def claimed(job_id: int, kind: str = "note", run_after: float = 0.0) -> ClaimedJob:
    return ClaimedJob(job_id, 1, kind, "system", "{}", 1, 5, timedelta(minutes=5), run_after=run_after)


def test_a_claim_reaches_back_to_a_little_before_the_last_one_that_left_nothing() -> None:
    reach = Reach()
    assert reach.seconds(100) == math.inf
    reach.emptied(100)
    assert reach.seconds(100) == LATE_SECONDS
    assert reach.seconds(107) == 7 + LATE_SECONDS
    reach.emptied(107)
    assert reach.seconds(108) == 1 + LATE_SECONDS


def test_a_claim_that_was_on_its_way_when_a_job_came_earlier_has_not_seen_it() -> None:
    reach = Reach()
    reach.emptied(100)
    reach.came_earlier(102)
    reach.emptied(101)
    assert reach.seconds(103) == math.inf
    reach.emptied(103)
    assert reach.seconds(104) == 1 + LATE_SECONDS


def test_claims_that_are_full_go_on_where_the_last_one_ended_for_a_while() -> None:
    reach = Reach()
    assert list(reach.marks(100)) == []
    reach.filled([claimed(1), claimed(3, run_after=5), claimed(2, "letter", 7)], 100)
    assert list(reach.marks(100)) == [Mark("note", 1, 5, 3), Mark("letter", 1, 7, 2)]
    reach.filled([claimed(4, run_after=6)], 100 + MARK_SECONDS / 2)
    assert list(reach.marks(100 + MARK_SECONDS)) == [Mark("note", 1, 6, 4), Mark("letter", 1, 7, 2)]
    assert list(reach.marks(101 + MARK_SECONDS)) == []
    reach.filled([claimed(5, run_after=8)], 101 + MARK_SECONDS)  # from the head again: the old ones say nothing more
    assert list(reach.marks(101 + MARK_SECONDS)) == [Mark("note", 1, 8, 5)]
    reach.passed()
    assert list(reach.marks(101 + MARK_SECONDS)) == []
    assert reach.seconds(101 + MARK_SECONDS) == math.inf  # what was before the marks, none of these claims has seen
