"""The connection of the statements that every job passes: one transaction a call, and nothing of it is lost unsaid."""

import asyncio
import math
import os
import resource
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobs.arrays import numbers, texts
from jobs.claim import Fence, Mark, Wanted
from jobs.database import Database
from jobs.lane import Call, Lane
from jobs.store import JobStore
from jobs.unavailable import DatabaseUnavailable, Locked
from tests.jobs.lab import Connection, Worker, add, hire, job, scalar, until
from tests.proxy import Proxy


@pytest.fixture
async def lane(url: str) -> AsyncIterator[Lane]:
    opened = Lane(url, call_timeout=5, parameters={"application_name": "lane"})
    yield opened
    await opened.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process cannot open anything."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def completion(*fences: Fence, result: str | None = None) -> Call:
    return "complete_many", {
        "ids": numbers(fence.id for fence in fences),
        "claims": numbers(fence.claim for fence in fences),
        "results": texts(result for _ in fences) if result else None,
    }


def claim(worker: Worker, slots: int = 10) -> Call:
    return Wanted(worker.id, "system", worker.kinds, slots).call


async def test_calls_together_are_one_transaction(db: Connection, worker: Worker, lane: Lane) -> None:
    first, second = add(db, 2)
    running = await worker.claim_one()
    refused, claimed = await lane.fetch_together(completion(running.fence), claim(worker))
    assert refused == []
    assert [row[1] for row in claimed] == [second]
    assert (job(db, first), job(db, second)) == ("succeeded", "running")
    assert scalar(db, "SELECT count(DISTINCT xmin::text) FROM background_jobs") == 1


async def test_what_one_of_them_raises_undoes_all(db: Connection, worker: Worker, lane: Lane) -> None:
    first, second = add(db, 2)
    running = await worker.claim_one()
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        await lane.fetch_together(completion(running.fence), ("claim", {**claim(worker)[1], "worker_id": "nobody"}))
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        await lane.fetch_together(claim(worker), completion(running.fence, result="{"))
    assert (job(db, first), job(db, second)) == ("running", "queued")
    assert [row[1] for row in await lane.fetch(claim(worker)[0], **claim(worker)[1])] == [second]


async def test_what_cannot_even_be_sent_leaves_nothing_behind_for_the_next_call(
    db: Connection, worker: Worker, lane: Lane
) -> None:
    first, second = add(db, 2)
    running = await worker.claim_one()
    with pytest.raises(psycopg.DataError):
        await lane.fetch_together(completion(running.fence), ("claim", {**claim(worker)[1], "pool": "a\0"}))
    assert [[row[1] for row in rows] for rows in await lane.fetch_together(claim(worker))] == [[second]]
    assert job(db, first) == "running"


async def test_a_lock_that_is_waited_for_in_vain_has_its_own_name_and_costs_no_connection(
    db: Connection, url: str, worker: Worker, lane: Lane
) -> None:
    add(db, 1)
    running = await worker.claim_one()
    ((pid,),) = await lane.fetch("backend_pid")
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs FOR UPDATE")
        with pytest.raises(Locked):
            await lane.fetch_together(completion(running.fence), claim(worker))
    assert await lane.fetch_together(completion(running.fence), claim(worker)) == [[], []]
    assert await lane.fetch("backend_pid") == [(pid,)]


async def test_what_stood_behind_an_error_is_prepared_by_the_next_call(
    db: Connection, worker: Worker, lane: Lane
) -> None:
    add(db, 1)
    ((pid,),) = await lane.fetch("backend_pid")
    with pytest.raises(psycopg.DataError):
        await lane.fetch_together(("claim", {**claim(worker)[1], "worker_id": "nobody"}), completion(Fence(1, 1)))
    for _ in range(2):
        assert await lane.fetch_together(completion(Fence(1, 9))) == [[(1, 9)]]
        assert len(await lane.fetch_together(claim(worker))) == 1
    assert await lane.fetch("backend_pid") == [(pid,)]


