"""What transactions have left in the sessions of the server that a pooler lends."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg

LEFT = {
    "prepared statements": "SELECT name FROM pg_prepared_statements",
    "channels": "SELECT pg_listening_channels()",
    # psycopg tells its name, and the pooler repeats that, the encoding and the styles to each session that it lends.
    "settings": "SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN "
    "('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings', 'IntervalStyle')",
    "advisory locks": "SELECT objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    "temporary tables": "SELECT relname FROM pg_class WHERE relpersistence = 't'",
    "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
}


def left_behind(pooled: str, sessions: int) -> list[tuple[str, Any]]:
    """What is left in each of so many sessions: all that there are, held at once by a transaction each."""
    found: list[tuple[str, Any]] = []
    with ExitStack() as stack:
        held = [stack.enter_context(psycopg.connect(pooled, prepare_threshold=None)) for _ in range(sessions)]
        pids = {_rows(connection, "SELECT pg_backend_pid()")[0] for connection in held}
        assert len(pids) == sessions, pids
        for connection in held:
            found += _left_in(connection)
            connection.rollback()
    return found


def _left_in(connection: "psycopg.Connection[tuple[Any, ...]]") -> Iterator[tuple[str, Any]]:
    for what, query in LEFT.items():
        for left in _rows(connection, query):
            yield what, left


def _rows(connection: "psycopg.Connection[tuple[Any, ...]]", query: str) -> list[Any]:
    return [row[0] for row in connection.execute(query).fetchall()]  # type: ignore[arg-type]
