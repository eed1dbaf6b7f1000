"""Applies the schema's migrations: by one migrator at a time, while workers go on."""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.pq import TransactionStatus

from jobs.migrations import NEWEST, How, Migration, Step, migrations

# One lock for all schemas of a database: migrations are rare. Any constant does; this one spells "oomph".
ADVISORY_LOCK = 0x6F6F6D7068
TURN_SECONDS = 60.0  # for another migrator to end
LOCK_TIMEOUT_MS = 400  # whoever comes after a migration that waits for a lock waits too: it gives up and tries again
LOCK_TRIES = 60
LOCK_PAUSE_SECONDS = 0.5  # between two tries, on average; those who had to wait go first
# An index is built concurrently once all transactions from before it have ended. Nobody waits for it meanwhile.
CONCURRENT_TIMEOUT_MS = 600_000
ONE_LOCK_TIMEOUT_MS = 5_000  # in a transaction of somebody else's, which cannot try again

Result = TypeVar("Result")

TABLE = """
CREATE TABLE IF NOT EXISTS background_migrations
    (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),
     needs integer NOT NULL DEFAULT 0); -- the oldest schema whose release can work with this one
ALTER TABLE background_migrations ADD COLUMN IF NOT EXISTS needs integer NOT NULL DEFAULT 0;
"""

# What a database or role may set for the statements of an application; an index over many jobs takes longer. Not all
# releases of PostgreSQL know all of them.
_TIME_LIMITS = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
_RESET = "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name = %s"

_CREATE_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


class SchemaError(Exception):
    """The database does not fit this release; the message says what to run."""


def migrate(url: str) -> list[str]:
    """Apply what is missing and return the names. Safe to run from many hosts at once, and while workers run.

    A database without any of our tables gets all of them in one transaction, or none. Later migrations are applied one
    by one; what is applied stays applied, and the next run goes on there.

    Raises `SchemaError` where the database is of a newer release that this one cannot work with, and psycopg's
    `LockNotAvailable` where somebody holds a lock for minutes: run it again.
    """
    with _connect(url) as guard, _connect(url) as connection, _turn(guard):
        _refuse_encoding(connection.info.parameter_status("server_encoding"))
        present = _present(connection)
        if not present:
            with connection.transaction():
                _take_all_time(connection, local=True)
                return _apply_at_once(connection.execute)
        check_version(max(present), _needs(connection), may_be_older=True)
        missing = [migration for migration in migrations() if migration.version not in present]
        if missing:
            _patiently(connection, lambda: connection.execute(TABLE))
        for migration in missing:
            _apply(connection, migration)
        return [migration.name for migration in missing]


def apply(execute: Callable[[LiteralString], Iterable[Any]]) -> list[str]:
    """Apply what is missing in a transaction that is open already, and return the names.

    `execute` runs a script of statements without parameters, `%` as it stands, and returns the rows of a query. The
    caller commits. Raises like `migrate`; the error of a lock is the driver's own. Every lock is held until then,
    and new indexes hold up all writers: among many jobs, stop the workers for it, or run `oomph migrate` instead.
    """
    ((waits,),) = execute("SELECT current_setting('lock_timeout')")
    execute(f"SELECT set_config('lock_timeout', '{ONE_LOCK_TIMEOUT_MS}ms', true)")
    execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
    ((encoding,),) = execute("SELECT current_setting('server_encoding')")
    _refuse_encoding(encoding)
    applied = _apply_at_once(execute)
    execute(f"SELECT set_config('lock_timeout', '{waits}', true)")  # the rest of the transaction is the caller's
    return applied


def tables() -> frozenset[str]:
    """The names of all tables of this release, but for those of vectors, which are made as models come."""
    made = (_CREATE_TABLE.findall(step.sql) for migration in migrations() for step in migration.steps)
    return frozenset(chain(["background_migrations"], *made))


def script(since: int = 0) -> str:
    """The SQL of all migrations after version `since`, for people who apply schema changes by hand.

    For an empty database it is one transaction. For another one it has many, and indexes are made outside of them.
    """
    if not since:
        parts = [TABLE.strip()]
        for migration in migrations():
            parts += [step.at_once for step in migration.steps] + [_recording(migration)]
        return "\n".join(["BEGIN;", *parts, "COMMIT;"])
    parts = [TABLE.strip(), "SET statement_timeout = 0;", f"SET lock_timeout = '{LOCK_TIMEOUT_MS}ms';"]
    for migration in migrations():
        if migration.version > since:
            for step in migration.steps:
                match step.how:
                    case How.TRANSACTION:
                        parts += ["BEGIN;", step.sql, "COMMIT;"]
                    case How.CONCURRENTLY:
                        drop = f"DROP INDEX CONCURRENTLY IF EXISTS {step.index};"
                        parts += ["SET lock_timeout = 0;", drop, step.sql, f"SET lock_timeout = '{LOCK_TIMEOUT_MS}ms';"]
                    case How.BATCHES:
                        parts += ["-- Again and again, until it changes no row:", step.sql]
            parts.append(_recording(migration))
    return "\n".join(parts)


def check(connection: psycopg.Connection[Any]) -> None:
    """Raise `SchemaError` unless a worker of this release can work with the database's schema."""
    check_version(max(_present(connection), default=0), _needs(connection))