async def test_answers_and_questions_may_be_longer_than_what_the_kernel_takes_at_once(
    db: Connection, worker: Worker, lane: Lane
) -> None:
    text = "ä" * 20_000_000
    add(db, 1, payload=f'{{"text": "{text}"}}')
    ((row,),) = await lane.fetch_together(claim(worker))
    assert text in row[5]
    assert await lane.fetch_together(completion(Fence(row[1], row[2]), result=f'"{text}"')) == [[]]
    assert scalar(db, "SELECT length(result #>> '{}') FROM background_jobs") == len(text)


async def test_each_new_connection_makes_its_first_calls_once(db: Connection, url: str, worker: Worker) -> None:
    """So that their plans are there by the time that somebody waits for them."""
    ids = add(db, 3)
    lane = Lane(url, call_timeout=5, parameters={"application_name": "first"}, first=[claim(worker, slots=1)])
    for _ in range(2):
        await lane.fetch("backend_pid")
    assert [job(db, job_id) for job_id in ids] == ["running", "queued", "queued"]
    await lane.close()
    await lane.fetch("backend_pid")
    assert [job(db, job_id) for job_id in ids] == ["running", "running", "queued"]
    await lane.close()


async def test_first_calls_that_wait_for_a_lock_leave_nobody_waiting_for_it(db: Connection, url: str) -> None:
    """A server does not see that its client has gone while it waits: each try would take a connection more."""
    first = [Wanted(uuid.UUID(int=0), "system", [], 1, ids=[0]).call]
    lane = Lane(url, call_timeout=0.3, parameters={"application_name": "first"}, first=first)
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE background_jobs")
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable):
                await lane.fetch("backend_pid")
        await until(
            lambda: scalar(db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first'") == 0, 3
        )
    assert len(await lane.fetch("backend_pid")) == 1
    await lane.close()


async def test_a_server_that_ended_the_connection_meanwhile_costs_no_call(db: Connection, lane: Lane) -> None:
    ((pid,),) = await lane.fetch("backend_pid")
    db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    line = lane._line
    assert line is not None
    await until(lambda: line.is_broken)
    ((other,),) = await lane.fetch("backend_pid")
    assert other != pid


async def test_a_call_whose_connection_ends_says_so(db: Connection, url: str, worker: Worker, lane: Lane) -> None:
    (job_id,) = add(db, 1)
    running = await worker.claim_one()
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE background_kinds")
        asking = asyncio.create_task(lane.fetch_together(completion(running.fence)))
        await asyncio.sleep(0.05)
        db.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'lane' AND datname = current_database()"
        )
        with pytest.raises(DatabaseUnavailable, match=r"terminating connection|closed the connection"):
            await asking
    assert job(db, job_id) == "running"
    assert await lane.fetch_together(completion(running.fence)) == [[]]


async def test_a_network_that_falls_silent_costs_no_more_than_the_bound(url: str) -> None:
    with Proxy(url) as proxy:
        silent = Lane(make_conninfo(proxy.url), call_timeout=0.5, parameters={})
        await silent.fetch("backend_pid")
        proxy.freeze()
        began = asyncio.get_running_loop().time()
        with pytest.raises(DatabaseUnavailable):
            await silent.fetch("backend_pid")
        assert asyncio.get_running_loop().time() - began < 4
        await silent.close()


async def test_without_a_free_descriptor_a_silent_network_costs_no_more_than_the_bound(url: str) -> None:
    """The line is cut with what is open already."""
    with Proxy(url) as proxy:
        silent = Lane(make_conninfo(proxy.url), call_timeout=0.5, parameters={})
        await silent.fetch("backend_pid")
        proxy.freeze()
        with no_descriptors():
            async with asyncio.timeout(5):
                with pytest.raises(DatabaseUnavailable, match="no answer in"):
                    await silent.fetch("backend_pid")
        await silent.close()


