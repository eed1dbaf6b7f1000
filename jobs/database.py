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

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from jobs.bounds import ASK_SECONDS, bounded
from jobs.connection import Row
from jobs.outcome import MAX_FRAMES_CHARS, MAX_MESSAGE_CHARS, clip
from jobs.sql import statement

log = logging.getLogger("oomph.database")

MAX_CONNECTIONS = 3  # outcomes, housekeeping and one to spare; claims, the lease keeper and the listener have their own

_UNAVAILABLE = (
    psycopg.OperationalError,  # broken, refused, cancelled by a time-out, deadlock, shut down
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,  # the old primary, after a fail-over
    errors.IdleInTransactionSessionTimeout,  # this process was stopped, or its loop blocked, between two statements
    errors.TransactionTimeout,  # a setting of the database, from PostgreSQL 17 on
    PoolTimeout,
    PoolClosed,
    TimeoutError,
    OSError,
)


# What a pooler in transaction mode answers that hides behind its server's process id: it did nothing.
_NOT_PREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)

LEAST_CONNECT_SECONDS = 2  # of libpq, which takes whole ones
LOCK_TIMEOUT_MS = 1_000  # what is locked for longer is left for the next try, and does not hold up others


class DatabaseUnavailable(Exception):
    """The database did not answer in time or refused; nothing is known of what the call did. Try again."""


class Locked(DatabaseUnavailable):
    """The database answers; somebody holds a lock that the call needs. It changed nothing. Try again."""


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


class Lane:
    """A connection of its own for one hot statement, which spares it the pool's bookkeeping and its planning.

    Calls come one after the other. Opened by the first, closed after one that failed, and opened again by the next.
    """

    def __init__(self, url: str, *, call_timeout: float, application_name: str) -> None:
        self._url = url
        self._call_timeout = call_timeout
        self._parameters = connection_parameters(application_name, call_timeout, url)
        self._prepares = True  # a function's plan is known to be right; prepared, a claim spares itself the way to it
        self._cursor: psycopg.AsyncCursor[Row] | None = None
        self._turn = asyncio.Lock()

    async def fetch(self, query: str, /, **parameters: Any) -> list[Row]:
        """Run one statement in its own transaction. Raises `DatabaseUnavailable`."""
        try:
            async with asyncio.timeout(self._call_timeout + 3 * ASK_SECONDS), self._turn:
                try:
                    return await self._run(query, parameters)
                except _NOT_PREPARED:
                    self._do_without()
                    return await self._run(query, parameters)
        except _UNAVAILABLE as error:
            raise DatabaseUnavailable(_told(error)) from error

    async def _run(self, query: str, parameters: dict[str, Any]) -> list[Row]:
        try:
            if self._cursor is None:
                async with asyncio.timeout(self._call_timeout):
                    self._cursor = await self._connect()
            async with bounded(self._cursor.connection, self._call_timeout):
                await self._cursor.execute(statement(query), parameters)
                return await self._cursor.fetchall()
        except BaseException:
            await self.close()
            raise

    async def _connect(self) -> psycopg.AsyncCursor[Row]:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._parameters)
        try:
            cursor = connection.cursor(row_factory=tuple_row, binary=True)
            if self._prepares:
                rows = await (await cursor.execute(statement("backend_pid"))).fetchall()
                if rows[0][0] == connection.info.backend_pid:
                    connection.prepare_threshold = 0
                else:
                    self._do_without()
        except BaseException:
            await connection.close()
            raise
        return cursor

    def _do_without(self) -> None:
        # Not only where it fails: behind a pooler, the statement of that name may be one that somebody else prepared.
        log.info("the database is behind a pooler; claims do without prepared statements")
        self._prepares = False

    async def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            await cursor.connection.close()


class Database:
    """A small pool of connections, and a lane for the claims, with a bound on every call.

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
        self.claims = Lane(url, call_timeout=call_timeout, application_name=application_name)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self.claims.close()
        await self._pool.close(timeout=2)

    async def fetch(self, query: str, /, **parameters: Any) -> list[Row]:
        """Run one statement in its own transaction. Raises `DatabaseUnavailable`."""
        async with self._session() as session:
            return await session.fetch(query, **parameters)

    @asynccontextmanager
    async def transaction(self, *, lock_ms: int = LOCK_TIMEOUT_MS) -> AsyncIterator[Session]:
        """Run several statements in one transaction, each of which waits `lock_ms` for a lock at most.

        Raises `DatabaseUnavailable`, also for a failed commit; `Locked` where such a wait was in vain.
        """
        async with self._session() as session, session.savepoint():
            # By the server too: a process that is stopped or cut off here must not keep its locks until TCP gives up.
            idle_ms = round(self._call_timeout * 1000)
            await session.fetch("bound_transaction", idle_ms=idle_ms, lock_ms=min(idle_ms, lock_ms))
            yield session

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._call_timeout
        async with _answered(self._call_timeout + 3 * ASK_SECONDS), self._pool.connection() as connection:
            try:
                async with bounded(connection, until - loop.time()):
                    yield Session(connection)
            except errors.ReadOnlySqlTransaction:
                await connection.close()  # this server lost its role, and would keep us for as long as it lives
                raise


@asynccontextmanager
async def _answered(seconds: float) -> AsyncIterator[None]:
    """The one name of every failure. The bound is for what no other one covers."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except errors.LockNotAvailable as error:
        raise Locked(str(error).strip()) from error
    except _UNAVAILABLE as error:
        raise DatabaseUnavailable(_told(error)) from error


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip() or 'no answer in time'}"


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
