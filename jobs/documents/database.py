"""How the work on documents reaches the database: a connection for a moment, opened where it is needed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from jobs.database import connection_parameters

CONNECT_SECONDS = 10

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def connected(name: str) -> Iterator[Connection]:
    """A connection to DATABASE_URL in autocommit mode; `name` is how the server's views show it."""
    url = os.environ.get("DATABASE_URL", "")
    with psycopg.connect(url, autocommit=True, **connection_parameters(name, CONNECT_SECONDS)) as db:
        yield db
