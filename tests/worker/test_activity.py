"""What a worker adds up in the database as it works: counts of every end, and how the worker is."""

import asyncio
import signal
from contextlib import suppress
from datetime import timedelta

import pytest

from jobs.activity import ActivityPoint, activity
from jobs.claim import ClaimedJob
from jobs.database import Database
from jobs.outcome import AttemptReport, ProcessFacts, Succeeded, Verdict
from jobs.reports import WorkerRow, list_workers
from jobs.store import JobStore
from jobs.task import Pool
from jobs.unavailable import DatabaseUnavailable
from jobs.worker_report import WorkerState
from supervisor.monitor.activity import ActivityWriter
from supervisor.monitor.meter import Meter
from supervisor.testing import wait_for
from tests.jobs.lab import hire
from tests.proxy import Proxy
from tests.worker.app import AGENT, INGEST, ONCE, SYSTEM
from tests.worker.conftest import Bench, Look


def counted(db: Look, kind: str | None = None) -> dict[Verdict, int]:
    """Attempts of the last minutes by verdict."""
    points: list[ActivityPoint] = activity(db, kind=kind)
    return {
        verdict: sum(point.attempts.get(verdict, 0) for point in points)
        for verdict in {verdict for point in points for verdict in point.attempts}
    }


def test_a_worker_says_how_it_is_as_it_starts_and_what_it_has_counted_as_it_ends(bench: Bench) -> None:
    worker = bench.start(WORKER_SYSTEM_CONCURRENCY="3")

    def told() -> WorkerRow | None:
        (row,) = list_workers(bench.db)
        return row if row.state_at else None

    row = wait_for(told, "the state of the worker")
    assert row.slots == {
        "agent": {"used": 0, "total": 10},
        "ingest": {"used": 0, "total": 2},
        "system": {"used": 0, "total": 3},
    }
    assert (row.children, row.template_up) == (0, True)
    assert 20 < (row.memory_mb or 0) < 500
    jobs = [bench.put(SYSTEM) for _ in range(5)] + [bench.put(AGENT, "fail once"), bench.put(INGEST)]
    deadly = bench.put(ONCE, "be killed")
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
    bench.wait(deadly, "dead")
    assert worker.stop() == 0
    assert counted(bench.db, "system-work") == {Verdict.SUCCEEDED: 5}
    assert counted(bench.db, "agent-work") == {Verdict.SUCCEEDED: 1, Verdict.FAILED: 1}
    assert counted(bench.db, "once").keys() & {Verdict.KILLED, Verdict.OOM_KILLED}
    ticked = sum(counted(bench.db, "ticked").values())  # what the app's schedule fires
    assert sum(counted(bench.db).values()) == 9 + ticked
    children: list[ActivityPoint] = [point for point in activity(bench.db, kind="ingest-work") if point.attempts]
    assert sum(sum(point.peaks) for point in children) == 1
    assert {point.limit_mb for point in children} == {256}
    assert 0 <= (children[0].peak_mb or 0) < 256
    points: list[ActivityPoint] = activity(bench.db)
    assert sum(sum(point.waits) for point in points) == 9 + ticked
    assert sum(sum(point.runs) for point in points) == 9 + ticked


def test_an_attempt_of_a_lost_worker_is_counted_by_who_rescues_it(bench: Bench) -> None:
    lost = bench.start()
    job_id = bench.put(AGENT, "wait", 300)
    bench.wait(job_id, "running")
    lost.signal(signal.SIGKILL)
    rescuer = bench.start()
    bench.wait(job_id, "running")
    wait_for(lambda: bench.attempts(job_id) == [("worker_lost",)], "the rescue")
    assert rescuer.stop() == 0
    assert counted(bench.db, "agent-work")[Verdict.WORKER_LOST] == 1


@pytest.fixture
def meter() -> Meter:
    return Meter({Pool.SYSTEM: ["note", "letter"]})


def job(kind: str = "note") -> ClaimedJob:
    return ClaimedJob(1, 1, kind, "system", "{}", 1, 5, timedelta(minutes=5))


STATE = WorkerState(slots={"system": {"used": 0, "total": 10}}, memory_mb=60.0)


async def test_an_idle_worker_writes_nothing(
    url: str, db: Look, database: Database, store: JobStore, meter: Meter
) -> None:
    worker = await hire(store)
    writer = ActivityWriter(database, meter, lambda: STATE, lambda: worker.id)

    def written() -> str:
        return str(db.execute("SELECT xmin FROM background_worker_states").fetchone())

    await writer.run_once()
    first = written()
    await writer.run_once()
    assert written() == first
    meter.ended(job(), AttemptReport(Succeeded()), 0.5)
    await writer.run_once()
    assert written() != first
    other = await hire(store)  # the lease was lost
    again = ActivityWriter(database, meter, lambda: STATE, lambda: other.id)
    await again.run_once()
    assert db.execute("SELECT count(*) FROM background_worker_states").fetchone() == (2,)


async def test_what_is_counted_while_the_database_is_away_is_written_once_it_is_back(
    url: str, db: Look, store: JobStore, meter: Meter
) -> None:
    worker = await hire(store)
    with Proxy(url) as proxy:
        away = Database(proxy.url, call_timeout=0.5, application_name="test")
        await away.open()
        writer = ActivityWriter(away, meter, lambda: STATE, lambda: worker.id)
        parcel = AttemptReport(Succeeded(), process=ProcessFacts(peak_memory_mb=300.0, memory_limit_mb=512))
        for _ in range(3):
            meter.ended(job("letter"), parcel, 0.5)
        proxy.cut()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await writer.run_once()
            meter.ended(job(), AttemptReport(Succeeded()), 0.5)
        proxy.heal()
        async with asyncio.timeout(10):
            while not counted(db):
                with suppress(DatabaseUnavailable):
                    await writer.run_once()
        await writer.run_once()
        await away.close()
    assert counted(db, "note") == {Verdict.SUCCEEDED: 2}
    letters = [point for point in activity(db, kind="letter") if point.attempts]
    assert [(point.peak_mb, point.limit_mb, sum(point.peaks)) for point in letters] == [(300.0, 512, 3)]
    assert counted(db) == {Verdict.SUCCEEDED: 5}
