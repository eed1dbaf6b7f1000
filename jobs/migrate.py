"""The schema, versioned: SQL files applied in order, once, by one migrator at a time."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Any, LiteralString

import psycopg

# One lock for all schemas of a database: migrations are rare. Any constant does; this one spells "oomph".
ADVISORY_LOCK = 0x6F6F6D7068
LOCK_TIMEOUT_MS = 5_000  # a migration that waits behind a long transaction blocks everyone who comes after it

_RECORD: LiteralString = (
    "CREATE TABLE IF NOT EXISTS background_migrations "
    "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
)
_CREATE_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


class SchemaError(Exception):
    """The database does not fit this release; the message says what to run."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: LiteralString
    sql: LiteralString

    @property
    def recorded(self) -> LiteralString:
        """The statement that notes that it was applied."""
        return f"INSERT INTO background_migrations (version, name) VALUES ({self.version}, '{self.name}')"  # noqa: S608


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
    with psycopg.connect(url, connect_timeout=5, application_name="oomph migrate") as connection:
        return apply(connection.execute)


def apply(execute: Callable[[LiteralString], Iterable[Any]]) -> list[str]:
    """Apply what is missing in a transaction that is open already, and return the names; what `migrate` runs.

    `execute` runs a script of statements without parameters, `%` as it stands, and returns the rows of a query. The
    caller commits. Raises like `migrate`; the error of a lock is the driver's own.
    """
    ((waits,),) = execute("SELECT current_setting('lock_timeout')")
    execute(f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT_MS}ms', true)")
    execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
    ((encoding,),) = execute("SELECT current_setting('server_encoding')")
    _refuse_encoding(encoding)
    execute(_RECORD)
    present = {version for (version,) in execute("SELECT version FROM background_migrations")}
    _refuse_newer(max(present, default=0))
    applied = [migration for migration in migrations() if migration.version not in present]
    for migration in applied:
        execute(migration.sql)
        execute(migration.recorded)
    execute(f"SELECT set_config('lock_timeout', '{waits}', true)")  # the rest of the transaction is the caller's
    return [migration.name for migration in applied]


def tables() -> frozenset[str]:
    """The names of all tables of this release, but for those of vectors, which are made as models come."""
    made = (_CREATE_TABLE.findall(migration.sql) for migration in migrations())
    return frozenset(chain(["background_migrations"], *made))


def script() -> str:
    """All migrations as one SQL script, for people who apply schema changes by hand."""
    parts = ["BEGIN;", f"{_RECORD};"]
    for migration in migrations():
        parts += [migration.sql, f"{migration.recorded};"]
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
