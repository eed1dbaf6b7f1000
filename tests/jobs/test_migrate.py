"""The schema: applied once by whoever comes first, refused where it does not fit, the same by hand and by command."""

import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobs.migrate import ADVISORY_LOCK, SchemaError, check, migrate, migrations, script
from jobs.migrations import NEWEST

NAMES = [migration.name for migration in migrations()]


@pytest.fixture
def empty(server: str) -> Iterator[str]:
    """The URL of a database without anything of ours."""
    name = f"empty_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def schema(url: str) -> list[tuple[object, ...]]:
    """Every table, column, default, index, constraint, function, trigger and storage option that is ours."""
    with psycopg.connect(url) as db:
        return [
            *db.execute(
                "SELECT c.relname, c.relkind, c.reloptions, a.attname, a.attnotnull, a.attidentity,"
                " format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)"
                " FROM pg_class AS c JOIN pg_attribute AS a ON attrelid = c.oid"
                " LEFT JOIN pg_attrdef AS d ON adrelid = c.oid AND adnum = attnum"
                " WHERE relnamespace = 'public'::regnamespace AND attnum > 0 ORDER BY c.relname, attnum"
            ),
            *db.execute("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"),
            *db.execute(
                "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"
            ),
            *db.execute(
                "SELECT proname, pg_get_functiondef(oid) FROM pg_proc"
                " WHERE pronamespace = 'public'::regnamespace ORDER BY 1"
            ),
            *db.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"),
            *db.execute("SELECT version, name FROM background_migrations ORDER BY 1"),
        ]


def test_a_second_migration_changes_nothing(empty: str) -> None:
    assert migrate(empty) == NAMES
    before = schema(empty)
    assert migrate(empty) == []
    assert schema(empty) == before
    with psycopg.connect(empty) as db:
        check(db)


def test_many_migrators_at_once_apply_each_migration_once(empty: str) -> None:
    start = threading.Barrier(6)
    applied: list[list[str]] = []
    failures: list[Exception] = []

    def run() -> None:
        start.wait()
        try:
            applied.append(migrate(empty))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(applied) == [[]] * 5 + [NAMES]


def test_a_database_of_a_newer_release_is_refused_and_untouched(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as db:
        db.execute("INSERT INTO background_migrations (version, name, needs) VALUES (9999, '9999_future', 9998)")
        with pytest.raises(SchemaError, match=r"at version 9999, newer than the \d+ of this release: upgrade this"):
            check(db)
    before = schema(empty)
    with pytest.raises(SchemaError, match="newer than"):
        migrate(empty)
    assert schema(empty) == before


def test_a_newer_schema_that_needs_no_newer_release_is_worked_with_and_left_alone(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as db:
        db.execute("INSERT INTO background_migrations (version, name, needs) VALUES (9999, '9999_future', 3)")
        check(db)
    before = schema(empty)
    assert migrate(empty) == []
    assert schema(empty) == before


def test_a_database_that_lacks_the_schema_is_told_what_to_run(empty: str) -> None:
    with psycopg.connect(empty) as db:
        with pytest.raises(SchemaError, match="has no tables of Oomph: run `oomph migrate`"):
            check(db)
        db.execute("CREATE TABLE background_migrations (version integer PRIMARY KEY, name text)")
        with pytest.raises(SchemaError, match="has no tables"):
            check(db)


def test_the_script_makes_the_same_schema_by_psycopg(empty: str, url: str) -> None:
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute(script())
    assert schema(empty) == schema(url)
    assert migrate(empty) == []


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_script_makes_the_same_schema_by_psql(empty: str, url: str, tmp_path: Path) -> None:
    file = tmp_path / "oomph.sql"
    file.write_text(script(), encoding="utf-8")
    subprocess.run(
        ["psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-f", str(file), empty],
        check=True,
        timeout=60,
        capture_output=True,
    )
    assert schema(empty) == schema(url)


def test_a_script_that_fails_halfway_leaves_nothing(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute("CREATE TABLE background_notices (of_somebody_else integer)")
        with pytest.raises(errors.DuplicateTable):
            db.execute(script())
    with psycopg.connect(empty) as db:
        (tables,) = db.execute(
            "SELECT array_agg(relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        ).fetchone() or ([],)
        assert tables == ["background_notices"]


def test_a_migration_that_fails_halfway_leaves_nothing(empty: str) -> None:
    with psycopg.connect(empty) as db:
        db.execute("CREATE TABLE background_notices (of_somebody_else integer)")
    with pytest.raises(errors.DuplicateTable):
        migrate(empty)
    with psycopg.connect(empty) as db:
        assert db.execute("SELECT to_regclass('background_jobs'), to_regclass('background_migrations')").fetchone() == (
            None,
            None,
        )


def test_a_migrator_waits_for_another_one_but_not_for_ever(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.migrate.TURN_SECONDS", 0.2)
    with psycopg.connect(empty) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        started = time.monotonic()
        with pytest.raises(errors.LockNotAvailable):
            migrate(empty)
        assert time.monotonic() - started < 5
    assert migrate(empty) == NAMES


def test_a_database_that_cannot_hold_every_text_is_refused(server: str) -> None:
    name = f"latin_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        try:
            with pytest.raises(SchemaError, match="has the encoding LATIN1; Oomph needs UTF8"):
                migrate(make_conninfo(server, dbname=name))
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_another_schema_on_the_search_path_takes_the_tables_and_their_functions_work_there(empty: str) -> None:
    with psycopg.connect(empty) as db:
        db.execute("CREATE SCHEMA tenant")
        db.execute(f"ALTER DATABASE {conninfo_to_dict(empty)['dbname']} SET search_path = tenant")
    assert migrate(empty) == NAMES
    with psycopg.connect(empty) as db:
        db.execute("SET search_path = pg_catalog")
        assert db.execute("SELECT tenant.background_enqueue('note', pool => 'system')").fetchone() == (1,)
        db.execute("UPDATE tenant.background_jobs SET status = 'running', concurrency_key = 'k'")
        db.execute("UPDATE tenant.background_jobs SET status = 'succeeded'")


def test_the_versions_are_one_to_n_without_gaps() -> None:
    assert [migration.version for migration in migrations()] == list(range(1, NEWEST + 1))
    assert all(migration.name.startswith(f"{migration.version:04}_") for migration in migrations())
