"""The way up from every released schema: with data, while workers work, and again after a run that died."""

import asyncio
import hashlib
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from jobs import migrate as migrator
from jobs.migrate import check, migrate, migrations, script
from jobs.migrations import How, Migration, Step, parse
from tests.jobs.lab import Connection, scalar, until
from tests.jobs.test_migrate import schema

# What was released never changes again: the newest migration of each release, and a digest of all up to it.
RELEASES = {"0.1.0": (7, "d8b684a33848b86325f8baf84d16336b20a8ba05cf6650e61a11f47752851c1b")}
FIRST = RELEASES["0.1.0"][0]
LATER = [migration.name for migration in migrations() if migration.version > FIRST]

# A row of each table of the first release, each column that means something with a value.
DATA = r"""
    INSERT INTO background_jobs (kind, pool, status, payload, organization_id, dedupe_key, dedupe_active,
                                 concurrency_key, schedule, occurrence, attempt, claim, worker_id, blocked, started_at,
                                 finished_at, result)
    SELECT (ARRAY['note', 'letter', 'ingest-document'])[n % 3 + 1], (ARRAY['agent', 'system', 'ingest'])[n % 3 + 1],
           (ARRAY['queued', 'running', 'succeeded', 'dead', 'cancelled'])[n % 5 + 1], jsonb_build_object('n', n),
           'org ' || n % 7, 'd' || n, n % 2 = 0, 'k' || n, CASE WHEN n % 9 = 0 THEN 'digest' END,
           CASE WHEN n % 9 = 0 THEN now() - n * interval '1 day' END, n % 4, n % 4, gen_random_uuid(), n % 10 = 5,
           now(), now() - interval '8 days', '{"a": 1}'
      FROM generate_series(1, 100) AS n;
    INSERT INTO background_attempts (job_id, claim, attempt, kind, verdict, charged, is_kill)
    SELECT id, 1, 1, kind, 'crashed', true, true FROM background_jobs;
    INSERT INTO background_kinds (kind, pool, priority, kill_streak, paused_at) VALUES ('note', 'agent', 1, 5, now());
    INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence)
    VALUES ('digest', 'app', 'note', '1 day', 'latest', 'skip', '1 hour', now());
    INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)
    VALUES (gen_random_uuid(), 'h', 1, '0.1.0', '{agent}', '{note}', now());
    INSERT INTO background_audit (actor, action, target) VALUES ('ana', 'retry', 'job 1');
    INSERT INTO background_notices (severity, subject, body) VALUES ('info', 'a', 'b');
    INSERT INTO background_notice_deliveries (notice_id, job_id, channel, recipient) SELECT id, 1, 'mail', 'a@b.c'
      FROM background_notices;
    INSERT INTO background_notice_recipients VALUES ('mail', 'a@b.c', 1, now());
    INSERT INTO background_documents (id, size, job_id, filename, sha256)
    VALUES ('00000000-0000-0000-0000-000000000001', 1, 3, 'a.pdf', repeat('0', 64));
    INSERT INTO background_document_chunks (document_id, position, text)
    VALUES ('00000000-0000-0000-0000-000000000001', 0, 'some words');
    INSERT INTO background_document_assets (document_id, key, mime_type, size)
    VALUES ('00000000-0000-0000-0000-000000000001', 'k', 'image/png', 1);
    INSERT INTO background_document_files (folder, path, size, mtime_ns) VALUES ('/f', 'a', 1, 1);
"""


@pytest.fixture
def bare(server: str) -> Iterator[str]:
    name = f"upgrade_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def install_first(url: str) -> None:
    """As release 0.1.0 did."""
    with psycopg.connect(url) as db:
        db.execute(
            "CREATE TABLE background_migrations "
            "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        for migration in migrations():
            if migration.version <= FIRST:
                (step,) = migration.steps
                db.execute(step.sql)
                db.execute(
                    "INSERT INTO background_migrations (version, name) VALUES (%s, %s)",
                    [migration.version, migration.name],
                )


@pytest.fixture
def first(bare: str) -> str:
    """The URL of a database with the schema of release 0.1.0."""
    install_first(bare)
    return bare


@pytest.fixture
def db(first: str) -> Iterator[Connection]:
    with psycopg.connect(first, autocommit=True) as connection:
        yield connection


def contents(db: Connection) -> dict[str, Any]:
    """Every row of every table of ours, by the columns that the table has now."""
    tables = db.execute(
        "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'background_migrations' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return {
        table: (columns, db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}::text").fetchall())
        for table, columns in tables
    }


def test_the_migrations_of_a_release_never_change() -> None:
    for release, (newest, digest) in RELEASES.items():
        texts = [step.sql for m in migrations() if m.version <= newest for step in m.steps]
        assert hashlib.sha256("".join(texts).encode()).hexdigest() == digest, release


def test_the_first_release_becomes_this_one_and_keeps_its_data(first: str, db: Connection, url: str) -> None:
    db.execute(DATA)
    before = contents(db)
    assert all(rows for table, (_, rows) in before.items() if table != "background_vector_models")
    assert migrate(first) == LATER
    assert schema(first) == schema(url)
    for table, (columns, rows) in before.items():
        assert db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}::text").fetchall() == rows
    check(db)
    assert migrate(first) == []


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_script_for_the_first_release_makes_the_same_schema(first: str, url: str, tmp_path: Path) -> None:
    file = tmp_path / "oomph.sql"
    file.write_text(script(since=FIRST), encoding="utf-8")
    command = ["psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-f", str(file), first]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert schema(first) == schema(url)


