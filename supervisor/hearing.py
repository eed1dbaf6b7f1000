"""What other sessions tell a worker: that jobs were committed, and what operators want. Heard, and polled for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from jobs.database import Database
from jobs.failpoints import Failpoint, failpoint
from jobs.store import JobStore
from supervisor.attempts import Attempts
from supervisor.listener import Listener
from supervisor.settings import Settings
from supervisor.tenure import Tenure


class Hearing:
    """`tenure()` is the worker's present one. Where it does not listen, `listener` is None and polling does it all."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        store: JobStore,
        attempts: Attempts,
        tenure: Callable[[], Tenure],
    ) -> None:
        self._database = database
        self._store = store
        self._attempts = attempts
        self._tenure = tenure
        self._poll = settings.worker_poll_seconds
        self._cancelled = asyncio.Event()
        self.listener: Listener | None = None
        if settings.worker_listen == "on":
            self.listener = Listener(
                settings.worker_listen_url or settings.database_url,
                notify=self._notify,
                on_connect=self._on_connect,
                on_jobs=self._on_jobs,
                on_control=self._on_control,
            )

    async def poll_cancels(self) -> float:
        """End the attempts that operators want cancelled: at once when told, and as often as the worker polls."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._cancelled.wait()
        self._cancelled.clear()
        if self._attempts.running and (fences := await self._store.cancels(self._tenure().worker_id)):
            failpoint(Failpoint.CANCEL_READ)
            self._attempts.cancel(fences)
        return 0

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.stop()

    async def _notify(self, channel: str) -> None:
        await self._database.fetch("notify", channel=channel, payload="")

    def _on_connect(self) -> None:
        self._tenure().claims.wake_all()

    def _on_jobs(self, payload: str) -> None:
        what, _, kind = payload.partition(" ")
        job_id = None
        if what == "one":
            number, _, kind = kind.partition(" ")
            job_id = int(number) if number.isdecimal() else None
        self._tenure().claims.hear(what, kind, job_id)

    def _on_control(self, what: str) -> None:
        self._tenure().claims.wake_all()
        if what == "cancel":
            self._cancelled.set()
