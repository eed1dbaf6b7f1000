"""A small pool whose slots are all in use claims with the write that frees one: one transaction for both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from jobs import Pool
from jobs.database import Database
from jobs.store import JobStore
from supervisor.claiming.pool_queue import MIN_BATCH
from tests.jobs.lab import Connection, add, job, scalar, until
from tests.worker.desk import Desk, open_desk


@pytest.fixture
async def narrow(database: Database, store: JobStore) -> AsyncIterator[Desk]:
    async with open_desk(database, store, slots=1) as opened:
        yield opened


@pytest.fixture
async def narrow_few(database: Database, store: JobStore) -> AsyncIterator[Desk]:
    async with open_desk(database, store, slots=3) as opened:
        yield opened


async def serve(desk: Desk, db: Connection) -> None:
    """Claim and look as a worker does, until nothing is left to do."""

    async def forever(step: Callable[[], Awaitable[float]], seconds: float) -> None:
        while True:
            await step()
            await asyncio.sleep(seconds)

    def is_done() -> bool:
        left = scalar(db, "SELECT count(*) FROM background_jobs WHERE status IN ('queued', 'running')")
        return left == 0 and desk.attempts.count == 0

    tasks = [
        asyncio.create_task(forever(lambda: desk.claims.claim_once(Pool.SYSTEM), 0)),
        asyncio.create_task(forever(desk.claims.look_once, 0.1)),
    ]
    try:
        await until(is_done)
    finally:
        for task in tasks:
            task.cancel()


def transactions_of_two(db: Connection) -> int:
    """How many transactions ended one job and took another."""
    both = "became = 'running' AND xid IN (SELECT xid FROM moves WHERE became = 'succeeded')"
    return int(scalar(db, f"SELECT count(*) FROM moves WHERE {both}"))


def successes(db: Connection) -> int:
    """How many jobs succeeded at their first attempt."""
    return int(scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded' AND attempt = 1"))


@pytest.fixture
def moves(db: Connection) -> None:
    db.execute("CREATE TABLE moves (xid xid8, id bigint, became text)")
    db.execute(
        "CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO moves VALUES (pg_current_xact_id(), NEW.id, NEW.status); RETURN NULL; END'"
    )
    db.execute(
        "CREATE TRIGGER note_move AFTER UPDATE OF status ON background_jobs FOR EACH ROW EXECUTE FUNCTION note_move()"
    )


@pytest.mark.usefixtures("moves")
async def test_an_end_and_the_next_claim_are_one_transaction(narrow: Desk, db: Connection) -> None:
    ids = add(db, 20)
    await serve(narrow, db)
    assert narrow.ran == ids
    assert successes(db) == 20
    assert transactions_of_two(db) >= 15


@pytest.mark.usefixtures("moves")
async def test_the_job_of_a_key_that_an_end_frees_is_claimed_with_it(narrow: Desk, db: Connection) -> None:
    ids = add(db, 10, concurrency_key="key")
    await serve(narrow, db)
    assert narrow.ran == ids
    assert transactions_of_two(db) >= 5


async def test_what_is_claimed_with_an_end_that_must_be_written_alone_waits_for_its_slot(
    narrow: Desk, db: Connection
) -> None:
    """As of each kind of which something was killed: nothing may go back and come again for that."""
    ids = add(db, 5)
    db.execute("UPDATE background_kinds SET kill_streak = 1")
    await serve(narrow, db)
    assert narrow.ran == ids
    assert successes(db) == 5
    assert scalar(db, "SELECT kill_streak FROM background_kinds WHERE kind = 'note'") == 0
    assert scalar(db, "SELECT count(*) FROM background_attempts") == 0


async def test_what_is_claimed_with_an_end_that_somebody_holds_up_goes_back(
    narrow: Desk, db: Connection, url: str
) -> None:
    """Uncharged, and runs when there is a slot."""
    ids = add(db, 3)
    db.execute("UPDATE background_kinds SET kill_streak = 1")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_kinds FOR UPDATE")
        serving = asyncio.create_task(serve(narrow, db))
        await until(lambda: len(narrow.attempts.fences) == 2)  # the end, and what goes back
        assert narrow.ran == ids[:1]
        holder.rollback()
        await serving
    assert sorted(narrow.ran) == ids
    assert successes(db) == 3
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE verdict = 'released' AND NOT charged") == 1


@pytest.mark.usefixtures("moves")
async def test_a_pool_of_many_slots_claims_beside_its_writes(
    database: Database, store: JobStore, db: Connection
) -> None:
    """There a claim need not wait for an end, nor an end for a claim."""
    add(db, 300)
    async with open_desk(database, store, slots=MIN_BATCH + 1) as wide:
        await serve(wide, db)
        assert len(wide.ran) == 300
    assert transactions_of_two(db) == 0


async def test_what_fails_is_tried_again_also_where_it_was_claimed_with_an_end(narrow: Desk, db: Connection) -> None:
    add(db, 3)
    (failing,) = add(db, 1, payload='{"text": "fail once"}')
    add(db, 3)
    await serve(narrow, db)
    assert narrow.ran.count(failing) == 2
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'") == 7


async def test_no_job_is_claimed_for_a_slot_that_is_filled_by_the_time(narrow_few: Desk, db: Connection) -> None:
    """What an end frees and what a failure frees are claimed for by two, of whom one waits for the other."""
    add(db, 150)
    add(db, 150, payload='{"text": "fail once"}')
    await serve(narrow_few, db)
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'") == 300
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE verdict = 'released'") == 0


async def test_an_end_is_written_also_while_no_claim_gets_through(url: str, db: Connection) -> None:
    """The claim that went along is left out where it may be what held the end up."""
    database = Database(url, call_timeout=0.5, application_name="test")
    await database.open()
    store = JobStore(database, retry_delay=0.01, pause_after=5)
    async with open_desk(database, store, slots=1) as desk:
        ids, may_end = add(db, 2), asyncio.Event()

        async def wait(job_id: int) -> None:
            await may_end.wait()

        desk.during = wait
        serving = asyncio.create_task(serve(desk, db))
        await until(lambda: desk.ran == ids[:1])
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE background_workers")  # which a claim reads
            may_end.set()
            await until(lambda: bool(job(db, ids[0]) == "succeeded"))
        await serving
        assert desk.ran == ids
    await database.close()
