"""Schedules in the database: an occurrence fires once, whoever ticks; a restart goes on where the last one stopped."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs import App, Handler, Misfire, Overlap, Pool, Priority, Schedule, Task, Tick
from jobs.cron import Cron
from jobs.database import Database
from jobs.schedule import EPOCH
from jobs.scheduler import Scheduler
from jobs.store import JobStore
from tests.jobs.lab import SUCCESS, Connection, expire, hire, scalar, succeed

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
DIGEST = Task(
    kind="digest",
    payload_type=Tick,
    pool=Pool.AGENT,
    priority=Priority.BULK,
    max_attempts=2,
    timeout=timedelta(minutes=7),
)
REPORT = Task(kind="report", payload_type=Tick, pool=Pool.SYSTEM)


async def handle(payload: Tick) -> None: ...


def app(*schedules: Schedule) -> App:
    return App([Handler(DIGEST, handle), Handler(REPORT, handle)], schedules)


def scheduler(database: Database, *schedules: Schedule, name: str = "app") -> Scheduler:
    return Scheduler(database, app(*schedules), name=name)


def hourly(name: str = "hourly", task: Task[Tick] = DIGEST, **changes: Any) -> Schedule:
    return Schedule(name, task, **{"every": HOUR, **changes})


def make_due(db: Connection, ago: timedelta = SECOND, name: str = "hourly") -> datetime:
    """Let this schedule wait for the newest point of its grid that is at least `ago` past. Returns that point."""
    row = db.execute(
        "UPDATE background_schedules SET next_occurrence = to_timestamp("
        "  floor(extract(epoch FROM clock_timestamp() - %s) / extract(epoch FROM every)) * extract(epoch FROM every)"
        ") WHERE name = %s RETURNING next_occurrence",
        [ago, name],
    ).fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


def jobs(db: Connection, columns: str = "status") -> list[Any]:
    rows = db.execute(f"SELECT {columns} FROM background_jobs ORDER BY id").fetchall()
    return [row[0] if len(row) == 1 else row for row in rows]


def waiting(db: Connection, columns: str = "next_occurrence", name: str = "hourly") -> Any:
    row = db.execute(f"SELECT {columns} FROM background_schedules WHERE name = %s", [name]).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


@pytest.fixture
async def tickers(url: str) -> AsyncIterator[list[Database]]:
    databases = [Database(url, call_timeout=10, application_name=f"ticker {n}") for n in range(8)]
    for database in databases:
        await database.open()
    yield databases
    for database in databases:
        await database.close()


async def test_a_new_schedule_waits_for_the_next_point_of_its_grid(db: Connection, database: Database) -> None:
    ours = scheduler(database, hourly())
    before = datetime.now(UTC)
    await ours.sync()
    point = waiting(db)
    assert before < point <= before + HOUR + SECOND
    assert (point - EPOCH) % HOUR == timedelta(0)
    assert await ours.tick() == set()
    seconds = await ours.seconds_to_next()
    assert seconds is not None
    assert 0 < seconds <= 3600


async def test_a_due_occurrence_becomes_a_job_with_everything_its_task_declares(
    db: Connection, database: Database
) -> None:
    ours = scheduler(database, hourly())
    await ours.sync()
    point = make_due(db)
    assert await ours.tick() == {Pool.AGENT}
    ((payload, *rest),) = jobs(
        db, "payload, kind, pool, priority, max_attempts, timeout, schedule, occurrence, concurrency_key, attempt"
    )
    assert rest == ["digest", "agent", 2, 2, timedelta(minutes=7), "hourly", point, None, 0]
    assert Tick.model_validate(payload) == Tick(schedule="hourly", occurrence=point.astimezone(UTC))
    assert payload["occurrence"].endswith("Z")
    assert waiting(db, "last_occurrence, next_occurrence") == (point, point + HOUR)


async def test_eight_tickers_at_once_fire_each_occurrence_once(db: Connection, tickers: list[Database]) -> None:
    schedules = [hourly(f"s{n}", overlap=Overlap.ALLOW) for n in range(20)]
    ours = [scheduler(database, *schedules) for database in tickers]
    await asyncio.gather(*(each.sync() for each in ours))
    for _ in range(3):
        db.execute("DELETE FROM background_jobs")
        points = {schedule.name: make_due(db, name=schedule.name) for schedule in schedules}
        await asyncio.gather(*(each.tick() for each in ours))
        await ours[0].tick()
        assert dict(jobs(db, "schedule, occurrence")) == points
        assert len(jobs(db)) == 20


async def test_an_occurrence_that_exists_is_not_written_again_even_if_the_row_goes_back(
    db: Connection, database: Database
) -> None:
    ours = scheduler(database, hourly(overlap=Overlap.ALLOW))
    await ours.sync()
    make_due(db)
    await ours.tick()
    db.execute("UPDATE background_jobs SET status = 'succeeded'")
    make_due(db)  # a restored backup, a hand
    assert await ours.tick() == set()
    assert jobs(db) == ["succeeded"]


@pytest.mark.parametrize("misfire", Misfire)
async def test_after_a_long_stop_the_misfire_decides(db: Connection, database: Database, misfire: Misfire) -> None:
    ours = scheduler(database, hourly(every=timedelta(days=1), misfire=misfire, grace=SECOND))
    await ours.sync()
    db.execute("UPDATE background_schedules SET next_occurrence = date_trunc('day', now(), 'UTC') - interval '10 days'")
    today = scalar(db, "SELECT date_trunc('day', now(), 'UTC')")
    if scalar(db, "SELECT now() - date_trunc('day', now(), 'UTC') < interval '10 seconds'"):
        pytest.skip("it is midnight in UTC: the grace has not passed")
    await ours.tick()
    assert jobs(db, "occurrence") == ([today] if misfire is Misfire.LATEST else [])
    assert waiting(db) == today + timedelta(days=1)
    assert await ours.tick() == set()


async def test_within_the_grace_a_skipping_schedule_still_fires(db: Connection, database: Database) -> None:
    ours = scheduler(database, hourly(misfire=Misfire.SKIP, grace=2 * HOUR))
    await ours.sync()
    point = make_due(db)
    await ours.tick()
    assert jobs(db, "occurrence") == [point]


async def test_overlap_skip_drops_an_occurrence_while_an_earlier_one_is_unfinished(
    db: Connection, database: Database
) -> None:
    ours = scheduler(database, hourly(overlap=Overlap.SKIP))
    await ours.sync()
    first = make_due(db, ago=3 * HOUR)
    db.execute("UPDATE background_schedules SET next_occurrence = %s", [first])
    await ours.tick()
    fired = jobs(db, "occurrence")
    for status in ("queued", "running"):
        db.execute("UPDATE background_jobs SET status = %s, occurrence = '2020-01-01'", [status])
        make_due(db)
        assert await ours.tick() == set()
        assert len(jobs(db)) == 1
        assert waiting(db, "last_occurrence") == fired[0]
        assert waiting(db, "next_occurrence > clock_timestamp()")
    db.execute("UPDATE background_jobs SET status = 'dead'")
    make_due(db)
    assert await ours.tick() == {Pool.AGENT}


async def test_overlap_queue_runs_one_after_the_other(db: Connection, database: Database, store: JobStore) -> None:
    ours = scheduler(database, hourly(task=REPORT, overlap=Overlap.QUEUE))
    await ours.sync()
    for occurrence in ("2020-01-01", "2020-01-02"):
        make_due(db)
        await ours.tick()
        db.execute("UPDATE background_jobs SET occurrence = %s WHERE occurrence > '2025-01-01'", [occurrence])
    assert jobs(db, "concurrency_key") == ["schedule:hourly"] * 2
    worker = await hire(store, tasks=[REPORT])
    (first,) = await worker.claim()
    assert await worker.claim() == []
    await store.finish(first.fence, SUCCESS)
    assert len(await worker.claim()) == 1


async def test_overlap_allow_runs_both(db: Connection, database: Database, store: JobStore) -> None:
    ours = scheduler(database, hourly(task=REPORT, overlap=Overlap.ALLOW))
    await ours.sync()
    make_due(db)
    await ours.tick()
    db.execute("UPDATE background_jobs SET occurrence = '2020-01-01'")
    make_due(db)
    await ours.tick()
    worker = await hire(store, tasks=[REPORT])
    assert len(await worker.claim()) == 2


async def test_a_restart_goes_on_where_the_last_worker_stopped(db: Connection, database: Database) -> None:
    await scheduler(database, hourly()).sync()
    point = make_due(db)
    restarted = scheduler(database, hourly())
    await restarted.sync()
    assert waiting(db, "next_occurrence, revision") == (point, 1)  # the sync of an unchanged schedule changes nothing
    await restarted.tick()
    assert jobs(db, "occurrence") == [point]


async def test_a_changed_schedule_gets_a_new_revision_and_a_new_grid_only_with_a_new_step(
    db: Connection, database: Database
) -> None:
    await scheduler(database, hourly()).sync()
    point = make_due(db)
    await scheduler(database, hourly(grace=HOUR, misfire=Misfire.SKIP, overlap=Overlap.ALLOW, task=REPORT)).sync()
    assert waiting(db, "next_occurrence, revision, grace, misfire, overlap, kind") == (
        point,
        2,
        HOUR,
        "skip",
        "allow",
        "report",
    )
    await scheduler(database, hourly(every=timedelta(hours=5))).sync()
    assert waiting(db, "revision") == 3
    moved = waiting(db)
    assert moved > datetime.now(UTC)
    assert (moved - EPOCH) % timedelta(hours=5) == timedelta(0)


async def test_a_removed_schedule_fires_no_more_and_its_queued_jobs_are_cancelled(
    db: Connection, database: Database, store: JobStore
) -> None:
    both = scheduler(database, hourly("a", task=REPORT, overlap=Overlap.ALLOW), hourly("b"))
    await both.sync()
    make_due(db, name="a")
    await both.tick()
    worker = await hire(store, tasks=[REPORT])
    (running,) = await worker.claim()
    db.execute("UPDATE background_jobs SET occurrence = '2020-01-01'")
    make_due(db, name="a")
    await both.tick()
    await scheduler(database, hourly("b")).sync()
    assert db.execute("SELECT name FROM background_schedules").fetchall() == [("b",)]
    assert jobs(db, "status, error ->> 'type'") == [("running", None), ("cancelled", "ScheduleRemoved")]
    assert await succeed(store, {running.fence: None}) == set()
    # An old worker that still runs cannot fire it.
    db.execute("UPDATE background_schedules SET next_occurrence = now() + interval '1 hour'")
    assert await both.tick() == set()


@pytest.mark.parametrize("is_live", [True, False])
async def test_who_removes_a_schedule_is_warned_while_a_live_worker_may_declare_it(
    is_live: bool, db: Connection, database: Database, store: JobStore, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduler(database, hourly()).sync()
    worker = await hire(store, tasks=[DIGEST])
    if not is_live:
        expire(db, worker)
    await scheduler(database).sync()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["1 live workers know the kind of schedule hourly" in line for line in warnings] == [True] * is_live


async def test_a_schedule_that_is_added_again_starts_on_the_next_point(db: Connection, database: Database) -> None:
    for schedules in ([hourly()], [], [hourly()]):
        await scheduler(database, *schedules).sync()
    assert waiting(db, "next_occurrence > clock_timestamp(), last_occurrence, revision") == (True, None, 1)


async def test_an_app_leaves_the_schedules_of_another_app_alone(db: Connection, database: Database) -> None:
    await scheduler(database, hourly("theirs"), name="other").sync()
    ours = scheduler(database, hourly("ours"))
    await ours.sync()
    make_due(db, name="theirs")
    make_due(db, name="ours")
    await ours.tick()
    assert jobs(db, "schedule") == ["ours"]
    await scheduler(database).sync()
    assert db.execute("SELECT name FROM background_schedules").fetchall() == [("theirs",)]


async def test_who_takes_the_schedule_of_another_app_is_warned_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduler(database, hourly(), hourly("theirs"), name="other").sync()
    ours = scheduler(database, hourly(), hourly("ours"), name="ours")
    await ours.sync()
    await ours.sync()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(":")[0] for line in warnings] == [
        "schedule hourly was of the app other, and is of ours from now on"
    ]


async def test_without_schedules_a_tick_asks_for_nothing(database: Database) -> None:
    ours = scheduler(database)
    await ours.sync()
    assert await ours.tick() == set()
    assert await ours.seconds_to_next() is None


async def test_a_schedule_whose_row_somebody_holds_does_not_delay_the_others(
    db: Connection, url: str, database: Database
) -> None:
    import psycopg

    ours = scheduler(database, hourly("held"), hourly("free"))
    await ours.sync()
    for name in ("held", "free"):
        make_due(db, name=name)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_schedules WHERE name = 'held' FOR UPDATE")
        async with asyncio.timeout(5):
            await ours.tick()
        assert jobs(db, "schedule") == ["free"]
    await ours.tick()
    assert jobs(db, "schedule") == ["free", "held"]


async def test_a_tick_that_fails_halfway_fires_again(
    db: Connection, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.scheduler.ASIDE_SECONDS", 0.0)
    ours = scheduler(database, hourly())
    await ours.sync()
    make_due(db)
    db.execute("ALTER TABLE background_schedules ADD CONSTRAINT none_fires CHECK (last_occurrence IS NULL)")
    try:
        assert await ours.tick() == set()
        assert jobs(db) == []  # the insert and the advance are one transaction
    finally:
        db.execute("ALTER TABLE background_schedules DROP CONSTRAINT none_fires")
    await ours.tick()
    assert jobs(db, "schedule") == ["hourly"]


# What a later release, another host or a hand may have written, and why this worker cannot fire it.
BAD = {
    "the zone": (
        "every = NULL, cron = '0 * * * *', timezone = 'Europe/Atlantis'",
        "'Europe/Atlantis' is not in the time",
    ),
    "the expression": ("every = NULL, cron = '@reboot', timezone = 'UTC'", "must have five fields"),
    "the sort of grid": ("every = NULL", "neither a step nor an expression"),
    "the overlap": ("overlap = 'merge'", "'merge' is not a valid Overlap"),
    "the misfire": ("misfire = 'all'", "'all' is not a valid Misfire"),
    "a step of nothing": ("every = '0'", "ZeroDivisionError"),
    "a step beyond what Python counts": ("every = '100000000 years'", "DataError"),
    "a time before all": ("next_occurrence = '-infinity'", "DataError"),
    "what the table refuses": ("overlap = 'queue'", "by_hand"),
}


@pytest.fixture
def later(db: Connection) -> Iterator[None]:
    """A table whose checks a later release has widened, and one of which a hand has added."""
    checks = db.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = 'background_schedules'::regclass AND contype = 'c'"
    ).fetchall()
    change = "ALTER TABLE background_schedules"
    for name, _ in checks:
        db.execute(f"{change} DROP CONSTRAINT {name}")
    db.execute(f"{change} ADD CONSTRAINT by_hand CHECK (overlap <> 'queue' OR last_occurrence IS NULL)")
    yield
    db.execute(f"TRUNCATE background_schedules; {change} DROP CONSTRAINT by_hand")
    for name, definition in checks:
        db.execute(f"{change} ADD CONSTRAINT {name} {definition}")


@pytest.mark.parametrize("bad", BAD)
async def test_a_schedule_that_fails_is_told_once_and_leaves_all_others_alone(
    bad: str,
    db: Connection,
    database: Database,
    later: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = scheduler(database, hourly("a"), hourly("bad"), hourly("c"))
    await ours.sync()
    for name in ("a", "bad", "c"):
        make_due(db, name=name)
    change, why = BAD[bad]
    before = waiting(db, "to_jsonb(background_schedules)", "bad")
    db.execute(f"UPDATE background_schedules SET {change} WHERE name = 'bad'")
    assert await ours.tick() == {Pool.AGENT}
    assert jobs(db, "schedule") == ["a", "c"]
    seconds = await ours.seconds_to_next()
    assert seconds is not None
    assert seconds > 0  # it is not waited for either

    monkeypatch.setattr("jobs.scheduler.ASIDE_SECONDS", 0.0)
    ours._aside.clear()
    for _ in range(3):
        assert await ours.tick() == set()
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [why in line for line in told] == [True]
    assert told[0].startswith("schedule bad cannot be fired by this worker")

    # Mended by a newer declaration, it is fired again without a restart.
    db.execute(
        "UPDATE background_schedules AS s SET every = old.every, cron = NULL, timezone = NULL, overlap = old.overlap,"
        " misfire = old.misfire, last_occurrence = NULL, next_occurrence = old.next_occurrence"
        " FROM jsonb_populate_record(NULL::background_schedules, %s::jsonb) AS old WHERE s.name = 'bad'",
        [json.dumps(before)],
    )
    assert await ours.tick() == {Pool.AGENT}
    assert jobs(db, "schedule") == ["a", "c", "bad"]


async def test_a_schedule_held_by_hand_is_not_waited_for(db: Connection, database: Database) -> None:
    ours = scheduler(database, hourly())
    await ours.sync()
    db.execute("UPDATE background_schedules SET next_occurrence = 'infinity'")
    assert await ours.seconds_to_next() is None
    assert await ours.tick() == set()


async def test_a_time_zone_of_the_database_does_not_move_the_grid(db: Connection, url: str) -> None:
    db.execute(f"ALTER DATABASE {db.info.dbname} SET timezone = 'Australia/Lord_Howe'")
    database = Database(url, call_timeout=10, application_name="far away")
    await database.open()
    ours = scheduler(database, hourly(every=timedelta(hours=7)))
    await ours.sync()
    point = make_due(db)
    await ours.tick()
    (payload,) = jobs(db, "payload")
    occurrence = Tick.model_validate(payload).occurrence
    assert occurrence == point
    assert occurrence.utcoffset() == timedelta(0)
    assert (occurrence - EPOCH) % timedelta(hours=7) == timedelta(0)
    await database.close()


async def test_the_newest_declaration_of_the_overlap_holds_for_an_old_worker_too(
    db: Connection, database: Database
) -> None:
    old = scheduler(database, hourly(overlap=Overlap.ALLOW))
    await old.sync()
    await scheduler(database, hourly(overlap=Overlap.SKIP)).sync()
    make_due(db)
    await old.tick()
    db.execute("UPDATE background_jobs SET occurrence = '2020-01-01'")
    make_due(db)
    assert await old.tick() == set()
    assert len(jobs(db)) == 1


BERLIN = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}


def nightly(**changes: Any) -> Schedule:
    return Schedule("hourly", DIGEST, **{**BERLIN, **changes})


async def test_eight_tickers_at_once_fire_a_night_without_its_hour_once(
    db: Connection, tickers: list[Database]
) -> None:
    """Half past two does not come on 29 March 2026; it stands for a tick of that night that comes late."""
    ours = [scheduler(database, nightly(overlap=Overlap.ALLOW)) for database in tickers]
    await asyncio.gather(*(each.sync() for each in ours))
    assert waiting(db, "every, cron, timezone, revision") == (None, *BERLIN.values(), 1)
    db.execute("UPDATE background_schedules SET next_occurrence = '2026-03-29T01:00Z'")
    before = datetime.now(UTC)
    fired = await asyncio.gather(*(each.tick() for each in ours))
    assert sorted(map(len, fired)) == [0] * 7 + [1]
    cron = Cron(*BERLIN.values())
    assert jobs(db, "occurrence") == [cron.at_or_before(before)]
    assert waiting(db, "last_occurrence, next_occurrence") == (cron.at_or_before(before), cron.next_after(before))


async def test_a_changed_expression_or_zone_is_a_new_revision_on_its_own_points(
    db: Connection, database: Database
) -> None:
    await scheduler(database, nightly()).sync()
    await scheduler(database, nightly(cron=" 30  2 * * * ")).sync()
    assert waiting(db, "revision") == 1
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    for revision, changed in enumerate(
        [nightly(cron="31 2 * * *"), nightly(timezone="America/New_York"), hourly(), nightly()], start=2
    ):
        db.execute("UPDATE background_schedules SET next_occurrence = %s", [long_ago])
        await scheduler(database, changed).sync()
        assert waiting(db, "revision, cron, timezone, every") == (
            revision,
            changed.cron,
            changed.timezone,
            changed.every,
        )
        assert waiting(db) > datetime.now(UTC)
    db.execute("UPDATE background_schedules SET next_occurrence = %s", [long_ago])
    await scheduler(database, nightly(grace=HOUR)).sync()
    assert waiting(db, "revision, next_occurrence") == (6, long_ago)
