"""The attempts that run right now: each from its claim, through its pool, to its settled outcome.

An attempt keeps its slot until its report is settled and nothing of it lingers, so slots in use are what is really
running, and a slow database slows the claims down instead of filling the memory.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping

from jobs.app import App
from jobs.database import DatabaseUnavailable
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import AttemptReport, Failed, JobError, Returned, Verdict
from jobs.store import ClaimedJob, Fence, JobStore
from jobs.task import Pool
from pools.errors import describe
from pools.execution import Execution, Intent, JobPool
from supervisor.outcomes import OutcomeWriter

log = logging.getLogger("oomph.attempts")

_PLACE = re.compile(r'File "(.+)", line (\d+), in (.+)')

PROGRESS_SECONDS = 1.0  # how often progress is written: a bar moves, and a thousand jobs still cost one statement


class Attempts:
    """`slots` are the attempts a pool may run at once; `on_slot(pool)` is called when one is free again."""

    def __init__(
        self,
        app: App,
        store: JobStore,
        outcomes: OutcomeWriter,
        pools: Mapping[Pool, JobPool],
        slots: Mapping[Pool, int],
        on_slot: Callable[[Pool], None],
    ) -> None:
        self._app = app
        self._store = store
        self._outcomes = outcomes
        self._pools = pools
        self._slots = dict(slots)
        self._on_slot = on_slot
        self._running: dict[Fence, Execution] = {}
        self._progress: dict[Fence, tuple[float, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_use = dict.fromkeys(pools, 0)

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

    def start(self, job: ClaimedJob, trusted: Callable[[], bool]) -> None:
        """Run one claimed job. Its slot must be free."""
        pool = Pool(job.pool)
        assert self._in_use[pool] < self._slots[pool], "claimed more than the free slots"
        execution = Execution(job, self._app.handlers[job.kind], lambda *news: self._publish(job.fence, news))
        self._running[job.fence] = execution
        self._in_use[pool] += 1
        task = asyncio.create_task(self._run(execution, pool, trusted), name=f"job {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def give_back(self, job: ClaimedJob, trusted: Callable[[], bool], verdict: Verdict, why: str) -> None:
        """Return a claimed job that was never started, uncharged."""
        self._outcomes.submit(job.fence, AttemptReport(Returned(verdict, why)), trusted)

    def stop_all(self, intent: Intent) -> None:
        """Ask every running attempt to end."""
        for execution in self._running.values():
            execution.stop(intent)

    def cancel(self, fences: Iterable[Fence]) -> None:
        """End the attempts that an operator wants cancelled."""
        for fence in fences:
            if (execution := self._running.get(fence)) is not None:
                log.info("job %s is cancelled by an operator", fence.id)
                execution.stop(Intent.CANCEL)

    async def wait_ended(self, seconds: float) -> bool:
        """Wait until every claim that this process knows of is settled, `seconds` at most. Returns whether.

        What lingers is not waited for: it was reported, and nothing here can end it.
        """
        try:
            async with asyncio.timeout(max(seconds, 0)):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._outcomes.all_settled()
        except TimeoutError:
            return False
        return True

    async def flush_progress(self) -> float:
        """Write the newest progress of each attempt; end those whose lease turns out to be lost."""
        news, self._progress = self._progress, {}
        if news:
            try:
                lost = await self._store.progress(news)
            except DatabaseUnavailable:
                self._progress = news | self._progress
                raise
            for fence in lost:
                if (execution := self._running.get(fence)) is not None:
                    log.warning("job %s: its progress is refused, its lease was lost", fence.id)
                    execution.stop(Intent.LEASE_LOST)
        return PROGRESS_SECONDS

    def _publish(self, fence: Fence, news: tuple[float, str]) -> None:
        if fence in self._running:
            self._progress[fence] = news

    async def _run(self, execution: Execution, pool: Pool, trusted: Callable[[], bool]) -> None:
        job = execution.job
        try:
            report = await self._pools[pool].run(execution)
            failpoint(Failpoint.REPORTED)
        except asyncio.CancelledError:
            # Nobody here cancels this task: a handler has cancelled what is not its own.
            log.exception("job %s: its attempt was cancelled from within the worker", job.id)
            report = AttemptReport(Returned(Verdict.RELEASED, "a handler cancelled the tasks of the worker"))
        except Exception as error:
            # A pool never raises for what a job does, so this is a fault of ours; the job must not hang on it.
            log.exception("job %s: its pool failed", job.id)
            report = AttemptReport(Failed(describe(error)))
        if isinstance(report.outcome, Failed) and report.outcome.error.message:
            _log_failure(job, report.outcome.error)
        del self._running[job.fence]
        self._progress.pop(job.fence, None)
        self._outcomes.submit(job.fence, report, trusted)
        await self._outcomes.settled(job.fence)
        if execution.lingering is None:
            self._free(pool)
        else:
            execution.lingering.add_done_callback(lambda _: self._free(pool))

    def _free(self, pool: Pool) -> None:
        self._in_use[pool] -= 1
        self._on_slot(pool)


def _log_failure(job: ClaimedJob, error: JobError) -> None:
    places = _PLACE.findall(error.frames)
    where = " at {}:{} in {}".format(*places[-1]) if places else ""
    told = f"{error.type}: {error.message}{where}"
    log.warning("job %s (%s) attempt %s of %s failed: %s", job.id, job.kind, job.attempt, job.max_attempts, told)
