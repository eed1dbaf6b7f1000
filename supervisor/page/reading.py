"""The page's way to the database: few connections, and a bound on every statement."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors

from jobs.database import Database
from jobs.unavailable import DatabaseUnavailable

CALL_SECONDS = 5.0  # a person waits; includes the way to a connection
STATEMENT_MS = 3_000  # longer is not slow but stuck, and the database has its own work to do

# A database of another release, or one where this user may not look.
_NOT_OURS = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.InsufficientPrivilege,
    errors.InvalidSchemaName,
)


@dataclass(frozen=True, slots=True)
class Session:
    """A transaction on one connection. It began `at` that moment by the database's clock."""

    connection: psycopg.AsyncConnection[Any]
    at: datetime


class PageDatabase:
    """Opened by the first who asks, in whatever loop that is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: Database | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Session]:
        """A transaction that sees one moment and cannot write. Raises `DatabaseUnavailable`."""
        async with self._transaction(one_snapshot=True) as session:
            yield session

    @asynccontextmanager
    async def act(self) -> AsyncIterator[Session]:
        """A transaction that commits at the end of the block. Raises `DatabaseUnavailable`."""
        async with self._transaction(one_snapshot=False) as session:
            yield session

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    @asynccontextmanager
    async def _transaction(self, *, one_snapshot: bool) -> AsyncIterator[Session]:
        database = await self._opened()
        try:
            async with database.transaction(one_snapshot=one_snapshot) as session:
                rows = await session.fetch("begin_look", milliseconds=STATEMENT_MS)
                yield Session(session.connection, rows[0][0])
        except _NOT_OURS as error:
            raise DatabaseUnavailable(f"{error.diag.message_primary}; `oomph migrate` makes the tables") from error

    async def _opened(self) -> Database:
        async with self._opening:
            if self._database is None:
                database = Database(self._url, call_timeout=CALL_SECONDS, application_name="oomph page")
                await database.open()
                self._database = database
            return self._database
