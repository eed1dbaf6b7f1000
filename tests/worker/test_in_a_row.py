"""A claim that was filled is followed by the next before its jobs are started, and none of them is lost for that."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from jobs import Pool
from jobs.claim import Claim, Wanted
from jobs.database import Database
from jobs.store import JobStore
from supervisor.claiming.claims import IN_A_ROW
from supervisor.claiming.pool_queue import BATCHES, MAX_BATCH
from tests.jobs.lab import NOTE, PARCEL, Connection, add, scalar, until
from tests.worker.desk import Desk, open_desk

SLOTS = 90
BATCH = SLOTS // BATCHES


@dataclass
class Seen:
    """Each claim as it goes out: its pool, and how many attempts were known by then."""

    pools: list[Pool] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    at: dict[int, Callable[[], object]] = field(default_factory=dict)  # what to do at which of them


@pytest.fixture
async def desk(database: Database, store: JobStore) -> AsyncIterator[Desk]:
    async with open_desk(database, store, SLOTS, tasks=[NOTE, PARCEL]) as opened:
        yield opened


@pytest.fixture
def seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Seen:
    return watch(desk, monkeypatch)


def watch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, claim = Seen(), desk.store.claim

    async def observed(wanted: Wanted) -> Claim:
        seen.pools.append(wanted.pool)
        seen.known.append(len(desk.attempts.fences))
        if (then := seen.at.get(len(seen.pools))) is not None:
            then()
        return await claim(wanted)

    monkeypatch.setattr(desk.store, "claim", observed)
    return seen


async def test_the_next_claim_goes_out_before_the_jobs_of_the_last_are_started(
    desk: Desk, seen: Seen, db: Connection
) -> None:
    ids = add(db, 2 * BATCH + 1)
    assert sorted(await desk.take()) == ids
    assert seen.known[:2] == [0, 0]
    assert seen.known[2] >= BATCH
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded' AND claim = 1") == len(ids)


async def test_no_more_is_claimed_than_there_are_slots(desk: Desk, seen: Seen, db: Connection) -> None:
    add(db, 2 * SLOTS)
    holding, most = asyncio.Event(), 0

    async def hold(job_id: int) -> None:
        nonlocal most
        most = max(most, desk.attempts.count)
        await holding.wait()

    desk.during = hold
    taking = asyncio.create_task(desk.take())
    await until(lambda: len(desk.ran) == SLOTS)
    await asyncio.sleep(0.05)
    assert (len(desk.ran), most, len(seen.pools)) == (SLOTS, SLOTS, BATCHES)
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'running'") == SLOTS
    holding.set()
    await taking


async def test_another_pool_that_waits_has_the_next_turn(desk: Desk, seen: Seen, db: Connection) -> None:
    add(db, 2 * BATCH + 1)
    others: list[asyncio.Task[float]] = []
    add(db, kind="parcel", pool="ingest")
    seen.at[1] = lambda: others.append(asyncio.create_task(desk.claims.claim_once(Pool.INGEST)))
    await desk.take()
    await asyncio.gather(*others)
    assert seen.pools[:3] == [Pool.SYSTEM, Pool.INGEST, Pool.SYSTEM]


async def test_the_turn_is_given_back_now_and_then(
    database: Database, store: JobStore, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for claims whose answer was lost waits for it."""
    many = (IN_A_ROW + 3) * MAX_BATCH
    db.execute("INSERT INTO background_jobs (kind, pool) SELECT 'note', 'system' FROM generate_series(1, %s)", [many])
    claims_before: list[int] = []

    async def look() -> None:
        await desk.claims.release_unknown()
        claims_before.append(len(seen.pools))

    async with open_desk(database, store, BATCHES * many) as desk:
        seen = watch(desk, monkeypatch)
        looking: list[asyncio.Task[None]] = []
        seen.at[1] = lambda: looking.append(asyncio.create_task(look()))
        assert len(await desk.take()) == many
        await asyncio.gather(*looking)
    assert claims_before == [1 + IN_A_ROW]


async def test_a_claim_that_is_cancelled_between_two_loses_no_job(desk: Desk, seen: Seen, db: Connection) -> None:
    ids = add(db, 2 * BATCH)
    claiming = asyncio.create_task(desk.claims.claim_once(Pool.SYSTEM))
    seen.at[2] = claiming.cancel
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await until(lambda: desk.attempts.count == 0)
    assert sorted(desk.ran) == ids[:BATCH]
    await desk.claims.release_unknown()
    await desk.claim()
    assert sorted(desk.ran) == ids
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded' AND attempt = 1") == len(ids)
