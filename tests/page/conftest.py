from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from supervisor.page import Actor, JobsPage, Role, read_tokens
from supervisor.page.access import ThisHost
from tests.page.serving import OWNER_TOKEN, TOKENS, Browser, served

Insert = Callable[..., int]


@pytest.fixture
def address(url: str) -> Iterator[str]:
    """The page of this test's database, for whoever is on this host."""
    with served(JobsPage(url, authenticate=ThisHost(Actor("somebody here", Role.OWNER)))) as given:
        yield given


@pytest.fixture
def browser(address: str) -> Iterator[Browser]:
    """An owner's, who needs no token."""
    with Browser(address) as opened:
        yield opened


@pytest.fixture
def guarded(url: str) -> Iterator[str]:
    """The page of this test's database, for those who have a token."""
    with served(JobsPage(url, authenticate=read_tokens(TOKENS, "the tests"))) as given:
        yield given


@pytest.fixture
def stranger(guarded: str) -> Iterator[Browser]:
    """Somebody without a token."""
    with Browser(guarded) as opened:
        yield opened


@pytest.fixture
def owner(guarded: str) -> Iterator[Browser]:
    with Browser(guarded) as opened:
        assert opened.sign_in(OWNER_TOKEN).status_code == 200
        yield opened


@pytest.fixture
def insert(db: psycopg.Connection[tuple[Any, ...]]) -> Insert:
    """Inserts a row into background_jobs; returns its id."""

    def row(**columns: Any) -> int:
        given = {"kind": "greet", "pool": "system", **columns}
        values = {name: Jsonb(value) if isinstance(value, dict | list) else value for name, value in given.items()}
        query = sql.SQL("INSERT INTO background_jobs ({}) VALUES ({}) RETURNING id").format(
            sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(map(sql.Placeholder, values))
        )
        found = db.execute(query, values).fetchone()
        assert found is not None
        return int(found[0])

    return row
