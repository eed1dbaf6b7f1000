"""What readings of a database mean: pure."""

import pytest

from jobs.migrate import migrations
from supervisor.doctor import database_checks as checks
from supervisor.doctor.database_checks import ClockReading, Holder, ServerFacts, TableHealth
from supervisor.doctor.findings import Level
from supervisor.doctor.pooler import PoolerReading, pooler
from supervisor.settings import Settings

OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR
FACTS = ServerFacts(160_004, "16.4", read_only=False, has_migrations=True, has_jobs=True, connections_left=50)
SESSION = Holder("session", 4711, "ada", "psql", "idle in transaction", 3.4, 12, hidden=0)
TABLE = TableHealth("background_jobs", 1_000, 10, 60.0, None, has_autovacuum=True)
NEWEST = migrations()[-1].version


def test_the_server_must_be_new_enough_and_writable() -> None:
    assert checks.server_version(FACTS).level is OK
    assert checks.server_version(FACTS._replace(version=130_014)).level is ERROR
    assert checks.writable(FACTS).level is OK
    assert checks.writable(FACTS._replace(read_only=True)).level is ERROR


@pytest.mark.parametrize(
    ("left", "level"), [(50, OK), (12, OK), (11, WARNING), (5, ERROR), (-2, ERROR), (None, WARNING)]
)
def test_connections_must_be_left_for_two_workers(left: int | None, level: Level) -> None:
    assert checks.connections(FACTS._replace(connections_left=left)).level is level


@pytest.mark.parametrize(
    ("present", "needs", "level"),
    [
        (0, 0, ERROR),
        (NEWEST - 1, 0, ERROR),
        (NEWEST, NEWEST, OK),
        (NEWEST + 1, NEWEST, OK),
        (NEWEST + 1, NEWEST + 1, ERROR),
    ],
)
def test_migrations_must_be_those_of_this_release_or_newer_ones_that_it_can_work_with(
    present: int, needs: int, level: Level
) -> None:
    assert checks.migrations(present, needs).level is level


@pytest.mark.parametrize(
    ("offset", "uncertainty", "level"),
    [(0.2, 0.01, OK), (-1.005, 0.01, OK), (1.5, 0.01, WARNING), (-90, 0.01, WARNING), (1.5, 1.0, OK)],
)
def test_a_clock_is_off_only_by_more_than_the_network_may_hide(offset: float, uncertainty: float, level: Level) -> None:
    found = checks.clock(ClockReading(offset, uncertainty))
    assert found.level is level
    assert ("ahead of" in found.found) is (offset > 0)


def test_a_notification_that_is_late_or_lost_is_told() -> None:
    assert checks.notify(0.002, 3, 1).level is OK
    assert checks.notify(0.8, 3, 1).level is WARNING
    assert "did not arrive within 3 s" in checks.notify(None, 3, 1).found


def test_who_holds_the_oldest_snapshot_is_named() -> None:
    found = checks.snapshot(SESSION)
    assert found.level is OK
    for told in ("pid 4711", "'psql'", "user ada", "idle in transaction", "for 3 s", "12 transactions"):
        assert told in found.found
    old = checks.snapshot(SESSION._replace(seconds=3_700.0))
    assert old.level is WARNING
    assert "pg_terminate_backend(4711)" in old.advice
    prepared = checks.snapshot(Holder("prepared transaction", None, "ada", "tx-1", None, 3_700.0, 5, hidden=0))
    assert "ROLLBACK PREPARED 'tx-1'" in prepared.advice
    slot = checks.snapshot(Holder("replication slot", None, None, "standby_1", None, None, 5, hidden=0))
    assert slot.level is WARNING
    assert "'standby_1'" in slot.found


def test_nobody_is_found_only_where_all_could_be_seen() -> None:
    nobody = Holder(None, None, None, None, None, None, None, hidden=0)
    assert checks.snapshot(nobody).level is OK
    assert checks.snapshot(nobody._replace(hidden=3)).level is WARNING
    assert "3 sessions of other roles" in checks.snapshot(SESSION._replace(hidden=3)).found


@pytest.mark.parametrize(
    ("table", "level"),
    [
        (TABLE, OK),
        (TABLE._replace(dead=10_000, living=0), OK),
        (TABLE._replace(dead=10_001, living=0), WARNING),
        (TABLE._replace(dead=50_000, living=60_000), OK),
        (TABLE._replace(has_autovacuum=False), WARNING),
    ],
)
def test_dead_rows_are_told_where_they_outnumber_the_living(table: TableHealth, level: Level) -> None:
    found = checks.dead_rows([table, TABLE._replace(name="background_kinds", dead=0)])
    assert found.level is level
    assert "background_jobs" in found.found
    assert checks.dead_rows([]).level is WARNING


def test_a_claim_must_walk_its_own_index() -> None:
    def plan(**scan: str) -> object:
        node = {"Relation Name": "background_jobs", **scan}
        return [{"Plan": {"Node Type": "Limit", "Plans": [{"Node Type": "LockRows", "Plans": [node]}]}}]

    good = {"Node Type": "Index Scan", "Index Name": "background_jobs_claim"}
    assert checks.claim_plan(plan(**good)).level is OK
    for scan in ({"Node Type": "Seq Scan"}, {"Node Type": "Index Scan", "Index Name": "background_jobs_pkey"}):
        found = checks.claim_plan(plan(**scan))
        assert found.level is ERROR
        assert " ".join(scan.values()) in found.found


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        (PoolerReading(7, frozenset({7}), frozenset({8})), "none"),
        (PoolerReading(99, frozenset({7}), frozenset({8})), "session mode"),
        (PoolerReading(99, frozenset({7}), frozenset({7})), "transaction mode"),  # lent to the other meanwhile
        (PoolerReading(99, frozenset({7, 9}), frozenset({8})), "transaction mode"),
        (PoolerReading(99, frozenset({7}), frozenset({8, 9})), "transaction mode"),
        (PoolerReading(7, frozenset({7}), frozenset({7})), "transaction mode"),  # one that hides behind a real pid
    ],
)
def test_a_pooler_is_told_by_the_processes_that_serve_two_sessions(reading: PoolerReading, found: str) -> None:
    assert found in pooler(reading, Settings()).found


def test_a_pooler_in_transaction_mode_is_fine_where_listen_goes_elsewhere() -> None:
    pooled = PoolerReading(99, frozenset({7}), frozenset({7}))
    assert pooler(pooled, Settings()).level is WARNING
    assert pooler(pooled, Settings(worker_listen="off")).level is OK
    assert pooler(pooled, Settings(worker_listen_url="postgresql://direct/x")).level is OK
