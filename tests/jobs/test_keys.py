"""Keys under load: one running job per concurrency key, one queued copy per dedupe key, nobody waits for nothing."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from jobs import Job, Priority, enqueue, enqueue_many
from jobs.claim import ClaimedJob, Fence, Wanted
from jobs.control import ControlError, cancel, pause, resume, retry
from jobs.database import Database
from jobs.outcome import AttemptReport, Succeeded, Verdict
from jobs.recovery import Recovery
from jobs.store import Finished, JobStore
from jobs.unavailable import DatabaseUnavailable
from tests.jobs.lab import (
    CANCEL,
    FAILURE,
    LETTER,
    NOTE,
    PERMANENT,
    SUCCESS,
    Connection,
    Note,
    Worker,
    add,
    attempts,
    died,
    expire,
    hire,
    job,
    returned,
    scalar,
    snoozed,
    succeed,
    until,
    waiting_for_locks,
)

HOUR = timedelta(hours=1)
WORKERS = 8
MISFORTUNES = [
    FAILURE,
    returned(Verdict.RELEASED),
    snoozed(timedelta(0)),
    died(Verdict.CRASHED),
    PERMANENT,
    CANCEL,
]


# The race.


@dataclass
class Race:
    """Eight worker threads, each with its own connections, and whoever else is let loose on the same table."""

    url: str
    batch: int
    trouble: bool = False
    running: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    held_up: int = 0  # ends that waited for a claim's lock in vain, and were written one by one
    stop: bool = False
    failures: list[Exception] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, db: Connection, seconds: float) -> float:
        threads = [threading.Thread(target=self._guard, args=[self._worker, n]) for n in range(WORKERS)]
        operator = threading.Thread(target=self._guard, args=[self._operator, 0])
        if self.trouble:
            threads += [threading.Thread(target=self._guard, args=[self._rescuer, 0]), operator]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        while time.monotonic() - started < seconds and not self.failures:
            if not operator.is_alive() and not scalar(  # what an operator may retry is not the end yet
                db, "SELECT EXISTS (SELECT FROM background_jobs WHERE status IN ('queued', 'running'))"
            ):
                break
            time.sleep(0.02)
        took = time.monotonic() - started
        self.stop = True
        for thread in threads:
            thread.join()
        return took

    def _guard(self, run: Callable[[int], Awaitable[None]], number: int) -> None:
        try:
            asyncio.run(run(number))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001  (asserted on by the test)
            self.failures.append(error)

    @contextmanager
    def _at_work(self, jobs: list[ClaimedJob]) -> Iterator[None]:
        keys = [job.concurrency_key for job in jobs if job.concurrency_key is not None]
        with self._lock:
            self.running.update(keys)
            self.overlaps += sum(count - 1 for count in self.running.values() if count > 1)
        yield
        with self._lock:
            self.running.subtract(keys)

    async def _worker(self, number: int) -> None:
        chance = random.Random(number)
        database = Database(self.url, call_timeout=20, application_name=f"racer {number}")
        await database.open()
        store = JobStore(database, retry_delay=0.002, pause_after=10_000)
        worker = await hire(store, host=f"racer-{number}")
        while not self.stop:
            claim = await store.claim(Wanted(worker.id, "system", worker.kinds, self.batch))
            if not claim.jobs:
                await asyncio.sleep(0.001 if claim.parked else 0.005)
                continue
            with self._at_work(claim.jobs):
                await asyncio.sleep(0.002)
            if not self.trouble:
                ends: dict[Fence, str | None] = {job.fence: None for job in claim.jobs}
                refused = await store.complete(ends)
                with self._lock:
                    self.held_up += bool(refused)
                for fence in sorted(refused):
                    await self._persist(store.finish, fence, AttemptReport(Succeeded()))
                continue
            fate = chance.random()
            if fate < 0.03:
                await database.fetch("renew", worker_id=worker.id, lease=timedelta(seconds=-1))
                worker = await hire(store, host=f"racer-{number}")
                continue
            lucky = [taken for taken in claim.jobs if chance.random() < 0.7]
            await self._persist(succeed, store, {taken.fence: None for taken in lucky})
            for taken in claim.jobs:
                if taken not in lucky:
                    await self._persist(store.finish, taken.fence, chance.choice(MISFORTUNES))
        await database.close()

    async def _persist(self, write: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """As the supervisor does: what cannot be written now is written later."""
        while True:
            try:
                await write(*arguments)
                return
            except DatabaseUnavailable:
                await asyncio.sleep(0.01)

    async def _rescuer(self, number: int) -> None:
        database = Database(self.url, call_timeout=20, application_name="rescuer")
        await database.open()
        recovery = Recovery(
            database, JobStore(database, retry_delay=0.002, pause_after=10_000), unknown_kind_grace=HOUR
        )
        while not self.stop:
            for run in (recovery.rescue, recovery.sweep_blocked, recovery.bury_unknown):
                await self._persist(run)
            await asyncio.sleep(0.02)
        await database.close()

    async def _operator(self, number: int) -> None:
        chance = random.Random(0)
        with psycopg.connect(self.url, autocommit=True) as connection:
            for n in range(60):
                if self.stop:
                    return
                kind = chance.choice(["note", "letter"])
                pause(connection, kind, actor="ana")
                for _ in range(5):
                    job_id = chance.randint(1, 1_200)
                    for act in (cancel, retry):
                        with suppress(ControlError):
                            act(connection, job_id, actor="ana", reason=str(n))
                resume(connection, kind, actor="ana", probe=n % 5 == 0)
                if n % 5 == 0:
                    resume(connection, kind, actor="ana")
                await asyncio.sleep(0.02)


def fill(url: str, count: int, keys: int = 20) -> None:
    """Half of the jobs on a few keys, mixed over two kinds and all priorities."""
    with psycopg.connect(url) as connection:
        for task in (NOTE, LETTER):
            jobs = [
                Job(
                    payload=Note(number=n),
                    concurrency_key=f"key {n % keys}" if n % 2 else None,
                    priority=list(Priority)[n % 3],
                )
                for n in range(count // 2)
            ]
            enqueue_many(connection, task, jobs)
        connection.execute("UPDATE background_jobs SET max_attempts = 1000")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE background_jobs")


def aborted(db: Connection) -> tuple[int, int]:
    db.execute("SELECT pg_stat_clear_snapshot()")
    row = db.execute(
        "SELECT xact_rollback, deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.parametrize(("batch", "count"), [(10, 4_000), (1, 1_000)])
def test_jobs_of_a_key_never_overlap_and_all_of_them_finish(
    db: Connection, url: str, batch: int, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(url, count)
    race = Race(url, batch)
    before = aborted(db)
    took = race.run(db, seconds=60)
    rollbacks, deadlocks = (after - first for after, first in zip(aborted(db), before, strict=True))
    with capsys.disabled():
        print(
            f"\n{count} jobs, half on 20 keys, {WORKERS} workers, batch {batch}: {took:.1f} s, "
            f"{rollbacks} transactions aborted, {race.held_up} ends held up, {race.overlaps} overlaps"
        )
    assert race.failures == []
    assert race.overlaps == 0
    assert db.execute("SELECT status, attempt, count(*) FROM background_jobs GROUP BY 1, 2").fetchall() == [
        ("succeeded", 1, count)
    ]
    assert deadlocks == 0
    assert rollbacks == 0 or race.held_up > 0  # the index is a backstop: no claim ever runs into it


def test_jobs_of_a_key_never_overlap_whatever_happens_to_them(
    db: Connection, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(url, 1_200)
    race = Race(url, batch=10, trouble=True)
    before = aborted(db)
    took = race.run(db, seconds=60)
    rollbacks, deadlocks = (after - first for after, first in zip(aborted(db), before, strict=True))
    verdicts = dict(db.execute("SELECT verdict, count(*) FROM background_attempts GROUP BY 1 ORDER BY 1").fetchall())
    with capsys.disabled():
        print(
            f"\n1200 jobs with trouble: {took:.1f} s, {rollbacks} transactions aborted, {deadlocks} deadlocks, "
            f"{race.overlaps} overlaps, {verdicts}"
        )
    assert race.failures == []
    assert race.overlaps == 0
    statuses = dict(db.execute("SELECT status, count(*) FROM background_jobs GROUP BY 1").fetchall())
    assert sum(statuses.values()) == 1_200
    assert set(statuses) <= {"succeeded", "dead", "cancelled"}
    assert set(verdicts) >= {"worker_lost", "failed", "released", "snoozed", "crashed"}
    assert deadlocks == 0


# Who waits, and what lets them go.


@pytest.fixture
async def queue(db: Connection, worker: Worker) -> tuple[ClaimedJob, int, int]:
    """One running job of a key and two that wait behind it."""
    add(db, concurrency_key="k")
    running = await worker.claim_one()
    first, second = add(db, 2, concurrency_key="k")
    assert await worker.store.claim(Wanted(worker.id, "system", worker.kinds, 10)) == lab_claim(parked=2)
    assert (job(db, first, "blocked"), job(db, second, "blocked")) == (True, True)
    return running, first, second


def lab_claim(parked: int) -> Any:
    from jobs.claim import Claim

    return Claim([], parked)


async def end_by_hand(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
    db.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [running.id])


async def requeue_by_hand(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
    db.execute("UPDATE background_jobs SET status = 'queued', run_after = '2099-01-01' WHERE id = %s", [running.id])


async def delete(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
    db.execute("DELETE FROM background_jobs WHERE id = %s", [running.id])


async def succeed_in_bulk(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
    await succeed(worker.store, {running.fence: None})


async def lose_the_worker(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
    expire(db, worker)
    await recovery.rescue()
    db.execute("UPDATE background_workers SET lost_at = NULL, lease_until = now() + interval '1 hour'")
    db.execute("UPDATE background_jobs SET run_after = now() + interval '1 hour' WHERE id = %s", [running.id])


def reported(report: Any) -> Any:
    async def end(db: Connection, worker: Worker, running: ClaimedJob, recovery: Recovery) -> None:
        await worker.store.finish(running.fence, report)

    return end


PATHS = {
    "success": succeed_in_bulk,
    "single success": reported(SUCCESS),
    "retry": reported(FAILURE),
    "death": reported(died(Verdict.KILLED)),
    "permanent failure": reported(PERMANENT),
    "snooze": reported(snoozed(HOUR)),
    "release": reported(returned(Verdict.RELEASED, HOUR)),
    "cancel": reported(CANCEL),
    "rescue": lose_the_worker,
    "delete": delete,
    "an UPDATE by hand": end_by_hand,
    "back to the queue by hand": requeue_by_hand,
}


@pytest.mark.parametrize("path", PATHS)
async def test_every_end_of_a_running_job_lets_the_next_of_its_key_go(
    db: Connection, url: str, worker: Worker, recovery: Recovery, queue: tuple[ClaimedJob, int, int], path: str
) -> None:
    running, first, second = queue
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        await PATHS[path](db, worker, running, recovery)
        assert [notice.payload for notice in listener.notifies(timeout=10, stop_after=1)] == ["earlier note"]
    assert (job(db, first, "blocked"), job(db, second, "blocked")) == (False, True)
    db.execute("UPDATE background_jobs SET run_after = now() + interval '1 hour' WHERE id = %s", [running.id])
    assert [job.id for job in await worker.claim()] == [first]
    await succeed(worker.store, {lab_fence(first): None})
    assert [job.id for job in await worker.claim()] == [second]


def lab_fence(job_id: int) -> Any:
    from jobs.claim import Fence

    return Fence(job_id, 1)


async def test_a_rolled_back_end_lets_nobody_go(
    db: Connection, url: str, worker: Worker, queue: tuple[ClaimedJob, int, int]
) -> None:
    running, first, _ = queue
    with psycopg.connect(url) as handler:
        handler.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [running.id])
        handler.rollback()
    assert job(db, first, "blocked") is True
    assert await worker.claim() == []


async def test_nothing_is_parked_behind_a_job_that_is_just_ending(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    """Its end has looked for the next one already: whoever is parked after that look would wait for a sweep."""
    add(db, concurrency_key="k")
    running = await worker.claim_one()
    (next_one,) = add(db, concurrency_key="k")
    with psycopg.connect(url) as handler:
        handler.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [running.id])
        assert await worker.claim() == []
        handler.commit()
    assert [job.id for job in await worker.claim()] == [next_one]


async def test_an_end_waits_for_the_claim_that_is_parking_behind_it(db: Connection, url: str, worker: Worker) -> None:
    add(db, concurrency_key="k")
    running = await worker.claim_one()
    (next_one,) = add(db, concurrency_key="k")
    with psycopg.connect(url) as claimer:
        claimer.execute("SELECT * FROM background_claim(%s, 'system', %s, 10)", [worker.id, worker.kinds])
        ending = asyncio.create_task(succeed(worker.store, {running.fence: None}))
        await until(lambda: waiting_for_locks(db) == 1)
        claimer.commit()
    await ending
    assert job(db, next_one, "blocked") is False


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_an_end_with_an_old_snapshot_leaves_the_waking_to_the_sweep(
    db: Connection, url: str, worker: Worker, recovery: Recovery, level: str
) -> None:
    add(db, concurrency_key="k")
    running = await worker.claim_one()
    with psycopg.connect(url) as handler:
        handler.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        handler.execute("SELECT 1 FROM background_jobs")  # the snapshot: nobody waits yet
        (next_one,) = add(db, concurrency_key="k")
        await worker.claim_all()
        assert job(db, next_one, "blocked") is True
        handler.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [running.id])
        handler.commit()
    await recovery.sweep_blocked()
    assert [job.id for job in await worker.claim()] == [next_one]


async def test_a_claim_takes_the_best_of_a_key_and_parks_the_rest(db: Connection, worker: Worker) -> None:
    late, soon = add(db, priority=2, concurrency_key="k"), add(db, priority=0, concurrency_key="k")
    other = add(db, kind="letter", priority=1, concurrency_key="k")
    claim = await worker.store.claim(Wanted(worker.id, "system", worker.kinds, 10))
    assert [job.id for job in claim.jobs] == soon
    assert claim.parked == 2
    await succeed(worker.store, {claim.jobs[0].fence: None})
    assert [job.id for job in await worker.claim()] == other
    assert job(db, late[0], "blocked") is True


async def test_many_blocked_jobs_do_not_hide_what_stands_behind_them(db: Connection, worker: Worker) -> None:
    add(db, 50, concurrency_key="k")
    (free,) = add(db)
    assert [job.id for job in await worker.claim_all(slots=5)][-1] == free


async def test_a_backlog_of_a_key_is_parked_at_once_and_nothing_else_with_it(db: Connection, worker: Worker) -> None:
    running, *backlog = add(db, 30, concurrency_key="k")
    others = add(db, 3) + add(db, 3, concurrency_key="other") + add(db, 3, concurrency_key="k", run_after="2099-01-01")
    others += add(db, 3, concurrency_key="k", kind="letter")
    assert [job.id for job in await worker.claim(1)] == [running]
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE blocked") == 0
    claim = await worker.store.claim(Wanted(worker.id, "system", ["note"], 1))
    assert (claim.jobs, claim.parked) == ([], 1)
    parked = db.execute("SELECT id FROM background_jobs WHERE blocked ORDER BY id").fetchall()
    assert [row[0] for row in parked] == backlog
    assert {job(db, other, "blocked") for other in others} == {False}


async def test_no_backlog_is_parked_behind_a_job_that_is_just_ending(db: Connection, url: str, worker: Worker) -> None:
    first, second, *_ = add(db, 30, concurrency_key="k")
    assert [job.id for job in await worker.claim(1)] == [first]
    with psycopg.connect(url) as handler:
        handler.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [first])
        assert await worker.claim(1) == []
        handler.commit()
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE blocked") == 0
    assert [job.id for job in await worker.claim(1)] == [second]


async def test_a_few_that_wait_for_their_key_are_no_backlog_to_look_for(db: Connection, worker: Worker) -> None:
    running, *waiting = add(db, 3, concurrency_key="k")
    assert [job.id for job in await worker.claim(1)] == [running]
    free = add(db, 8)
    later = add(db, 20, concurrency_key="k")
    assert [job.id for job in await worker.claim(10)] == free
    assert {job(db, each, "blocked") for each in waiting} == {True}
    assert {job(db, each, "blocked") for each in later} == {False}


async def test_a_retry_that_waits_for_its_time_does_not_block_its_key(db: Connection, worker: Worker) -> None:
    first, second = add(db, 2, concurrency_key="k")
    (running,) = await worker.claim()
    assert running.id == first
    await worker.store.finish(running.fence, snoozed(HOUR))
    assert [job.id for job in await worker.claim()] == [second]


async def test_a_key_may_be_used_by_many_kinds_and_still_runs_one(db: Connection, worker: Worker) -> None:
    add(db, concurrency_key="k")
    add(db, kind="letter", concurrency_key="k")
    assert len(await worker.claim()) == 1
    assert await worker.claim() == []


async def test_a_paused_kind_at_the_head_of_a_key_does_not_hold_up_the_other_kinds(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    add(db, kind="letter", concurrency_key="k")
    running = await worker.claim_one()
    paused = add(db, 20, priority=0, concurrency_key="k")
    others = add(db, 3, kind="letter", priority=2, concurrency_key="k")
    await worker.claim_all(slots=100)
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE blocked") == 23
    pause(db, "note", actor="ana")
    await succeed(worker.store, {running.fence: None})
    done = []
    for _ in others:
        taken = await worker.claim_one()
        done.append(taken.id)
        await worker.claim_all(slots=100)
        await succeed(worker.store, {taken.fence: None})
    assert done == others  # one after the other, without any help by a sweep
    # Those of the paused kind wait for its resume, and then for nothing.
    assert await recovery.sweep_blocked() == 0
    resume(db, "note", actor="ana")
    for _ in range(2):  # a pass that has come to the end of the keys only starts over
        await recovery.sweep_blocked()
    assert [job.id for job in await worker.claim()] == paused[:1]


async def test_a_kind_that_was_paused_after_its_job_was_woken_does_not_hold_up_the_others(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    add(db, concurrency_key="k")
    running = await worker.claim_one()
    (woken,) = add(db, priority=0, concurrency_key="k")
    (behind,) = add(db, kind="letter", concurrency_key="k")
    await worker.claim_all()
    await succeed(worker.store, {running.fence: None})
    assert job(db, woken, "blocked") is False
    pause(db, "note", actor="ana")
    assert await worker.claim() == []
    assert await recovery.sweep_blocked() == 1
    assert [job.id for job in await worker.claim()] == [behind]


async def test_a_probe_finds_a_job_that_was_blocked_when_its_kind_was_paused(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    add(db, kind="letter", concurrency_key="k")
    running = await worker.claim_one()
    (blocked,) = add(db, concurrency_key="k")
    await worker.claim_all()
    pause(db, "note", actor="ana")
    await succeed(worker.store, {running.fence: None})
    resume(db, "note", actor="ana", probe=True)
    await recovery.sweep_blocked()
    assert [job.id for job in await worker.store.claim_probe(worker.id, "system", ["note"])] == [blocked]


async def test_the_sweep_finds_those_whose_predecessor_was_cancelled_in_the_queue(
    db: Connection, worker: Worker, recovery: Recovery, queue: tuple[ClaimedJob, int, int]
) -> None:
    running, first, second = queue
    await succeed(worker.store, {running.fence: None})
    cancel(db, first, actor="ana")
    assert await worker.claim() == []
    assert await recovery.sweep_blocked() == 1
    assert [job.id for job in await worker.claim()] == [second]
    assert await recovery.sweep_blocked() == 0  # nothing is let go while one runs


async def test_the_sweep_walks_all_keys_however_many(
    db: Connection, worker: Worker, recovery: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.recovery.SWEEP_KEYS", 7)
    for n in range(30):
        add(db, concurrency_key=f"key {n:02}", blocked=True)
    passes = 0
    async with asyncio.timeout(10):
        while scalar(db, "SELECT EXISTS (SELECT FROM background_jobs WHERE blocked)"):
            await recovery.sweep_blocked()
            passes += 1
    assert passes <= 30 // 7 + 2


async def test_the_sweep_does_not_wait_for_a_row_that_somebody_holds(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    (held,) = add(db, concurrency_key="a", blocked=True)
    (free,) = add(db, concurrency_key="b", blocked=True)
    with psycopg.connect(url) as operator:
        cancel(operator, held, actor="ana")  # not committed
        async with asyncio.timeout(5):
            assert await recovery.sweep_blocked() == 1
        assert (job(db, held, "blocked"), job(db, free, "blocked")) == (True, False)


async def test_keys_with_the_same_hash_wait_for_each_other_at_most_for_a_moment(
    db: Connection, url: str, worker: Worker
) -> None:
    one, other = scalar(
        db,
        "SELECT array_agg(key) FROM (SELECT 'key ' || n AS key FROM generate_series(1, 300000) AS n) AS keys"
        " GROUP BY hashtext(key) HAVING count(*) > 1 LIMIT 1",
    )[:2]
    first, second = add(db, concurrency_key=one)[0], add(db, concurrency_key=other)[0]
    with psycopg.connect(url) as claimer:  # another worker is deciding about the first key
        claimer.execute("SELECT pg_advisory_xact_lock(hashtext('oomph concurrency key'), hashtext(%s))", [one])
        assert await worker.claim() == []
    assert job(db, second, "blocked") is False
    assert [job.id for job in await worker.claim()] == [first, second]  # both: they are two keys


def test_two_jobs_of_a_key_cannot_run_whoever_writes_them(db: Connection) -> None:
    """The backstop: by hand, or by a claim that ever got past the lock."""
    add(db, status="running", concurrency_key="k")
    with pytest.raises(psycopg.errors.UniqueViolation):
        add(db, status="running", concurrency_key="k")
    add(db, status="running", concurrency_key="other")


def test_holding_a_key_sees_what_was_committed_since_the_statement_began(db: Connection, url: str) -> None:
    hold = "SELECT background_hold_key('k')"
    assert scalar(db, hold) == "free"
    with psycopg.connect(url) as other:
        assert scalar(other, hold) == "free"
        assert scalar(db, hold) == "contested"
        other.rollback()
        (running,) = add(db, status="running", concurrency_key="k")
        assert scalar(other, hold) == "busy"
        other.rollback()
        # A claim sees the table as it was when it began; somebody claims and commits while it works.
        db.execute("UPDATE background_jobs SET status = 'queued'")
        db.execute("SELECT pg_advisory_lock(42)")
        results: list[Any] = []

        def claim() -> None:
            results.append(
                scalar(
                    other,
                    "WITH work AS MATERIALIZED (SELECT pg_advisory_xact_lock(42)::text AS done),"
                    " seen AS MATERIALIZED (SELECT count(*) AS running FROM background_jobs WHERE status = 'running')"
                    " SELECT array[(SELECT background_hold_key('k') FROM work), (SELECT running::text FROM seen)]",
                )
            )

        claiming = threading.Thread(target=claim)
        claiming.start()
        while waiting_for_locks(db) == 0:
            time.sleep(0.005)
        db.execute("UPDATE background_jobs SET status = 'running' WHERE id = %s", [running])
        db.execute("SELECT pg_advisory_unlock(42)")
        claiming.join()
    assert results == [["busy", "0"]]  # the statement itself still believes that nothing runs


# Dedupe keys.

BACK = {
    "retry": FAILURE,
    "death": died(Verdict.CRASHED),
    "snooze": snoozed(HOUR),
    "release": returned(Verdict.RELEASED),
    "lost lease": returned(Verdict.LEASE_LOST),
    "no child": returned(Verdict.SPAWN_FAILED, timedelta(seconds=5)),
}


@pytest.mark.parametrize("back", BACK)
async def test_a_job_that_would_go_back_beside_a_fresh_copy_makes_room_for_it(
    db: Connection, worker: Worker, back: str
) -> None:
    (old,) = add(db, dedupe_key="k")
    running = await worker.claim_one()
    (fresh,) = add(db, dedupe_key="k")
    assert await worker.store.finish(running.fence, BACK[back]) == Finished("cancelled")
    assert job(db, old, "error ->> 'type', error ->> 'message', finished_at IS NOT NULL") == (
        "Superseded",
        f"job {fresh}, queued with the same dedupe key, takes its place",
        True,
    )
    assert attempts(db, old) == [str(BACK[back].outcome.verdict)]  # what happened stays told
    assert [job.id for job in await worker.claim()] == [fresh]


async def test_a_job_that_ends_beside_a_fresh_copy_just_ends(db: Connection, worker: Worker) -> None:
    for report, status in ((SUCCESS, "succeeded"), (PERMANENT, "dead"), (CANCEL, "cancelled")):
        (old,) = add(db, dedupe_key="k")
        running = await worker.claim_one()
        (fresh,) = add(db, dedupe_key="k")
        await worker.store.finish(running.fence, report)
        assert job(db, old) == status
        assert job(db, old, "error ->> 'type'") != "Superseded"
        db.execute("DELETE FROM background_jobs WHERE id = %s", [fresh])
    add(db, dedupe_key="k", max_attempts=1)
    running = await worker.claim_one()
    add(db, dedupe_key="k")
    assert await worker.store.finish(running.fence, FAILURE) == Finished("dead")


async def test_a_copy_that_commits_while_the_running_job_fails_takes_its_place(
    db: Connection, url: str, worker: Worker
) -> None:
    (old,) = add(db, dedupe_key="k")
    running = await worker.claim_one()
    with psycopg.connect(url) as service:
        fresh = enqueue(service, NOTE, Note(), dedupe_key="k")
        finishing = asyncio.create_task(worker.store.finish(running.fence, FAILURE))
        await until(lambda: waiting_for_locks(db) == 1)
        service.commit()
    assert await finishing == Finished("cancelled")
    assert job(db, old, "error ->> 'type'") == "Superseded"
    assert job(db, fresh) == "queued"


async def test_a_copy_that_is_rolled_back_while_the_running_job_fails_leaves_the_retry(
    db: Connection, url: str, worker: Worker
) -> None:
    (old,) = add(db, dedupe_key="k")
    running = await worker.claim_one()
    with psycopg.connect(url) as service:
        enqueue(service, NOTE, Note(), dedupe_key="k")
        finishing = asyncio.create_task(worker.store.finish(running.fence, FAILURE))
        await until(lambda: waiting_for_locks(db) == 1)
        service.rollback()
    assert await finishing == Finished("queued")
    assert job(db, old) == "queued"


async def test_a_copy_in_a_transaction_that_stays_open_delays_the_outcome_and_loses_nothing(
    db: Connection, url: str
) -> None:
    database = Database(url, call_timeout=0.5, application_name="impatient")
    await database.open()
    store = JobStore(database, retry_delay=0.01, pause_after=5)
    worker = await hire(store)
    (old,) = add(db, dedupe_key="k")
    running = await worker.claim_one()
    with psycopg.connect(url) as service:
        enqueue(service, NOTE, Note(), dedupe_key="k")
        with pytest.raises(DatabaseUnavailable):
            await store.finish(running.fence, FAILURE)
        assert job(db, old, "status, attempt") == ("running", 1)
        (other,) = add(db)
        assert [job.id for job in await worker.claim()] == [other]  # everything else goes on
        await succeed(store, {running.fence: None})  # and so does a success of the same job
    assert job(db, old) == "succeeded"
    await database.close()


@pytest.mark.parametrize("active", [True, False])
def test_of_many_connections_that_enqueue_one_key_at_once_exactly_one_writes_it(
    db: Connection, url: str, active: bool
) -> None:
    start = threading.Barrier(8)
    answers: list[list[int | None]] = []

    def service() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            start.wait()
            answers.append(
                [enqueue(connection, NOTE, Note(), dedupe_key=f"k{n}", dedupe_active=active) for n in range(50)]
            )

    threads = [threading.Thread(target=service) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert [sum(answer[n] is not None for answer in answers) for n in range(50)] == [1] * 50
    assert scalar(db, "SELECT count(*) FROM background_jobs") == 50


def test_an_active_key_is_never_held_twice_while_its_jobs_run_and_end(db: Connection, url: str) -> None:
    """Services enqueue with dedupe_active as fast as workers finish: no moment has two unfinished copies."""
    stop = threading.Event()
    failures: list[Exception] = []

    def service() -> None:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while not stop.is_set():
                    enqueue(connection, NOTE, Note(), dedupe_key="k", dedupe_active=True)
        except Exception as error:  # noqa: BLE001  (asserted on below)
            failures.append(error)

    async def work() -> None:
        database = Database(url, call_timeout=20, application_name="worker")
        await database.open()
        store = JobStore(database, retry_delay=0.001, pause_after=10_000)
        worker = await hire(store)
        reports = [SUCCESS, FAILURE, returned(Verdict.RELEASED), snoozed(timedelta(0))]
        done = 0
        async with asyncio.timeout(20):
            while done < 150:
                jobs = await worker.claim()
                assert len(jobs) <= 1
                for taken in jobs:
                    assert isinstance(await store.finish(taken.fence, reports[done % 4]), Finished)
                    done += 1
        await database.close()

    threads = [threading.Thread(target=service) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(work())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status IN ('queued', 'running')") <= 1
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE error ->> 'type' = 'Superseded'") == 0


async def test_a_key_that_no_claim_could_write_is_refused_where_it_is_written(db: Connection, worker: Worker) -> None:
    """By hand a key may be longer than `enqueue` takes: what an index refuses must never be met by a claim first."""
    chance = random.Random(7)
    refused, taken = 0, 0
    for length in range(2_620, 2_740, 4):
        key = "".join(chance.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=length))  # hardly compressible
        try:
            running, waiting = add(db, 2, concurrency_key=key)
        except psycopg.errors.ProgramLimitExceeded:
            refused += 1
            continue
        taken += 1
        first = await worker.claim_one()
        assert (first.id, await worker.claim()) == (running, [])
        assert job(db, waiting, "status, blocked") == ("queued", True)
        await succeed(worker.store, {first.fence: None})
        second = await worker.claim_one()
        assert second.id == waiting
        await succeed(worker.store, {second.fence: None})
    assert refused > 5, "the longest were to be refused"
    assert taken > 5, "the shortest were to be taken"
