"""Enqueueing on one connection: calls in a transaction of their own each, or many rows in one.

What is asynchronous runs on uvloop, as in most services.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)

import asyncpg
import psycopg
import uvloop
from pgqueuer.queries import Queries

from bench.marks import WrongResult
from bench.workers.oomph_app import NOOP, Numbered
from jobs import enqueue, enqueue_many

TURN = 100  # calls: a fraction of a second, in which the machine is as fast as in the next one's turn

COUNT = "SELECT count(*) FROM background_jobs"
BARE_INSERT = """
INSERT INTO background_jobs (kind, pool, max_attempts, timeout, priority, run_after, payload)
SELECT 'bench-noop', 'agent', 5, interval '5 minutes', 1, now(), unnest(%s::text[])::jsonb
RETURNING id
"""

Calls = Callable[[range], None]  # enqueues a job for each of these numbers, one after the other


def calls_per_second(subjects: Mapping[str, AbstractContextManager[Calls]], count: int) -> dict[str, float]:
    """`count` calls of each, which take turns: a machine that is slower for seconds is so for all of them."""
    with ExitStack() as stack:
        calls = {name: stack.enter_context(subject) for name, subject in subjects.items()}
        spent = dict.fromkeys(calls, 0.0)
        for call in calls.values():
            call(range(TURN))  # statements are planned, caches filled
        for turn, start in enumerate(range(0, count, TURN)):
            for name, call in list(calls.items())[:: 1 if turn % 2 else -1]:
                numbers = range(start, min(start + TURN, count))
                started = time.perf_counter()
                call(numbers)
                spent[name] += time.perf_counter() - started
    return {name: count / seconds for name, seconds in spent.items()}


@contextmanager
def each(enqueuer: AbstractContextManager[Callable[[int], object]]) -> Iterator[Calls]:
    with enqueuer as call:

        def calls(numbers: range) -> None:
            for number in numbers:
                call(number)

        yield calls


@contextmanager
def oomph_sync(url: str) -> Iterator[Calls]:
    with psycopg.connect(url, autocommit=True) as db:

        def calls(numbers: range) -> None:
            for number in numbers:
                enqueue(db, NOOP, Numbered(number=number))

        yield calls


@contextmanager
def on_uvloop(enqueuer: AbstractAsyncContextManager[Callable[[int], Awaitable[object]]]) -> Iterator[Calls]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def calls(numbers: range) -> None:
            for number in numbers:
                await call(number)

        call = runner.run(enqueuer.__aenter__())
        try:
            yield lambda numbers: runner.run(calls(numbers))
        finally:
            runner.run(enqueuer.__aexit__(None, None, None))


@asynccontextmanager
async def oomph_async(url: str) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        yield lambda number: enqueue(db, NOOP, Numbered(number=number))


@asynccontextmanager
async def oomph_asyncpg(url: str) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    db = await asyncpg.connect(url)
    try:
        yield lambda number: enqueue(db, NOOP, Numbered(number=number))
    finally:
        await db.close()


@asynccontextmanager
async def pgqueuer_asyncpg(url: str) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    db = await asyncpg.connect(url)
    try:
        queries = Queries.from_asyncpg_connection(db)
        yield lambda number: queries.enqueue("noop", str(number).encode())
    finally:
        await db.close()


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


def require_jobs(url: str, count: int) -> None:
    with psycopg.connect(url) as db:
        _require_rows(db, count)


def _require_rows(db: "psycopg.Connection[tuple[object, ...]]", count: int) -> None:
    row = db.execute(COUNT).fetchone()
    if row != (count,):
        raise WrongResult(f"{count} jobs were enqueued, the table holds {row}")
