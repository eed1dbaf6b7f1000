"""What a worker publishes of its kinds, also while somebody holds their rows."""

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from jobs import Tick
from jobs.app import App, Handler, Schedule
from jobs.control import pause
from jobs.database import Database
from jobs.scheduler import Scheduler
from jobs.store import JobStore
from jobs.task import Pool, Task
from tests.jobs.lab import LETTER, NOTE, PARCEL, Connection, Note, hire, scalar

TICKED = Task(kind="ticked", payload_type=Tick, pool=Pool.SYSTEM)


async def tick(payload: Tick) -> None: ...


def published(db: Connection, kind: str) -> int:
    return int(scalar(db, "SELECT max_attempts FROM background_kinds WHERE kind = %s", kind))


def changed(task: Task[Note]) -> Task[Note]:
    return replace(task, max_attempts=task.max_attempts + 1)


async def test_an_unchanged_kind_that_somebody_holds_delays_no_worker(
    db: Connection, url: str, store: JobStore, caplog: pytest.LogCaptureFixture
) -> None:
    await hire(store)
    with psycopg.connect(url) as service:
        pause(service, NOTE.kind, actor="a service in a long transaction")
        await hire(store, tasks=[NOTE, changed(LETTER), PARCEL])
    assert published(db, LETTER.kind) == LETTER.max_attempts + 1
    assert caplog.text == ""


async def test_a_changed_kind_that_somebody_holds_is_left_to_the_next_start_and_the_others_are_published(
    db: Connection, url: str, store: JobStore, caplog: pytest.LogCaptureFixture
) -> None:
    await hire(store, tasks=[NOTE, LETTER])
    with psycopg.connect(url) as service:
        pause(service, NOTE.kind, actor="a service in a long transaction")
        pause(service, PARCEL.kind, actor="a service in a long transaction")  # which no worker has published yet
        worker = await hire(store, tasks=[changed(NOTE), changed(LETTER), PARCEL])
    assert await worker.claim() == []
    assert published(db, NOTE.kind) == NOTE.max_attempts
    assert published(db, LETTER.kind) == LETTER.max_attempts + 1
    assert "the declaration of note is not published" in caplog.text
    assert "the declaration of parcel is not published" in caplog.text
    await hire(store, tasks=[changed(NOTE), changed(LETTER), PARCEL])
    assert published(db, NOTE.kind) == NOTE.max_attempts + 1


async def test_an_unchanged_schedule_that_somebody_holds_delays_no_worker(
    db: Connection, url: str, database: Database
) -> None:
    app = App([Handler(TICKED, tick)], [Schedule("hourly", TICKED, timedelta(hours=1))])
    await Scheduler(database, app, name="app").sync()
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_schedules FOR UPDATE")
        await Scheduler(database, app, name="app").sync()
    assert scalar(db, "SELECT revision FROM background_schedules") == 1
