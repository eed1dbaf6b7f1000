import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobs.migrate import migrations, script
from supervisor.embedded import EmbeddedServer
from tests.commands.conftest import Connection, Oomph

SECRET = "s3cret-w0rd"


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path("/tmp") / f"oomph-cli-{uuid.uuid4().hex[:12]}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("command", [("jobs", "list"), ("migrate",), ("enqueue", "greet", "{}")])
def test_without_a_database_both_ways_are_named(anywhere: Oomph, command: tuple[str, ...]) -> None:
    told = anywhere(*command).refused()
    assert "DATABASE_URL" in told
    assert "--embedded DIR" in told


def test_migrate_creates_the_tables_once(anywhere: Oomph, bare_url: str) -> None:
    first, second = (anywhere("migrate", DATABASE_URL=bare_url) for _ in range(2))
    assert first.out == "".join(f"applied {migration.name}\n" for migration in migrations())
    assert "already" in second.out
    assert anywhere("jobs", "list", "--database", bare_url, "--json").json == []


def test_migrate_can_print_its_sql_without_a_database(anywhere: Oomph, bare_url: str) -> None:
    printed = anywhere("migrate", "--sql").out
    assert printed.strip() == script().strip()
    with psycopg.connect(bare_url, autocommit=True) as by_hand:
        by_hand.execute(printed.encode())
    assert anywhere("jobs", "list", "--json", DATABASE_URL=bare_url).json == []


def test_a_database_without_the_schema_says_what_to_run(anywhere: Oomph, bare_url: str) -> None:
    assert "`oomph migrate`" in anywhere("jobs", "list", DATABASE_URL=bare_url).refused()


def test_a_newer_database_is_refused(oomph: Oomph, db: Connection) -> None:
    db.execute("INSERT INTO background_migrations (version, name, needs) VALUES (9999, 'of the future', 9999)")
    for command in (("migrate",), ("jobs", "list")):
        assert "upgrade this installation" in oomph(*command).refused()


def test_an_unreachable_database_is_named_without_its_password(anywhere: Oomph) -> None:
    unreachable = f"postgresql://ada:{SECRET}@127.0.0.1:1/db"
    told = anywhere("jobs", "list", DATABASE_URL=unreachable).refused()
    assert "DATABASE_URL: cannot reach the database at 127.0.0.1:1" in told
    assert SECRET not in told
    assert "--database: cannot reach" in anywhere("jobs", "list", "--database", unreachable).refused()


@pytest.mark.parametrize(
    "malformed",
    [
        f"postgresql://ada:{SECRET}/x@127.0.0.1:5432/db",
        f"postgresql://ada:x@{SECRET}@127.0.0.1:5432/db",
        f"postgresql://ada:{SECRET}%ZZ@127.0.0.1/db",
        f"postgres ada {SECRET}",
        f"host=127.0.0.1 port={SECRET}",
    ],
)
def test_a_malformed_url_never_shows_its_password(anywhere: Oomph, malformed: str) -> None:
    told = anywhere("jobs", "list", DATABASE_URL=malformed).refused()
    assert "DATABASE_URL is not a connection string" in told
    assert SECRET not in told


def test_a_refusal_of_the_server_is_one_paragraph(anywhere: Oomph, url: str) -> None:
    told = anywhere("jobs", "list", DATABASE_URL=make_conninfo(url, dbname="there_is_none")).refused()
    assert "there_is_none" in told
    assert len(told.splitlines()) == 1


def test_a_role_that_may_not_read_is_told_so(oomph: Oomph, db: Connection, url: str) -> None:
    role = f"reader_{uuid.uuid4().hex}"
    db.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
    try:
        db.execute(f"GRANT SELECT ON background_migrations TO {role}")
        told = oomph("jobs", "list", "--database", make_conninfo(url, user=role, password=SECRET)).refused()
        assert "permission denied for table background_jobs" in told
    finally:
        db.execute(f"DROP OWNED BY {role}")
        db.execute(f"DROP ROLE {role}")


def test_a_held_lock_is_told_and_nothing_waits_for_ever(
    anywhere: Oomph, bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.migrate.TURN_SECONDS", 0.2)
    with psycopg.connect(bare_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x6F6F6D7068])
        assert "holds a lock" in anywhere("migrate", DATABASE_URL=bare_url).refused()


def test_two_databases_are_wrong_usage(oomph: Oomph, folder: Path) -> None:
    assert "name one database" in oomph("jobs", "list", "--database", "x", "--embedded", str(folder)).misused()


def test_looking_into_an_embedded_folder_that_is_none_makes_nothing(anywhere: Oomph, folder: Path) -> None:
    assert "there is no embedded database" in anywhere("jobs", "list", "--embedded", str(folder)).refused()
    assert not folder.exists()


def test_an_embedded_folder_that_cannot_be_made_is_told(anywhere: Oomph) -> None:
    assert "/proc/nothing" in anywhere("migrate", "--embedded", "/proc/nothing").refused()


def test_enqueue_makes_the_embedded_database_and_later_commands_find_it(anywhere: Oomph, folder: Path) -> None:
    embedded = ("--embedded", str(folder))
    (job,) = anywhere("enqueue", "greet", "{}", "--pool", "system", "--json", *embedded).json
    assert [row["id"] for row in anywhere("jobs", "list", "--json", *embedded).json] == [job["id"]]
    assert not (folder / "data" / "postmaster.pid").exists()


def test_a_command_shares_a_running_embedded_server(anywhere: Oomph, folder: Path) -> None:
    with EmbeddedServer(folder) as url:
        assert anywhere("migrate", "--embedded", str(folder)).status == 0
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT max(version) FROM background_migrations").fetchone() is not None
