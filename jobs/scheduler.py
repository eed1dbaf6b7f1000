"""Schedules in the database: what fires an occurrence, once, however many workers tick.

Each schedule is ticked in a transaction of its own, so that one which this worker cannot evaluate, or the database does
not take, keeps no other from being fired. It is told once and tried again at times: another worker may have fired it,
or a newer declaration mended it.
"""

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from jobs.app import App, Misfire, Overlap, Schedule, Tick
from jobs.database import Database, Session
from jobs.failpoints import Failpoint, failpoint
from jobs.schedule import due, grid
from jobs.task import Pool
from jobs.unavailable import DatabaseUnavailable, Locked

log = logging.getLogger("oomph.schedules")

ASIDE_SECONDS = 10.0  # until a schedule that failed is tried again; late for its next occurrence by so much at most


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
        self._app = name
        self._aside: dict[str, float] = {}  # those that failed, and when by the monotonic clock they are tried again
        self._told: dict[str, str] = {}  # of these, what was told

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
        """Fire what is due; return the pools that have a job now. Raises `DatabaseUnavailable`."""
        fired: set[Pool] = set()
        if names := self._names():
            for (name,) in await self._database.fetch("due_schedules", names=names):
                fired |= await self._tick_alone(name)
        if fired:
            failpoint(Failpoint.TICK_COMMITTED)
        return fired

    async def seconds_to_next(self) -> float | None:
        """Seconds until a schedule of this app is due; None where none is waited for."""
        if not (names := self._names()):
            return None
        rows = await self._database.fetch("next_schedule", names=names)
        return None if rows[0][0] is None else float(rows[0][0])

    def _names(self) -> list[str]:
        now = time.monotonic()
        return [name for name in self._schedules if self._aside.get(name, now) <= now]

    async def _tick_alone(self, name: str) -> set[Pool]:
        """One schedule, of which nothing but an outage concerns the others."""
        try:
            async with self._database.transaction() as session:
                rows = await session.fetch("take_schedule", name=name)
                fired = await self._tick_one(session, _Waiting(*rows[0])) if rows else set()
        except Locked as error:
            self._put_aside(name, error)
            return set()
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  (what a later release or a hand may write there has no bound)
            self._put_aside(name, error)
            return set()
        if rows:
            self._aside.pop(name, None)
            if self._told.pop(name, None) is not None:
                log.info("schedule %s: works again", name)
        return fired

    def _put_aside(self, name: str, error: Exception) -> None:
        self._aside[name] = time.monotonic() + ASIDE_SECONDS
        why = f"{type(error).__name__}: {str(error).strip()}"
        if self._told.get(name) != why:
            self._told[name] = why
            log.error(
                "schedule %s cannot be fired by this worker and is left to others, which may be newer; all other "
                "schedules go on, and it is tried again every %g s: %s",
                name,
                ASIDE_SECONDS,
                why,
            )

    async def _tick_one(self, session: Session, row: _Waiting) -> set[Pool]:
        name, overlap = row.name, Overlap(row.overlap)
        points = grid(row.every, row.cron, row.timezone)
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
