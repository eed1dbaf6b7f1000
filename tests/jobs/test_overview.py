"""All kinds at one glance, each count bounded."""

from uuid import uuid4

import pytest

from jobs.database import Database
from jobs.overview import MAX_UNDECLARED, Load, Overview, overview
from jobs.store import JobStore
from jobs.worker_report import write_report
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, expire, hire
from tests.jobs.test_activity import STATE, counts
from tests.jobs.test_control import CONNECTIONS
from tests.jobs.test_plans import plans_inside


async def fill(db: Connection, database: Database, store: JobStore) -> None:
    worker = await hire(store)
    add(db, 2, run_after="1970-01-01")
    add(db, run_after="infinity")
    add(db, blocked=True, concurrency_key="k")
    add(db, 3, status="running", worker_id=uuid4())
    add(db, 4, status="dead")
    add(db, 5, status="succeeded")
    add(db, kind="letter", status="running", worker_id=uuid4())
    db.execute("UPDATE background_kinds SET paused_at = now(), kill_streak = 5 WHERE kind = 'letter'")
    await write_report(database, worker.id, [counts("note", 7, 2), counts("letter", 1), counts("", 8, 2)], STATE)


async def test_each_kind_is_told_by_what_there_is_of_it(db: Connection, database: Database, store: JobStore) -> None:
    await fill(db, database, store)
    seen: Overview = overview(db)
    kinds = {kind.kind: kind for kind in seen.kinds}
    assert list(kinds) == ["letter", "note", "parcel"]
    note = kinds["note"]
    assert note.load == Load(2, 1, 1, 3, 4, note.load.oldest_age, 7, 2)
    assert note.load.oldest_age > 1e9
    letter = kinds["letter"]
    assert (letter.paused, letter.kill_streak, letter.load) == (True, 5, Load(0, 0, 0, 1, 0, 0.0, 1, 0))
    assert kinds["parcel"].load == Load(0, 0, 0, 0, 0, 0.0, 0, 0)
    assert 300 <= seen.recent_seconds < 361
    assert seen.left_out == 0
    system = seen.pools()["system"]
    assert system == Load(2, 1, 1, 4, 4, note.load.oldest_age, 8, 2)


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_every_connection_is_served(
    connection: str,
    url: str,
    db: Connection,
    database: Database,
    store: JobStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    await fill(db, database, store)
    async with CALLERS[connection](url) as held:
        seen = await settle(overview(held.db))
    assert next(kind.load.dead for kind in seen.kinds if kind.kind == "note") == 4


async def test_the_more_kinds_the_lower_counts_end(db: Connection, store: JobStore) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) SELECT 'kind ' || n, 'system' FROM generate_series(1, 190) n")
    add(db, 300, kind="kind 1", status="dead")
    add(db, 300, kind="kind 1")
    seen: Overview = overview(db)
    assert seen.count_limit == 126
    load = next(kind.load for kind in seen.kinds if kind.kind == "kind 1")
    assert (load.due, load.dead) == (126, 126)


def test_a_database_without_anything_is_told_as_such(db: Connection) -> None:
    assert overview(db).kinds == []
    assert overview(db).pools() == {}


def test_kinds_that_no_worker_has_declared_are_told_from_the_others(db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('m', 'system'), ('z', 'system')")
    for kind in ("m", "z"):
        add(db, 3, kind=kind, status="dead")
    add(db, 2, kind="a", status="dead", pool="ingest")
    add(db, kind="n", status="dead")
    add(db, 2, kind="n", run_after="1970-01-01", organization_id="o")
    add(db, kind="n", run_after="infinity", priority=0)
    add(db, kind="o", status="succeeded")
    add(db, kind="zz", pool="agent")
    seen: Overview = overview(db)
    assert [(each.kind, each.pool) for each in seen.kinds if each.is_declared] == [("m", "system"), ("z", "system")]
    found = {each.kind: each for each in seen.kinds if not each.is_declared}
    assert {kind: each.pool for kind, each in found.items()} == {"a": "ingest", "n": "system", "zz": "agent"}
    assert found["a"].load == Load(0, 0, 0, 0, 2, 0.0, 0, 0)
    assert found["n"].load == Load(2, 1, 0, 0, 1, found["n"].load.oldest_age, 0, 0)
    assert found["n"].load.oldest_age > 1e9
    assert seen.pools()["system"].dead == 7
    assert seen.left_out == 0


def test_of_many_undeclared_kinds_some_are_told_and_their_counts_end(db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status)"
        " SELECT 'kind ' || least(n, 10000), 'system', 'dead' FROM generate_series(1, 20000) AS n"
    )
    with plans_inside(db) as plans:
        seen: Overview = overview(db)
    assert sum(shown["Plan"]["Shared Hit Blocks"] + shown["Plan"]["Shared Read Blocks"] for shown in plans) < 10_000
    assert len(seen.kinds) == MAX_UNDECLARED
    assert seen.count_limit == 240
    assert {kind.kind: kind.load.dead for kind in seen.kinds} | {"kind 1": 1, "kind 10000": 240} == {
        kind.kind: kind.load.dead for kind in seen.kinds
    }


async def test_a_pool_with_due_jobs_that_no_live_worker_serves_is_told(db: Connection, store: JobStore) -> None:
    assert overview(db).unserved() == {}
    add(db, 2, kind="misspelt", pool="agent")
    add(db, 3, kind="parcel", pool="ingest")
    assert (overview(db).workers, overview(db).unserved()) == (0, {"agent": 2, "ingest": 3})
    worker = await hire(store)
    assert (overview(db).workers, overview(db).unserved()) == (1, {"agent": 2})
    await hire(store)
    assert (overview(db).workers, overview(db).served) == (2, ["ingest", "system"])
    db.execute("UPDATE background_workers SET lost_at = now() WHERE id <> %s", [worker.id])
    expire(db, worker)
    assert (overview(db).workers, overview(db).unserved()) == (0, {"agent": 2, "ingest": 3})
    db.execute("UPDATE background_jobs SET run_after = 'infinity'")
    assert overview(db).unserved() == {}
