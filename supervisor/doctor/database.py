"""Readings of the database, each handed to its check. Every statement is bounded by the server and by us.

All in read-only transactions, and none longer than one reading. Once the server does not answer in time the connection
is given up, and what is left says so.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from jobs.connection import Row
from jobs.database import Session, connection_parameters
from jobs.overview import overview
from supervisor.doctor import database_checks as checks
from supervisor.doctor.database_checks import ClockReading, Holder, ServerFacts, TableHealth
from supervisor.doctor.findings import Finding, error, left_out, ok, surviving_async, warning
from supervisor.doctor.pooler import NAME as POOLER
from supervisor.doctor.pooler import PoolerReading, pooler, read_pooler
from supervisor.errors import CommandError
from supervisor.settings import Settings
from supervisor.target import CONNECT_SECONDS, Target, errors_explained

STATEMENT_SECONDS = 5.0  # the server's bound of a statement, and that of a lock it waits for
ANSWER_SECONDS = 8.0  # ours of a whole reading, for a network or a server that says nothing at all
NOTIFY_WAIT_SECONDS = 3.0
CLOCK_SAMPLES = 5  # the quickest of them tells most exactly

Connection = psycopg.AsyncConnection[Row]
T = TypeVar("T")


class Reader:
    """One connection, and readings over it in read-only transactions."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._session = Session(connection)

    async def fetch(self, query: str, /, **parameters: Any) -> list[Row]:
        """Run the statement of that name. Raises psycopg's errors and `TimeoutError`."""
        return await self.bounded(lambda: self._session.fetch(query, **parameters))

    async def explain_claim(self) -> Any:
        """The plan of a claim, under the settings that the claim has; None where there is no claim."""

        async def read() -> Any:
            settings = await self._session.fetch("claim_settings")
            for name, value in settings:
                await self.connection.execute("SELECT set_config(%s, %s, true)", [name, value])
            rows = await self._session.fetch("explain_claim", kinds=["a kind", "another"], slots=10)
            return rows[0][0] if settings else None

        return await self.bounded(read)

    async def clock(self) -> ClockReading:
        async def read() -> ClockReading:
            samples = []
            for _ in range(CLOCK_SAMPLES):
                sent, started = time.time(), time.monotonic()
                cursor = await self.connection.execute("SELECT date_part('epoch', clock_timestamp())")
                row = await cursor.fetchone()
                half = (time.monotonic() - started) / 2
                assert row is not None
                samples.append(ClockReading(row[0] - (sent + half), half))
            return min(samples, key=lambda sample: sample.uncertainty)

        return await self.bounded(read)

    async def bounded(self, read: Callable[[], Awaitable[T]]) -> T:
        """`read()` in a read-only transaction. Closes the connection where no answer comes in time."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self.connection.transaction():
                await self.connection.execute(
                    "SELECT set_config('transaction_read_only', 'on', true), "
                    "set_config('statement_timeout', %(bound)s, true), set_config('lock_timeout', %(bound)s, true)",
                    {"bound": f"{STATEMENT_SECONDS:g}s"},
                )
                return await read()
        except TimeoutError:
            await self.connection.close()
            raise TimeoutError(f"the database did not answer within {ANSWER_SECONDS:g} s") from None


async def examine_database(target: Target, settings: Settings) -> AsyncIterator[Finding]:
    """What a worker on this database would find. Raises `CommandError` where it cannot be reached."""
    with _silence_explained(target), errors_explained(target):
        opened = await _connect(target.url)
    async with _closing(opened) as connection:
        reader = Reader(connection)
        with _silence_explained(target), errors_explained(target):
            facts = ServerFacts(*(await reader.fetch("server_facts"))[0])
        yield ok("database", f"reached at {target.place}")
        yield checks.server_version(facts)
        yield checks.writable(facts)
        yield checks.connections(facts)
        yield await surviving_async("migrations", _migrations(reader, facts))
        yield await surviving_async("clock", _clock(reader))
        reading = await _pooler_reading(connection, target.url)
        yield pooler(reading, settings) if isinstance(reading, PoolerReading) else reading
        is_pooled = isinstance(reading, PoolerReading) and reading.is_pooled
        yield await surviving_async("NOTIFY", _notify(reader, target.url, settings, is_pooled=is_pooled))
        yield await surviving_async("oldest snapshot", _snapshot(reader))
        if facts.has_jobs:
            yield await surviving_async("dead rows", _dead_rows(reader))
            yield await surviving_async("claim plan", _claim_plan(reader))
            yield await surviving_async("workers", _workers(reader))
        else:
            for name in ("dead rows", "claim plan", "workers"):
                yield left_out(name, "the database has no tables of Oomph", "Run `oomph migrate`.")


async def _connect(url: str) -> Connection:
    # The time-out of libpq does not bound the search for the host's address.
    async with asyncio.timeout(2 * CONNECT_SECONDS):
        return await psycopg.AsyncConnection.connect(
            url, autocommit=True, **connection_parameters("oomph doctor", CONNECT_SECONDS)
        )


@contextmanager
def _silence_explained(target: Target) -> Iterator[None]:
    try:
        yield
    except TimeoutError as silence:
        raise CommandError(f"{target.named}: the database at {target.place} does not answer") from silence


@asynccontextmanager
async def _closing(connection: Connection) -> AsyncIterator[Connection]:
    """The connection's own block would roll back first, for which a network that says nothing gives no bound."""
    try:
        yield connection
    finally:
        await connection.close()


