"""What any worker does for all of them: settle what lost workers left, and free what waits for nothing.

Nothing here is itself a job. Every pass is bounded, skips rows that somebody else holds, and can be run by any number
of workers at once.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors

from jobs.claim import Fence
from jobs.database import Database, Session
from jobs.failpoints import Failpoint, failpoint
from jobs.health import HealthNews, counts_as_loss, lock_health, tell
from jobs.outcome import AttemptReport, Died, JobError, Returned, Verdict
from jobs.store import Finished, JobStore, Lost
from jobs.unavailable import DatabaseUnavailable

log = logging.getLogger("oomph.rescue")

RESCUE_BATCH = 100  # jobs a transaction: short locks even where a worker with a thousand slots was lost
SWEEP_KEYS = 1_000  # concurrency keys a pass: some ms of index probes
BURY_BATCH = 500
BURIED_NAMED = 5  # jobs of a kind in one line of the log
MISSED_SECONDS = 300.0  # for a kind's worker to come back: a rollout, or a host that starts anew, takes less
RESCUE_LOCK_TIMEOUT_MS = 100  # what is locked for longer belongs to an open transaction, and the next pass comes soon
MAX_WAITS_IN_BATCH = 3  # within the bound of a call, however short that is set


class Chores(NamedTuple):
    """What there is to do: jobs of lost workers, blocked jobs, jobs of unknown kinds, rows of workers long lost.

    `running` counts the jobs that run under the asking worker's name, `workers` those whose lease holds.
    """

    lost: bool
    blocked: bool
    unknown: bool
    old: bool
    running: int
    workers: int


class Released(NamedTuple):
    """So many jobs were given back; `trouble` is what kept others from it, None where nothing is left.

    A `psycopg.Error` is one that another try would meet again.
    """

    number: int
    trouble: DatabaseUnavailable | psycopg.Error | None


class Recovery:
    """`unknown_kind_grace`: how long a due job may wait for a live worker that knows its kind.

    After the last worker that knew a kind has gone, its jobs wait for `MISSED_SECONDS` at least.
    `on_rescued` is called with the kind of each lost attempt, `on_dead` with that of each job that is dead now, once
    that is committed.
    """

    def __init__(
        self,
        database: Database,
        store: JobStore,
        *,
        unknown_kind_grace: timedelta,
        on_rescued: Callable[[str], None] = lambda _: None,
        on_dead: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._on_rescued = on_rescued
        self._on_dead = on_dead
        self._store = store
        self._grace = unknown_kind_grace
        self._last_key = ""

    async def chores(self, worker_id: UUID) -> Chores:
        """Which of the passes below have anything to do."""
        rows = await self._database.fetch("chores", worker_id=worker_id)
        return Chores._make(rows[0])

    async def rescue(self, own: Iterable[Fence] = ()) -> int:
        """Mark workers whose lease ran out as lost and put their jobs back or to an end. Returns how many jobs.

        `own` are left alone: attempts whose end the caller is about to write itself, such as a lost lease's refunds.
        """
        for worker_id, host, pid, running in await self._database.fetch("mark_lost"):
            log.error("worker %s (pid %s on %s) is lost with %s running jobs", worker_id, pid, host, running)
            failpoint(Failpoint.LOSS_MARKED)
        settled = 0
        passed_over = [fence.id for fence in own]
        more = True
        while more:
            news: list[HealthNews] = []
            rescued: list[tuple[str, Finished]] = []
            batch, more = await self._rescue_batch(passed_over, news, rescued)
            if batch:
                failpoint(Failpoint.RESCUE_COMMITTED)
            for each in news:
                tell(each)
            for kind, finished in rescued:
                self._on_rescued(kind)
                if finished.status == "dead":
                    self._on_dead(kind)
            settled += batch
        return settled

    async def _rescue_batch(
        self, passed_over: list[int], news: list[HealthNews], rescued: list[tuple[str, Finished]]
    ) -> tuple[int, bool]:
        """Settle one batch; what cannot be settled now joins `passed_over`. Returns how many, and whether to go on.

        What there is to tell, once this has returned and is committed, joins `news`, and the ends `rescued`.
        """
        settled = waits = 0
        async with self._database.transaction() as session:
            await session.fetch("bound_locks", milliseconds=RESCUE_LOCK_TIMEOUT_MS)
            rows = await session.fetch("lost_jobs", limit=RESCUE_BATCH, passed_over=passed_over)
            for kind, lost in groupby(rows, key=itemgetter(2)):
                jobs = list(lost)
                try:
                    async with session.savepoint():
                        await lock_health(session, kind)
                except errors.LockNotAvailable as error:
                    log.info("%s lost jobs of kind %s are left to the next pass: %s", len(jobs), kind, error)
                    passed_over += [row[0] for row in jobs]
                    waits += 1
                    jobs = []
                for row in jobs:
                    if waits >= MAX_WAITS_IN_BATCH:
                        break
                    if finished := await self._settle(session, *row):
                        settled += 1
                        if isinstance(finished, Finished):
                            rescued.append((kind, finished))
                            if finished.news is not None:
                                news.append(finished.news)
                    else:
                        passed_over.append(row[0])
                        waits += 1
                if waits >= MAX_WAITS_IN_BATCH:
                    return settled, True
            if settled:
                failpoint(Failpoint.RESCUE_WRITTEN)
        return settled, len(rows) == RESCUE_BATCH

    async def _settle(
        self,
        session: Session,
        job_id: int,
        claim: int,
        kind: str,
        attempt: int,
        worker_id: UUID | None,
        host: str | None,
    ) -> Finished | Lost | None:
        """None where it could not be settled now."""
        why = f"the lease of worker {worker_id} on {host or 'an unknown host'} ran out while it ran this job"
        report = AttemptReport(
            Died(Verdict.WORKER_LOST, JobError("WorkerLost", why)), {"certainty": "certain", "why": why}
        )
        # The savepoint keeps one job's trouble from the others: a copy of its dedupe key that was queued after our
        # look, or one in a transaction that is still open, for which nobody may wait here.
        try:
            async with session.savepoint():
                counts = await counts_as_loss(session, worker_id, kind)
                return await self._store.finish_in(session, Fence(job_id, claim), report, counts=counts)
        except (errors.UniqueViolation, errors.LockNotAvailable) as error:
            told = {"job_id": job_id, "attempt": attempt}
            log.info("job %s of lost worker %s is left to the next pass: %s", job_id, worker_id, error, extra=told)
            return None

    async def release_unknown(self, worker_id: UUID, known: Sequence[Fence]) -> Released:
        """Give back, uncharged, what a claim of this worker took although its answer never arrived.

        `known` must be complete: no claim of this worker may be on its way. Each of them is given back by itself,
        whatever becomes of the others.
        """
        number, waits = 0, 0
        trouble: DatabaseUnavailable | psycopg.Error | None = None
        try:
            fences = await self._store.unknown_claims(worker_id, known)
        except DatabaseUnavailable as error:
            return Released(0, error)
        random.shuffle(fences)  # or the same that somebody holds would always come first
        for fence in fences:
            failpoint(Failpoint.UNKNOWN_FOUND)
            why = "the answer to its claim was lost, so it never started"
            report = AttemptReport(Returned(Verdict.RELEASED, why))
            try:
                written = await self._store.finish(fence, report, lock_ms=RESCUE_LOCK_TIMEOUT_MS)
            except DatabaseUnavailable as error:
                trouble, waits = error, waits + 1
                if waits == MAX_WAITS_IN_BATCH:
                    break
            except psycopg.Error as error:
                trouble = trouble or error  # what can be tried again comes first
            else:
                number += isinstance(written, Finished)
        return Released(number, trouble)

    async def sweep_blocked(self) -> int:
        """Let jobs go that wait behind a concurrency key which no running job holds. Returns how many."""
        rows = await self._database.fetch("sweep_blocked", after=self._last_key, limit=SWEEP_KEYS)
        last, freed, _ = rows[0]
        self._last_key = last or ""
        return int(freed)

    async def bury_unknown(self) -> int:
        """End due jobs whose kind no live worker knows, and none is expected to. Returns how many."""
        grace = self._grace
        rows = await self._database.fetch(
            "bury_unknown", grace=grace, missed=max(grace, timedelta(seconds=MISSED_SECONDS)), limit=BURY_BATCH
        )
        for kind, group in groupby(sorted(rows, key=itemgetter(1, 0)), key=itemgetter(1)):
            buried = list(group)
            self._tell_buried(kind, [row[0] for row in buried], gone=buried[0][2])
            for _ in buried:
                self._on_dead(kind)
        return len(rows)

    def _tell_buried(self, kind: str, ids: Sequence[int], gone: float | None) -> None:
        """`gone` is for how many seconds the last worker that knew the kind has been gone; None: none ever did."""
        if gone is None:
            why = "and none ever did. Start one whose app has a handler for it, or enqueue by its right name"
            wait = "Where services name kinds before any worker knows them"
        else:
            why = f"and the last one that did has been gone for {gone / 60:.0f} minutes. Start one"
            wait = "Where that was too soon"
        log.error(
            "%s dead: no live worker knows the kind %s, %s, then `oomph jobs retry %s --actor NAME`%s. %s, set "
            "WORKER_UNKNOWN_KIND_GRACE_SECONDS (here %g) on every worker of this database",
            f"job {ids[0]} is" if len(ids) == 1 else f"{len(ids)} jobs are",
            kind,
            why,
            " ".join(map(str, ids[:BURIED_NAMED])),
            f"; `oomph jobs list --status dead --kind {kind}` lists them all" if len(ids) > BURIED_NAMED else "",
            wait,
            self._grace.total_seconds(),
            extra={"job_id": ids[0]} if len(ids) == 1 else None,
        )

    async def forget_workers(self) -> None:
        """Remove rows of workers that were lost more than a day ago."""
        await self._database.fetch("forget_workers")
