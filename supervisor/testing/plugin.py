"""The pytest plugin: see `supervisor.testing`. Registered by the distribution, so imports stay inside the fixtures."""

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from supervisor.testing.kit import Kit

TEMPLATE = "oomph_template"


@pytest.fixture(scope="session")
def oomph_server() -> Iterator[str]:
    """The URL of a throw-away PostgreSQL; override this fixture to use another one."""
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
def _oomph_template(oomph_server: str) -> str:
    """A migrated database to copy: that is quicker than a migration for each test."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import make_conninfo

    from jobs.migrate import migrate

    with psycopg.connect(oomph_server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(TEMPLATE)))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    migrate(make_conninfo(oomph_server, dbname=TEMPLATE))
    return TEMPLATE


@pytest.fixture
def oomph_database(oomph_server: str, _oomph_template: str) -> Iterator[str]:
    """The URL of this test's own, migrated database."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import make_conninfo

    name = sql.Identifier(database := f"oomph_{uuid.uuid4().hex}")
    with psycopg.connect(oomph_server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(_oomph_template)))
    yield make_conninfo(oomph_server, dbname=database)
    with psycopg.connect(oomph_server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture
def oomph_kit(oomph_database: str, tmp_path: Path) -> "Iterator[Kit]":
    """A `Kit` on this test's own database; its workers are killed at the end."""
    from supervisor.testing.kit import Kit

    with ExitStack() as stack:
        yield Kit(oomph_database, tmp_path, stack)
