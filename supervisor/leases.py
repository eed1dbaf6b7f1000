"""The lease keeper: a thread with its own loop and its own connection.

    supervisor's loop                 keeper's thread
    -----------------                 ---------------
    runs handlers  <---- ping ------  watch: does the loop answer? is the lease still trusted?
                   ----- pong ----->
                   <---- lost ------  renew: UPDATE .. lease_until, every heartbeat

A handler that blocks the supervisor's loop does not stop the renewals, so other jobs keep their owner; the log names
the frame that blocks. The database's clock decides when a lease ends. The worker itself trusts it only until

    the moment the last successful renewal was SENT + lease - margin

by its own monotonic clock: an answer that took its time cannot stretch the lease (see `supervisor.trust`). Past that
moment the jobs are stopped, before anyone else can own them. If the loop is blocked just then and cannot stop them, the
process ends itself; its children die with it. The loop looks at the trust as well, for a keeper that is held up.

A renewal that is not answered is given up while there is time for another, on a new connection: one that is half open,
or a host of several that has died, costs no lease.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

import psycopg

from jobs.bounds import Bounded
from jobs.database import LEAST_CONNECT_SECONDS, connect_bound, connection_parameters
from jobs.failpoints import Failpoint, failpoint
from jobs.sql import statement
from supervisor.trust import Trust, renewal_bound

log = logging.getLogger("oomph.lease")

WATCH_SECONDS = 0.1  # how often the loop is pinged: the resolution of what the log says about a block
ASK_SECONDS = 0.25
RETRY_SECONDS = 0.5  # between failed renewals: several tries fit into the shortest lease's margin
ANOTHER_SECONDS = 2 * ASK_SECONDS + RETRY_SECONDS + 1.0  # from the end of a renewal in vain to the answer to the next
STOPPING_SECONDS = 0.05  # for a loop that is not blocked, many turns
EXIT_BLOCKED = 75  # EX_TEMPFAIL of sysexits.h: try again; the lease ended while the loop could not stop its jobs


class LeaseKeeper:
    """Keeps the lease of one worker id; a lost lease is never regained, a new id needs a new keeper.

    Times in seconds. `on_lost` is called once, on the supervisor's loop, and tells every attempt to end. `last_resort`
    is called from the keeper's thread where the loop is blocked, just before the process ends itself. `on_pong` is
    called on the loop, ten times a second, with the seconds that it took to come to that.
    """

    def __init__(
        self,
        url: str,
        worker_id: UUID,
        *,
        lease: float,
        heartbeat: float,
        margin: float,
        block_warning: float,
        registered_at: float,
        on_lost: Callable[[], None],
        last_resort: Callable[[], None],
        on_pong: Callable[[float], None] | None = None,
    ) -> None:
        self._url = url
        self._worker_id = worker_id
        self._lease = lease
        self._heartbeat = heartbeat
        self._margin = margin
        self._trust = Trust(lease=lease, margin=margin, registered_at=registered_at)
        self._another = ANOTHER_SECONDS + connect_bound(url, LEAST_CONNECT_SECONDS)
        self._block_warning = block_warning
        self._on_lost = on_lost
        self._last_resort = last_resort
        self._on_pong = on_pong
        self._lost_seen = threading.Event()
        self._stopping = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._pong = time.monotonic()
        self._thread = threading.Thread(target=self._main, name="lease keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, wait: float = 1.0) -> None:
        """End the thread, waiting `wait` seconds for it at most; what is left of the lease stays in the database."""
        self._stopping.set()
        self._thread.join(timeout=wait)

    @property
    def trusted(self) -> bool:
        """Whether this worker may still act on its jobs. Never true again once it was false."""
        return self._trust.holds(time.monotonic())

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def seconds_left(self) -> float:
        """How long the lease is still trusted."""
        return self._trust.left(time.monotonic())

    def _main(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException:
            # Without a keeper the worker would run on without a lease: never half alive.
            log.critical("the lease keeper failed; this process ends", exc_info=True)
            self._last_resort()
            os._exit(EXIT_BLOCKED)

    async def _keep(self) -> None:
        renewing = asyncio.create_task(self._renew_forever())
        try:
            await self._watch(renewing)
        finally:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing

    async def _renew_forever(self) -> None:
        connection: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        told = ""
        try:
            while self.trusted:
                sent = time.monotonic()
                bound = max(RETRY_SECONDS, renewal_bound(self.seconds_left, self._heartbeat, self._another))
                try:
                    if connection is None:
                        # Neither this nor its renewal must outlast the trust that is to be extended.
                        wanted = connect_bound(self._url, self._heartbeat)
                        bound = max(RETRY_SECONDS, min(wanted, self.seconds_left))
                        async with asyncio.timeout(bound):
                            connection = await psycopg.AsyncConnection.connect(
                                self._url, autocommit=True, **connection_parameters("oomph lease", bound, self._url)
                            )
                        bound = max(RETRY_SECONDS, min(self._heartbeat, self.seconds_left))
                    sent = time.monotonic()
                    if not await self._renew(connection, bound):
                        log.error("the lease of worker %s is gone from the database", self._worker_id)
                        self._trust.lose()
                        return
                except (psycopg.Error, OSError, TimeoutError) as error:
                    why = repr(error)
                    if why != told:  # several times a second, for as long as the lease is trusted, says no more
                        log.warning("the lease could not be renewed, %.1f s are left: %s", self.seconds_left, why)
                    told = why
                    await _close(connection)
                    connection = None
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    failpoint(Failpoint.RENEWED)
                    self._trust.renew(sent, time.monotonic())
                    if told and self.trusted:
                        log.warning("the lease is renewed again")
                        told = ""
                    await asyncio.sleep(self._heartbeat)
        finally:
            await _close(connection)

    async def _renew(self, connection: psycopg.AsyncConnection[tuple[object, ...]], bound: float) -> bool:
        """Whether the lease is longer now. Raises `TimeoutError` after `bound` seconds, and what the driver raises."""
        given = {"lease": timedelta(seconds=self._lease), "worker_id": self._worker_id}
        # Asked to, the server drops a renewal that waits for a lock, and does not grant it when the lease is long lost;
        # but not for long, so that there is time for another connection.
        with Bounded(connection, bound, ask=ASK_SECONDS):
            return bool(await (await connection.execute(statement("renew"), given)).fetchall())

    async def _watch(self, renewing: asyncio.Task[None]) -> None:
        told_at = 0.0
        while not self._stopping.is_set():
            if renewing.done():
                renewing.result()
            if not self.trusted:
                self._give_up()
                return
            if renewing.done():
                raise RuntimeError("renewing ended by itself")
            now = time.monotonic()
            silent = now - self._pong
            if silent > self._block_warning and now - told_at > max(self._block_warning, silent / 2):
                told_at = now
                log.warning("the loop has been blocked for %.1f s at:\n%s", silent, self._blocking_frame())
            # A loop that is closed has nothing left to stop.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(partial(self._answer, now))
            await asyncio.sleep(WATCH_SECONDS)

    def _answer(self, sent: float) -> None:
        self._pong = time.monotonic()
        if self._on_pong is not None:
            self._on_pong(self._pong - sent)

    def _give_up(self) -> None:
        failpoint(Failpoint.LEASE_LOST)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell_lost)
        if self._lost_seen.wait(self._margin / 2) or self._stopping.is_set():
            return
        log.critical("the lease is lost and the loop is blocked; this process ends itself:\n%s", self._blocking_frame())
        self._last_resort()
        os._exit(EXIT_BLOCKED)

    def _tell_lost(self) -> None:
        self._on_lost()
        # Not yet: it takes the loop some turns to kill the children, and a handler may block it before it has.
        self._loop.call_later(STOPPING_SECONDS, self._lost_seen.set)

    def _blocking_frame(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "".join(traceback.format_stack(frame)[-4:]) if frame else "(the loop's thread is gone)"


async def _close(connection: "psycopg.AsyncConnection[tuple[object, ...]] | None") -> None:
    if connection is not None:
        with contextlib.suppress(psycopg.Error, OSError):
            await connection.close()
