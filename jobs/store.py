"""What a worker does with the table of jobs: claim, finish, publish progress.

A lost lease is a value here, never an exception: the writes of a claim that is no longer the newest match no row, and
the caller is told which. `DatabaseUnavailable` is the one exception that means "ask again".
"""

import logging
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from psycopg import errors

from jobs.app import App
from jobs.arrays import numbers, texts
from jobs.backoff import backoff
from jobs.claim import Claim, ClaimedJob, Fence, Look, Stop, Waiting, Wanted
from jobs.connection import Row
from jobs.database import LOCK_TIMEOUT_MS, Database, Session, json_or_none
from jobs.declarations import publish
from jobs.failpoints import Failpoint, failpoint
from jobs.health import HealthNews, judge
from jobs.lane import Call
from jobs.notices import NOTICE_KINDS
from jobs.outcome import (
    MAX_OUTPUT_TAIL_BYTES,
    AttemptReport,
    Cancelled,
    Died,
    Failed,
    JobError,
    Returned,
    Snoozed,
    Succeeded,
    Verdict,
    clip,
    storable,
)
from jobs.unavailable import DatabaseUnavailable, Locked

log = logging.getLogger("oomph.store")


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt's end was written. `status` is the job's new one, `news` what it did to its kind."""

    status: str
    news: HealthNews | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The claim is no longer the newest: nothing was written."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a report changes the job's row."""

    name: str  # retry, bury, return or cancel
    delay: timedelta = timedelta(0)
    error: JobError | None = None


