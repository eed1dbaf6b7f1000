"""A tenure: one worker id with its lease and its claims, from its registration to its loss or its end."""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

from jobs.app import App
from jobs.failpoints import Failpoint, failpoint
from jobs.recovery import Recovery
from jobs.store import JobStore
from jobs.task import Pool
from jobs.unavailable import DatabaseUnavailable
from supervisor.attempts import Attempts
from supervisor.claiming.claims import Claims
from supervisor.leases import LeaseKeeper
from supervisor.settings import Settings

if TYPE_CHECKING:
    from supervisor.monitor.meter import Meter

log = logging.getLogger("oomph.worker")

TRIES = 3  # to take a lease that is not over as it begins: a host that is held up that often had better say so


class Tenure:
    """Made by `take`. A lost one is never regained; the process takes a new one."""

    def __init__(self, worker_id: uuid.UUID, keeper: LeaseKeeper, claims: Claims, store: JobStore) -> None:
        self.worker_id = worker_id
        self.keeper = keeper
        self.claims = claims
        self._store = store

    @classmethod
    async def take(
        cls,
        settings: Settings,
        app: App,
        store: JobStore,
        recovery: Recovery,
        attempts: Attempts,
        *,
        running: Callable[[], bool],
        ready: Callable[[Pool], bool],
        on_lost: Callable[[], None],
        last_resort: Callable[[], None],
        meter: "Meter | None" = None,
    ) -> "Tenure":
        """Register under a new id and keep its lease. Raises `DatabaseUnavailable`; nothing is started then.

        `running()` is false once the worker drains; `ready(pool)` while that pool could not start a job.
        """
        for _ in range(TRIES):
            worker_id = uuid.uuid4()
            sent = time.monotonic()
            await store.register(
                worker_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=version("oomph"),
                pools=[str(pool) for pool in settings.worker_pools],
                app=app,
                lease=timedelta(seconds=settings.worker_lease_seconds),
            )
            failpoint(Failpoint.REGISTERED)
            keeper = LeaseKeeper(
                settings.database_url,
                worker_id,
                lease=settings.worker_lease_seconds,
                heartbeat=settings.worker_heartbeat_seconds,
                margin=settings.lease_margin,
                block_warning=settings.worker_block_warning_seconds,
                registered_at=sent,
                on_lost=on_lost,
                last_resort=last_resort,
                on_pong=None if meter is None else meter.lagged,
            )
            if keeper.trusted:
                break
            log.warning("worker %s was held up until its lease was over, and takes another", worker_id)
            await store.deregister(worker_id)  # or others would find it lost, and tell the owners
        else:
            raise DatabaseUnavailable(f"{TRIES} leases of {settings.worker_lease_seconds:g} s were over as they began")
        keeper.start()
        claims = Claims(
            worker_id,
            app,
            settings.worker_pools,
            store,
            recovery,
            attempts,
            trusted=lambda: keeper.trusted,
            may_claim=lambda: running() and keeper.trusted,
            ready=ready,
            poll=settings.worker_poll_seconds,
            meter=meter,
        )
        return cls(worker_id, keeper, claims, store)

    async def end(self) -> None:
        """Stop renewing; take the worker's row away unless the lease was lost. Raises `DatabaseUnavailable`."""
        trusted = self.keeper.trusted
        self.keeper.stop()
        if trusted:
            failpoint(Failpoint.RELEASED)
            await self._store.deregister(self.worker_id)
            failpoint(Failpoint.DEREGISTERED)
