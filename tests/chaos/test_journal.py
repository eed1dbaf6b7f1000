"""The journal on real tables: every write that must not be is in it, and the checker sees it."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs.database import Database
from jobs.migrate import migrate
from jobs.outcome import Verdict
from jobs.store import JobStore
from supervisor.embedded import EmbeddedServer
from tests.chaos.app import WRITE
from tests.chaos.checker import check
from tests.chaos.history import read
from tests.jobs import lab

FIRE = "INSERT INTO background_jobs (kind, pool, schedule, occurrence) VALUES ('note', 'system', 'every', '2026-01-01')"
BAD: list[tuple[str, LiteralString]] = [
    ("was written again", "UPDATE background_jobs SET result = '{}' WHERE id = %(ended)s"),
    ("was written again", "UPDATE background_jobs SET progress = 0.9 WHERE id = %(ended)s"),
    (
        "was given the progress of 'claim 1'",
        "UPDATE background_jobs SET progress_note = 'claim 1' WHERE id = %(second)s",
    ),
    ("without a claim", "UPDATE background_jobs SET worker_id = %(other)s WHERE id = %(second)s"),
    (
        "was given the result of claim 1",
        "UPDATE background_jobs SET status = 'succeeded', result = '{\"claim\": 1}' WHERE id = %(second)s",
    ),
]


@pytest.fixture(scope="module")
def tracking() -> Iterator[str]:
    folder = Path("/tmp") / f"oomph-test-{uuid.uuid4().hex[:12]}"
    with EmbeddedServer(folder, durable=False, settings={"track_commit_timestamp": "on"}) as url:
        yield url
    shutil.rmtree(folder)


@pytest.fixture
def url(tracking: str) -> str:
    name = f"journal_{uuid.uuid4().hex}"
    with psycopg.connect(tracking, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    migrate(made := make_conninfo(tracking, dbname=name))
    return made


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((Path(__file__).parent / "history.sql").read_text())
        yield connection


@pytest.fixture
async def names(db: psycopg.Connection[Any], database: Database) -> dict[str, Any]:
    """`ended` has succeeded; `second` runs, claimed for the second time; `other` is a worker that has nothing."""
    store = JobStore(database, retry_delay=0, pause_after=5)
    worker, other = await lab.hire(store), await lab.hire(store)
    (ended,) = lab.add(db)
    job = await worker.claim_one()
    await lab.succeed(store, {job.fence: '{"claim": 1}'})
    (second,) = lab.add(db)
    await store.finish((await worker.claim_one()).fence, lab.returned(Verdict.RELEASED))
    job = await worker.claim_one()
    await store.progress({job.fence: (0.5, "claim 2")})
    for line in ("start", "end"):
        db.execute(WRITE, [ended, 1, 1, "child", line])
    return {"ended": ended, "second": second, "other": other.id}


def told(db: psycopg.Connection[Any], **observed: Any) -> list[str]:
    return [str(violation) for violation in check(read(db, **observed)) if "after the drain" not in violation.text]


async def test_what_workers_write_is_no_violation(db: psycopg.Connection[Any], names: dict[str, Any]) -> None:
    assert told(db) == []


@pytest.mark.parametrize(("sentence", "statement"), BAD, ids=[f"{n}: {text}" for n, (text, _) in enumerate(BAD)])
async def test_a_write_past_the_fence_is_seen(
    db: psycopg.Connection[Any], names: dict[str, Any], sentence: str, statement: LiteralString
) -> None:
    db.execute(statement, names)
    assert any(sentence in violation for violation in told(db)), told(db)


async def test_the_same_occurrence_twice_is_seen(db: psycopg.Connection[Any]) -> None:
    db.execute("DROP INDEX background_jobs_occurrence")
    for _ in range(2):
        db.execute(FIRE)
    assert any("after" in violation and "invariant 7" in violation for violation in told(db, grids={"every": 1.0}))
