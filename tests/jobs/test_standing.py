"""What a job waits for, and what comes before it."""

from uuid import uuid4

import pytest

from jobs.standing import Next, Standing, standing
from jobs.store import JobStore
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, expire, hire
from tests.jobs.test_control import CONNECTIONS


async def test_each_reason_to_wait_is_told(db: Connection, store: JobStore) -> None:
    await hire(store)
    (free,) = add(db)
    (later,) = add(db, run_after="infinity")
    (unknown,) = add(db, kind="nobody's")
    (running,) = add(db, status="running", worker_id=uuid4())
    ended = [job for status in ("succeeded", "dead", "cancelled") for job in add(db, status=status)]
    (paused,) = add(db, kind="letter")
    db.execute("UPDATE background_kinds SET paused_at = now() WHERE kind = 'letter'")
    assert standing(db, free) == Standing(Next.CLAIM, None, [], 0)
    assert standing(db, later).next is Next.TIME
    assert standing(db, unknown).next is Next.WORKER
    assert standing(db, running).next is Next.END
    assert {standing(db, job_id).next for job_id in ended} == {Next.NOTHING}
    assert standing(db, paused).next is Next.RESUME
    assert standing(db, 10**9) is None


async def test_a_job_of_a_pool_that_nobody_serves_waits_for_a_worker_that_does(db: Connection, store: JobStore) -> None:
    worker = await hire(store)
    db.execute("UPDATE background_workers SET pools = '{system}' WHERE id = %s", [worker.id])
    (parcel,) = add(db, kind="parcel", pool="ingest")
    (note,) = add(db)
    (misplaced,) = add(db, pool="ingest")
    assert standing(db, parcel).next is Next.POOL
    assert standing(db, note).next is standing(db, misplaced).next is Next.CLAIM
    other = await hire(store, tasks=())
    assert standing(db, parcel).next is Next.POOL  # it serves the pool and does not know the kind
    db.execute("UPDATE background_workers SET kinds = '{parcel}' WHERE id = %s", [other.id])
    assert standing(db, parcel).next is Next.CLAIM
    expire(db, other)
    assert standing(db, parcel).next is Next.POOL


async def test_what_is_before_a_job_in_its_key(db: Connection, store: JobStore) -> None:
    await hire(store)
    (holder,) = add(db, status="running", concurrency_key="k", worker_id=uuid4())
    (second,) = add(db, concurrency_key="k", blocked=True, priority=0, run_after="2020-01-02")
    (third,) = add(db, concurrency_key="k", blocked=True, run_after="2020-01-01")
    (not_seen_yet,) = add(db, concurrency_key="k", run_after="2020-01-02")
    add(db, concurrency_key="other", blocked=True, run_after="2020-01-01")
    add(db, 2, run_after="2020-01-01")
    (last,) = add(db, concurrency_key="k", blocked=True, run_after="2020-01-03")
    (behind,) = add(db, concurrency_key="k", blocked=True, run_after="2020-01-04")
    assert standing(db, last) == Standing(Next.KEY, holder, [second, third, not_seen_yet], 3)
    assert standing(db, second) == Standing(Next.KEY, holder, [], 0)
    assert standing(db, not_seen_yet) == Standing(Next.KEY, holder, [second, third], 2)
    assert standing(db, behind).before_ids[-1] == last


async def test_jobs_that_a_claim_takes_first_are_counted(db: Connection, store: JobStore) -> None:
    await hire(store)
    add(db, 2, priority=0)
    add(db, 3, run_after="2020-01-01")
    add(db, 4, priority=2, run_after="2020-01-01")
    add(db, 5, kind="letter", run_after="2020-01-01")
    (job_id,) = add(db)
    assert standing(db, job_id).ahead == 5


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_every_connection_is_served(
    connection: str, url: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    (job_id,) = add(db)
    async with CALLERS[connection](url) as held:
        assert await settle(standing(held.db, job_id)) == Standing(Next.WORKER, None, [], 0)
