"""The life of a worker process: start, serve until told to stop, drain, close.

    RUNNING --signal--> DRAINING --drained, timeout, second signal--> TERMINATING --> closed

The process serves in tenures: a worker id with a lease. When a lease is lost, the attempts under it are stopped, and
the process goes on under a new id once the database answers again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.app import App
from jobs.claim import ClaimedJob
from jobs.database import Database
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import Verdict
from jobs.recovery import Recovery
from jobs.retention import RetentionWalk
from jobs.scheduler import Scheduler
from jobs.store import JobStore
from jobs.task import Pool
from jobs.unavailable import DatabaseUnavailable
from pools.execution import Intent
from supervisor.attempts import Attempts
from supervisor.claiming.pool_queue import Asked
from supervisor.clean_up import CleanUp
from supervisor.hearing import Hearing
from supervisor.loop import ended_within, keep_what_is_there
from supervisor.monitor import condition
from supervisor.monitor.activity import ActivityWriter
from supervisor.monitor.meter import Meter
from supervisor.notify_socket import NotifySocket
from supervisor.outcomes import OutcomeWriter, alone
from supervisor.served_pools import ServedPools
from supervisor.services import run_forever
from supervisor.settings import Settings
from supervisor.shutdown import Event, State, grace_seconds, next_state
from supervisor.signals import ignore_signals, on_signal
from supervisor.template_news import TemplateNews
from supervisor.tenure import Tenure

if TYPE_CHECKING:
    from supervisor.monitor.observatory import Observatory
    from supervisor.monitor.vitals import Vitals
    from supervisor.notices.sending import Sending
    from supervisor.service_manager import ServiceManager
    from supervisor.tracing import Tracing

log = logging.getLogger("oomph.worker")

TICK_SECONDS = 1.0  # the longest sleep of the scheduler: another worker may have changed a schedule
WATCH_SECONDS = 0.2
LEAVE_SECONDS = 5.0  # for the last calls to the database
END_SECONDS = 15.0  # for attempts that were told to end: a coroutine's cancel grace, a kill and its clean-up


class Worker:
    """One worker process. With `drain` it ends by itself once nothing is left to do; `notify` hears of its life."""

    def __init__(
        self,
        settings: Settings,
        app: App,
        *,
        drain: bool = False,
        tracing: "Tracing | None" = None,
        notify: NotifySocket | None = None,
    ) -> None:
        self._settings = settings
        self._drain_when_idle = drain
        self._state = State.RUNNING
        self._news = asyncio.Event()  # the state changed, or the lease was lost
        self._lease_lost = False
        self._failure: str | None = None
        self._services: list[asyncio.Task[None]] = []
        self._tenure: Tenure | None = None

        self._database = Database(
            settings.database_url, call_timeout=settings.worker_call_timeout_seconds, application_name="oomph worker"
        )
        self._sending: Sending | None = None
        if settings.sends_notices:
            from supervisor.notices.sending import sending  # which needs libraries that others do without

            self._sending = sending(settings, app, self._database)
        app = self._app = self._sending.app if self._sending is not None else app
        self._template_news = TemplateNews(self._database)
        self._store = JobStore(
            self._database,
            retry_delay=settings.worker_retry_delay_seconds,
            pause_after=settings.worker_pause_after_kills,
            traced=tracing is not None,
        )
        grace = timedelta(seconds=settings.worker_unknown_kind_grace_seconds)
        self._meter = Meter({pool: app.kinds(pool) for pool in settings.worker_pools})
        self._recovery = Recovery(
            self._database,
            self._store,
            unknown_kind_grace=grace,
            on_rescued=lambda kind: self._meter.settled(kind, Verdict.WORKER_LOST),
            on_dead=self._meter.died,
        )
        records = timedelta(days=settings.worker_retention_records_days)
        self._retention = RetentionWalk(
            self._database, settings.retention, records=records, on_step=self._meter.removed
        )
        self._scheduler = Scheduler(self._database, app, name=settings.worker_app)
        self._outcomes = OutcomeWriter(self._store, self._meter, self._along)
        self._pools = ServedPools(settings, app, on_template=self._template_news.hear)
        self._attempts = Attempts(
            app,
            self._store,
            self._outcomes,
            self._pools.by_name,
            self._pools.slots,
            self._slot_freed,
            self._meter,
            tracing,
        )
        self._hearing = Hearing(settings, self._database, self._store, self._attempts, lambda: self._worker)
        self._clean_up = CleanUp(self._recovery, self._attempts, lambda: self._worker)
        self._activity = ActivityWriter(
            self._database,
            self._meter,
            lambda: condition.look(self._attempts, self._pools.by_name, self._pools.ingest),
            lambda: self._worker.worker_id,
        )
        self._observatory = self._make_observatory()
        self._service_manager = None if notify is None else self._make_service_manager(notify)

    async def run(self) -> int:
        """Serve until a signal, or until nothing is left with `drain`.

        Returns the exit status: 0 after an orderly end, 1 where a component could not go on. Raises what the start
        raises; nothing is left running then.
        """
        on_signal(lambda: self._on(Event.SIGNAL))
        try:
            await self._start()
            await self._serve()
            await self._drain()
        except DatabaseUnavailable as error:
            if self._state is State.RUNNING:
                raise
            log.warning("told to end before it was ready: %s", error)
        finally:
            await self._close()
        if self._failure is not None:
            log.critical("the worker ends because %s", self._failure)
            return 1
        log.info("the worker has ended")
        return 0

    async def _start(self) -> None:
        if self._observatory is not None:
            self._observatory.open()
            self._serve_forever("http", self._observatory.serve_once)
        if self._service_manager is not None:
            self._serve_forever("service manager", self._service_manager.report_once)
        await self._database.open()
        await self._pools.start()
        await self._scheduler.sync()
        await self._take_tenure()
        self._start_services()
        keep_what_is_there()
        served = ", ".join(f"{pool} ({slots})" for pool, slots in self._pools.slots.items())
        log.info("ready: worker %s serves %s", self._worker.worker_id, served)

    async def _serve(self) -> None:
        while self._state is State.RUNNING:
            await self._news.wait()
            self._news.clear()
            if self._lease_lost and self._state is State.RUNNING:
                await self._renew_tenure()

    async def _drain(self) -> None:
        """Let running attempts finish while the lease holds; give back what is left when the time is over."""
        seconds = self._settings.worker_shutdown_seconds
        if self._state is State.DRAINING:
            log.info(
                "draining: %s running, for %g s at most; a second signal ends them now", self._attempts.running, seconds
            )
        until = time.monotonic() + seconds
        while self._state is State.DRAINING and not self._lease_lost:
            if await self._attempts.wait_ended(min(WATCH_SECONDS, until - time.monotonic())):
                self._on(Event.DRAINED)
            elif time.monotonic() >= until:
                self._on(Event.TIMEOUT)
        failpoint(Failpoint.DRAINED)
        if self._attempts.running:
            log.warning("giving back %s attempts that still run", self._attempts.running)
            self._attempts.stop_all(Intent.LEASE_LOST if self._lease_lost else Intent.SHUTDOWN)
        if not await self._settle():
            log.error("%s outcomes could not be written in time", len(self._attempts.fences))

    async def _settle(self) -> bool:
        """Wait until claims that are on their way are given back and every outcome is written. Returns whether."""
        until = time.monotonic() + END_SECONDS
        if not await ended_within(END_SECONDS, self._release_unknown()):
            log.warning("claims whose answer is not known are left to a rescue: no answer in time, or a lock")
        return await self._attempts.wait_ended(until - time.monotonic())

    async def _release_unknown(self) -> None:
        await asyncio.gather(*map(_release_unknown_of, {self._worker, *self._clean_up.lost}))

    async def _close(self) -> None:
        """Release everything, also after a start that failed; never hang on a database that does not answer."""
        self._state = State.TERMINATING  # whatever led here: from now on components are meant to end
        if self._attempts.running:
            self._attempts.stop_all(Intent.SHUTDOWN)
            await self._attempts.wait_ended(END_SECONDS)
        await self._pools.stop()
        for service in self._services:
            service.cancel()
        if not await ended_within(LEAVE_SECONDS, self._leave()):
            log.warning("the database does not answer; the worker leaves without its goodbye")
        if self._service_manager is not None:
            self._service_manager.close()
        ignore_signals()

    async def _leave(self) -> None:
        await asyncio.gather(*self._services, return_exceptions=True)
        if self._observatory is not None:
            await self._observatory.close()
        await self._hearing.stop()
        if self._tenure is not None:
            with suppress(DatabaseUnavailable):
                await self._activity.run_once()  # what was counted since it last wrote
            with suppress(DatabaseUnavailable):
                await self._tenure.end()
        await self._database.close()

    @property
    def _worker(self) -> Tenure:
        assert self._tenure is not None, "before the first tenure"
        return self._tenure

    async def _take_tenure(self) -> None:
        before = self._tenure
        self._tenure = await Tenure.take(
            self._settings,
            self._app,
            self._store,
            self._recovery,
            self._attempts,
            running=lambda: self._state is State.RUNNING,
            ready=self._pools.is_ready,
            on_lost=self._on_lease_lost,
            last_resort=self._pools.kill_children,
            meter=self._meter,
        )
        self._lease_lost = False
        if before is not None:
            before.claims.wake_all()  # what waits there goes on under the new id

    async def _renew_tenure(self) -> None:
        """Stop what ran under the lost lease, offer its refunds, then go on under a new id.

        What cannot be given back, because somebody holds its row, costs its own slot and not the worker: the writer
        goes on offering it under the new id, and the fence decides.
        """
        lost = self._worker
        log.error("worker %s lost its lease: stopping %s attempts", lost.worker_id, self._attempts.running)
        failpoint(Failpoint.TENURE_LOST)
        until = time.monotonic() + self._settings.lease_margin
        while self._state is State.RUNNING:
            # Our own refunds go first, for as long as the database keeps the lease: until then no rescuer charges them.
            if await self._attempts.wait_ended(WATCH_SECONDS) or time.monotonic() >= until:
                lost.keeper.stop(wait=0)
                with suppress(DatabaseUnavailable):
                    await self._take_tenure()
                    log.warning("the worker goes on as %s", self._worker.worker_id)
                    break
                await asyncio.sleep(WATCH_SECONDS)
        # An outage takes everyone's lease. The others get the time of a lease to come back and settle their own jobs.
        self._clean_up.spare_the_lost(lost, self._settings.worker_lease_seconds)

    def _start_services(self) -> None:
        self._serve_forever("outcomes", self._outcomes.run)
        for pool in self._pools.by_name:
            self._serve_forever(f"claims of {pool}", lambda pool=pool: self._worker.claims.claim_once(pool))  # type: ignore[misc]
        self._serve_forever("queue", self._look)
        self._serve_forever("clean-up", self._clean_up.run_once)
        self._serve_forever("retention", self._remove_old)
        self._serve_forever("schedules", self._tick)
        self._serve_forever("progress", self._attempts.flush_progress)
        self._serve_forever("activity", self._activity.run_once)
        self._serve_forever("cancels", self._hearing.poll_cancels)
        if self._pools.ingest is not None:
            self._serve_forever("pauses", self._attempts.release_paused)
            self._serve_forever("template news", self._template_news.run_once)
        if self._sending is not None:
            self._serve_forever("notices", self._sending.dispatcher.run_once)
        self._serve_forever("watch", self._watch)
        if self._hearing.listener is not None:
            self._serve_forever("listener", self._hearing.listener.run_once)

    def _serve_forever(self, name: str, run_once: Callable[[], Awaitable[float | None]]) -> None:
        service = asyncio.create_task(run_forever(name, run_once), name=name)
        service.add_done_callback(self._service_ended)
        self._services.append(service)

    def _service_ended(self, service: "asyncio.Task[None]") -> None:
        """Nothing ends a service but the worker's own end; a handler that cancels every task it finds must not."""
        if self._state is not State.TERMINATING:
            self._fail(f"a handler or a fault ended its component {service.get_name()!r}")

    async def _look(self) -> float:
        return await self._worker.claims.look_once()

    async def _remove_old(self) -> float:
        return await self._retention.run_once(self._worker.worker_id)

    async def _tick(self) -> float:
        due_in = await self._scheduler.seconds_to_next()
        if due_in is not None and due_in <= 0 and self._state is State.RUNNING:
            for pool in await self._scheduler.tick():
                self._worker.claims.wake(pool)
            due_in = await self._scheduler.seconds_to_next()
        return TICK_SECONDS if due_in is None else min(max(due_in, 0.0), TICK_SECONDS)

    async def _watch(self) -> float:
        """Never half alive: nothing goes on without keeper and trust. With `drain` it ends when nothing is left."""
        keeper = self._worker.keeper
        if not keeper.alive and not self._lease_lost:
            self._fail("its lease keeper died")
        if not keeper.trusted and not self._lease_lost:
            self._on_lease_lost()  # the keeper says so itself, unless something holds it up
        if self._drain_when_idle and self._is_done:
            self._on(Event.SIGNAL)
        return WATCH_SECONDS

    @property
    def _is_done(self) -> bool:
        has_left_nothing = not self._attempts.count and not self._lease_lost and not self._clean_up.lost
        return has_left_nothing and self._worker.claims.idle

    def _make_observatory(self) -> "Observatory | None":
        if not self._settings.worker_http:
            return None
        from supervisor.monitor.observatory import Observatory

        return Observatory(self._settings, self._database, self._meter, self._make_vitals())

    def _make_service_manager(self, notify: NotifySocket) -> "ServiceManager":
        from supervisor.service_manager import ServiceManager

        return ServiceManager(notify, self._make_vitals())

    def _make_vitals(self) -> "Vitals":
        from supervisor.monitor.vitals import Parts, Vitals

        parts = Parts(
            attempts=self._attempts,
            pools=list(self._pools.by_name),
            ingest=self._pools.ingest,
            state=lambda: self._state,
            tenure=lambda: self._tenure,
            listener=self._hearing.listener,
        )
        return Vitals(self._settings, parts)

    def _slot_freed(self, pool: Pool, gone: bool) -> None:
        if self._tenure is not None:
            self._tenure.claims.slot_freed(pool, gone)

    def _along(self, jobs: Sequence[ClaimedJob]) -> AbstractAsyncContextManager[Asked | None]:
        return alone(jobs) if self._tenure is None else self._tenure.claims.along(jobs)

    def _on_lease_lost(self) -> None:
        self._lease_lost = True
        self._attempts.stop_all(Intent.LEASE_LOST)
        self._news.set()

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self._on(Event.FAILURE)

    def _on(self, event: Event) -> None:
        state = next_state(self._state, event)
        if state is not self._state:
            log.info("%s: %s -> %s", event, self._state, state)
            if self._state is State.RUNNING and self._service_manager is not None:
                self._service_manager.stopping(grace_seconds(self._settings.worker_shutdown_seconds))
            self._state = state
            self._news.set()


async def _release_unknown_of(tenure: Tenure) -> None:
    while (trouble := (await tenure.claims.release_unknown()).trouble) is not None:
        if not isinstance(trouble, DatabaseUnavailable):
            log.error("claims whose answer is not known are left to a rescue: %s", trouble)
            return
        await asyncio.sleep(WATCH_SECONDS)
