import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from supervisor.commands.application import cli

Connection = psycopg.Connection[tuple[Any, ...]]


class Answer:
    """What a command printed, and its exit status."""

    def __init__(self, arguments: tuple[str, ...], status: int, out: str, err: str) -> None:
        self.arguments, self.status, self.out, self.err = arguments, status, out, err

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    def refused(self) -> str:
        """The reason of a refusal: status 1, one paragraph on stderr, nothing on stdout, no traceback."""
        assert self.status == 1, (self.status, self.out, self.err)
        assert self.err.startswith("Error: ")
        assert "Traceback" not in self.err
        assert self.out == ""
        return self.err

    def misused(self) -> str:
        assert self.status == 2, (self.status, self.out, self.err)
        assert "Traceback" not in self.err
        return self.err


class Oomph(Protocol):
    def __call__(self, *arguments: str, **environment: str) -> Answer: ...


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("WORKER_", "OOMPH_ACTOR", "DATABASE_URL", "COLUMNS", "PG")):
            monkeypatch.delenv(name)


@pytest.fixture
def anywhere() -> Oomph:
    """Runs `oomph` without a database."""

    def run(*arguments: str, **environment: str) -> Answer:
        result = CliRunner().invoke(cli, arguments, env=environment, prog_name="oomph")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(arguments, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def oomph(anywhere: Oomph, url: str) -> Oomph:
    """Runs `oomph` on this test's database."""
    return lambda *arguments, **environment: anywhere(*arguments, DATABASE_URL=url, **environment)


@pytest.fixture
def bare_url(server: str) -> Iterator[str]:
    """A database without any table."""
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def without_secrets(db: Connection) -> None:
    """A worker has declared the kind `greet`, whose payloads have no secrets."""
    db.execute("INSERT INTO background_kinds (kind, secret_paths) VALUES ('greet', '{}')")


@pytest.fixture
def insert(db: Connection) -> Callable[..., int]:
    """Inserts a row into background_jobs; returns its id."""

    def row(**columns: Any) -> int:
        columns = {"kind": "greet", "pool": "system", **columns}
        query = sql.SQL("INSERT INTO background_jobs ({}) VALUES ({}) RETURNING id").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
        )
        found = db.execute(query, columns).fetchone()
        assert found is not None
        return int(found[0])

    return row
