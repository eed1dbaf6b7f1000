"""`spawn_after_commit`: after the commit, never after a rollback; a coroutine that may not run is closed.

Every warning is an error here, so a coroutine that was neither run nor closed fails its test.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

from jobs import spawn_after_commit
from tests.jobs.callers import async_engine, settle, sync_engine
from tests.jobs.lab import until


@pytest.fixture(params=["Session", "AsyncSession"])
async def session(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    if request.param == "Session":
        async with sync_engine(url) as engine:
            with orm.Session(engine) as opened:
                yield opened
    else:
        async with async_engine(url, "psycopg") as engine, AsyncSession(engine) as opened:
            yield opened


class Work:
    """Says which of its pieces ran."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def do(self, name: str) -> None:
        self.done.append(name)

    async def is_done(self, *names: str) -> None:
        await until(lambda: len(self.done) >= len(names))
        await self.settled()
        assert self.done == list(names)

    async def settled(self) -> None:
        """Let everything that was started run, and let everything that was forgotten be noticed."""
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()


@pytest.fixture
def work() -> Work:
    return Work()


async def execute(session: Any) -> None:
    await settle(session.execute(sa.text("SELECT 1")))


async def test_it_runs_after_the_commit_and_not_before(session: Any, work: Work) -> None:
    await execute(session)
    spawn_after_commit(session, work.do("a"))
    await work.settled()
    assert work.done == []
    await settle(session.commit())
    await work.is_done("a")


async def test_it_counts_for_the_transaction_that_is_about_to_begin(session: Any, work: Work) -> None:
    spawn_after_commit(session, work.do("a"))
    await execute(session)
    await settle(session.commit())
    await work.is_done("a")


async def test_it_runs_once_and_the_session_goes_on(session: Any, work: Work) -> None:
    spawn_after_commit(session, work.do("a"))
    await settle(session.commit())
    await work.is_done("a")
    await execute(session)
    await settle(session.commit())
    spawn_after_commit(session, work.do("b"))
    await settle(session.commit())
    await work.is_done("a", "b")


async def test_several_of_one_transaction_all_run(session: Any, work: Work) -> None:
    for name in "abcd":
        spawn_after_commit(session, work.do(name))
    await settle(session.commit())
    await work.is_done("a", "b", "c", "d")


async def test_after_a_rollback_it_never_runs(session: Any, work: Work) -> None:
    await execute(session)
    for name in "abc":
        spawn_after_commit(session, work.do(name))
    await settle(session.rollback())
    await execute(session)
    await settle(session.commit())
    await work.is_done()


async def test_after_a_close_without_commit_it_never_runs(session: Any, work: Work) -> None:
    await execute(session)
    for name in "abc":
        spawn_after_commit(session, work.do(name))
    await settle(session.close())
    await execute(session)
    await settle(session.commit())
    await work.is_done()


async def test_a_rolled_back_savepoint_takes_only_its_own_away(session: Any, work: Work) -> None:
    spawn_after_commit(session, work.do("before"))
    savepoint = await settle(session.begin_nested())
    spawn_after_commit(session, work.do("inside"))
    inner = await settle(session.begin_nested())
    spawn_after_commit(session, work.do("deep inside"))
    await settle(inner.commit())
    await settle(savepoint.rollback())
    spawn_after_commit(session, work.do("after"))
    await settle(session.commit())
    await work.is_done("before", "after")


async def test_a_released_savepoint_does_not_start_anything_yet(session: Any, work: Work) -> None:
    spawn_after_commit(session, work.do("before"))
    savepoint = await settle(session.begin_nested())
    await execute(session)
    spawn_after_commit(session, work.do("inside"))
    await settle(savepoint.commit())
    await work.settled()
    assert work.done == []
    await settle(session.commit())
    await work.is_done("before", "inside")


async def test_a_rollback_after_a_released_savepoint_takes_it_along(session: Any, work: Work) -> None:
    savepoint = await settle(session.begin_nested())
    await execute(session)
    spawn_after_commit(session, work.do("inside"))
    await settle(savepoint.commit())
    await settle(session.rollback())
    await execute(session)
    await settle(session.commit())
    await work.is_done()


async def test_a_commit_that_the_database_refuses_starts_nothing(session: Any, work: Work, db: Any) -> None:
    db.execute("CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    await settle(session.execute(sa.text("INSERT INTO once VALUES (1), (1)")))
    spawn_after_commit(session, work.do("a"))
    with pytest.raises(sa.exc.IntegrityError):
        await settle(session.commit())
    await settle(session.rollback())
    await work.is_done()


async def test_two_sessions_do_not_mix(url: str, work: Work) -> None:
    async with async_engine(url, "asyncpg") as engine, AsyncSession(engine) as one, AsyncSession(engine) as other:
        await execute(one)
        await execute(other)
        spawn_after_commit(one, work.do("one"))
        spawn_after_commit(other, work.do("other"))
        await one.rollback()
        await other.commit()
        await work.is_done("other")


async def test_scoped_sessions_are_sessions(url: str, work: Work) -> None:
    async with async_engine(url, "psycopg") as engine:
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 0)
        spawn_after_commit(scoped, work.do("asynchronous"))
        await scoped.commit()
        await scoped.remove()
    async with sync_engine(url) as sync:
        scoped_sync = orm.scoped_session(orm.sessionmaker(sync))
        spawn_after_commit(scoped_sync, work.do("synchronous"))
        scoped_sync.commit()
        scoped_sync.remove()
    await work.is_done("asynchronous", "synchronous")


async def test_work_that_fails_is_logged(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("no mail server")

    spawn_after_commit(session, fail())
    with caplog.at_level(logging.ERROR, "oomph.spawn"):
        await settle(session.commit())
        await until(lambda: bool(caplog.records))
    assert "no mail server" in caplog.text


async def test_running_work_is_kept_alive_by_a_reference(session: Any, work: Work) -> None:
    gate = asyncio.Event()

    async def wait_then_do() -> None:
        await gate.wait()
        await work.do("a")

    spawn_after_commit(session, wait_then_do())
    await settle(session.commit())
    await work.settled()
    gate.set()
    await work.is_done("a")


async def test_another_connection_is_refused_with_a_hint(url: str, work: Work) -> None:
    with psycopg.connect(url) as connection:
        for wrong in (connection, None, "session"):
            with pytest.raises(TypeError, match="Start the work after your own commit, or enqueue a job"):
                spawn_after_commit(wrong, work.do("a"))
    await work.is_done()


def test_without_a_running_loop_it_is_refused(work: Work) -> None:
    with orm.Session() as session, pytest.raises(RuntimeError, match="no running event loop"):
        spawn_after_commit(session, work.do("a"))
    gc.collect()
