"""The listener: wakes the claims when a job is committed, and proves that it still can.

A LISTEN connection can be dead for hours without a sign: a half-open socket, a pooler that moved it, a server that
lost the registration. So the worker sends itself a notification after connecting and every `PROOF_SECONDS`, and
replaces the connection if it does not come back. Another session sends it: what the listener itself sends comes back
even through a pooler in transaction mode, which loses everybody else's. Every (re)connection wakes everything once:
what was notified meanwhile is lost, what it told about is not.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import psycopg
from psycopg import sql

from jobs.bounds import bounded
from jobs.database import connect_bound, connection_parameters
from jobs.unavailable import DatabaseUnavailable

log = logging.getLogger("oomph.listener")

PROOF_SECONDS = 15.0  # the longest that a deaf listener goes unseen; polling covers the time
PROOF_TIMEOUT = 5.0
DEAF_SECONDS = 30.0  # until a new connection is tried where notifications did not even arrive over a fresh one
JOBS_CHANNEL = "background_jobs"
CONTROL_CHANNEL = "background_control"

DEAF = (
    "no notification of another session arrives, so jobs are found by polling alone; behind a pooler in transaction "
    "mode set WORKER_LISTEN_URL to a direct connection to the server of DATABASE_URL, or WORKER_LISTEN=off"
)


class Listener:
    """Calls `on_jobs(payload)` for committed jobs, `on_control(what)` for operators' actions, `on_connect()` for both.

    The payload of jobs is `new`, `many` or `earlier`, and their kind. An `earlier` one came back to its place in the
    queue, before others that were claimed meanwhile. `notify(channel)` sends a notification over another connection.
    """

    def __init__(
        self,
        url: str,
        *,
        notify: Callable[[str], Awaitable[None]],
        on_connect: Callable[[], None],
        on_jobs: Callable[[str], None],
        on_control: Callable[[str], None],
    ) -> None:
        self._url = url
        self._notify = notify
        self._on_connect = on_connect
        self._on_jobs = on_jobs
        self._on_control = on_control
        self._proof_channel = f"background_proof_{uuid.uuid4().hex}"
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._deaf = False
        self.round_trip_seconds: float | None = None

    async def run_once(self) -> float:
        """Connect where there is no connection, prove it, and listen until the next proof is due.

        Returns the seconds to wait: none, except where a fresh connection is deaf, which is said once. Raises
        `DatabaseUnavailable` and drops the connection where it does not answer; the next call makes a new one.
        """
        try:
            if self._connection is None:
                return await self._begin()
            if not await self._proves(self._connection):
                raise TimeoutError("a notification to ourselves did not come back")
            await self._hear(self._connection, PROOF_SECONDS)
        except (DatabaseUnavailable, psycopg.Error, OSError, TimeoutError) as error:
            await self.stop()
            if isinstance(error, DatabaseUnavailable):
                raise
            raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error
        return 0

    async def stop(self) -> None:
        """Close the connection."""
        connection, self._connection, self.round_trip_seconds = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _begin(self) -> float:
        async with asyncio.timeout(connect_bound(self._url, PROOF_TIMEOUT)):
            connection = self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, **connection_parameters("oomph listener", PROOF_TIMEOUT, self._url)
            )
        # The others once this one is proven: in a pooler's session they would stay, for each job to be told to it.
        await self._listen(connection, self._proof_channel)
        if not await self._proves(connection):
            await self.stop()
            if not self._deaf:
                log.warning(DEAF)
            self._deaf = True
            return DEAF_SECONDS
        await self._listen(connection, JOBS_CHANNEL, CONTROL_CHANNEL)
        if self._deaf:
            log.warning("notifications arrive again")
        self._deaf = False
        self._on_connect()
        return 0

    async def _listen(self, connection: psycopg.AsyncConnection[Any], *channels: str) -> None:
        async with bounded(connection, PROOF_TIMEOUT):
            for channel in channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    async def _proves(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        await self._notify(self._proof_channel)
        if not await self._hear(connection, PROOF_TIMEOUT, until_proof=True):
            return False
        self.round_trip_seconds = loop.time() - sent
        return True

    async def _hear(
        self, connection: psycopg.AsyncConnection[Any], seconds: float, *, until_proof: bool = False
    ) -> bool:
        loop = asyncio.get_running_loop()
        until, is_proven = loop.time() + seconds, False
        while not (is_proven and until_proof) and (left := until - loop.time()) > 0:
            # One packet at a time, and whole: the driver forgets what else came with the proof if it is left there.
            async with aclosing(connection.notifies(timeout=left, stop_after=1)) as packet:
                async for notification in packet:
                    if notification.channel == JOBS_CHANNEL:
                        self._on_jobs(notification.payload)
                    elif notification.channel == CONTROL_CHANNEL:
                        self._on_control(notification.payload)
                    else:
                        is_proven = True
                    await asyncio.sleep(0)  # who was woken goes first: back to waiting is a long way through the driver
        return is_proven
