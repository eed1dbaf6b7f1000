"""One database for all tests of `jobs`, emptied before each: there are hundreds of them, and a copy costs 0.2 s."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobs.database import Database
from jobs.recovery import Recovery
from jobs.store import JobStore
from tests.jobs import lab
from tests.jobs.lab import scalar


@dataclass
class Shared:
    url: str
    tables: list[str]  # of the migrations; what else lies there, some test made
    functions: list[str]

    @property
    def name(self) -> str:
        return str(conninfo_to_dict(self.url)["dbname"])


@pytest.fixture(scope="session")
def shared(server: str, _oomph_template: str) -> Iterator[Shared]:
    name = f"jobs_{uuid.uuid4().hex}"
    url = make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(_oomph_template))
        )
        with psycopg.connect(url) as db:
            shared = Shared(url, tables(db), functions(db))
        yield shared
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def url(server: str, shared: Shared) -> str:
    """A migrated database without rows, without connections and without anything that an earlier test added."""
    with psycopg.connect(server, autocommit=True) as admin:  # from outside: a test may have made it hard to enter
        admin.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(shared.name)))
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [shared.name])
    with psycopg.connect(shared.url, autocommit=True) as db:
        for table in set(tables(db)) - set(shared.tables):
            db.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(table)))
        for function in set(functions(db)) - set(shared.functions):
            db.execute(f"DROP FUNCTION {function} CASCADE".encode())  # and the triggers that call it
        empty(db, [table for table in shared.tables if table != "background_migrations"])
    return shared.url


def tables(db: psycopg.Connection[Any]) -> list[str]:
    """All tables, those that refer to others behind them."""
    rows = db.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY oid"
    )
    return [row[0] for row in rows]


def functions(db: psycopg.Connection[Any]) -> list[str]:
    rows = db.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    return [row[0] for row in rows]


def empty(db: psycopg.Connection[Any], ours: list[str]) -> None:
    if scalar(db, "SELECT pg_relation_size('background_jobs') > 1000000"):
        db.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.Identifier, ours))))
    else:
        for table in reversed(ours):  # a few rows go four times faster than a truncation's new files come
            db.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    db.execute(
        "SELECT setval(oid, 1, false) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'"
    )


@pytest.fixture
async def worker(store: JobStore) -> lab.Worker:
    return await lab.hire(store)


@pytest.fixture
def recovery(database: Database, store: JobStore) -> Recovery:
    return Recovery(database, store, unknown_kind_grace=timedelta(0))
