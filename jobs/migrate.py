"""The schema, versioned: SQL files applied in order, once, by one migrator at a time."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, LiteralString

import psycopg

# One lock for all schemas of a database: migrations are rare. Any constant does; this one spells "oomph".
ADVISORY_LOCK = 0x6F6F6D7068
LOCK_TIMEOUT_MS = 5_000  # a migration that waits behind a long transaction blocks everyone who comes after it


class SchemaError(Exception):
    """The database does not fit this release; the message says what to run."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: LiteralString


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    found = []
    for entry in files("jobs.migrations").iterdir():
        if entry.name.endswith(".sql"):
            version, name = int(entry.name[:4]), entry.name.removesuffix(".sql")
            found.append(Migration(version, name, entry.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


def migrate(url: str) -> list[str]:
    """Apply what is missing, all or nothing, and return the names. Safe to run from many hosts at once.

    Raises `SchemaError` where the database is of a newer release, and psycopg's `LockNotAvailable` where somebody
    holds a lock for more than five seconds: nothing was changed then, run it again.
    """
    applied = []
    with psycopg.connect(url, connect_timeout=5, application_name="oomph migrate") as connection:
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
        _refuse_encoding(connection.info.parameter_status("server_encoding"))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS background_migrations "
            "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        present = {row[0] for row in connection.execute("SELECT version FROM background_migrations")}
        _refuse_newer(max(present, default=0))
        for migration in migrations():
            if migration.version not in present:
                connection.execute(migration.sql)
                connection.execute(
                    "INSERT INTO background_migrations (version, name) VALUES (%s, %s)",
                    [migration.version, migration.name],
                )
                applied.append(migration.name)
    return applied


def script() -> str:
    """All migrations as one SQL script, for people who apply schema changes by hand."""
    parts = [
        "BEGIN;",
        "CREATE TABLE IF NOT EXISTS background_migrations",
        "    (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());",
    ]
    for migration in migrations():
        parts.append(migration.sql)
        parts.append(f"INSERT INTO background_migrations VALUES ({migration.version}, '{migration.name}');")  # noqa: S608
    return "\n".join([*parts, "COMMIT;"])


def check(connection: psycopg.Connection[Any]) -> None:
    """Raise `SchemaError` unless the database has exactly the schema of this release."""
    row = connection.execute("SELECT to_regclass('background_migrations') IS NOT NULL").fetchone()
    present = 0
    if row is not None and row[0]:
        newest = connection.execute("SELECT coalesce(max(version), 0) FROM background_migrations").fetchone()
        present = newest[0] if newest else 0
    check_version(present)


def check_version(present: int) -> None:
    """Raise `SchemaError` unless `present`, the newest applied migration or 0, is the newest of this release."""
    _refuse_newer(present)
    needed = migrations()[-1].version
    if present < needed:
        state = "has no tables of Oomph" if present == 0 else f"is at version {present}, this release needs {needed}"
        raise SchemaError(f"the database {state}: run `oomph migrate`")


def _refuse_newer(present: int) -> None:
    newest = migrations()[-1].version
    if present > newest:
        raise SchemaError(
            f"the database is at version {present}, newer than the {newest} of this release: upgrade this installation"
        )


def _refuse_encoding(encoding: str | None) -> None:
    if encoding != "UTF8":
        raise SchemaError(
            f"the database has the encoding {encoding}; Oomph needs UTF8: an error message with any other character "
            "could not be stored, and its attempt would never end"
        )
