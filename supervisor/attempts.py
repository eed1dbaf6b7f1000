"""The attempts that run right now: each from its claim, through its pool, to its settled outcome.

An attempt keeps its slot until its report is settled and nothing of it lingers, so slots in use are what is really
running, and a slow database slows the claims down instead of filling the memory.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from jobs.app import App
from jobs.claim import ClaimedJob, Fence
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import AttemptReport, Died, Failed, JobError, Returned, Succeeded, Verdict
from jobs.store import JobStore
from jobs.subject import about
from jobs.task import Pool
from jobs.unavailable import DatabaseUnavailable
from pools.errors import describe
from pools.execution import Execution, Intent, JobPool, Report
from pools.redacted import redacted
from supervisor.outcomes import OutcomeWriter

if TYPE_CHECKING:
    from supervisor.monitor.meter import Meter
    from supervisor.tracing import Tracing

log = logging.getLogger("oomph.attempts")

_BAD_ENDS = (Failed, Died)  # not spelt out where each job comes by
_PLACE = re.compile(r'File "(.+)", line (\d+), in (.+)')

PAUSE_SECONDS = 0.5  # how often what waits is compared with the pauses: nothing starts a second after one
PROGRESS_SECONDS = 1.0  # how often progress is written: a bar moves, and a thousand jobs still cost one statement


class Attempts:
    """`slots` are the attempts a pool may run at once; `on_slot(pool, gone)` is called when one is free again.

    `gone` says that the job succeeded: it has not come back to the queue.
    """

    def __init__(
        self,
        app: App,
        store: JobStore,
        outcomes: OutcomeWriter,
        pools: Mapping[Pool, JobPool],
        slots: Mapping[Pool, int],
        on_slot: Callable[[Pool, bool], None],
        meter: "Meter | None" = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._app = app
        self._store = store
        self._outcomes = outcomes
        self._pools = pools
        self._slots = dict(slots)
        self._on_slot = on_slot
        self._meter = meter
        self._tracing = tracing
        self._running: dict[Fence, Execution] = {}
        self._progress: dict[Fence, tuple[float, str]] = {}
        self._progressed = asyncio.Event()
        self._in_use = dict.fromkeys(pools, 0)

    def slots(self, pool: Pool) -> int:
        return self._slots[pool]

    def free_slots(self, pool: Pool) -> int:
        return self._slots[pool] - self._in_use[pool]

    @property
    def count(self) -> int:
        """Attempts that hold a slot."""
        return sum(self._in_use.values())

    @property
    def running(self) -> int:
        """Attempts whose report is not there yet."""
        return len(self._running)

    @property
    def fences(self) -> list[Fence]:
        """Every claim that this process knows of."""
        return [*self._running, *self._outcomes.fences]

    @property
    def under_lease(self) -> int:
        """Claims of the present lease, as far as they are known: a refund of an earlier one may be held for long."""
        return len(self._running) + self._outcomes.trusted

    def new_among(self, jobs: Sequence[ClaimedJob]) -> Sequence[ClaimedJob]:
        """Those of these claims that are not known yet.

        A server that was behind as it took over has lost the newest claims, and gives their numbers again. What runs
        here under such a number is that attempt: it goes on, and its outcome counts.
        """
        fences = [job.fence for job in jobs]
        if self._running.keys().isdisjoint(fences) and self._outcomes.has_none_of(fences):
            return jobs
        known = [job for job in jobs if job.fence in self._running or not self._outcomes.has_none_of([job.fence])]
        for job in known:
            told = "job %s: the database has lost its claim and gave it again; it runs here already"
            log.warning(told, job.id, extra=about(job))
        return [job for job in jobs if job not in known]

    def start(
        self, pool: Pool, jobs: Sequence[ClaimedJob], trusted: Callable[[], bool], *, more_follow: bool = False
    ) -> None:
        """Run claimed jobs of one pool, whose slots must be free.

        They are known from now on. Where `more_follow`, their handlers begin once the caller has given the loop away:
        by then its next claim is on the way to the database.
        """
        assert len(jobs) <= self.free_slots(pool), "claimed more than the free slots"
        self._in_use[pool] += len(jobs)
        handlers, publish, reported = self._app.handlers, self._publish, self._reported
        begins, claimed_at = [], time.monotonic()
        for job in jobs:
            fence = job.fence
            known, span = (job, None) if self._tracing is None else self._tracing.begin(job)
            execution = self._running[fence] = Execution(known, handlers[job.kind], publish, span)
            begins.append((execution, partial(reported, execution, fence, pool, trusted, claimed_at)))
        if more_follow:
            asyncio.get_running_loop().call_soon(self._begin_and_expect, self._pools[pool], begins)
        else:
            self._begin(self._pools[pool], begins)

    def _begin_and_expect(self, pool: JobPool, begins: Iterable[tuple[Execution, Report]]) -> None:
        self._begin(pool, begins)
        # After the first step of each, in which it takes what was prepared for it: this is for those that follow.
        asyncio.get_running_loop().call_soon(pool.expect_more)

    def _begin(self, pool: JobPool, begins: Iterable[tuple[Execution, Report]]) -> None:
        for execution, report in begins:
            try:
                pool.begin(execution, report)
            except Exception as error:
                # A pool never raises for what a job does, so this is a fault of ours; the job must not hang on it.
                log.exception("job %s: its pool failed", execution.job.id, extra=about(execution.job))
                report(AttemptReport(Failed(describe(error))))

    def give_back(self, job: ClaimedJob, trusted: Callable[[], bool], verdict: Verdict, why: str) -> None:
        """Return a claimed job that was never started, uncharged."""
        if self._meter is not None:
            self._meter.settled(job.kind, verdict)
        self._outcomes.submit(job.fence, job, AttemptReport(Returned(verdict, why)), trusted, self._progressed.set)

    def stop_all(self, intent: Intent) -> None:
        """Ask every running attempt to end."""
        for execution in list(self._running.values()):  # one in a thread is disowned and reports at once
            execution.stop(intent)

    def cancel(self, fences: Iterable[Fence]) -> None:
        """End the attempts that an operator wants cancelled."""
        for fence in fences:
            if (execution := self._running.get(fence)) is not None:
                log.info("job %s is cancelled by an operator", fence.id, extra=about(execution.job))
                execution.stop(Intent.CANCEL)

    async def release_paused(self) -> float:
        """Give back what has waited in its pool, for memory or for a process, until its kind was paused."""
        waiting = [execution for execution in self._running.values() if execution.waits]
        if waiting:
            paused = await self._store.paused([execution.job for execution in waiting])
            for execution in waiting:
                if execution.job.id in paused and execution.waits:
                    execution.stop(Intent.PAUSED)
        return PAUSE_SECONDS

    async def wait_ended(self, seconds: float) -> bool:
        """Wait until every claim that this process knows of is settled, `seconds` at most. Returns whether.

        What lingers is not waited for: it was reported, and nothing here can end it.
        """
        until = time.monotonic() + seconds
        while self._running or self._outcomes.fences:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._progressed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._progressed.wait(), left)
        return True

    async def flush_progress(self) -> float:
        """Write the newest progress of each attempt; end those whose lease turns out to be lost."""
        news, self._progress = self._progress, {}
        if news:
            try:
                refused = await self._store.progress(news)
                failpoint(Failpoint.PROGRESS_WRITTEN)
                statuses = await self._store.statuses(refused) if refused else {}
            except DatabaseUnavailable:
                self._progress = news | self._progress
                raise
            for fence in refused & self._running.keys():
                match statuses.get(fence):
                    case "running":  # somebody holds its row, perhaps its own handler
                        self._progress.setdefault(fence, news[fence])
                    case "succeeded":  # by its handler's own transaction, after which it still works
                        pass
                    case _:
                        execution = self._running[fence]
                        log.warning(
                            "job %s: its progress is refused, its lease was lost", fence.id, extra=about(execution.job)
                        )
                        execution.stop(Intent.LEASE_LOST)
        return PROGRESS_SECONDS

    def _publish(self, execution: Execution, fraction: float, note: str) -> None:
        fence = execution.job.fence
        if fence in self._running:
            self._progress[fence] = (fraction, note)

    def _reported(
        self,
        execution: Execution,
        fence: Fence,
        pool: Pool,
        trusted: Callable[[], bool],
        claimed_at: float,
        report: AttemptReport,
    ) -> None:
        try:
            failpoint(Failpoint.REPORTED)
        except Exception as error:
            log.exception("job %s: its report failed", fence.id, extra=about(execution.job))
            report = AttemptReport(Failed(describe(error)))
        if execution.redactor:
            report = redacted(report, execution.redactor)
        outcome = report.outcome
        if isinstance(outcome, _BAD_ENDS):
            _log_end(execution.job, outcome.verdict, outcome.error)
        if execution.span is not None:
            execution.span.end(report)
        if self._meter is not None:
            self._meter.ended(execution.job, report, time.monotonic() - claimed_at)
        del self._running[fence]
        self._progress.pop(fence, None)
        self._outcomes.submit(fence, execution.job, report, trusted, partial(self._settled, execution, pool, report))

    def _settled(self, execution: Execution, pool: Pool, report: AttemptReport) -> None:
        self._progressed.set()
        gone = isinstance(report.outcome, Succeeded)
        if execution.lingering is None or execution.lingering.done():
            self._free(pool, gone)
        else:
            execution.lingering.add_done_callback(lambda _: self._free(pool, gone))

    def _free(self, pool: Pool, gone: bool) -> None:
        self._in_use[pool] -= 1
        self._on_slot(pool, gone)


def _log_end(job: ClaimedJob, verdict: Verdict, error: JobError) -> None:
    places = _PLACE.findall(error.frames)
    where = " at {}:{} in {}".format(*places[-1]) if places else ""
    told = f"{error.type}: {error.message}{where}" if error.message else f"{error.type}{where}"
    log.warning(
        "job %s (%s) attempt %s of %s %s: %s",
        job.id,
        job.kind,
        job.attempt,
        job.max_attempts,
        verdict,
        told,
        extra=about(job),
    )
