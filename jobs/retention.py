"""What has been finished for long enough goes: jobs with their attempts, notices, the audit.

One worker of a database walks over the jobs, by their primary key, in laps:

    start         position                                      all younger than the shortest time
    |--- walked ---|-- a step: some ids, one transaction --|--- ... ---|  the lap ends, the next begins after a pause
    ^ the first job that the lap before has kept

A step removes a bounded number of rows, waits for no lock, and takes less of the database's time than the pause after
it: claims and autovacuum keep their pace. Where the walk stands is kept in the database, so any worker goes on with it.
Nothing here is itself a job.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from psycopg import errors

from jobs.database import Database, Session
from jobs.task import Retention

log = logging.getLogger("oomph.retention")

LAP_SECONDS = 300.0  # between two laps; what is kept for days need not go within the minute
HOLD = timedelta(seconds=3 * LAP_SECONDS)  # after a step; the walk of a worker that is gone is taken over then
MAX_ROWS = 2_000  # a step: some tens of milliseconds
MIN_ROWS = 50
MAX_SPAN = 1 << 24  # ids a step: few rows, far apart, are found fast, and index entries of removed ones not in masses
MAX_ID = (1 << 63) - 1
STEP_SECONDS = 0.1  # what a step is made to fit in
STEP_TIMEOUT_MS = 2_000  # of one that did not: it is undone, and tried again with fewer rows
REST = 4  # times what a step took, until the next: the walk keeps one connection busy for a fifth of the time
KEPT_ATTEMPTS = 1_000  # of one job, the newest
RECORDS = 1_000  # of notices and of the audit, a lap


@dataclass(frozen=True, slots=True)
class Step:
    """What one step has seen and removed, and whether its lap has ended."""

    seen: int
    removed: int
    ended: bool
    jobs: Mapping[str, int] = field(default_factory=dict, compare=False)  # that were removed, by how they had ended
    records: Mapping[str, int] = field(default_factory=dict, compare=False)  # that were removed besides, by their table


def _tell_nobody(step: Step) -> None: ...


class RetentionWalk:
    """One worker's part in the walk.

    `retention` holds for jobs whose kind does not declare its own, `records` for notices and the audit; zero is for
    ever. `on_step` is told of each step, once it is committed.
    """

    def __init__(
        self,
        database: Database,
        retention: Retention,
        *,
        records: timedelta,
        on_step: Callable[[Step], None] = _tell_nobody,
    ) -> None:
        self._database = database
        self._on_step = on_step
        self._retention = retention
        self._records = records
        self._rows = MAX_ROWS
        self._span = MAX_ROWS
        self._removed = 0  # in this lap, by this worker

    async def run_once(self, worker_id: UUID) -> float:
        """A step, if the walk is this worker's. Returns the seconds until the next; raises `DatabaseUnavailable`."""
        began = time.monotonic()
        step = await self.step(worker_id)
        took = time.monotonic() - began
        if step is None:
            return LAP_SECONDS
        self._on_step(step)
        self._fit(step, took)
        self._removed += step.removed
        if not step.ended:
            return REST * took
        if self._removed:
            log.info("%s finished jobs were removed, as old as their retention says", self._removed)
        self._removed = 0
        return LAP_SECONDS

    async def step(self, worker_id: UUID) -> Step | None:
        """Look at the next jobs and remove what is old enough; None where another worker has the walk."""
        async with self._database.transaction() as session:
            held = await session.fetch("take_retention", worker_id=worker_id, hold=HOLD)
            if not held:
                return None
            position, lowest, start, is_whole_due = held[0]
            span = min(self._span, MAX_ID - position)
            await session.fetch("by_index", milliseconds=STEP_TIMEOUT_MS)
            try:
                async with session.savepoint():
                    found = await session.fetch(
                        "remove_jobs",
                        after=position,
                        span=span,
                        limit=self._rows,
                        succeeded=self._retention.succeeded,
                        dead=self._retention.dead,
                        cancelled=self._retention.cancelled,
                    )
            except errors.QueryCanceled:
                return Step(0, 0, ended=False)  # `_fit` asks for less
            seen, removed, last, kept, are_young, newest = found[0]
            records = Counter[str]()
            to = last if seen == self._rows else position + span
            trimmed = await session.fetch("trim_attempts", after=position, to=to, keep=KEPT_ATTEMPTS, limit=MAX_ROWS)
            records["background_attempts"] += trimmed[0][0]
            lowest = kept if lowest is None else lowest
            ended = newest is None or to >= newest or are_young
            if ended:
                records += await self._remove_records(session)
                # At times from the very first id: rows may have come to lie below, as after a TRUNCATE of the table.
                start = 0 if is_whole_due else max(0, start if lowest is None else lowest - 1)
                to, lowest = start, None
            await session.fetch(
                "mark_retention",
                position=to,
                lowest=lowest,
                start=start,
                removed=len(removed),
                whole=ended and is_whole_due,
            )
            return Step(seen, len(removed), ended, Counter(removed), records)

    async def _remove_records(self, session: Session) -> Counter[str]:
        removed = Counter[str]()
        if self._records:
            for table, query in (("background_notices", "remove_notices"), ("background_audit", "remove_audit")):
                removed[table] += len(await session.fetch(query, keep=self._records, limit=RECORDS))
        return removed

    def _fit(self, step: Step, took: float) -> None:
        if step.seen:
            self._span = min(self._span, MAX_SPAN)
        if took > STEP_SECONDS:
            self._rows = max(MIN_ROWS, self._rows // 2)
            self._span = max(MIN_ROWS, self._span // 2)
        elif took < STEP_SECONDS / 2:
            self._rows = min(MAX_ROWS, self._rows * 2)
            if step.seen < self._rows // 2:
                # Where no row is at all, the sequence may have been set far ahead: such a gap is crossed in leaps.
                self._span = min(MAX_SPAN if step.seen else MAX_ID, self._span * 2)
