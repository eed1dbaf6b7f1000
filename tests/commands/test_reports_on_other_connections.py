"""`jobs.reports` serves any connection, as the page will hold another one than the command line."""

from collections.abc import Callable
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from jobs import control, reports

Insert = Callable[..., int]


@pytest.mark.usefixtures("without_secrets")
def test_sqlalchemy(url: str, insert: Insert) -> None:
    job_id = insert(status="dead", error=Jsonb({"type": "E", "message": "m"}), payload=Jsonb({"name": "ada"}))
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.connect() as connection:
        _check(
            job_id,
            reports.show_job(connection, job_id),
            reports.list_jobs(connection, status="dead"),
            reports.list_jobs(connection, before=job_id),
        )
        assert reports.list_workers(connection) == []


@pytest.mark.usefixtures("without_secrets")
async def test_asyncpg(url: str, insert: Insert) -> None:
    job_id = insert(status="dead", error=Jsonb({"type": "E", "message": "m"}), payload=Jsonb({"name": "ada"}))
    parts = conninfo_to_dict(url)
    connection = await asyncpg.connect(
        host=parts.get("host"), port=int(parts.get("port") or 5432), user=parts.get("user"),
        password=parts.get("password"), database=parts["dbname"],
    )  # fmt: skip
    try:
        _check(
            job_id,
            await reports.show_job(connection, job_id),
            await reports.list_jobs(connection, status="dead"),
            await reports.list_jobs(connection, before=job_id),
        )
        assert await reports.list_audit(connection) == []
    finally:
        await connection.close()


async def test_psycopg_async(url: str, insert: Insert) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await control.pause(connection, "greet", actor="ada")
        (kind,) = await reports.list_kinds(connection)
        assert (kind.kind, kind.paused_by) == ("greet", "ada")
        assert await reports.show_kind(connection, "other") is None
        assert await reports.show_job(connection, 1) is None


def _check(job_id: int, shown: reports.JobReport, dead: list[reports.JobRow], before: list[reports.JobRow]) -> None:
    assert shown.job.id == job_id
    assert shown.job.payload == {"name": "ada"}
    assert shown.job.error == {"type": "E", "message": "m"}
    assert shown.job.worker_id is None or isinstance(shown.job.worker_id, UUID)
    assert [row.id for row in dead] == [job_id]
    assert dead[0].payload is None
    assert before == []
