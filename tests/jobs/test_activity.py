"""What workers count, added up by minute and quarter, and read again; and how each worker is."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.activity import JOB_BOUNDS, PEAK_BOUNDS_MB, VERDICTS, ActivityPoint, activity, percentile
from jobs.database import Database
from jobs.outcome import Verdict
from jobs.reports import AttemptRow, list_kills, list_workers
from jobs.store import JobStore
from jobs.unavailable import DatabaseUnavailable
from jobs.worker_report import Counts, WorkerState, prune_activity, write_report
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, hire, scalar
from tests.jobs.test_control import CONNECTIONS

STATE = WorkerState(slots={"system": {"used": 1, "total": 10}}, memory_mb=61.5)


def zeros(length: int, **at: int) -> list[int]:
    return [at.get(f"n{index}", 0) for index in range(length)]


def counts(kind: str, succeeded: int, failed: int = 0, **more: Any) -> Counts:
    verdicts = [{Verdict.SUCCEEDED: succeeded, Verdict.FAILED: failed}.get(verdict, 0) for verdict in VERDICTS]
    durations = zeros(len(JOB_BOUNDS) + 1, n3=succeeded)
    return Counts(kind=kind, verdicts=verdicts, waits=durations, runs=durations, **more)


def happened(points: list[ActivityPoint]) -> list[ActivityPoint]:
    return [point for point in points if point.attempts]


@pytest.mark.parametrize("span", [timedelta(minutes=5), timedelta(hours=6)])
async def test_what_two_workers_count_is_added_up(
    span: timedelta, db: Connection, database: Database, store: JobStore
) -> None:
    first, second = await hire(store), await hire(store)
    peaks = zeros(len(PEAK_BOUNDS_MB) + 1, n9=4)
    of_parcels = counts("parcel", 4, peaks=peaks, peak_mb=300.5, limit_mb=512)
    offset = await write_report(database, first.id, [counts("note", 3, 1), of_parcels], STATE)
    assert abs(offset) < 1
    await write_report(database, second.id, [counts("note", 5), replace(of_parcels, peak_mb=200.0)], STATE)
    notes = happened(activity(db, kind="note", span=span))
    assert sum(point.succeeded for point in notes) == 8  # in one minute or two
    assert sum(point.failed for point in notes) == 1
    assert sum(sum(point.runs) for point in notes) == 8
    parcels = happened(activity(db, kind="parcel", span=span))
    assert sum(point.peaks[9] for point in parcels) == 8
    assert max(point.peak_mb or 0 for point in parcels) == 300.5
    assert {point.limit_mb for point in parcels} == {512}
    assert 256 < (parcels[0].memory_mb(0.95) or 0) <= 384
    assert 0.1 < (notes[0].run(0.5) or 0) <= 0.5


async def test_a_look_has_no_gaps_and_ends_now(db: Connection) -> None:
    for span, seconds, points in (
        (timedelta(hours=3), 60, 180),
        (timedelta(hours=4), 900, 16),
        (timedelta(days=400), 900, 672),
        (timedelta(0), 60, 1),
    ):
        found = activity(db, kind="note", span=span)
        assert [point.at for point in found] == [
            found[-1].at - timedelta(seconds=seconds * n) for n in range(points - 1, -1, -1)
        ]
        assert {point.seconds for point in found} == {seconds}
        since = scalar(db, "SELECT now() - %s", found[-1].at)
        assert timedelta(0) <= since < timedelta(seconds=seconds + 1)


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_every_connection_is_served(
    connection: str, url: str, database: Database, store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    worker = await hire(store)
    await write_report(database, worker.id, [counts("", 2)], STATE)
    async with CALLERS[connection](url) as held:
        (point,) = happened(await settle(activity(held.db)))
        assert point.attempts == {Verdict.SUCCEEDED: 2}
        (row,) = await settle(list_workers(held.db))
        assert (row.memory_mb, row.slots, row.children, row.template_up) == (61.5, STATE.slots, None, None)


async def test_many_workers_add_to_the_same_rows_at_once(db: Connection, database: Database, store: JobStore) -> None:
    workers = [await hire(store) for _ in range(3)]
    kinds = [f"kind {n}" for n in range(20)]
    orders = (kinds, kinds[::-1], sorted(kinds, key=hash))
    for _ in range(5):
        await asyncio.gather(
            *(
                write_report(database, worker.id, [counts(kind, 1) for kind in order], STATE)
                for worker, order in zip(workers, orders, strict=True)
            )
        )
    assert sum(point.succeeded for kind in kinds for point in activity(db, kind=kind)) == 5 * 3 * 20


async def test_a_worker_says_how_it_is_and_the_last_word_holds(
    db: Connection, database: Database, store: JobStore
) -> None:
    worker = await hire(store)
    assert list_workers(db)[0].state_at is None
    await write_report(database, worker.id, [], STATE)
    later = replace(STATE, children=2, children_mb=700.0, largest_child_mb=400.0, template_up=False)
    await write_report(database, worker.id, [], later)
    (row,) = list_workers(db)
    assert (row.children, row.children_mb, row.largest_child_mb, row.template_up) == (2, 700.0, 400.0, False)
    await store.deregister(worker.id)
    await write_report(database, worker.id, [counts("note", 1)], STATE)  # what it has counted, it has counted
    assert list_workers(db) == []
    assert sum(point.succeeded for point in activity(db, kind="note")) == 1
    assert scalar(db, "SELECT count(*) FROM background_worker_states") == 0


async def test_a_row_that_somebody_holds_is_not_waited_for(url: str, database: Database, store: JobStore) -> None:
    worker = await hire(store)
    await write_report(database, worker.id, [counts("note", 1)], STATE)
    async with CALLERS["psycopg_async_connection"](url) as held:
        await held.db.execute("SELECT FROM background_activity FOR UPDATE")
        with pytest.raises(DatabaseUnavailable):
            await write_report(database, worker.id, [counts("note", 1)], STATE)


async def test_what_is_old_is_removed(db: Connection, database: Database) -> None:
    db.execute(
        "INSERT INTO background_activity (seconds, at, kind, verdicts, waits, runs, peaks) "
        "SELECT seconds, now() - age, 'note', '{}', '{}', '{}', '{}' FROM (VALUES (60, interval '5 hours'), "
        "(60, interval '7 hours'), (900, interval '7 hours'), (900, interval '6 days'), (900, interval '8 days')) "
        "AS given (seconds, age)"
    )
    await prune_activity(database)
    kept = db.execute(
        "SELECT seconds, floor(extract(epoch FROM now() - at) / 3600) FROM background_activity ORDER BY 2"
    )
    assert kept.fetchall() == [(60, 5), (900, 7), (900, 144)]


def test_kills_of_a_kind_are_told_with_their_memory_and_its_limit(db: Connection) -> None:
    (job_id,) = add(db, kind="parcel", status="dead")
    db.execute(
        """
        INSERT INTO background_attempts (job_id, claim, attempt, kind, finished_at, verdict, evidence, charged, is_kill,
                                         peak_memory_mb, memory_limit_mb, output_tail)
        SELECT %s, n, n, CASE WHEN n = 1 THEN 'note' ELSE 'parcel' END, now() - n * interval '1 hour', 'oom_killed',
               '{"why": "too much"}', true, n <> 2, 500 + n, 512, 'long'
          FROM generate_series(1, 5) AS n
        """,
        [job_id],
    )
    kills: list[AttemptRow] = list_kills(db, "parcel")
    assert [(kill.claim, kill.peak_memory_mb, kill.memory_limit_mb) for kill in kills] == [
        (3, 503, 512),
        (4, 504, 512),
        (5, 505, 512),
    ]
    assert (kills[0].evidence, kills[0].output_tail, kills[0].error) == ({"why": "too much"}, None, None)
    assert list_kills(db, "parcel", limit=1) == kills[:1]


def test_the_order_of_verdicts_stays_as_it_is_kept() -> None:
    """A new one joins at the end; the table would tell lies of the past otherwise."""
    assert " ".join(VERDICTS) == (
        "succeeded failed memory_exceeded oom_killed killed crashed exited vanished timed_out cancelled worker_lost "
        "released lease_lost spawn_failed snoozed"
    )


def test_failures_are_attempts_that_were_spent_in_vain() -> None:
    point = activity_of(dict.fromkeys(VERDICTS, 1))
    assert (point.succeeded, point.failed) == (1, 9)


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_percentile_lies_in_the_bucket_of_the_value_that_it_means(values: list[float], share: float) -> None:
    buckets = [0] * (len(JOB_BOUNDS) + 1)
    for value in values:
        buckets[sum(value > bound for bound in JOB_BOUNDS)] += 1
    told = percentile(buckets, JOB_BOUNDS, share)
    rank = next(index for index in range(1, len(values) + 1) if index >= share * len(values))
    meant = sorted(values)[rank - 1]
    above = next((bound for bound in JOB_BOUNDS if meant <= bound), JOB_BOUNDS[-1])
    below = max((bound for bound in JOB_BOUNDS if bound < meant), default=0.0)
    assert told is not None
    assert below <= told <= above


def test_nothing_has_no_percentile() -> None:
    assert percentile([], JOB_BOUNDS, 0.5) is None
    assert percentile([0] * 12, JOB_BOUNDS, 0.5) is None


def activity_of(attempts: dict[Verdict, int]) -> ActivityPoint:
    return ActivityPoint(datetime.now(UTC), 60, attempts, [], [], [], None, None)
