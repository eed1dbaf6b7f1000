"""A schedule that an operator runs now: an occurrence outside its grid, by its own overlap, audited."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import psycopg
import pytest

from jobs import ControlError, Overlap
from jobs.control import run_schedule_now
from jobs.database import Database
from jobs.store import JobStore
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, hire, job, scalar
from tests.jobs.test_control import CONNECTIONS, audit
from tests.jobs.test_scheduler import DIGEST, hourly, make_due, scheduler


@pytest.fixture
async def declared(database: Database, store: JobStore) -> Database:
    """The database, in which a worker has declared the kind."""
    await hire(store, tasks=[DIGEST])
    return database


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_it_fires_once_outside_the_grid_and_the_grid_goes_on(
    connection: str, url: str, db: Connection, declared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    await scheduler(declared, hourly()).sync()
    schedule = "SELECT next_occurrence, last_occurrence FROM background_schedules"
    before = db.execute(schedule).fetchone()
    async with CALLERS[connection](url) as held:
        job_id = await settle(run_schedule_now(held.db, "hourly", actor="ana", reason="asked for"))
        assert scalar(db, "SELECT count(*) FROM background_jobs") == 0
        await settle(held.commit())
    columns = "kind, pool, priority, max_attempts, timeout = '7 minutes', status, schedule, concurrency_key"
    assert job(db, job_id, columns) == ("digest", "agent", 2, 2, True, "queued", "hourly", None)
    payload, occurrence, created_at = job(db, job_id, "payload, occurrence, created_at")
    assert payload["schedule"] == "hourly"
    assert datetime.fromisoformat(payload["occurrence"]) == occurrence
    assert abs((occurrence - created_at).total_seconds()) < 5
    assert db.execute(schedule).fetchone() == before
    assert audit(db) == [("ana", "run now", "schedule hourly", "asked for", {"job": job_id})]


@pytest.mark.parametrize(("overlap", "fires"), [(Overlap.SKIP, False), (Overlap.QUEUE, True), (Overlap.ALLOW, True)])
async def test_it_keeps_to_the_overlap(overlap: Overlap, fires: bool, db: Connection, declared: Database) -> None:
    await scheduler(declared, hourly(overlap=overlap)).sync()
    first = run_schedule_now(db, "hourly", actor="ana")
    if fires:
        second = run_schedule_now(db, "hourly", actor="ana")
        key = "schedule:hourly" if overlap is Overlap.QUEUE else None
        assert [job(db, each, "concurrency_key") for each in (first, second)] == [key, key]
    else:
        with pytest.raises(ControlError, match=f"its job {first} is queued, and its overlap is to skip"):
            run_schedule_now(db, "hourly", actor="ana")
        assert len(audit(db)) == 1


async def test_an_occurrence_of_the_grid_is_skipped_while_it_is_not_finished(
    db: Connection, declared: Database
) -> None:
    ticking = scheduler(declared, hourly(overlap=Overlap.SKIP))
    await ticking.sync()
    run_schedule_now(db, "hourly", actor="ana")
    make_due(db)
    assert await ticking.tick() == set()


async def test_of_two_at_once_one_fires_where_they_must_not_overlap(
    url: str, db: Connection, declared: Database
) -> None:
    await scheduler(declared, hourly(overlap=Overlap.SKIP)).sync()

    def act() -> Any:
        with psycopg.connect(url) as own:
            return run_schedule_now(own, "hourly", actor="ana")

    with ThreadPoolExecutor(4) as threads:
        acts = [threads.submit(act) for _ in range(4)]
    assert sorted(type(each.exception()).__name__ for each in acts) == ["ControlError"] * 3 + ["NoneType"]
    assert scalar(db, "SELECT count(*) FROM background_jobs") == 1


async def test_what_cannot_be_run_says_why(db: Connection, database: Database) -> None:
    await scheduler(database, hourly()).sync()
    with pytest.raises(ControlError, match="no worker has declared its kind digest"):
        run_schedule_now(db, "hourly", actor="ana")
    with pytest.raises(ControlError, match="schedule daily does not exist"):
        run_schedule_now(db, "daily", actor="ana")
    with pytest.raises(ControlError, match="an actor is needed"):
        run_schedule_now(db, "hourly", actor="")
    assert audit(db) == []
