"""What one look of the page reads is true of one moment."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
import pytest

from jobs.reports import show_job
from jobs.standing import Next, standing
from jobs.unavailable import DatabaseUnavailable
from supervisor.page.reading import PageDatabase, Session
from tests.page.conftest import Insert


@pytest.fixture
async def page(url: str) -> AsyncIterator[PageDatabase]:
    opened = PageDatabase(url)
    yield opened
    await opened.close()


async def test_a_look_sees_nothing_that_is_committed_meanwhile(
    page: PageDatabase, insert: Insert, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    job_id = insert()
    async with page.look() as look:
        report = await show_job(look.connection, job_id)
        db.execute("UPDATE background_jobs SET status = 'cancelled', finished_at = now() WHERE id = %s", [job_id])
        stands = await standing(look.connection, job_id)
    assert (report.job.status, stands.next) == ("queued", Next.WORKER)
    async with page.look() as later:
        assert (await show_job(later.connection, job_id)).job.status == "cancelled"


async def test_a_look_writes_nothing(
    page: PageDatabase, insert: Insert, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    insert()
    with pytest.raises(DatabaseUnavailable, match="read-only transaction"):
        await _delete(page.look())
    await _delete(page.act())
    assert db.execute("SELECT FROM background_jobs").fetchall() == []


async def _delete(transaction: AbstractAsyncContextManager[Session]) -> None:
    async with transaction as session:
        await session.connection.execute("DELETE FROM background_jobs")