def check_version(present: int, needs: int, *, may_be_older: bool = False) -> None:
    """Raise `SchemaError` unless this release can work with a schema whose newest migration, or 0, is `present`.

    A newer one will do, unless one of its migrations `needs` a newer release: so a deploy migrates first and replaces
    its workers one after the other.
    """
    newest = NEWEST
    if needs > newest:
        raise SchemaError(
            f"the database is at version {present}, newer than the {newest} of this release: upgrade this installation "
            f"to one of version {needs} or newer"
        )
    if present < newest and not may_be_older:
        state = "has no tables of Oomph" if present == 0 else f"is at version {present}, this release needs {newest}"
        raise SchemaError(f"the database {state}: run `oomph migrate`")


def _connect(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, connect_timeout=5, application_name="oomph migrate", autocommit=True)
    # Or else the one that waits for its turn would keep a snapshot, for whose end an index that is built waits.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


@contextmanager
def _turn(guard: psycopg.Connection[Any]) -> Iterator[None]:
    """Be the only migrator. Held in a transaction, for poolers, that has neither a snapshot nor a lock of a table."""
    until = time.monotonic() + TURN_SECONDS
    while True:
        with guard.transaction():
            _take_all_time(guard, local=True)
            # Without parameters: they would leave a portal open, and that its snapshot.
            row = guard.execute(f"SELECT pg_try_advisory_xact_lock({ADVISORY_LOCK})").fetchone()
            if row is not None and row[0]:
                yield
                return
        if time.monotonic() > until:
            raise errors.LockNotAvailable(f"another migration has been running for {TURN_SECONDS:g} s; run this again")
        time.sleep(LOCK_PAUSE_SECONDS * random.uniform(0.2, 0.6))


def _present(connection: psycopg.Connection[Any]) -> set[int]:
    row = connection.execute("SELECT to_regclass('background_migrations') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return set()
    return {version for (version,) in connection.execute("SELECT version FROM background_migrations")}


def _needs(connection: psycopg.Connection[Any]) -> int:
    """0 without the table, and in one of the first release, which does not have the column."""
    row = connection.execute("SELECT to_regclass('background_migrations') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute(
        "SELECT max((to_jsonb(m) ->> 'needs')::integer) FROM background_migrations AS m"
    ).fetchone()
    return (row[0] if row is not None else None) or 0


def _apply_at_once(execute: Callable[[LiteralString], Iterable[Any]]) -> list[str]:
    execute(TABLE)
    rows = list(execute("SELECT version, needs FROM background_migrations"))
    present = {version for version, _ in rows}
    check_version(max(present, default=0), max((needs for _, needs in rows), default=0), may_be_older=True)
    missing = [migration for migration in migrations() if migration.version not in present]
    for migration in missing:
        for step in migration.steps:
            if step.how is How.BATCHES and present:
                raise SchemaError(f"migration {migration.name} goes in batches: run `oomph migrate`")
            execute(step.at_once)
        execute(_recording(migration))
    return [migration.name for migration in missing]


def _apply(connection: psycopg.Connection[Any], migration: Migration) -> None:
    *before, last = migration.steps
    for step in before:
        _run(connection, step)
    if last.how is How.TRANSACTION:  # together with the record of it

        def run() -> None:
            connection.execute(last.sql)
            _record(connection, migration)

        _patiently(connection, run)
    else:
        _run(connection, last)
        _record(connection, migration)


def _take_all_time(connection: psycopg.Connection[Any], *, local: bool) -> None:
    """No limit on statements and transactions, until the transaction ends if `local`. Leaves no portal open."""
    names = ", ".join(f"'{name}'" for name in _TIME_LIMITS)
    connection.execute(f"SELECT set_config(name, '0', {local}) FROM pg_settings WHERE name IN ({names})")  # noqa: S608


def _run(connection: psycopg.Connection[Any], step: Step) -> None:
    match step.how:
        case How.TRANSACTION:
            _patiently(connection, lambda: connection.execute(step.sql))
        case How.CONCURRENTLY:
            _build(connection, step)
        case How.BATCHES:
            while _patiently(connection, lambda: connection.execute(step.sql).rowcount) > 0:
                pass


def _build(connection: psycopg.Connection[Any], step: Step) -> None:
    row = connection.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [step.index]
    ).fetchone()
    if row is not None and row[0]:
        return
    try:
        _take_all_time(connection, local=False)
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{CONCURRENT_TIMEOUT_MS}ms"])
        if row is not None:  # of a run that died
            connection.execute(f"DROP INDEX CONCURRENTLY {step.index}")
        connection.execute(step.sql)
    finally:
        if connection.info.transaction_status is TransactionStatus.IDLE:
            for setting in ("lock_timeout", *_TIME_LIMITS):
                # Not RESET, which refuses a name that an older PostgreSQL does not know.
                connection.execute(_RESET, [setting])


def _patiently(connection: psycopg.Connection[Any], run: Callable[[], Result]) -> Result:
    """Run it in a transaction that waits for locks a moment only, many times if need be."""
    for left in reversed(range(LOCK_TRIES)):
        try:
            with connection.transaction():
                _take_all_time(connection, local=True)
                connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
                return run()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if not left:
                raise
            time.sleep(LOCK_PAUSE_SECONDS * random.uniform(0.5, 1.5))
    raise AssertionError("the last try returns or raises")


def _record(connection: psycopg.Connection[Any], migration: Migration) -> None:
    connection.execute(_recording(migration))


def _recording(migration: Migration) -> LiteralString:
    values = f"{migration.version}, '{migration.name}', {migration.needs}"
    return f"INSERT INTO background_migrations (version, name, needs) VALUES ({values});"  # noqa: S608


def _refuse_encoding(encoding: str | None) -> None:
    if encoding != "UTF8":
        raise SchemaError(
            f"the database has the encoding {encoding}; Oomph needs UTF8: an error message with any other character "
            "could not be stored, and its attempt would never end"
        )
