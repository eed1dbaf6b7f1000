"""Schedules in the database: what fires an occurrence, once, however many workers tick."""

import logging
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobs.app import App, Misfire, Overlap, Schedule, Tick
from jobs.database import Database, Session
from jobs.failpoints import Failpoint, failpoint
from jobs.schedule import due, grid
from jobs.task import Pool

log = logging.getLogger("oomph.schedules")


class _Waiting(NamedTuple):
    """A schedule that is due, as its row says: the newest declaration holds, also for a worker that started earlier."""

    name: str
    every: timedelta | None
    cron: str | None
    timezone: str | None
    misfire: str
    overlap: str
    grace: timedelta
    next_occurrence: datetime
    at: datetime  # by the database's clock
    active: bool


class Scheduler:
    """Ticks the schedules of `app`; `name` is the app's own name, which owns their rows."""

    def __init__(self, database: Database, app: App, *, name: str) -> None:
        self._database = database
        self._schedules = app.schedules
        self._ticked = set(app.schedules)
        self._app = name

    async def sync(self) -> None:
        """Write new and changed schedules, remove those that this app no longer declares."""
        async with self._database.transaction() as session:
            now: datetime = (await session.fetch("clock"))[0][0]
            rows = await session.fetch("remove_schedules", app=self._app, names=list(self._schedules))
            for name, cancelled, workers in rows:
                log.info("schedule %s was removed; %s queued jobs cancelled", name, cancelled)
                if workers:
                    log.warning(
                        "%s live workers know the kind of schedule %s: if one of them declares it, it has ended there "
                        "too, until such a worker starts again; give all workers of an app the same settings",
                        workers,
                        name,
                    )
            for name, other in await session.fetch("schedules_of_others", app=self._app, names=list(self._schedules)):
                log.warning(
                    "schedule %s was of the app %s, and is of %s from now on: if both have workers, each point fires "
                    "the task of whichever comes first; give one of the two another name",
                    name,
                    other,
                    self._app,
                )
            for schedule in sorted(self._schedules.values(), key=lambda schedule: schedule.name):
                await session.fetch(
                    "sync_schedule",
                    name=schedule.name,
                    app=self._app,
                    kind=schedule.task.kind,
                    every=schedule.every,
                    misfire=str(schedule.misfire),
                    overlap=str(schedule.overlap),
                    grace=schedule.grace,
                    cron=schedule.cron,
                    timezone=schedule.timezone,
                    next_occurrence=grid(schedule.every, schedule.cron, schedule.timezone).next_after(now),
                )
        failpoint(Failpoint.SCHEDULES_SYNCED)

    async def tick(self) -> set[Pool]:
        """Fire what is due; return the pools that have a job now."""
        if not self._ticked:
            return set()
        fired: set[Pool] = set()
        async with self._database.transaction() as session:
            for row in await session.fetch("due_schedules", names=list(self._ticked)):
                fired |= await self._tick_one(session, _Waiting(*row))
        if fired:
            failpoint(Failpoint.TICK_COMMITTED)
        return fired

    async def _tick_one(self, session: Session, row: _Waiting) -> set[Pool]:
        name, overlap = row.name, Overlap(row.overlap)
        try:
            points = grid(row.every, row.cron, row.timezone)
        except ValueError as error:
            log.error("schedule %s, as a worker that started later declares it, is left to others: %s", name, error)
            self._ticked.discard(name)
            return set()
        plan = due(row.next_occurrence, row.at, grid=points, misfire=Misfire(row.misfire), grace=row.grace)
        if plan.missed:
            log.warning("schedule %s: %s occurrences passed while nothing ticked", name, plan.missed)
        fired: set[Pool] = set()
        occurrence = plan.fire
        if occurrence is not None and row.active and overlap is Overlap.SKIP:
            log.info("schedule %s: %s skipped, an earlier occurrence is not finished", name, occurrence)
            occurrence = None
        if occurrence is not None:
            fired = await self._fire(session, self._schedules[name], occurrence, overlap)
            failpoint(Failpoint.OCCURRENCE_FIRED)
        await session.fetch("advance_schedule", name=name, next_occurrence=plan.next_occurrence, fired=occurrence)
        return fired

    async def seconds_to_next(self) -> float | None:
        """Seconds until a schedule of this app is due; None without schedules."""
        if not self._ticked:
            return None
        rows = await self._database.fetch("next_schedule", names=list(self._ticked))
        return None if rows[0][0] is None else float(rows[0][0])

    async def _fire(self, session: Session, schedule: Schedule, occurrence: datetime, overlap: Overlap) -> set[Pool]:
        task = schedule.task
        rows = await session.fetch(
            "fire_schedule",
            name=schedule.name,
            kind=task.kind,
            pool=str(task.pool),
            priority=int(task.priority),
            max_attempts=task.max_attempts,
            timeout=task.timeout,
            payload=Tick(schedule=schedule.name, occurrence=occurrence.astimezone(UTC)).model_dump_json(),
            occurrence=occurrence,
            concurrency_key=f"schedule:{schedule.name}" if overlap is Overlap.QUEUE else None,
        )
        return {task.pool} if rows else set()