class JobStore:
    """Claims and outcomes of one worker process.

    `retry_delay` is the first back-off in seconds, `pause_after` the number of kills in a row that pause a kind. With
    `traced` what is claimed comes with its trace, for one question more a claim.
    """

    def __init__(self, database: Database, *, retry_delay: float, pause_after: int, traced: bool = False) -> None:
        self._database = database
        self._traced = traced
        self._retry_delay = retry_delay
        self._pause_after = pause_after

    async def register(
        self, worker_id: UUID, *, host: str, pid: int, version: str, pools: Sequence[str], app: App, lease: timedelta
    ) -> None:
        """Make this worker known, with a lease from now on, and publish its kinds' declarations.

        Every worker vouches for the kinds that bring notices, whether it has a mail server or not: a job of those waits
        for one that has, and is not buried meanwhile.
        """
        tasks = sorted((handler.task for handler in app.handlers.values()), key=lambda task: task.kind)
        async with self._database.transaction() as session:
            await publish(session, tasks)
            await session.fetch(
                "register",
                worker_id=worker_id,
                host=host,
                pid=pid,
                version=version,
                pools=list(pools),
                kinds=sorted({*app.handlers, *NOTICE_KINDS}),
                lease=lease,
            )

    async def deregister(self, worker_id: UUID) -> None:
        """Take this worker's row away; it stays while a job is still running under it, so that others rescue it."""
        await self._database.fetch("deregister", worker_id=worker_id)

    async def claim(self, wanted: Wanted) -> Claim:
        """Take what is wanted and due."""
        try:
            (rows,) = await self._database.claims.fetch_together(wanted.call)
        except errors.UniqueViolation:
            # The backstop of invariant 5: somebody set a job of the same concurrency key to running by hand, or the
            # database's own isolation level hides what other claims did. They made progress, so asking again does too.
            return Claim([], parked=1)
        return await self._claim(rows)

    async def complete_and_claim(
        self, successes: Mapping[Fence, str | None], wanted: Wanted
    ) -> tuple[set[Fence], Claim]:
        """`complete` and then `claim`, all or nothing: the disk is waited for once."""
        try:
            refused, rows = await self._database.claims.fetch_together(_completion(successes), wanted.call)
        except (Locked, errors.UniqueViolation):
            return set(successes), Claim([], parked=1)
        failpoint(Failpoint.SUCCESSES_COMMITTED)
        return {Fence._make(row) for row in refused}, await self._claim(rows)

    async def _claim(self, rows: Sequence[Row]) -> Claim:
        jobs = [_claimed(row) for row in rows if row[1] is not None]
        stopped: tuple[Stop, ...] = ()
        if len(jobs) < len(rows):
            stopped = tuple(Stop(row[3], row[11], row[9]) for row in rows if row[1] is None and row[9] is not None)
        return Claim(await self._with_traces(jobs), parked=max(map(_first, rows), default=0), stops=stopped)

    async def claim_probe(self, worker_id: UUID, pool: str, kinds: Sequence[str]) -> list[ClaimedJob]:
        """Take the one job that a paused kind may run as its probe, if one was asked for."""
        try:
            rows = await self._database.fetch("claim_probe", worker_id=worker_id, pool=pool, kinds=list(kinds))
        except errors.UniqueViolation:
            return []
        return await self._with_traces([_claimed(row) for row in rows])

    async def _with_traces(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        if not self._traced or not jobs:
            return jobs
        try:
            found: dict[int, str] = dict(
                await self._database.claims.fetch("trace_contexts", ids=numbers(job.id for job in jobs))
            )
        except DatabaseUnavailable as error:  # they are ours already, and worth more than their traces
            log.warning("%s jobs begin a trace of their own, because theirs could not be read: %s", len(jobs), error)
            return jobs
        return [job._replace(trace_context=found.get(job.id)) for job in jobs]

    async def look(self, kinds: Sequence[str], reach: float = math.inf) -> Look:
        """What waits of these kinds, and has been due for `reach` seconds at most, without taking any of it."""
        *waiting, (*_, walked) = await self._database.fetch("look", kinds=list(kinds), reach=reach)
        return Look([Waiting(kind, due_in, probe) for kind, due_in, probe, _ in waiting], walked)

    async def complete(self, successes: Mapping[Fence, str | None]) -> set[Fence]:
        """Write many successes (JSON results), all or nothing. Returns the fences that `finish` has to decide about.

        Those are the lost ones, and successes that change their kind's health; all, where somebody holds a row's lock.
        """
        try:
            (refused,) = await self._database.outcomes.fetch_together(_completion(successes))
        except Locked:
            return set(successes)
        failpoint(Failpoint.SUCCESSES_COMMITTED)
        return {Fence._make(row) for row in refused}

    async def finish(self, fence: Fence, report: AttemptReport, *, lock_ms: int = LOCK_TIMEOUT_MS) -> Finished | Lost:
        """Write how one attempt ended: job, attempt, streak and perhaps the kind's pause, all or nothing.

        Raises `Locked` where it would have to wait for longer than `lock_ms` for a lock.
        """
        while True:
            try:
                async with self._database.transaction(lock_ms=lock_ms) as session:
                    written = await self.finish_in(session, fence, report)
                    failpoint(Failpoint.OUTCOME_WRITTEN)
                failpoint(Failpoint.OUTCOME_COMMITTED)
                return written
            except errors.UniqueViolation:
                # A copy with the same dedupe key was queued after our look at the queue. The next look sees it.
                continue

    async def finish_in(
        self, session: Session, fence: Fence, report: AttemptReport, *, counts: bool = True
    ) -> Finished | Lost:
        """`finish` inside a transaction of the caller's. `counts` is false where the kill was counted already."""
        if isinstance(report.outcome, Succeeded):
            return await self._succeed_in(session, fence, report)
        verdict = report.outcome.verdict
        ending = self._ending(report, attempt=1)
        known = await session.fetch("job_by_fence", id=fence.id, claim=fence.claim)
        if known:
            ending = self._ending(report, attempt=known[0][1])
        rows = await session.fetch(
            "finish",
            id=fence.id,
            claim=fence.claim,
            ending=ending.name,
            refund=not verdict.is_charged,
            delay=ending.delay,
            error=json_or_none(asdict(ending.error) if ending.error else None),
        )
        if not rows:
            return Lost()
        status, kind, _pool, attempt, generation, worker_id, started_at, *_ = rows[0]
        await self._record(session, fence, report, attempt, kind, worker_id, started_at, counts)
        news = await judge(
            session, kind, verdict, self._pause_after, job_id=fence.id, generation=generation, counts=counts
        )
        return Finished(status, news)

    async def _succeed_in(self, session: Session, fence: Fence, report: AttemptReport) -> Finished | Lost:
        assert isinstance(report.outcome, Succeeded)
        if not report.outcome.completed_in:
            rows = await session.fetch(
                "complete", ids=[fence.id], claims=[fence.claim], results=[report.outcome.result]
            )
            if not rows:
                return Lost()
        known = await session.fetch("job_by_fence", id=fence.id, claim=fence.claim)
        if not known:
            return Lost()
        status, attempt, kind, generation, worker_id, started_at = known[0]
        if status == "running":  # the handler's own transaction did not commit
            error = JobError(
                "TransactionNotCommitted",
                "the handler called complete_in and returned, but its transaction did not commit",
            )
            return await self.finish_in(session, fence, AttemptReport(Failed(error), report.evidence, report.process))
        if status != "succeeded":
            return Lost()
        if report.evidence:
            await self._record(session, fence, report, attempt, kind, worker_id, started_at, counts=True)
        news = await judge(session, kind, Verdict.SUCCEEDED, self._pause_after, job_id=fence.id, generation=generation)
        return Finished(status, news)

    async def status(self, fence: Fence) -> str | None:
        """The job's status, if this is still its newest claim."""
        rows = await self._database.fetch("job_by_fence", id=fence.id, claim=fence.claim)
        return str(rows[0][0]) if rows else None

    async def progress(self, news: Mapping[Fence, tuple[float, str]]) -> set[Fence]:
        """Publish `(fraction, note)` of running jobs. Returns the fences that it did not write: lost, ended or held."""
        rows = await self._database.fetch(
            "progress",
            ids=[fence.id for fence in news],
            claims=[fence.claim for fence in news],
            fractions=[fraction for fraction, _ in news.values()],
            notes=[storable(note) for _, note in news.values()],
        )
        return set(news) - {Fence(*row) for row in rows}

    async def statuses(self, fences: Collection[Fence]) -> dict[Fence, str]:
        """The status of each job of which this is still the newest claim."""
        ids, claims = [fence.id for fence in fences], [fence.claim for fence in fences]
        rows = await self._database.fetch("statuses", ids=ids, claims=claims)
        return {Fence(job_id, claim): status for job_id, claim, status in rows}

    async def cancels(self, worker_id: UUID) -> list[Fence]:
        """The running jobs of this worker that an operator wants cancelled."""
        return [Fence(*row) for row in await self._database.fetch("cancels", worker_id=worker_id)]

    async def paused(self, jobs: Sequence[ClaimedJob]) -> set[int]:
        """The ids of those whose kind is paused by now, and which are not its probe."""
        ids, kinds = [job.id for job in jobs], [job.kind for job in jobs]
        return {row[0] for row in await self._database.fetch("paused_jobs", ids=ids, kinds=kinds)}

    async def unknown_claims(self, worker_id: UUID, known: Iterable[Fence]) -> list[Fence]:
        """Jobs that run under this worker's name although it knows nothing of them: a claim's answer was lost."""
        fences = list(known)
        rows = await self._database.fetch(
            "unknown_claims",
            worker_id=worker_id,
            ids=[fence.id for fence in fences],
            claims=[fence.claim for fence in fences],
        )
        return [Fence(*row) for row in rows]

    def _ending(self, report: AttemptReport, attempt: int) -> Ending:
        retry = backoff(attempt, self._retry_delay, random.random())
        match report.outcome:
            case Failed(error, permanent=True):
                return Ending("bury", error=error)
            case Failed(error) | Died(_, error):
                return Ending("retry", retry, error)
            case Snoozed(delay) | Returned(_, _, delay):
                return Ending("return", delay)
            case Cancelled():
                return Ending("cancel")
            case Succeeded():
                raise AssertionError("a success is completed, not ended")

    async def _record(
        self,
        session: Session,
        fence: Fence,
        report: AttemptReport,
        attempt: int,
        kind: str,
        worker_id: UUID | None,
        started_at: Any,
        counts: bool,
    ) -> None:
        verdict, process = report.outcome.verdict, report.process
        error = report.outcome.error if isinstance(report.outcome, Failed | Died) else None
        evidence = dict(report.evidence)
        if isinstance(report.outcome, Returned):
            evidence.setdefault("why", report.outcome.why)
        await session.fetch(
            "record_attempt",
            id=fence.id,
            claim=fence.claim,
            attempt=attempt,
            kind=kind,
            worker_id=worker_id,
            pid=process.pid,
            started_at=started_at,
            verdict=str(verdict),
            evidence=json_or_none(evidence),
            charged=verdict.is_charged,
            is_kill=verdict.is_kill and counts,
            signal=None if process.signal is None else storable(process.signal),
            exit_code=process.exit_code,
            peak_memory_mb=process.peak_memory_mb,
            memory_limit_mb=process.memory_limit_mb,
            cpu_seconds=process.cpu_seconds,
            error=json_or_none(asdict(error) if error else None),
            output_tail=clip(process.output_tail, MAX_OUTPUT_TAIL_BYTES) or None,
        )


def _completion(successes: Mapping[Fence, str | None]) -> Call:
    # In order: two statements that change many running jobs never wait in a circle.
    fences = sorted(successes)
    results = [successes[fence] for fence in fences]
    return "complete_many", {
        "ids": numbers([fence.id for fence in fences]),
        "claims": numbers([fence.claim for fence in fences]),
        "results": texts(results) if any(results) else None,
    }


_first = itemgetter(0)


def _claimed(row: Sequence[Any]) -> ClaimedJob:
    return ClaimedJob._make((*row[1:], None))
