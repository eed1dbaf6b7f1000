"""Enqueueing: calls a second on one connection, each in a transaction of its own, or many rows in one."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg
import psycopg
from pgqueuer.queries import Queries

from bench.marks import WrongResult
from bench.workers.oomph_app import NOOP, Numbered
from jobs import enqueue, enqueue_many

WARM_UP_CALLS = 50  # statements are planned, caches filled

COUNT = "SELECT count(*) FROM background_jobs"
BARE_INSERT = """
INSERT INTO background_jobs (kind, pool, max_attempts, timeout, priority, run_after, payload)
SELECT 'bench-noop', 'agent', 5, interval '5 minutes', 1, now(), unnest(%s::text[])::jsonb
RETURNING id
"""


def calls_per_second(count: int, call: Callable[[int], object]) -> float:
    for number in range(WARM_UP_CALLS):
        call(number)
    started = time.perf_counter()
    for number in range(count):
        call(number)
    return count / (time.perf_counter() - started)


async def _awaited_per_second(count: int, call: Callable[[int], Awaitable[object]]) -> float:
    for number in range(WARM_UP_CALLS):
        await call(number)
    started = time.perf_counter()
    for number in range(count):
        await call(number)
    return count / (time.perf_counter() - started)


def oomph_sync(url: str, count: int) -> float:
    with psycopg.connect(url, autocommit=True) as db:
        rate = calls_per_second(count, lambda number: enqueue(db, NOOP, Numbered(number=number)))
        _require_rows(db, count + WARM_UP_CALLS)
    return rate


def oomph_async(url: str, count: int) -> float:
    async def measured() -> float:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            return await _awaited_per_second(count, lambda number: enqueue(db, NOOP, Numbered(number=number)))

    return _checked(url, count, asyncio.run(measured()))


def oomph_asyncpg(url: str, count: int) -> float:
    async def measured() -> float:
        db = await asyncpg.connect(url)
        try:
            return await _awaited_per_second(count, lambda number: enqueue(db, NOOP, Numbered(number=number)))
        finally:
            await db.close()

    return _checked(url, count, asyncio.run(measured()))


def pgqueuer_asyncpg(url: str, count: int) -> float:
    async def measured() -> float:
        db = await asyncpg.connect(url)
        try:
            queries = Queries.from_asyncpg_connection(db)
            return await _awaited_per_second(count, lambda number: queries.enqueue("noop", str(number).encode()))
        finally:
            await db.close()

    return asyncio.run(measured())


def oomph_bulk(url: str, count: int) -> float:
    """Rows a second of one `enqueue_many`, its commit included."""
    payloads = [Numbered(number=number) for number in range(count)]
    with psycopg.connect(url) as db:
        started = time.perf_counter()
        enqueue_many(db, NOOP, payloads)
        db.commit()
        rate = count / (time.perf_counter() - started)
        _require_rows(db, count)
    return rate


def bare_bulk(url: str, count: int) -> float:
    """The same rows into the same table by one statement, texts made beforehand: what PostgreSQL itself takes."""
    texts = [Numbered(number=number).model_dump_json() for number in range(count)]
    with psycopg.connect(url) as db:
        started = time.perf_counter()
        db.execute(BARE_INSERT, [texts]).fetchall()
        db.commit()
        rate = count / (time.perf_counter() - started)
        _require_rows(db, count)
    return rate


def _checked(url: str, count: int, rate: float) -> float:
    with psycopg.connect(url) as db:
        _require_rows(db, count + WARM_UP_CALLS)
    return rate


def _require_rows(db: "psycopg.Connection[tuple[object, ...]]", count: int) -> None:
    row = db.execute(COUNT).fetchone()
    if row != (count,):
        raise WrongResult(f"{count} jobs were enqueued, the table holds {row}")
