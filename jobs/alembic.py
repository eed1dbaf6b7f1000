"""Oomph's tables beside those that Alembic keeps: left alone by autogenerate, or made by a revision of yours.

Left alone, in `env.py`, with `oomph migrate` beside `alembic upgrade`:

    context.configure(..., include_name=jobs.alembic.include_name)

Made by your revisions too, then in one that is written by hand, and again in a new one after each upgrade of Oomph:

    def upgrade() -> None:
        jobs.alembic.upgrade()
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, LiteralString

from alembic import op
from sqlalchemy import Connection

from jobs.migrate import SchemaError, apply, tables

__all__ = ["include_name", "is_ours", "upgrade"]

_VECTORS = re.compile(r"background_vectors_\d+")  # one for each model, made when its first vectors are written


def is_ours(table: str | None) -> bool:
    """Whether a table of this name is Oomph's."""
    return table is not None and (table in _tables() or _VECTORS.fullmatch(table) is not None)


def include_name(name: str | None, type_: str, parent_names: Mapping[Any, str | None]) -> bool:
    """For `context.configure(include_name=...)`: False for Oomph's tables and what belongs to them.

    Where you have a hook already, let it ask `is_ours`.
    """
    return not is_ours(name if type_ == "table" else parent_names.get("table_name"))


def upgrade() -> None:
    """Apply what is missing of this release's migrations, in the transaction of the Alembic revision that calls it.

    Safe to call again: what was applied, by whomever, is not applied twice. Raises `SchemaError` where the database is
    of a newer release, and with `alembic upgrade --sql`, which cannot ask what is missing. Nothing takes it back: a
    `downgrade` of yours leaves the tables, for the jobs in them.
    """
    if op.get_context().as_sql:
        raise SchemaError("offline, nobody knows what is missing: apply the output of `oomph migrate --sql` yourself")
    connection = op.get_bind()
    apply(lambda sql: _execute(connection, sql))


def _execute(connection: Connection, sql: LiteralString) -> Iterable[Any]:
    if connection.dialect.driver == "asyncpg" and not sql.startswith("SELECT "):
        # SQLAlchemy prepares each statement there, and PostgreSQL prepares one at a time.
        adapted: Any = connection.connection.dbapi_connection
        adapted.run_async(lambda driver: driver.execute(sql))
        return ()
    result = connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
    return result.fetchall() if result.returns_rows else ()


@cache
def _tables() -> frozenset[str]:
    return tables()
