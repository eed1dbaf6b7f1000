"""A real PostgreSQL for the whole run, and a fresh database for each test."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from jobs.database import Database
from jobs.store import JobStore
from tests.system_server import system_server

if os.environ.get("OOMPH_TEST_SERVER") == "system":

    @pytest.fixture(scope="session")
    def oomph_server() -> Iterator[str]:
        """The PostgreSQL that this system has installed, instead of the embedded one."""
        # Short: the path of a socket has 107 bytes at most.
        with system_server(Path("/tmp") / f"oomph-test-{uuid.uuid4().hex[:12]}") as url:
            yield url

elif given := os.environ.get("OOMPH_TEST_SERVER"):

    @pytest.fixture(scope="session")
    def oomph_server() -> str:
        """The throw-away server of whoever runs many sessions, as `scripts/mutations` does; one session at a time."""
        return given


@pytest.fixture(scope="session")
def server(oomph_server: str) -> str:
    """The URL of the run's server."""
    return oomph_server


@pytest.fixture
def url(oomph_database: str) -> str:
    """The connection string of this test's own, migrated database."""
    return oomph_database


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