async def test_a_caller_that_is_cancelled_leaves_no_answer_to_the_next(url: str, worker: Worker, lane: Lane) -> None:
    await lane.fetch("backend_pid")
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE background_workers")
        asking = asyncio.create_task(lane.fetch_together(claim(worker)))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    ((pid,),) = await lane.fetch("backend_pid")
    assert isinstance(pid, int)


async def test_calls_at_once_take_turns(lane: Lane) -> None:
    answers = await asyncio.gather(*(lane.fetch("backend_pid") for _ in range(50)))
    assert len({str(answer) for answer in answers}) == 1


@pytest.mark.parametrize(
    "kind",
    ["plain", "with space", 'quote"d', "back\\slash", "com,ma", "{br}ace", "NULL", "100 %", "%(kinds)s", "ü"],
)
async def test_whatever_a_kind_is_called_it_is_sent_as_it_is(
    db: Connection, worker: Worker, lane: Lane, kind: str
) -> None:
    db.execute("INSERT INTO background_jobs (kind, pool, payload) VALUES (%s, 'system', '{}')", [kind])
    ((row,),) = await lane.fetch_together(Wanted(worker.id, "system", ["other", kind], 2).call)
    assert row[3] == kind


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_client_encoding_that_others_ask_for_is_not_the_workers(
    db: Connection, url: str, encoding: str
) -> None:
    """It may come from the URL, from PGCLIENTENCODING, or from a setting of the role or the database."""
    (job_id,) = add(db, payload='{"text": "10 €"}')
    other = Database(make_conninfo(url, client_encoding=encoding), call_timeout=5, application_name="test")
    await other.open()
    try:
        store = JobStore(other, retry_delay=0.01, pause_after=5)
        claimed = await (await hire(store)).claim_one()
        assert (claimed.kind, claimed.payload) == ("note", '{"text": "10 €"}')
        assert await store.complete({claimed.fence: '"20 €"'}) == set()
    finally:
        await other.close()
    assert job(db, job_id, "result") == "20 €"


async def test_infinity_and_nothing_are_sent_as_they_are(db: Connection, worker: Worker, lane: Lane) -> None:
    add(db, 1)
    wanted = Wanted(worker.id, "system", worker.kinds, 10, math.inf, [Mark("note", 1, -math.inf, -1)])
    (rows,) = await lane.fetch_together(wanted.call)
    assert len(rows) == 1


async def test_a_worker_that_nobody_knows_claims_nothing(db: Connection, lane: Lane) -> None:
    add(db, 1)
    assert await lane.fetch_together(Wanted(uuid.uuid4(), "system", ["note"], 5).call) == [[]]


async def test_a_backstop_that_refuses_the_claim_leaves_the_successes_to_be_written_alone(
    db: Connection, database: Database
) -> None:
    """Whatever raises in the second undoes the first: nothing may be taken for written then."""
    store = JobStore(database, retry_delay=0.01, pause_after=5)
    worker = await hire(store)
    first, second = add(db, 2)
    running = await worker.claim_one()
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE unique_violation; END'")
    db.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON background_jobs FOR EACH ROW "
        "WHEN (NEW.status = 'running') EXECUTE FUNCTION refuse()"
    )
    refused, claimed = await store.complete_and_claim({running.fence: None}, Wanted(worker.id, "system", ["note"], 1))
    assert refused == {running.fence}
    assert (claimed.jobs, claimed.parked) == ([], 1)
    assert (job(db, first), job(db, second)) == ("running", "queued")


async def test_a_commit_that_is_refused_is_no_success(db: Connection, worker: Worker, lane: Lane) -> None:
    """The rows are there before the commit is."""
    (job_id,) = add(db, 1)
    running = await worker.claim_one()
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE check_violation; END'")
    db.execute(
        "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON background_jobs DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    for _ in range(2):
        with pytest.raises(psycopg.errors.CheckViolation):
            await lane.fetch_together(completion(running.fence))
    assert job(db, job_id) == "running"
    db.execute("DROP TRIGGER refuse ON background_jobs")
    assert await lane.fetch_together(completion(running.fence)) == [[]]
    assert job(db, job_id) == "succeeded"
