"""One look at all that goes on: on any connection, by indexes, and bounded."""

from typing import Any
from uuid import uuid4

import asyncpg
import psycopg

from jobs.enqueue import enqueue
from jobs.live import Scene, look
from jobs.queue_sample import COUNT_LIMIT
from jobs.sql import statement
from jobs.store import JobStore
from tests.jobs.callers import asyncpg_arguments
from tests.jobs.lab import NOTE, Note, hire

Connection = psycopg.Connection[tuple[Any, ...]]


async def test_what_waits_and_runs_is_told_by_kind_and_worker(url: str, db: Connection, store: JobStore) -> None:
    worker = await hire(store)
    for _ in range(3):
        enqueue(db, NOTE, Note())
    enqueue(db, NOTE, Note(), concurrency_key="k")
    await worker.claim(slots=2)
    db.execute("UPDATE background_jobs SET blocked = true WHERE concurrency_key = 'k'")
    with psycopg.connect(url) as connection:
        found: Scene = look(connection)
    note = next(kind for kind in found.kinds if kind.kind == "note")
    assert (note.pool, note.due, note.blocked, note.running, note.waiting) == ("system", 1, 1, 2, 2)
    assert [(each.id, each.running) for each in found.workers] == [(worker.id, 2)]
    assert found.open == 4
    assert found.left_out == 0
    connection = await asyncpg.connect(**asyncpg_arguments(url))
    try:
        async with connection.transaction():
            again = await look(connection)
    finally:
        await connection.close()
    assert [(kind.kind, kind.running) for kind in again.kinds] == [(kind.kind, kind.running) for kind in found.kinds]


def test_a_kind_that_nobody_declared_is_shown_while_it_runs(url: str, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status, worker_id) VALUES ('by-hand', 'ingest', 'running', %s)",
        [uuid4()],
    )
    with psycopg.connect(url) as connection:
        found: Scene = look(connection)
    assert [(kind.kind, kind.pool, kind.running) for kind in found.kinds] == [("by-hand", "ingest", 1)]


def test_what_runs_is_read_from_its_index_and_no_more_than_is_asked_for(url: str, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status) SELECT 'done', 'system', 'succeeded' "
        "FROM generate_series(1, 20000)"
    )
    with psycopg.connect(url) as connection:
        connection.execute(statement("by_index"), {"milliseconds": 1_000})
        explained = connection.execute(f"EXPLAIN {statement('running_now')}", {"limit": COUNT_LIMIT}).fetchall()
    plan = "\n".join(row[0] for row in explained)
    assert "background_jobs_running" in plan
    assert "Limit" in plan
    assert "Seq Scan" not in plan
