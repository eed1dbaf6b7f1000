"""The pytest plugin: see `supervisor.testing`. Registered by the distribution, so imports stay inside the fixtures."""

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from supervisor.testing.kit import Kit


@pytest.fixture(scope="session")
def oomph_server() -> Iterator[str]:
    """The URL of a throw-away PostgreSQL; override this fixture to use another one, also one for many sessions."""
    from supervisor.embedded import EmbeddedServer

    # Not below pytest's own folder: for root the server runs as another user, who may not enter that.
    directory = Path(tempfile.mkdtemp(prefix="oomph-test-"))
    directory.chmod(0o755)
    try:
        with EmbeddedServer(directory, durable=False, settings={"max_connections": "300"}) as url:
            yield url
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def _oomph_template(oomph_server: str) -> Iterator[str]:
    """A migrated database to copy: that is quicker than a migration for each test."""
    from psycopg.conninfo import make_conninfo

    from jobs.migrate import migrate

    with _fresh_database(oomph_server, copy_of="template1") as name:
        migrate(make_conninfo(oomph_server, dbname=name))
        yield name


@pytest.fixture
def oomph_database(oomph_server: str, _oomph_template: str) -> Iterator[str]:
    """The URL of this test's own, migrated database."""
    from psycopg.conninfo import make_conninfo

    with _fresh_database(oomph_server, copy_of=_oomph_template) as name:
        yield make_conninfo(oomph_server, dbname=name)


@contextmanager
def _fresh_database(server: str, copy_of: str) -> Iterator[str]:
    """Its name is nobody else's: with pytest-xdist, several sessions may share one server."""
    import psycopg
    from psycopg import sql

    name = f"oomph_{uuid.uuid4().hex}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(copy_of))
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(create)
    try:
        yield name
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def oomph_kit(oomph_database: str, tmp_path: Path) -> "Iterator[Kit]":
    """A `Kit` on this test's own database; its workers are ended with the test, and what their jobs have left."""
    from supervisor.testing.kit import Kit

    with ExitStack() as stack:
        yield Kit(oomph_database, tmp_path, stack)
