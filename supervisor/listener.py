"""The listener: wakes the claims when a job is committed, and proves that it still can.

A LISTEN connection can be dead for hours without a sign: a half-open socket, a pooler that moved it, a server that
lost the registration. So it sends itself a notification after connecting and every `PROOF_SECONDS`, and replaces
the connection if it does not come back. Every (re)connection wakes everything once: what was notified meanwhile is
lost, what it told about is not.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import sql

from jobs.database import DatabaseUnavailable, connection_parameters

log = logging.getLogger("oomph.listener")

PROOF_SECONDS = 15.0  # the longest that a deaf listener goes unseen; polling covers the time
PROOF_TIMEOUT = 5.0
JOBS_CHANNEL = "background_jobs"
CONTROL_CHANNEL = "background_control"


class Listener:
    """Calls `on_jobs(pool)` for committed jobs, `on_control(what)` for operators' actions, `on_connect()` for both."""

    def __init__(
        self,
        url: str,
        *,
        on_connect: Callable[[], None],
        on_jobs: Callable[[str], None],
        on_control: Callable[[str], None],
    ) -> None:
        self._url = url
        self._on_connect = on_connect
        self._on_jobs = on_jobs
        self._on_control = on_control
        self._proof_channel = f"background_proof_{uuid.uuid4().hex}"
        self.round_trip_seconds: float | None = None

    async def run(self) -> None:
        """Listen until the connection fails; then raise `DatabaseUnavailable`. Whoever supervises calls again."""
        try:
            async with self._connected() as connection:
                self._on_connect()
                while True:
                    await self._prove(connection)
                    await self._hear(connection, PROOF_SECONDS)
        except (psycopg.Error, OSError, TimeoutError) as error:
            self.round_trip_seconds = None
            raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with asyncio.timeout(PROOF_TIMEOUT):
            connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, **connection_parameters("oomph listener", PROOF_TIMEOUT)
            )
        try:
            async with asyncio.timeout(PROOF_TIMEOUT):
                for channel in (JOBS_CHANNEL, CONTROL_CHANNEL, self._proof_channel):
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            yield connection
        finally:
            await connection.close()

    async def _prove(self, connection: psycopg.AsyncConnection[Any]) -> None:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        async with asyncio.timeout(PROOF_TIMEOUT):
            await connection.execute("SELECT pg_notify(%s, '')", [self._proof_channel])
        if not await self._hear(connection, PROOF_TIMEOUT, until_proof=True):
            raise TimeoutError(
                "a notification to ourselves did not come back; behind a pooler in transaction mode set "
                "WORKER_LISTEN_URL to a direct connection, or WORKER_LISTEN=off"
            )
        self.round_trip_seconds = loop.time() - sent

    async def _hear(
        self, connection: psycopg.AsyncConnection[Any], seconds: float, *, until_proof: bool = False
    ) -> bool:
        notifications = connection.notifies(timeout=seconds)
        try:
            async for notification in notifications:
                if notification.channel == JOBS_CHANNEL:
                    self._on_jobs(notification.payload)
                elif notification.channel == CONTROL_CHANNEL:
                    self._on_control(notification.payload)
                elif until_proof:
                    return True
        finally:
            await notifications.aclose()
        return False
