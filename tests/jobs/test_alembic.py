"""Alembic, the real one, beside our tables: autogenerate leaves them alone, or a revision of the service makes them."""

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from jobs.alembic import include_name, is_ours
from jobs.migrate import SchemaError, migrate, tables
from tests.jobs.lab import Connection
from tests.jobs.test_migrate import empty, schema

__all__ = ["empty"]

ENV = {
    "psycopg": """
from alembic import context
import jobs.alembic
from sqlalchemy import MetaData, create_engine, pool

URL = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=URL, target_metadata=MetaData())
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(URL, poolclass=pool.NullPool).connect() as connection:
        context.configure(connection, target_metadata=MetaData(), include_name=jobs.alembic.include_name)
        with context.begin_transaction():
            context.run_migrations()
""",
    "asyncpg": """
import asyncio
from alembic import context
import jobs.alembic
from sqlalchemy import MetaData, pool
from sqlalchemy.ext.asyncio import create_async_engine

def run(connection):
    context.configure(connection, target_metadata=MetaData(), include_name=jobs.alembic.include_name)
    with context.begin_transaction():
        context.run_migrations()

async def main():
    url = context.config.get_main_option("sqlalchemy.url")
    async with create_async_engine(url, poolclass=pool.NullPool).connect() as db:
        await db.run_sync(run)

asyncio.run(main())
""",
}

REVISION = """
import jobs.alembic
from alembic import op
revision, down_revision = {revision!r}, {before!r}

def upgrade():
    jobs.alembic.upgrade()
    op.execute("{statement}")
"""


def url_for(driver: str, url: str) -> str:
    named = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    query = {name: named[name] for name in ("host", "port") if name in named}
    address = sa.URL.create(f"postgresql+{driver}", named["user"], named.get("password"), database=named["dbname"])
    address = address.set(query=query)
    return address.render_as_string(hide_password=False)


def project(folder: Path, url: str, driver: str = "psycopg", *statements: str) -> Config:
    """A service's Alembic folder whose revisions each upgrade ours and run a statement of the service."""
    (folder / "versions").mkdir()
    (folder / "env.py").write_text(ENV[driver])
    (folder / "script.py.mako").write_text("")
    for number, statement in enumerate(statements, start=1):
        revision = REVISION.format(
            revision=f"r{number}", before=f"r{number - 1}" if number > 1 else None, statement=statement
        )
        (folder / "versions" / f"r{number}.py").write_text(revision)
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url_for(driver, url).replace("%", "%%"))
    return config


def test_every_table_of_ours_is_known_by_its_name(db: Connection) -> None:
    made = db.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
    assert {name for (name,) in made} == tables()
    assert is_ours("background_vectors_7")
    assert not is_ours("background_images")
    assert not is_ours(None)


def test_autogenerate_leaves_our_tables_alone_and_sees_the_services_own(db: Connection, url: str) -> None:
    db.execute("CREATE TABLE background_vectors_1 (chunk_id uuid PRIMARY KEY)")
    db.execute("CREATE TABLE background_images (id bigint PRIMARY KEY)")
    db.execute("CREATE INDEX mine ON background_images (id)")
    engine = sa.create_engine(url_for("psycopg", url))
    with engine.connect() as connection:
        everything = compare_metadata(MigrationContext.configure(connection), sa.MetaData())
        hooked = MigrationContext.configure(connection, opts={"include_name": include_name})
        own = compare_metadata(hooked, sa.MetaData())
    engine.dispose()
    assert {change[1].name for change in everything if change[0] == "remove_table"} == {
        *tables(),
        "background_vectors_1",
        "background_images",
    }
    assert sorted((change[0], change[1].name) for change in own) == [
        ("remove_index", "mine"),
        ("remove_table", "background_images"),
    ]


@pytest.mark.parametrize("driver", ENV)
def test_a_revision_makes_our_tables_in_its_own_transaction(driver: str, url: str, empty: str, tmp_path: Path) -> None:
    config = project(tmp_path, empty, driver, "CREATE TABLE mine (id bigint)", "CREATE TABLE more (id bigint)")
    command.upgrade(config, "r1")
    ours = [row for row in schema(empty) if row[0] not in ("mine", "alembic_version")]
    assert [row for row in ours if "alembic_version" not in str(row)] == schema(url)
    command.upgrade(config, "head")  # ours are there already
    assert migrate(empty) == []


def test_a_revision_that_fails_leaves_nothing_of_ours(empty: str, tmp_path: Path) -> None:
    config = project(tmp_path, empty, "psycopg", "SELECT 1 / 0")
    with pytest.raises(sa.exc.DataError) as failed:
        command.upgrade(config, "head")
    assert isinstance(failed.value.orig, errors.DivisionByZero)
    with psycopg.connect(empty) as db:
        assert db.execute("SELECT to_regclass('background_migrations')").fetchall() == [(None,)]


def test_offline_it_says_what_to_do_instead(empty: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="oomph migrate --sql"):
        command.upgrade(project(tmp_path, empty, "psycopg", "SELECT 1"), "head", sql=True)
