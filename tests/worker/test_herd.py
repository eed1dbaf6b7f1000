"""Who claims when a job is notified: somebody always, and of many workers not all."""

import asyncio
import random

from jobs import Pool
from jobs.database import Database
from jobs.store import JobStore
from supervisor.claiming.herd import ALL_COME, Herd
from tests.jobs.lab import LETTER, NOTE, Connection, add, until
from tests.worker.desk import Desk, open_desk

WORKERS = 300


def in_vain(size: int, times: int) -> Herd:
    herd = Herd(random.Random(1), size)
    for _ in range(times):
        herd.came_in_vain(["note"])
    return herd


def test_a_worker_among_few_comes_however_often_it_came_in_vain() -> None:
    herd = in_vain(ALL_COME, 1_000)
    assert all(herd.comes("note") for _ in range(1_000))


def test_of_many_idle_workers_most_are_spared_and_some_come_to_every_job() -> None:
    chance = random.Random(1)
    herd = [Herd(chance, WORKERS) for _ in range(WORKERS)]
    came = []
    for _ in range(10 * WORKERS):
        comers = [worker for worker in herd if worker.comes("note")]
        taker = chance.choice(comers)
        taker.is_needed(["note"])
        for other in comers:
            if other is not taker:
                other.came_in_vain(["note"])
        came.append(len(comers))
    settled = came[-5 * WORKERS :]
    assert min(settled) >= 5
    assert max(settled) < WORKERS / 4


def test_a_worker_that_is_always_the_slower_one_still_comes_now_and_then() -> None:
    herd = in_vain(WORKERS, 100_000)
    came = sum(herd.comes("note") for _ in range(10_000))
    assert 0.5 < came / (10_000 * ALL_COME / WORKERS) < 2


def test_who_is_needed_again_comes_and_each_kind_is_counted_by_itself() -> None:
    herd = in_vain(WORKERS, 1_000)
    assert not all(herd.comes("note") for _ in range(100))
    assert all(herd.comes("letter") for _ in range(100))
    herd.is_needed(["note"])
    assert herd.comes("note")
    herd = in_vain(WORKERS, 1_000)
    herd.begin_anew()
    assert herd.comes("note")


async def test_a_worker_comes_for_its_own_kinds_only(db: Connection, desk: Desk) -> None:
    await desk.claim()
    (job_id,) = add(db)
    assert not desk.claims.hear("new", "letter")
    assert not desk.claims.hear("many", "letter")
    assert desk.claims.hear("new", "note")
    assert await desk.take() == [job_id]


async def test_a_spared_worker_finds_by_its_look_what_nobody_came_for_and_comes_again(
    db: Connection, desk: Desk
) -> None:
    await desk.claim()
    desk.claims.workers_are(1_000_000)
    while desk.claims.hear("new", "note"):
        assert await desk.take() == []  # in vain, until it is spared
    (job_id,) = add(db)
    await desk.claims.look_once()
    assert await desk.take() == [job_id]
    for _ in range(ALL_COME):
        assert desk.claims.hear("new", "note")
        assert await desk.take() == []


async def test_of_many_jobs_every_worker_takes_its_part(db: Connection, desk: Desk) -> None:
    await desk.claim()
    desk.claims.workers_are(1_000_000)
    while desk.claims.hear("new", "note"):
        assert await desk.take() == []
    (job_id,) = add(db)
    assert desk.claims.hear("many", "note")
    assert await desk.take() == [job_id]


async def test_a_kind_that_is_always_notified_does_not_keep_others_from_being_seen(
    db: Connection, database: Database, store: JobStore
) -> None:
    """Whatever comes first makes the next claim begin, and no look is the last word."""
    async with open_desk(database, store, tasks=[NOTE, LETTER]) as desk:
        await desk.claim()

        async def notify() -> None:
            while True:
                desk.claims.hear("new", "note")
                await asyncio.sleep(0)

        async def claim() -> None:
            while True:
                await desk.claims.claim_once(Pool.SYSTEM)

        async def look() -> None:
            while True:
                pause = await desk.claims.look_once()
                await asyncio.sleep(pause)

        (letter,) = add(db, kind="letter")
        serving = [asyncio.create_task(step()) for step in (notify, claim, look)]
        try:
            await until(lambda: letter in desk.ran, 5)
        finally:
            for task in serving:
                task.cancel()
