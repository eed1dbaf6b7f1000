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
from typing import Any

import psycopg
from psycopg import pq, sql

from jobs.bounds import Bounded
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

    The payload of jobs is `one` and its id, `new`, `many` or `earlier`, and their kind. An `earlier` one came back to
    its place in the queue, before others that were claimed meanwhile. `notify(channel)` sends a notification over
    another connection.
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
        self._watched: int | None = None  # the descriptor of its socket
        self._proof: asyncio.Future[None] | None = None  # what came back
        self._end: asyncio.Future[Exception] | None = None  # the connection's
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
            if not await self._proves():
                raise TimeoutError("a notification to ourselves did not come back")
            await self._hear(PROOF_SECONDS)
        except Exception as error:  # also a fault of whoever was told: the reader has ended with it
            await self.stop()
            if isinstance(error, (psycopg.Error, OSError, TimeoutError)):
                raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error
            raise
        return 0

    async def stop(self) -> None:
        """Close the connection."""
        connection, self._connection, self.round_trip_seconds = self._connection, None, None
        if connection is not None:
            self._watch(None)
            await connection.close()

    async def _begin(self) -> float:
        async with asyncio.timeout(connect_bound(self._url, PROOF_TIMEOUT)):
            connection = self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, **connection_parameters("oomph listener", PROOF_TIMEOUT, self._url)
            )
        self._end = asyncio.get_running_loop().create_future()
        connection.add_notify_handler(lambda notification: self._heard(notification.channel, notification.payload))
        # The others once this one is proven: in a pooler's session they would stay, for each job to be told to it.
        await self._listen(connection, self._proof_channel)
        if not await self._proves():
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
        """Listen to these too. Between statements the socket is watched here, which is the shortest way to a job."""
        self._watch(None)
        with Bounded(connection, PROOF_TIMEOUT):
            for channel in channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._watch(connection)

    def _watch(self, connection: psycopg.AsyncConnection[Any] | None) -> None:
        loop = asyncio.get_running_loop()
        if self._watched is not None:
            loop.remove_reader(self._watched)
        self._watched = None if connection is None else connection.fileno()
        if connection is not None:
            loop.add_reader(connection.fileno(), self._read, connection.pgconn, connection.info.encoding)

    async def _proves(self) -> bool:
        loop = asyncio.get_running_loop()
        sent, self._proof = loop.time(), loop.create_future()
        await self._notify(self._proof_channel)
        await self._hear(PROOF_TIMEOUT, until=self._proof)
        if not self._proof.done():
            return False
        self.round_trip_seconds = loop.time() - sent
        return True

    async def _hear(self, seconds: float, until: "asyncio.Future[None] | None" = None) -> None:
        assert self._end is not None
        ends: set[asyncio.Future[Any]] = {self._end} if until is None else {self._end, until}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._end.done():
            raise self._end.result()

    def _read(self, libpq: "pq.abc.PGconn", encoding: str) -> None:
        try:
            libpq.consume_input()
            while (notification := libpq.notifies()) is not None:
                self._heard(notification.relname.decode(encoding), notification.extra.decode(encoding))
        except Exception as error:  # noqa: BLE001  (whoever waits for the end is told)
            self._watch(None)  # its number may be another connection's soon
            if self._end is not None and not self._end.done():
                self._end.set_result(error)

    def _heard(self, channel: str, payload: str) -> None:
        if channel == JOBS_CHANNEL:
            self._on_jobs(payload)
        elif channel == CONTROL_CHANNEL:
            self._on_control(payload)
        elif self._proof is not None and not self._proof.done():
            self._proof.set_result(None)
