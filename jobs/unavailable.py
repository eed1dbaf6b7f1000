"""The one name of every way in which a database does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

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


class DatabaseUnavailable(Exception):
    """The database did not answer in time or refused; nothing is known of what the call did. Try again."""


class Locked(DatabaseUnavailable):
    """The database answers; somebody holds a lock that the call needs. It changed nothing. Try again."""


@asynccontextmanager
async def answered(seconds: float) -> AsyncIterator[None]:
    """`Named`, with a bound for what no other one covers."""
    with Named():
        async with asyncio.timeout(seconds):
            yield


class Named:
    """Gives every failure of the block its one name."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, errors.LockNotAvailable):
            raise Locked(str(error).strip()) from error
        if isinstance(error, _UNAVAILABLE):
            raise DatabaseUnavailable(_told(error)) from error


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip() or 'no answer in time'}"
