"""A claim of jobs by their ids starts nothing that the queue's own rules would not start now."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from jobs.arrays import numbers
from jobs.claim import Claim, Wanted
from jobs.database import Database
from jobs.sql import statement
from jobs.store import JobStore
from supervisor.claiming.heard import MAX_NAMED, Heard
from tests.jobs.lab import NOTE, Connection, Worker, add, expire, hire, job, scalar
from tests.jobs.test_plans import fill, plans_inside, walk


async def take(worker: Worker, *ids: int, kinds: list[str] | None = None) -> Claim:
    wanted = worker.kinds if kinds is None else kinds
    return await worker.store.claim(Wanted(worker.id, "system", wanted, 10, ids=ids))


async def test_it_takes_what_a_claim_would_take_and_as_one_would(db: Connection, worker: Worker) -> None:
    first, second = add(db, 2, organization_id="a", priority=2, payload='{"text": "x"}')
    (named,) = (await take(worker, first)).jobs
    (claimed,) = await worker.claim()
    assert (named.id, claimed.id) == (first, second)
    assert named._replace(id=0, run_after=0) == claimed._replace(id=0, run_after=0)
    columns = "status, pool, claim, attempt, worker_id, generation, limited, blocked, started_at IS NULL, progress"
    assert job(db, first, columns) == job(db, second, columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"run_after": datetime(2031, 1, 1, tzinfo=UTC)},
        {"concurrency_key": "key"},
        {"kind": "nobody knows it"},
        {"status": "cancelled", "finished_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"blocked": True, "concurrency_key": "key"},
    ],
    ids=lambda columns: " ".join(columns),
)
async def test_it_leaves_what_may_have_to_wait(db: Connection, worker: Worker, columns: dict[str, Any]) -> None:
    (job_id,) = add(db, 1, **columns)
    assert (await take(worker, job_id)).jobs == []
    assert job(db, job_id, "claim, attempt") == (0, 0)


async def test_a_paused_kind_starts_nothing(db: Connection, worker: Worker) -> None:
    db.execute("UPDATE background_kinds SET paused_at = now(), pause_reason = 'test' WHERE kind = 'note'")
    (job_id,) = add(db)
    assert (await take(worker, job_id)).jobs == []
    assert job(db, job_id) == "queued"


async def test_a_bounded_organisation_is_left_to_who_counts(db: Connection, worker: Worker) -> None:
    db.execute("UPDATE background_kinds SET max_per_organization = 1 WHERE kind = 'note'")
    (job_id,) = add(db, 1, organization_id="a")
    (free,) = add(db)
    assert [taken.id for taken in (await take(worker, job_id, free)).jobs] == [free]


async def test_a_worker_without_a_lease_takes_nothing(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    expire(db, worker)
    assert (await take(worker, job_id)).jobs == []


async def test_who_comes_second_neither_waits_nor_takes_it_again(
    db: Connection, url: str, database: Database, store: JobStore
) -> None:
    ids = add(db, 20)
    workers = [await hire(JobStore(database, retry_delay=0.01, pause_after=5), tasks=[NOTE]) for _ in range(4)]
    claims = await asyncio.gather(*(take(worker, *ids) for worker in workers for _ in range(3)))
    assert sorted(taken.id for claim in claims for taken in claim.jobs) == ids
    (job_id,) = add(db)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [job_id])
        assert (await asyncio.wait_for(take(workers[0], job_id), 2)).jobs == []


async def test_it_finds_its_rows_by_their_index_also_where_it_was_planned_on_an_empty_table(
    db: Connection, worker: Worker
) -> None:
    """As a lane does: planned once a connection."""
    db.execute(statement("lane_settings"))
    db.prepare_threshold = 0
    name, parameters = Wanted(worker.id, "system", worker.kinds, 10, ids=[0]).call
    db.execute(statement(name), parameters)
    fill(db)
    (job_id,) = add(db)
    with plans_inside(db) as plans:
        db.execute(statement("lane_settings"))
        taken = db.execute(statement(name), {**parameters, "ids": numbers([job_id])}).fetchall()
    assert len(taken) == 1
    nodes = [node for shown in plans for node in walk(shown["Plan"])]
    ours = [node for node in nodes if node.get("Relation Name") == "background_jobs"]
    assert {node["Node Type"] for node in ours} == {"Index Scan", "Tid Scan", "ModifyTable"}
    assert {node["Index Name"] for node in ours if "Index Name" in node} == {"background_jobs_pkey"}


async def test_the_plans_of_a_lane_are_its_own(database: Database) -> None:
    await database.claims.fetch("backend_pid")
    ((mode, *_),) = await database.claims.fetch("lane_settings")
    assert mode == "force_generic_plan"


def test_few_named_jobs_are_told_by_their_ids_and_more_are_not() -> None:
    heard = Heard()
    assert (heard.kinds, heard.ids) == (set(), [])
    for number in range(MAX_NAMED):
        heard.add("note", number)
    assert heard.ids == list(range(MAX_NAMED))
    heard.add("note", 99)
    assert (heard.kinds, heard.ids) == ({"note"}, [])
    mixed = Heard()
    mixed.add("note", 1)
    mixed.add("letter", None)
    mixed.add("note", 2)
    assert (mixed.kinds, mixed.ids) == ({"note", "letter"}, [])


async def test_of_many_inserts_of_one_transaction_three_are_named(db: Connection, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        with db.transaction():
            ids = [add(db)[0] for _ in range(10)]
        (keyed,) = add(db, 1, concurrency_key="key")
        (alone,) = add(db)
        two, three, many = add(db, 2), add(db, 3), add(db, 30)
        told = [notice.payload for notice in listener.notifies(timeout=2)]
    named = [f"one {job_id} note" for job_id in ids[:3]]
    assert told == [
        *named,
        "new note",
        "new note",
        f"one {alone} note",
        *[f"one {job_id} note" for job_id in two],
        *[f"one {job_id} note" for job_id in three[:2]],
        "new note",
        *[f"one {job_id} note" for job_id in many[:2]],
        "many note",
    ]
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE id = %s", keyed) == 1


DUE, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("size", [1, 2, 3, 20, 21, 22])
def test_each_kind_of_which_a_statement_wrote_a_due_job_is_told(db: Connection, url: str, size: int) -> None:
    chance = random.Random(size)
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        for _ in range(20):
            kinds, dues = (
                chance.choices(["note", "letter", "card"], k=size),
                chance.choices([DUE, LATER], [3 + size, 1], k=size),
            )
            keys = chance.choices([None, "key"], k=size)
            with db.transaction():
                db.execute(
                    "INSERT INTO background_jobs (kind, pool, run_after, concurrency_key) "
                    "SELECT kind, 'system', due, key "
                    "  FROM unnest(%s::text[], %s::timestamptz[], %s::text[]) AS given (kind, due, key)",
                    [kinds, dues, keys],
                )
            db.execute("NOTIFY background_jobs, 'end'")
            told = []
            for notice in listener.notifies(timeout=10):
                if notice.payload == "end":
                    break
                told.append(notice.payload.split())
            due = [kind for kind, when in zip(kinds, dues, strict=True) if when == DUE]
            assert {words[-1] for words in told} == set(due)
            assert {words[-1] for words in told if words[0] == "many"} == (set(due) if len(due) > 20 else set())
