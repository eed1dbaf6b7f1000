"""The writer of outcomes: every attempt's report, once, as soon as the database takes it.

Successes are committed together, as many as are waiting; everything else is written one by one. What cannot be written
is kept and tried again while the lease is trusted. Past that it is dropped: others may own the job by then. What is
offered instead is the refund of a lost lease, and the fence decides: an outage charges no attempt that it cost.

Somebody may hold the row of a job or of its kind for minutes. Each write waits for that shortly, the less the more of
them do, and those that were refused take turns behind one of the writers: so they never hold up the rest.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from jobs.claim import ClaimedJob, Fence
from jobs.failpoints import Failpoint, failpoint
from jobs.health import tell
from jobs.outcome import AttemptReport, Failed, JobError, Returned, Succeeded, Verdict
from jobs.store import Finished, JobStore, Lost
from jobs.subject import about
from jobs.unavailable import DatabaseUnavailable, Locked

if TYPE_CHECKING:
    from supervisor.claiming.pool_queue import Asked
    from supervisor.monitor.meter import Meter

log = logging.getLogger("oomph.outcomes")

COMMIT_BATCH = 500  # successes a statement; larger ones only make each of them wait longer
COMMIT_BYTES = 16 << 20  # of their results: the database takes none of 1 GiB, and a quote counts twice
CONCURRENT_WRITES = 2  # of single reports; of those that somebody's lock has refused, one
LOCK_MS = 50  # many times what other workers hold a kind's row for
LEAST_LOCK_MS = 5
FIRST_RETRY = 0.1
LAST_RETRY = 2.0


# Refusals of the values themselves, which another try changes nothing about.
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)


@dataclass(eq=False, slots=True)
class _Pending:
    job: ClaimedJob
    report: AttemptReport
    trusted: Callable[[], bool]
    settled: Callable[[], None]
    tries: int = 0
    unstorable: bool = False
    locked: bool = False


Along = Callable[[Sequence[ClaimedJob]], AbstractAsyncContextManager["Asked | None"]]


def alone(jobs: Sequence[ClaimedJob]) -> AbstractAsyncContextManager[None]:  # noqa: ARG001
    """No claim goes along."""
    return nullcontext()


class OutcomeWriter:
    """One for the life of the process; a report outlives the worker id that it belongs to only as a refund.

    `along` is `Claims.along` of the worker id of the day.
    """

    def __init__(self, store: JobStore, meter: "Meter | None" = None, along: Along = alone) -> None:
        self._store = store
        self._along = along
        self._meter = meter
        self._pending: dict[Fence, _Pending] = {}
        self._waiting: deque[Fence] = deque()
        self._news = asyncio.Event()
        self._singles = asyncio.Semaphore(CONCURRENT_WRITES)
        self._refused_before = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def fences(self) -> list[Fence]:
        """The attempts that ended and are not written yet."""
        return list(self._pending)

    def has_none_of(self, fences: Iterable[Fence]) -> bool:
        """Whether no attempt of these ended and is not written yet."""
        return self._pending.keys().isdisjoint(fences)

    @property
    def trusted(self) -> int:
        """How many of them belong to a lease that still holds."""
        return sum(pending.trusted() for pending in self._pending.values())

    def submit(
        self,
        fence: Fence,
        job: ClaimedJob,
        report: AttemptReport,
        trusted: Callable[[], bool],
        settled: Callable[[], None],
    ) -> None:
        """Take over one report of `job`, whose fence this is; `trusted()` tells whether its lease still holds.

        `settled()` is called once the report is written, refused or dropped. Bounded by the slots: an attempt keeps
        its slot until then.
        """
        self._pending[fence] = _Pending(job, report, trusted, settled)
        self._put(fence)

    async def run(self) -> None:
        """Write what comes, until cancelled: at once when idle; while a batch is written, the next one gathers."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                if successes := self._next_successes():
                    await self._write_successes(successes)

    def _next_successes(self) -> dict[Fence, str | None]:
        """One statement's worth of them, with their results. What comes before and is none is written by itself."""
        successes: dict[Fence, str | None] = {}
        size = 0
        while self._waiting and len(successes) < COMMIT_BATCH and size < COMMIT_BYTES:
            fence = self._waiting.popleft()
            pending = self._pending[fence]
            outcome = pending.report.outcome
            if isinstance(outcome, Succeeded) and _is_plain(pending):
                successes[fence] = outcome.result
                size += len(outcome.result or "")
            else:
                self._spawn(self._write_single(fence))
        return successes

    def _put(self, fence: Fence) -> None:
        self._waiting.append(fence)
        self._news.set()

    async def _write_successes(self, results: Mapping[Fence, str | None]) -> None:
        fences = list(results)
        # What could not be written goes alone from then on: the claim may be all that was waited for.
        along = alone if any(self._pending[fence].tries for fence in fences) else self._along
        async with along([self._pending[fence].job for fence in fences]) as claim:
            try:
                failpoint(Failpoint.OUTCOME_TAKEN)
                began = time.monotonic()
                if claim is None:
                    lost = await self._store.complete(results)
                else:
                    lost, claim.answer = await self._store.complete_and_claim(results, claim.wanted)
                self._wrote(began)
            except DatabaseUnavailable as error:
                self._later(fences, error)
                return
            except psycopg.Error as error:
                log.warning("%s successes are written one by one: %s", len(fences), error)
                lost = set(fences)
            except Exception as error:
                # A fault of ours. What was taken from the queue must not be lost with it: nobody else would write it.
                log.exception("%s successes could not be written", len(fences))
                self._later(fences, error)
                return
            for fence in fences:
                if fence in lost:
                    # By itself: one of them is at fault, or our own commit's answer was lost.
                    self._spawn(self._write_single(fence))
                else:
                    self._settled(fence)

    async def _write_single(self, fence: Fence) -> None:
        pending = self._pending[fence]
        async with self._turn(pending):
            try:
                failpoint(Failpoint.OUTCOME_TAKEN)
                began = time.monotonic()
                written = await self._store.finish(fence, pending.report, lock_ms=self._lock_ms())
                self._wrote(began)
                match written:
                    case Finished(status, news):
                        verdict = pending.report.outcome.verdict
                        log.info("job %s %s: %s", fence.id, verdict, status, extra=about(pending.job))
                        if status == "dead" and self._meter is not None:
                            self._meter.died(pending.job.kind)
                        if news is not None:
                            tell(news)
                    case Lost():
                        await self._refused(fence, pending)
            except DatabaseUnavailable as error:
                self._later([fence], error)
                return
            except _REFUSED as error:
                log.exception("job %s: its outcome cannot be stored", fence.id, extra=about(pending.job))
                if pending.unstorable:  # even the plain report was refused: the job is given back by its own name
                    self._settled(fence)
                    return
                pending.report, pending.unstorable = _storable(pending.report, error), True
                self._put(fence)
                return
            except Exception as error:
                log.exception("job %s: its outcome could not be written", fence.id, extra=about(pending.job))
                self._later([fence], error)
                return
        self._settled(fence)

    async def _refused(self, fence: Fence, pending: _Pending) -> None:
        status = await self._store.status(fence)
        # Without trust somebody else may have written it.
        if pending.tries and pending.trusted() and status not in (None, "running"):
            log.info("job %s: its outcome was written before the answer was lost", fence.id, extra=about(pending.job))
        else:
            log.warning(
                "job %s: the outcome %s is refused, its lease was lost",
                fence.id,
                pending.report.outcome.verdict,
                extra=about(pending.job),
            )

    @asynccontextmanager
    async def _turn(self, pending: _Pending) -> AsyncIterator[None]:
        async with AsyncExitStack() as turn:
            if pending.locked:
                await turn.enter_async_context(self._refused_before)
            await turn.enter_async_context(self._singles)
            yield

    def _lock_ms(self) -> int:
        locked = sum(pending.locked for pending in self._pending.values())
        return max(LEAST_LOCK_MS, LOCK_MS // (1 + locked))

    def _later(self, fences: list[Fence], error: Exception) -> None:
        for fence in fences:
            pending = self._pending[fence]
            pending.tries += 1
            pending.locked = isinstance(error, Locked)
            if not pending.trusted() and pending.report.outcome.verdict is not Verdict.LEASE_LOST:
                told = about(pending.job)
                log.error("job %s: its outcome is dropped with the lost lease: %s", fence.id, error, extra=told)
                why = f"its outcome, {pending.report.outcome.verdict}, could not be written while the lease held"
                pending.report = AttemptReport(Returned(Verdict.LEASE_LOST, why), process=pending.report.process)
            if pending.tries == 1:
                waits_for = "a lock that somebody holds" if pending.locked else "the database"
                told = about(pending.job)
                log.warning("job %s: its outcome waits for %s: %s", fence.id, waits_for, error, extra=told)
            delay = min(FIRST_RETRY * 2 ** min(pending.tries, 10), LAST_RETRY)
            asyncio.get_running_loop().call_later(delay, self._put, fence)

    def _wrote(self, began: float) -> None:
        if self._meter is not None:
            self._meter.wrote(time.monotonic() - began)

    def _settled(self, fence: Fence) -> None:
        self._pending.pop(fence).settled()

    def _spawn(self, writing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(writing)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an outcome could not be written: %s", error, exc_info=error)


def _is_plain(pending: _Pending) -> bool:
    """Whether it may be written together with others; one that somebody's lock has refused would spoil the batch."""
    outcome = pending.report.outcome
    if not isinstance(outcome, Succeeded) or pending.locked:
        return False
    return not outcome.completed_in and not pending.report.evidence


def _storable(report: AttemptReport, error: Exception) -> AttemptReport:
    """What is written where the database refuses the report itself: a failure, but never for what is not charged."""
    if not report.outcome.verdict.is_charged:
        return AttemptReport(report.outcome)
    failure = Failed(JobError("OutcomeNotStored", f"{type(error).__name__}: {error}"))
    return AttemptReport(failure, report.evidence, report.process)
