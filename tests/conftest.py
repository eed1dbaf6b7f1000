"""A real PostgreSQL for the whole run, and a fresh database for each test."""

import os
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs.database import Database
from jobs.migrate import migrate
from jobs.store import JobStore
from supervisor.embedded import EmbeddedServer
from tests.system_server import system_server

TEMPLATE = "oomph_template"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server: the embedded PostgreSQL, or the system's own with OOMPH_TEST_SERVER=system."""
    directory = Path("/tmp") / f"oomph-test-{uuid.uuid4().hex[:12]}"  # short: a socket's path has 107 bytes at most
    if os.environ.get("OOMPH_TEST_SERVER") == "system":
        with system_server(directory) as url:
            yield url
        return
    with EmbeddedServer(directory, durable=False) as url:
        yield url
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def migrated(server: str) -> str:
    """A migrated database that the tests' own databases are copied from."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(TEMPLATE)))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    migrate(make_conninfo(server, dbname=TEMPLATE))
    return TEMPLATE


@pytest.fixture
def url(server: str, migrated: str) -> Iterator[str]:
    """The connection string of this test's own, migrated database."""
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(migrated)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """An autocommit connection for looking and for preparing."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = Database(url, call_timeout=10, application_name="test")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def store(database: Database) -> JobStore:
    return JobStore(database, retry_delay=0.01, pause_after=5)


LEASE = timedelta(seconds=30)
