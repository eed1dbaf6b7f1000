"""All kinds at one glance, each count bounded."""

from uuid import uuid4

import pytest

from jobs.database import Database
from jobs.overview import Load, Overview, overview
from jobs.store import JobStore
from jobs.worker_report import write_report
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, hire
from tests.jobs.test_activity import STATE, counts
from tests.jobs.test_control import CONNECTIONS


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
