"""The worker's way to the database: every call is bounded on this side, and every failure has one name.

A half-open socket answers nothing for hours; the server's own time-outs cannot help then. So each call has a bound
here, a connection that broke is replaced by the pool, and a caller sees `DatabaseUnavailable` and may try again.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from jobs.bounds import ASK_SECONDS, Bounded
from jobs.claim import Wanted
from jobs.connection import Row
from jobs.lane import Lane, Preparing
from jobs.outcome import MAX_FRAMES_CHARS, MAX_MESSAGE_CHARS, clip
from jobs.sql import statement
from jobs.unavailable import answered

log = logging.getLogger("oomph.database")

MAX_CONNECTIONS = 2  # for all but claims, successes, the lease keeper and the listener, which have one each

# An idle worker's next claim would otherwise take twice as long as those after it.
NOBODYS_CLAIM = Wanted(UUID(int=0), "system", [], 1, ids=[0])

LEAST_CONNECT_SECONDS = 2  # of libpq, which takes whole ones
LOCK_TIMEOUT_MS = 1_000  # what is locked for longer is left for the next try, and does not hold up others


def connection_parameters(application_name: str, connect_timeout: float, url: str = "") -> dict[str, Any]:
    """What every connection of a worker is opened with. Times in seconds.

    Where `url` names several hosts they share the time, for one that is silent must not keep us from the next; and a
    worker writes, so of several only one that takes writes will do. Session time-outs are not set here: a pooler in
    transaction mode refuses start-up options.
    """
    named = conninfo_to_dict(url)
    number = _hosts(named)
    return {
        **({} if number == 1 or "target_session_attrs" in named else {"target_session_attrs": "read-write"}),
        "application_name": application_name,
        "client_encoding": "UTF8",  # the database's own: a claim that came upon a character of no other would fail
        "connect_timeout": max(LEAST_CONNECT_SECONDS, round(connect_timeout / number)),
        "keepalives_idle": 10,  # a peer that vanished is noticed in about 10 + 3 x 5 s even while nothing is sent
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,  # ms: what was sent and not acknowledged by then breaks the connection
        "prepare_threshold": None,  # a generic plan can pick the wrong index, and poolers lose prepared statements
    }


def connect_bound(url: str, seconds: float) -> float:
    """The seconds for a connect that should take `seconds`: more where each of several hosts has to have its turn."""
    number = _hosts(conninfo_to_dict(url))
    return seconds if number == 1 else max(seconds, number * LEAST_CONNECT_SECONDS + 1.0)


def _hosts(named: Mapping[str, Any]) -> int:
    return str(named.get("host") or named.get("hostaddr") or "").count(",") + 1


class Session:
    """One connection while a call holds it: runs statements of `jobs/sql` by name."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """For functions that take whatever connection there is, such as those of `jobs.reports`."""
        return self._connection

    async def fetch(self, query: str, /, **parameters: Any) -> list[Row]:
        """Run the statement of that name; return its rows."""
        # Binary: how text shows moments and intervals is a setting of the database, and not every style can be read.
        async with self._connection.cursor(row_factory=tuple_row, binary=True) as cursor:
            await cursor.execute(statement(query), parameters)
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """A nested transaction: what fails inside it is undone alone."""
        async with self._connection.transaction():
            yield


class Database:
    """A small pool of connections, and a lane for each statement that every job passes, with a bound on every call.

    `call_timeout`, in seconds, covers waiting for a connection and running the statements.
    """

    def __init__(self, url: str, *, call_timeout: float, application_name: str) -> None:
        self._call_timeout = call_timeout
        self._pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=MAX_CONNECTIONS,
            open=False,
            timeout=call_timeout,
            reconnect_timeout=5,  # after that the pool gives up that try; the next call asks again
            kwargs={**connection_parameters(application_name, call_timeout, url), "autocommit": True},
            name=application_name,
        )
        parameters = connection_parameters(application_name, call_timeout, url)
        preparing = Preparing()
        self.claims = Lane(
            url, call_timeout=call_timeout, parameters=parameters, preparing=preparing, first=[NOBODYS_CLAIM.call]
        )
        self.outcomes = Lane(url, call_timeout=call_timeout, parameters=parameters, preparing=preparing)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self.claims.close()
        await self.outcomes.close()
        await self._pool.close(timeout=2)

    async def fetch(self, query: str, /, **parameters: Any) -> list[Row]:
        """Run one statement in its own transaction. Raises `DatabaseUnavailable`."""
        async with self._session() as session:
            return await session.fetch(query, **parameters)

    @asynccontextmanager
    async def transaction(
        self, *, lock_ms: int = LOCK_TIMEOUT_MS, one_snapshot: bool = False
    ) -> AsyncIterator[Session]:
        """Run several statements in one transaction, each of which waits `lock_ms` for a lock at most.

        With `one_snapshot` they see the database as it was at one moment, and write nothing.

        Raises `DatabaseUnavailable`, also for a failed commit; `Locked` where such a wait was in vain.
        """
        async with self._session() as session, session.savepoint():
            if one_snapshot:
                await session.fetch("one_snapshot")
            # By the server too: a process that is stopped or cut off here must not keep its locks until TCP gives up.
            idle_ms = round(self._call_timeout * 1000)
            await session.fetch("bound_transaction", idle_ms=idle_ms, lock_ms=min(idle_ms, lock_ms))
            yield session

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._call_timeout
        async with answered(self._call_timeout + 3 * ASK_SECONDS), self._pool.connection() as connection:
            try:
                with Bounded(connection, until - loop.time()):
                    yield Session(connection)
            except errors.ReadOnlySqlTransaction:
                await connection.close()  # this server lost its role, and would keep us for as long as it lives
                raise


def json_or_none(value: Mapping[str, Any] | None) -> str | None:
    """JSON text for a jsonb parameter, whatever the values are: evidence comes from processes that went wrong."""
    return None if value is None else json.dumps(_storable(value))


def _storable(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {clip(str(key), MAX_MESSAGE_CHARS): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return clip(str(value), MAX_FRAMES_CHARS)