def invalid(db: Connection) -> list[str]:
    rows = db.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid").fetchall()
    return [row[0] for row in rows]


def keep_snapshot(connection: Connection) -> None:
    """From now until its transaction ends: no index can be completed meanwhile."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1 FROM pg_class")


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run it beside the test; the list gets what it returns or raises."""
    ends: list[Any] = []

    def run() -> None:
        try:
            ends.append(call())
        except Exception as error:  # noqa: BLE001  (asserted on by the test)
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


async def test_a_run_that_died_while_it_built_an_index_is_made_good_by_the_next(
    first: str, db: Connection, url: str
) -> None:
    with psycopg.connect(first) as other:
        keep_snapshot(other)
        thread, ends = in_thread(lambda: migrate(first))
        await until(lambda: invalid(db) != [])
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'oomph migrate' AND query LIKE '%CREATE INDEX CONCURRENTLY%'"
        )
        await asyncio.to_thread(thread.join, 20)
        other.rollback()
    assert isinstance(ends[0], psycopg.OperationalError)
    assert invalid(db) != []
    assert set(migrate(first)) <= set(LATER)
    assert invalid(db) == []
    assert schema(first) == schema(url)


async def test_an_index_waits_for_a_transaction_from_before_it_and_holds_up_nobody(first: str, db: Connection) -> None:
    with psycopg.connect(first) as other:
        keep_snapshot(other)
        thread, ends = in_thread(lambda: migrate(first))
        await until(lambda: invalid(db) != [])
        began = time.monotonic()
        for _ in range(20):
            db.execute("INSERT INTO background_jobs (kind, pool) VALUES ('note', 'system')")
            db.execute("UPDATE background_jobs SET status = 'running' WHERE id = (SELECT max(id) FROM background_jobs)")
        assert time.monotonic() - began < 2
        assert ends == []
        other.commit()
        await asyncio.to_thread(thread.join, 20)
    assert ends == [LATER]


async def test_the_limits_that_an_application_has_for_its_statements_do_not_end_a_migration(
    first: str, db: Connection
) -> None:
    for setting in ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"):
        if scalar(db, "SELECT count(*) FROM pg_settings WHERE name = %s", setting):  # not all know all
            name = sql.Identifier(scalar(db, "SELECT current_database()"))
            db.execute(sql.SQL("ALTER DATABASE {} SET {} = '300ms'").format(name, sql.Identifier(setting)))
    with psycopg.connect(first) as other:
        other.execute("SELECT set_config(name, '0', false) FROM pg_settings WHERE name LIKE '%transaction%timeout'")
        other.commit()
        keep_snapshot(other)
        thread, ends = in_thread(lambda: migrate(first))
        await until(
            lambda: (
                ends
                or scalar(
                    db,
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'oomph migrate'"
                    " AND datname = current_database() AND query LIKE '%%CREATE INDEX CONCURRENTLY%%'"
                    " AND clock_timestamp() - query_start > interval '1 second')",
                )
            )
        )
        other.commit()
        await asyncio.to_thread(thread.join, 20)
    assert ends == [LATER]


async def test_a_migration_that_cannot_have_its_lock_lets_the_others_pass_and_tries_again(
    first: str, db: Connection
) -> None:
    with psycopg.connect(first) as other:
        other.execute("SELECT count(*) FROM background_kinds")  # its lock excludes an ALTER TABLE until it ends
        thread, ends = in_thread(lambda: migrate(first))
        await until(lambda: waits(db, "oomph migrate"))
        longest = 0.0
        for _ in range(30):
            began = time.monotonic()
            db.execute("SELECT count(*) FROM background_kinds")  # stands behind the ALTER TABLE, if that waits
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.02)
        assert longest < 1
        assert ends == []
        other.commit()
        await asyncio.to_thread(thread.join, 20)
    assert ends == [LATER]


def waits(db: Connection, name: str) -> bool:
    return bool(
        scalar(
            db,
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
            " AND wait_event_type = 'Lock')",
            name,
        )
    )


