"""The listener: wakes the claims when a job is committed, and proves that it still can.

A LISTEN connection can be dead for hours without a sign: a half-open socket, a pooler that moved it, a server that
lost the registration. So it sends itself a notification after connecting and every `PROOF_SECONDS`, and replaces
the connection if it does not come back. Every (re)connection wakes everything once: what was notified meanwhile is
lost, what it told about is not.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from jobs.database import DatabaseUnavailable, connection_parameters

PROOF_SECONDS = 15.0  # the longest that a deaf listener goes unseen; polling covers the time
PROOF_TIMEOUT = 5.0
JOBS_CHANNEL = "background_jobs"
CONTROL_CHANNEL = "background_control"


class Listener:
    """Calls `on_jobs(payload)` for committed jobs, `on_control(what)` for operators' actions, `on_connect()` for both.

    The payload of jobs is `new`, `many` or `earlier`, and their kind. An `earlier` one came back to its place in the
    queue, before others that were claimed meanwhile.
    """

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
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self.round_trip_seconds: float | None = None

    async def run_once(self) -> None:
        """Connect where there is no connection, prove it, and listen until the next proof is due.

        Raises `DatabaseUnavailable` and drops the connection where it does not answer; the next call makes a new one.
        """
        try:
            fresh = self._connection is None
            connection = self._connection or await self._connect()
            await self._prove(connection)
            if fresh:
                self._on_connect()
                return
            await self._hear(connection, PROOF_SECONDS)
        except (psycopg.Error, OSError, TimeoutError) as error:
            await self.stop()
            raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error

    async def stop(self) -> None:
        """Close the connection."""
        connection, self._connection, self.round_trip_seconds = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        async with asyncio.timeout(PROOF_TIMEOUT):
            connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, **connection_parameters("oomph listener", PROOF_TIMEOUT)
            )
            self._connection = connection
            for channel in (JOBS_CHANNEL, CONTROL_CHANNEL, self._proof_channel):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        return connection

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
                await asyncio.sleep(0)  # who was woken goes first: back to waiting is a long way through the driver
        finally:
            await notifications.aclose()
        return False
