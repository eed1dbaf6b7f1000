"""The writer of outcomes: every attempt's report, once, as soon as the database takes it.

Successes are committed together, as many as are waiting; everything else is written one by one. What cannot be written
is kept and tried again while the lease is trusted. Past that it is dropped: others own the job by then, and the fence
would refuse the write. Only the refunds of a lost lease are still offered; the fence decides about them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from jobs.database import DatabaseUnavailable
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import AttemptReport, Failed, JobError, Succeeded, Verdict
from jobs.store import Fence, Finished, JobStore, Lost

log = logging.getLogger("oomph.outcomes")

COMMIT_BATCH = 500  # successes a statement; larger ones only make each of them wait longer
CONCURRENT_WRITES = 2  # of single reports: one that waits for a lock does not hold up the rest
FIRST_RETRY = 0.1
LAST_RETRY = 2.0


@dataclass(eq=False, slots=True)
class _Pending:
    report: AttemptReport
    trusted: Callable[[], bool]
    settled: Callable[[], None]
    tries: int = 0
    unstorable: bool = False


class OutcomeWriter:
    """One for the life of the process; a report outlives the worker id that it belongs to only as a refund."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._pending: dict[Fence, _Pending] = {}
        self._waiting: deque[Fence] = deque()
        self._news = asyncio.Event()
        self._singles = asyncio.Semaphore(CONCURRENT_WRITES)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def fences(self) -> list[Fence]:
        """The attempts that ended and are not written yet."""
        return list(self._pending)

    def submit(
        self, fence: Fence, report: AttemptReport, trusted: Callable[[], bool], settled: Callable[[], None]
    ) -> None:
        """Take over one report; `trusted()` tells whether its lease still holds.

        `settled()` is called once the report is written, refused or dropped. Bounded by the slots: an attempt keeps
        its slot until then.
        """
        self._pending[fence] = _Pending(report, trusted, settled)
        self._put(fence)

    async def run(self) -> None:
        """Write what comes, until cancelled: at once when idle; while a batch is written, the next one gathers."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                fences = [self._waiting.popleft() for _ in range(min(len(self._waiting), COMMIT_BATCH))]
                plain = [fence for fence in fences if _is_plain(self._pending[fence].report)]
                if len(plain) < len(fences):
                    for fence in fences:
                        if not _is_plain(self._pending[fence].report):
                            self._spawn(self._write_single(fence))
                if plain:
                    await self._write_successes(plain)

    def _put(self, fence: Fence) -> None:
        self._waiting.append(fence)
        self._news.set()

    async def _write_successes(self, fences: list[Fence]) -> None:
        results = {}
        for fence in fences:
            outcome = self._pending[fence].report.outcome
            assert isinstance(outcome, Succeeded)
            results[fence] = outcome.result
        try:
            failpoint(Failpoint.OUTCOME_TAKEN)
            lost = await self._store.complete(results)
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
        async with self._singles:
            try:
                failpoint(Failpoint.OUTCOME_TAKEN)
                match await self._store.finish(fence, pending.report):
                    case Finished(status, paused):
                        log.info("job %s %s: %s", fence.id, pending.report.outcome.verdict, status)
                        if paused:
                            log.critical("job %s paused its kind", fence.id)
                    case Lost():
                        await self._refused(fence, pending)
            except DatabaseUnavailable as error:
                self._later([fence], error)
                return
            except psycopg.Error as error:
                log.exception("job %s: its outcome cannot be stored", fence.id)
                if pending.unstorable:  # even the plain failure was refused: the job is given back by its own name
                    self._settled(fence)
                    return
                failure = Failed(JobError("OutcomeNotStored", f"{type(error).__name__}: {error}"))
                pending.report, pending.unstorable = replace(pending.report, outcome=failure), True
                self._put(fence)
                return
            except Exception as error:
                log.exception("job %s: its outcome could not be written", fence.id)
                self._later([fence], error)
                return
        self._settled(fence)

    async def _refused(self, fence: Fence, pending: _Pending) -> None:
        status = await self._store.status(fence)
        if pending.tries and status not in (None, "running"):
            log.info("job %s: its outcome was written before the answer was lost", fence.id)
        else:
            log.warning(
                "job %s: the outcome %s is refused, its lease was lost", fence.id, pending.report.outcome.verdict
            )

    def _later(self, fences: list[Fence], error: Exception) -> None:
        for fence in fences:
            pending = self._pending[fence]
            pending.tries += 1
            if not pending.trusted() and pending.report.outcome.verdict is not Verdict.LEASE_LOST:
                log.error("job %s: its outcome is dropped with the lost lease: %s", fence.id, error)
                self._settled(fence)
                continue
            if pending.tries == 1:
                log.warning("job %s: its outcome waits for the database: %s", fence.id, error)
            delay = min(FIRST_RETRY * 2 ** min(pending.tries, 10), LAST_RETRY)
            asyncio.get_running_loop().call_later(delay, self._put, fence)

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


def _is_plain(report: AttemptReport) -> bool:
    return isinstance(report.outcome, Succeeded) and not report.outcome.completed_in and not report.evidence