def test_a_backfill_goes_in_batches_and_on_where_a_run_has_failed(
    first: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: LiteralString = """-- step: in one transaction
ALTER TABLE background_audit ADD COLUMN IF NOT EXISTS twice integer CHECK (twice <> 130);
-- step: in batches
UPDATE background_audit SET twice = id * 2
 WHERE id IN (SELECT id FROM background_audit WHERE twice IS NULL ORDER BY id LIMIT 10);
"""
    backfill = parse("9000_backfill", text)
    assert [step.how for step in backfill.steps] == [How.TRANSACTION, How.BATCHES]
    monkeypatch.setattr(migrator, "migrations", lambda: [*migrations(), backfill])
    db.execute("INSERT INTO background_audit (actor, action, target) SELECT 'a', 'b', 'c' FROM generate_series(1, 95)")
    with pytest.raises(errors.CheckViolation):
        migrate(first)
    assert scalar(db, "SELECT count(*) FROM background_audit WHERE twice IS NOT NULL") == 60  # six batches stay
    assert scalar(db, "SELECT max(version) FROM background_migrations") == migrations()[-1].version
    db.execute("ALTER TABLE background_audit DROP CONSTRAINT background_audit_twice_check")
    assert migrate(first) == ["9000_backfill"]
    assert scalar(db, "SELECT count(*) FROM background_audit WHERE twice = id * 2") == 95


def test_a_migration_says_how_it_is_run_and_what_it_needs() -> None:
    text: LiteralString = (
        "-- About it.\n-- needs: 12\n\n-- step: concurrently\nCREATE UNIQUE INDEX CONCURRENTLY i ON t (a);\n"
    )
    made = parse("0013_it", text)
    step = Step(How.CONCURRENTLY, "CREATE UNIQUE INDEX CONCURRENTLY i ON t (a);\n")
    assert made == Migration(13, "0013_it", (step,), needs=12)
    assert (step.index, step.at_once) == ("i", "CREATE UNIQUE INDEX i ON t (a);\n")
    with pytest.raises(ValueError, match="'sometimes' is not a valid How"):
        parse("0013_it", "-- step: sometimes\nSELECT 1;\n")


def test_no_migration_holds_up_writers_for_a_second_on_a_million_rows(first: str, db: Connection) -> None:
    """Others enqueue, claim and complete all the time; the longest that any of them waits is measured."""
    db.execute("SET synchronous_commit = off")
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status, organization_id, run_after, finished_at)"
        " SELECT 'note', 'system', CASE WHEN n % 2 = 0 THEN 'queued' ELSE 'succeeded' END,"
        " CASE WHEN n % 4 < 2 THEN 'org ' || n % 1000 END, now() + interval '1 day', now()"
        " FROM generate_series(1, 1000000) AS n"
    )
    worker = uuid.uuid4()
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)"
        " VALUES (%s, 'h', 1, '0.1.0', '{system}', '{probe}', now() + interval '1 hour')",
        [worker],
    )
    ended = threading.Event()
    waits: list[float] = []

    def probe() -> int:
        done = 0
        with psycopg.connect(first, autocommit=True) as session:
            while not ended.is_set():
                began = time.monotonic()
                session.execute("INSERT INTO background_jobs (kind, pool) VALUES ('probe', 'system')")
                claimed = session.execute(
                    "SELECT id, claim FROM background_claim(%s, 'system', '{probe}', 10)", [worker]
                ).fetchall()
                ids, claims = zip(*claimed, strict=True)
                session.execute(
                    "SELECT * FROM background_complete(%s, %s, %s)", [list(ids), list(claims), [None] * len(ids)]
                )
                waits.append(time.monotonic() - began)
                done += len(claimed)
        return done

    thread, ends = in_thread(probe)
    began = time.monotonic()
    try:
        assert migrate(first) == LATER
    finally:
        took = time.monotonic() - began
        ended.set()
        thread.join()
    assert ends == [len(waits)], ends  # each found its own job
    assert max(waits) < 1, f"{max(waits):.2f} s in {len(waits)} rounds, while it migrated for {took:.1f} s"
    assert len(waits) > 10


def test_the_release_before_can_declare_a_step_where_this_one_had_an_expression(first: str, db: Connection) -> None:
    """As after a roll-back, or where a worker of before is started again in the middle of a deploy."""
    migrate(first)
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, cron, timezone, misfire, overlap, grace, next_occurrence)"
        " VALUES ('digest', 'app', 'note', '0 7 * * *', 'UTC', 'latest', 'skip', '1 hour', now())"
    )
    db.execute(
        "INSERT INTO background_schedules AS s (name, app, kind, every, misfire, overlap, grace, next_occurrence)"
        " VALUES ('digest', 'app', 'note', '1 day', 'latest', 'skip', '1 hour', now())"
        " ON CONFLICT (name) DO UPDATE SET every = excluded.every, revision = s.revision + 1"
    )
    row = db.execute("SELECT every, cron, timezone FROM background_schedules").fetchone()
    assert row == (timedelta(days=1), None, None)