async def _migrations(reader: Reader, facts: ServerFacts) -> Finding:
    present, needs = (await reader.fetch("schema_version"))[0] if facts.has_migrations else (0, 0)
    return checks.migrations(present, needs)


async def _clock(reader: Reader) -> Finding:
    return checks.clock(await reader.clock())


async def _snapshot(reader: Reader) -> Finding:
    return checks.snapshot(Holder(*(await reader.fetch("snapshot_holders"))[0]))


async def _dead_rows(reader: Reader) -> Finding:
    return checks.dead_rows([TableHealth(*row) for row in await reader.fetch("table_health")])


async def _claim_plan(reader: Reader) -> Finding:
    plan = await reader.explain_claim()
    if plan is None:
        return error("claim plan", "there is no function background_claim", "Run `oomph migrate`.")
    return checks.claim_plan(plan)


async def _workers(reader: Reader) -> Finding:
    return checks.workers(await reader.bounded(lambda: overview(reader.connection)))


async def _pooler_reading(connection: Connection, url: str) -> PoolerReading | Finding:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), _closing(await _connect(url)) as second:
            return await read_pooler(connection, second)
    except (psycopg.Error, OSError) as problem:  # a time-out is an OSError too
        return left_out(POOLER, " ".join(str(problem).split()) or type(problem).__name__, "Is a connection to spare?")


async def _notify(reader: Reader, url: str, settings: Settings, *, is_pooled: bool) -> Finding:
    if settings.worker_listen == "off":
        return ok("NOTIFY", f"off (WORKER_LISTEN): the queue is polled every {settings.worker_poll_seconds:g} s")
    if is_pooled and not settings.worker_listen_url:
        # Not even tried: the LISTEN would stay with a session that the pooler lends to others.
        return warning("NOTIFY", "not heard behind that pooler", "See `pooler`.")
    channel = f"oomph_doctor_{uuid.uuid4().hex}"
    listen_url = settings.worker_listen_url or url
    async with asyncio.timeout(ANSWER_SECONDS), _closing(await _connect(listen_url)) as listener:
        await listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        started = time.monotonic()
        await reader.fetch("notify", channel=channel, payload="")
        heard = [note async for note in listener.notifies(timeout=NOTIFY_WAIT_SECONDS, stop_after=1)]
        round_trip = time.monotonic() - started if heard else None
    return checks.notify(round_trip, NOTIFY_WAIT_SECONDS, settings.worker_poll_seconds)
