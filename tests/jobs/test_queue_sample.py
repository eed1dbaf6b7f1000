"""A look at the queue for metrics: bounded, whatever waits there."""

import math

import pytest

from jobs.database import Database
from jobs.queue_sample import COUNT_LIMIT, MAX_KINDS, KindSample, sample_queue
from jobs.store import JobStore
from jobs.unavailable import DatabaseUnavailable
from tests.jobs.lab import Connection, hire

INSERT = "INSERT INTO background_jobs (kind, pool, priority, run_after, blocked, concurrency_key, status, worker_id) "


async def kinds_of(database: Database) -> dict[str, KindSample]:
    return {each.kind: each for each in (await sample_queue(database)).kinds}


async def test_each_kind_is_told_by_what_its_jobs_wait_for(db: Connection, database: Database, store: JobStore) -> None:
    worker = await hire(store)
    db.execute(
        INSERT
        + f"""
        SELECT 'note', 'system', 0, now() - interval '90 seconds', false, NULL, 'queued', NULL::uuid UNION ALL
        SELECT 'note', 'system', 2, now() - interval '5 seconds', false, NULL, 'queued', NULL UNION ALL
        SELECT 'note', 'system', 1, now() + interval '1 day', false, NULL, 'queued', NULL UNION ALL
        SELECT 'note', 'system', 1, 'infinity', false, NULL, 'queued', NULL UNION ALL
        SELECT 'note', 'system', 1, now() - interval '1 day', true, 'key', 'queued', NULL UNION ALL
        SELECT 'note', 'system', 1, now() - interval '1 day', false, NULL, 'running', '{worker.id}' UNION ALL
        SELECT 'note', 'system', 1, now() - interval '1 day', false, NULL, 'succeeded', NULL UNION ALL
        SELECT 'letter', 'system', 1, '-infinity', false, NULL, 'queued', NULL
        """
    )
    db.execute("UPDATE background_kinds SET paused_at = now(), kill_streak = 5 WHERE kind = 'letter'")
    kinds = await kinds_of(database)
    note = kinds["note"]
    assert note == KindSample("note", "system", False, 0, 2, 2, 1, note.oldest_age)
    assert 90 <= note.oldest_age < 120
    assert kinds["letter"] == KindSample("letter", "system", True, 5, 1, 0, 0, math.inf)
    assert kinds["parcel"] == KindSample("parcel", "ingest", False, 0, 0, 0, 0, 0.0)


async def test_counts_end_at_their_limit(db: Connection, database: Database, store: JobStore) -> None:
    await hire(store)
    for when, blocked in (("- interval '1 day'", False), ("+ interval '1 day'", False), ("+ interval '1 day'", True)):
        db.execute(
            INSERT + f"SELECT 'note', 'system', n %% 3, now() {when}, %s, 'key', 'queued', NULL "
            "FROM generate_series(1, %s) AS n",
            [blocked, 2 * COUNT_LIMIT],
        )
    note = (await kinds_of(database))["note"]
    assert (note.due, note.scheduled, note.blocked) == (COUNT_LIMIT, COUNT_LIMIT, COUNT_LIMIT)


async def test_kinds_end_at_their_limit(db: Connection, database: Database) -> None:
    db.execute(
        "INSERT INTO background_kinds (kind) SELECT 'kind ' || n FROM generate_series(1, %s) AS n", [MAX_KINDS + 7]
    )
    sample = await sample_queue(database)
    assert (len(sample.kinds), sample.left_out) == (MAX_KINDS, 7)
    assert sample.clock_offset is not None
    assert abs(sample.clock_offset) < 1


async def test_a_look_never_waits_for_long(db: Connection, database: Database) -> None:
    with db.transaction():
        db.execute("LOCK TABLE background_jobs")
        with pytest.raises(DatabaseUnavailable):
            await sample_queue(database)
