"""Claims, fences and endings: who may take a job, who may still write about it, and what an attempt costs."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import tuple_row

from jobs import LeaseLost, Task
from jobs.claim import ClaimedJob, Fence
from jobs.context import BoundContext
from jobs.control import cancel, pause, resume
from jobs.database import Database
from jobs.outcome import (
    MAX_MESSAGE_CHARS,
    AttemptReport,
    Cancelled,
    Died,
    Failed,
    JobError,
    ProcessFacts,
    Snoozed,
    Succeeded,
    Verdict,
)
from jobs.store import Finished, JobStore, Lost
from jobs.unavailable import Locked
from tests.jobs.callers import CALLERS, Caller, settle
from tests.jobs.lab import (
    CANCEL,
    FAILURE,
    LETTER,
    NOTE,
    PERMANENT,
    SUCCESS,
    Connection,
    Note,
    Worker,
    add,
    attempts,
    died,
    expire,
    hire,
    job,
    returned,
    scalar,
    snoozed,
    succeed,
    until,
    waiting_for_locks,
)

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def make_due(db: Connection) -> None:
    db.execute("UPDATE background_jobs SET run_after = now() WHERE status = 'queued'")


# The order.


async def test_claims_go_by_priority_then_run_after_then_id(db: Connection, worker: Worker) -> None:
    waiting: list[tuple[int, int, int]] = []
    for kind, priority, minutes in itertools.product(("note", "letter"), (2, 0, 1), (1, 3, 2)):
        (row,) = db.execute(
            "INSERT INTO background_jobs (kind, pool, priority, run_after)"
            " VALUES (%s, 'system', %s, '2020-01-01 UTC'::timestamptz + make_interval(mins => %s)) RETURNING id",
            [kind, priority, minutes],
        )
        waiting.append((priority, minutes, row[0]))
    expected = [job_id for _, _, job_id in sorted(waiting)]
    taken = [job.id for job in await worker.claim(slots=7)]
    assert taken == expected[:7]
    taken += [job.id for job in await worker.claim(slots=100)]
    assert taken == expected


async def test_a_claim_takes_only_what_is_due_and_of_its_kinds(db: Connection, worker: Worker) -> None:
    (due,) = add(db)
    add(db, run_after="2099-01-01")
    add(db, kind="letter")
    for status in ("succeeded", "dead", "cancelled", "running"):
        add(db, status=status)
    assert [job.id for job in await worker.claim(kinds=["note"])] == [due]
    assert await worker.claim(kinds=["note"]) == []


async def test_a_look_tells_of_each_kind_when_its_first_job_is_due(db: Connection, worker: Worker) -> None:
    assert await worker.look(["note", "letter"]) == []
    add(db, kind="letter")
    add(db, run_after="infinity")
    add(db, run_after="2031-01-01", blocked=True)
    ((kind, due_in, probe),) = await worker.look(["note", "letter"])
    assert (kind, probe) == ("letter", False)
    assert -10 < due_in <= 0
    for minutes in (30, 10, 20):
        db.execute(
            "INSERT INTO background_jobs (kind, pool, priority, run_after)"
            " VALUES ('note', 'system', %s, clock_timestamp() + make_interval(mins => %s))",
            [minutes // 10 - 1, minutes],
        )
    ((kind, due_in, _),) = await worker.look(["note", "parcel"])
    assert kind == "note"
    assert 590 < due_in <= 600


async def test_a_look_passes_over_a_paused_kind_unless_its_probe_may_go(db: Connection, worker: Worker) -> None:
    add(db)
    pause(db, "note", actor="ann")
    assert await worker.look(["note"]) == []
    resume(db, "note", actor="ann", probe=True)
    ((kind, _, probe),) = await worker.look(["note"])
    assert (kind, probe) == ("note", True)
    assert len(await worker.store.claim_probe(worker.id, "system", ["note"])) == 1
    assert await worker.look(["note"]) == []


async def test_the_claim_charges_the_attempt_and_counts_itself(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    first = await worker.claim_one()
    assert (first.id, first.claim, first.attempt, first.payload) == (job_id, 1, 1, "{}")
    assert job(db, job_id, "status, attempt, claim, worker_id, started_at IS NOT NULL, finished_at") == (
        "running",
        1,
        1,
        worker.id,
        True,
        None,
    )


async def test_the_declaration_of_the_worker_decides_the_pool(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db, kind="parcel", pool="agent")
    assert [job.id for job in await worker.claim(kinds=["parcel"], pool="ingest")] == [job_id]
    assert job(db, job_id, "pool") == "ingest"


async def test_many_claimers_at_once_share_the_jobs_without_overlap(db: Connection, database: Database) -> None:
    ids = set(add(db, 300))
    store = JobStore(database, retry_delay=1, pause_after=5)
    workers = [await hire(store, host=f"host-{n}") for n in range(4)]
    taken: list[int] = []

    async def work(worker: Worker) -> None:
        while len(taken) < len(ids):
            taken.extend(job.id for job in await worker.claim(slots=7))

    async with asyncio.timeout(30):
        await asyncio.gather(*(work(worker) for worker in workers))
    assert sorted(taken) == sorted(ids)


# Who may claim.


async def test_a_worker_without_a_valid_lease_claims_nothing(db: Connection, store: JobStore) -> None:
    add(db)
    stranger = Worker(uuid4(), store, "nowhere", ["note"])
    assert await stranger.claim() == []
    worker = await hire(store)
    expire(db, worker)
    assert await worker.claim() == []
    worker = await hire(store)
    db.execute("UPDATE background_workers SET lost_at = now()")
    assert await worker.claim() == []
    worker = await hire(store)
    assert len(await worker.claim()) == 1


async def test_a_lost_worker_cannot_renew(db: Connection, database: Database, store: JobStore, recovery: Any) -> None:
    worker = await hire(store)
    assert await database.fetch("renew", worker_id=worker.id, lease=SECOND)
    expire(db, worker)
    assert await database.fetch("renew", worker_id=worker.id, lease=HOUR) == []
    await recovery.rescue()
    db.execute("UPDATE background_workers SET lease_until = now() + interval '1 hour'")
    assert await database.fetch("renew", worker_id=worker.id, lease=HOUR) == []
    assert await worker.claim() == []


async def test_a_worker_leaves_only_without_running_jobs(db: Connection, worker: Worker) -> None:
    add(db)
    running = await worker.claim_one()
    await worker.store.deregister(worker.id)
    assert scalar(db, "SELECT count(*) FROM background_workers") == 1
    await succeed(worker.store, {running.fence: None})
    await worker.store.deregister(worker.id)
    assert scalar(db, "SELECT count(*) FROM background_workers") == 0


# The fence.

Write = Callable[[JobStore, Fence], Awaitable[Any]]


async def complete(store: JobStore, fence: Fence) -> Any:
    return await succeed(store, {fence: '{"late": true}'})


async def publish(store: JobStore, fence: Fence) -> Any:
    return await store.progress({fence: (0.9, "late")})


def finish(report: AttemptReport) -> Write:
    async def write(store: JobStore, fence: Fence) -> Any:
        return await store.finish(fence, report)

    return write


LATE: dict[str, tuple[Write, Callable[[Fence], Any]]] = {
    "success": (complete, lambda fence: {fence}),
    "single success": (finish(SUCCESS), lambda fence: Lost()),
    "success with evidence": (finish(AttemptReport(Succeeded(), {"why": "x"})), lambda fence: Lost()),
    "success in a transaction": (finish(AttemptReport(Succeeded(completed_in=True))), lambda fence: Lost()),
    "failure": (finish(FAILURE), lambda fence: Lost()),
    "permanent failure": (finish(PERMANENT), lambda fence: Lost()),
    "kill": (finish(died(Verdict.CRASHED)), lambda fence: Lost()),
    "snooze": (finish(snoozed(HOUR)), lambda fence: Lost()),
    "cancel": (finish(CANCEL), lambda fence: Lost()),
    "release": (finish(returned(Verdict.RELEASED)), lambda fence: Lost()),
    "progress": (publish, lambda fence: {fence}),
}

ENTIRE = "background_jobs::text"


async def a_refund(db: Connection, worker: Worker, fence: Fence) -> None:
    """The attempt is given back, so the next claim has the same attempt number again."""
    await worker.store.finish(fence, returned(Verdict.RELEASED))


async def a_retry(db: Connection, worker: Worker, fence: Fence) -> None:
    await worker.store.finish(fence, FAILURE)
    make_due(db)


async def a_hand(db: Connection, worker: Worker, fence: Fence) -> None:
    db.execute("UPDATE background_jobs SET status = 'queued', attempt = 0 WHERE id = %s", [fence.id])


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(
    ("between", "taken_again"), [(a_refund, True), (a_refund, False), (a_retry, True), (a_hand, True)]
)
async def test_what_an_older_claim_writes_changes_nothing(
    db: Connection, worker: Worker, late: str, between: Any, taken_again: bool
) -> None:
    add(db, max_attempts=3)
    old = await worker.claim_one()
    await between(db, worker, old.fence)
    if taken_again:
        new = await worker.claim_one()
        assert new.id == old.id
        assert new.claim > old.claim
        if between is a_refund:
            assert new.attempt == old.attempt  # which is why the attempt is no fence
    before = (job(db, old.id, ENTIRE), attempts(db, old.id, "background_attempts::text"))
    write, refused = LATE[late]
    assert await write(worker.store, old.fence) == refused(old.fence)
    assert (job(db, old.id, ENTIRE), attempts(db, old.id, "background_attempts::text")) == before
    assert scalar(db, "SELECT count(*) FROM background_kinds WHERE kill_streak > 0") == 0
    if taken_again:
        assert await succeed(worker.store, {new.fence: None}) == set()


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("status", ["succeeded", "dead", "cancelled"])
async def test_a_finished_job_stays_as_it_is(db: Connection, worker: Worker, late: str, status: str) -> None:
    add(db)
    running = await worker.claim_one()
    db.execute("UPDATE background_jobs SET status = %s, finished_at = now()", [status])
    before = job(db, running.id, ENTIRE)
    write, refused = LATE[late]
    if status == "succeeded" and late == "success in a transaction":
        assert await write(worker.store, running.fence) == Finished("succeeded")  # it was so, and was only checked
    else:
        assert await write(worker.store, running.fence) == refused(running.fence)
    assert job(db, running.id, ENTIRE) == before


@pytest.mark.parametrize("late", LATE)
async def test_a_deleted_job_is_a_lost_one(db: Connection, worker: Worker, late: str) -> None:
    add(db)
    running = await worker.claim_one()
    db.execute("DELETE FROM background_jobs")
    write, refused = LATE[late]
    assert await write(worker.store, running.fence) == refused(running.fence)


async def test_a_success_of_a_newer_claim_is_not_that_of_an_older_one(db: Connection, worker: Worker) -> None:
    """The older handler says that it completed in its own transaction; what it finds there is not its own work."""
    add(db)
    old = await worker.claim_one()
    await worker.store.finish(old.fence, returned(Verdict.RELEASED))
    new = await worker.claim_one()
    await worker.store.complete({new.fence: None})
    assert await worker.store.finish(old.fence, AttemptReport(Succeeded(completed_in=True))) == Lost()
    assert await worker.store.status(old.fence) is None
    assert await worker.store.status(new.fence) == "succeeded"


async def test_a_batch_tells_an_older_claim_of_a_job_from_the_newest(db: Connection, worker: Worker) -> None:
    add(db)
    old = await worker.claim_one()
    await worker.store.finish(old.fence, returned(Verdict.RELEASED))
    new = await worker.claim_one()
    assert await worker.store.progress({old.fence: (0.9, "old"), new.fence: (0.1, "new")}) == {old.fence}
    assert job(db, old.id, "progress_note") == "new"
    assert await succeed(worker.store, {old.fence: '"old"', new.fence: '"new"'}) == {old.fence}
    assert job(db, old.id, "result") == "new"


async def test_a_batch_of_successes_names_exactly_the_lost_ones(db: Connection, worker: Worker) -> None:
    add(db, 10)
    jobs = await worker.claim()
    for lost in jobs[:3]:
        await worker.store.finish(lost.fence, FAILURE)
    assert await succeed(worker.store, {job.fence: None for job in jobs}) == {job.fence for job in jobs[:3]}
    assert await succeed(worker.store, {}) == set()


# Endings and their price.


async def test_a_success_clears_what_earlier_attempts_left(db: Connection, worker: Worker) -> None:
    add(db)
    await worker.store.finish((await worker.claim_one()).fence, FAILURE)
    make_due(db)
    running = await worker.claim_one()
    await worker.store.progress({running.fence: (0.5, "half")})
    assert job(db, running.id, "progress, progress_note, error ->> 'type'") == (0.5, "half", "ValueError")
    await succeed(worker.store, {running.fence: '{"pages": 3}'})
    assert job(db, running.id, "status, result, progress, progress_note, error, finished_at IS NOT NULL, attempt") == (
        "succeeded",
        {"pages": 3},
        None,
        None,
        None,
        True,
        2,
    )
    assert attempts(db, running.id) == ["failed"]  # a plain success leaves no row


async def test_a_failure_is_retried_with_back_off_until_the_last_attempt(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db, max_attempts=3)
    for attempt in (1, 2):
        running = await worker.claim_one()
        assert await worker.store.finish(running.fence, FAILURE) == Finished("queued")
        waits = job(db, job_id, "extract(epoch FROM run_after - clock_timestamp())::float8")
        assert -1 < waits <= 0.02  # what the fixture's first delay of 0.01 s doubles to
        assert job(db, job_id, "status, attempt, worker_id, finished_at") == ("queued", attempt, None, None)
        make_due(db)
    assert await worker.store.finish((await worker.claim_one()).fence, FAILURE) == Finished("dead")
    assert job(db, job_id, "status, attempt, error ->> 'message', finished_at IS NOT NULL") == (
        "dead",
        3,
        "no such file",
        True,
    )
    assert attempts(db, job_id, "attempt, claim, verdict, charged, is_kill, host, worker_id") == [
        (n, n, "failed", True, False, "host-a", worker.id) for n in (1, 2, 3)
    ]


async def test_the_back_off_grows_with_the_attempt(db: Connection, database: Database) -> None:
    store = JobStore(database, retry_delay=10, pause_after=5)
    worker = await hire(store)
    (job_id,) = add(db)
    for low, high in ((8, 10), (16, 20), (32, 40)):
        await store.finish((await worker.claim_one()).fence, FAILURE)
        wait = job(db, job_id, "extract(epoch FROM run_after - clock_timestamp())::float8")
        assert low - 1 <= wait <= high
        make_due(db)


KILLS = [verdict for verdict in Verdict if verdict.is_kill]


@pytest.mark.parametrize("verdict", [*KILLS, Verdict.TIMED_OUT])
async def test_a_death_is_charged_and_after_the_last_attempt_the_job_is_dead(
    db: Connection, worker: Worker, verdict: Verdict
) -> None:
    (job_id,) = add(db, max_attempts=1)
    facts = ProcessFacts(
        pid=7, signal="SIGKILL", exit_code=None, peak_memory_mb=1.5, memory_limit_mb=2, cpu_seconds=3.5, output_tail="x"
    )
    report = AttemptReport(Died(verdict, JobError("Died", "it died", "frames")), {"why": "the limit"}, facts)
    assert await worker.store.finish((await worker.claim_one()).fence, report) == Finished("dead")
    assert job(db, job_id, "attempt, error") == (1, {"type": "Died", "message": "it died", "frames": "frames"})
    assert attempts(
        db,
        job_id,
        "verdict, charged, is_kill, pid, signal, exit_code, peak_memory_mb, memory_limit_mb, cpu_seconds, output_tail,"
        " evidence, error ->> 'type', started_at <= finished_at",
    ) == [
        (
            str(verdict),
            True,
            verdict.is_kill,
            7,
            "SIGKILL",
            None,
            1.5,
            2,
            3.5,
            "x",
            {"why": "the limit"},
            "Died",
            True,
        )
    ]


async def test_a_permanent_failure_is_dead_at_once(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db, max_attempts=100)
    assert await worker.store.finish((await worker.claim_one()).fence, PERMANENT) == Finished("dead")
    assert job(db, job_id, "status, attempt") == ("dead", 1)


REFUNDED = [verdict for verdict in Verdict if not verdict.is_charged]


def test_exactly_these_verdicts_give_the_attempt_back() -> None:
    assert REFUNDED == [Verdict.RELEASED, Verdict.LEASE_LOST, Verdict.SPAWN_FAILED, Verdict.SNOOZED]


@pytest.mark.parametrize("verdict", REFUNDED)
async def test_a_refund_gives_the_attempt_back_even_of_the_last_one(
    db: Connection, worker: Worker, verdict: Verdict
) -> None:
    (job_id,) = add(db, max_attempts=1)
    report = snoozed(timedelta(0)) if verdict is Verdict.SNOOZED else returned(verdict)
    for claim in (1, 2, 3):
        running = await worker.claim_one()
        assert (running.claim, running.attempt) == (claim, 1)
        assert await worker.store.finish(running.fence, report) == Finished("queued")
    assert job(db, job_id, "status, attempt, error") == ("queued", 0, None)
    assert attempts(db, job_id, "claim, attempt, verdict, charged, is_kill") == [
        (claim, 1, str(verdict), False, False) for claim in (1, 2, 3)
    ]


async def test_a_snooze_waits_as_long_as_it_was_asked(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    await worker.store.finish((await worker.claim_one()).fence, snoozed(HOUR))
    assert 3590 < job(db, job_id, "extract(epoch FROM run_after - clock_timestamp())::float8") <= 3600
    assert await worker.claim() == []


async def test_a_cancel_that_was_asked_for_wins_over_retry_and_release(db: Connection, worker: Worker) -> None:
    for report in (FAILURE, returned(Verdict.RELEASED), snoozed(HOUR), died(Verdict.CRASHED), CANCEL):
        (job_id,) = add(db)
        running = await worker.claim_one()
        assert cancel(db, job_id, actor="ana", reason="wrong file") == "running"
        assert await worker.store.cancels(worker.id) == [running.fence]
        assert await worker.store.finish(running.fence, report) == Finished("cancelled")
        assert await worker.store.cancels(worker.id) == []
        assert job(db, job_id, "finished_at IS NOT NULL")
    assert attempts(db, job_id, "verdict, charged") == [("cancelled", True)]
    assert job(db, job_id, "error ->> 'message'") == "cancelled by ana: wrong file"


async def test_a_success_that_was_faster_than_the_cancel_stays_a_success(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    running = await worker.claim_one()
    cancel(db, job_id, actor="ana")
    assert await succeed(worker.store, {running.fence: None}) == set()
    assert job(db, job_id, "status, error") == ("succeeded", None)


async def test_a_second_report_of_one_claim_is_refused(db: Connection, worker: Worker) -> None:
    add(db)
    running = await worker.claim_one()
    assert await worker.store.finish(running.fence, FAILURE) == Finished("queued")
    assert await worker.store.finish(running.fence, died(Verdict.CRASHED)) == Lost()
    assert attempts(db, running.id) == ["failed"]


HOSTILE = "\x00\ud800\udfff" + "\u2603" * 3 * MAX_MESSAGE_CHARS


async def test_a_hostile_report_is_stored_all_the_same(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    report = AttemptReport(
        Failed(JobError(HOSTILE, HOSTILE, HOSTILE * 3)),
        {"why": HOSTILE, "numbers": [float("nan"), float("inf")], "bytes": b"\x00\xff", HOSTILE: {1, 2}},
        ProcessFacts(output_tail="\x00" + "x" * 100_000, signal="SIG\x00", peak_memory_mb=float("nan")),
    )
    assert await worker.store.finish((await worker.claim_one()).fence, report) == Finished("queued")
    assert job(db, job_id, "length(error ->> 'message')") <= MAX_MESSAGE_CHARS
    assert job(db, job_id, "length(error ->> 'type')") <= 200
    assert attempts(db, job_id, "octet_length(output_tail) <= 65536 + 8, pg_column_size(evidence) < 100000") == [
        (True, True)
    ]


async def test_a_fraction_of_any_size_does_not_hold_up_the_others(db: Connection, worker: Worker) -> None:
    add(db, 7)
    jobs = await worker.claim()
    fractions = [0.5, 1e-50, 5e-324, -1.0, 1e300, math.inf, math.nan]
    news = {job.fence: (fraction, "") for job, fraction in zip(jobs, fractions, strict=True)}
    assert await worker.store.progress(news) == set()
    assert [job(db, taken.id, "progress") for taken in jobs] == [0.5, 0, 0, 0, 1, 1, 1]


async def test_hostile_progress_is_stored_and_does_not_hold_up_the_others(db: Connection, worker: Worker) -> None:
    add(db, 3)
    jobs = await worker.claim()
    notes = ["\x00zero", "\ud800lone", "fine"]
    news = {job.fence: (0.5, note) for job, note in zip(jobs, notes, strict=True)}
    assert await worker.store.progress(news) == set()
    assert job(db, jobs[2].id, "progress_note") == "fine"
    assert all(job(db, taken.id, "progress") == 0.5 for taken in jobs)


def test_progress_is_clamped_and_its_note_is_short() -> None:
    published: list[tuple[float, str]] = []
    context = BoundContext(1, 1, 1, None, None, lambda *news: published.append(news))  # type: ignore[arg-type]
    for fraction in (-1, 0.25, 7, float("inf"), float("nan")):
        context.progress(fraction, "n" * 1000)
    assert [fraction for fraction, _ in published] == [0.0, 0.25, 1.0, 1.0, 0.0]
    assert {len(note) for _, note in published} == {200}


# Effects and success in one transaction.


def bound(running: ClaimedJob) -> BoundContext:
    return BoundContext(running.id, running.claim, running.attempt, None, None, lambda *_: None)  # type: ignore[arg-type]


COMPLETE_IN = [
    "psycopg_connection",
    "psycopg_async_connection",
    "psycopg_cursor",
    "sqlalchemy_session",
    "sqlalchemy_async_session_psycopg",
    "sqlalchemy_async_session_asyncpg",
    "sqlalchemy_connection",
    "asyncpg_connection",
    "asyncpg_pool_acquired",
]
COMPLETED = AttemptReport(Succeeded(completed_in=True))


@pytest.fixture(params=COMPLETE_IN)
def open_connection(request: pytest.FixtureRequest) -> Caller:
    return CALLERS[request.param]


async def test_complete_in_commits_the_effects_and_the_success_together(
    db: Connection, url: str, worker: Worker, open_connection: Caller
) -> None:
    db.execute("CREATE TABLE effects (n int)")
    (job_id,) = add(db)
    running = await worker.claim_one()
    context = bound(running)
    async with open_connection(url) as held:
        await settle(held.execute("INSERT INTO effects VALUES (1)"))
        await settle(context.complete_in(held.db, Note(text="done")))
        assert context.completed_in
        assert job(db, job_id) == "running"  # not yet
        await settle(held.commit())
    assert job(db, job_id, "status, result ->> 'text'") == ("succeeded", "done")
    assert await worker.store.finish(running.fence, COMPLETED) == Finished("succeeded")
    assert scalar(db, "SELECT count(*) FROM effects") == 1
    assert attempts(db, job_id) == []


async def test_complete_in_that_is_rolled_back_leaves_neither(
    db: Connection, url: str, worker: Worker, open_connection: Caller
) -> None:
    db.execute("CREATE TABLE effects (n int)")
    (job_id,) = add(db)
    running = await worker.claim_one()
    async with open_connection(url) as held:
        await settle(held.execute("INSERT INTO effects VALUES (1)"))
        await settle(bound(running).complete_in(held.db))
        await settle(held.rollback())
    assert job(db, job_id) == "running"
    assert scalar(db, "SELECT count(*) FROM effects") == 0
    # The handler returned as if all was well: its attempt failed, with a reason that says what was forgotten.
    assert await worker.store.finish(running.fence, COMPLETED) == Finished("queued")
    assert attempts(db, job_id, "verdict, error ->> 'type'") == [("failed", "TransactionNotCommitted")]


async def test_complete_in_with_a_lost_lease_takes_the_effects_back(
    db: Connection, url: str, worker: Worker, open_connection: Caller, recovery: Any
) -> None:
    db.execute("CREATE TABLE effects (n int)")
    add(db)
    running = await worker.claim_one()
    expire(db, worker)
    await recovery.rescue()
    async with open_connection(url) as held:
        await settle(held.execute("INSERT INTO effects VALUES (1)"))
        with pytest.raises(LeaseLost, match=f"job {running.id} no longer belongs to claim 1"):
            await settle(bound(running).complete_in(held.db))
        await settle(held.rollback())
    assert scalar(db, "SELECT count(*) FROM effects") == 0
    assert job(db, running.id, "status, attempt") == ("queued", 1)


async def test_a_rescuer_waits_for_a_handler_that_is_committing_its_success(
    db: Connection, url: str, worker: Worker, recovery: Any
) -> None:
    (job_id,) = add(db)
    running = await worker.claim_one()
    with psycopg.connect(url) as connection:
        bound(running).complete_in(connection)
        expire(db, worker)
        assert await recovery.rescue() == 0  # the row is held, so it is left alone
        connection.commit()
    assert job(db, job_id) == "succeeded"
    assert await recovery.rescue() == 0
    assert attempts(db, job_id) == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_complete_in_under_a_strict_isolation_level_commits_or_is_refused_never_both(
    db: Connection, url: str, worker: Worker, level: str
) -> None:
    (job_id,) = add(db)
    running = await worker.claim_one()
    with psycopg.connect(url) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        connection.execute("SELECT 1 FROM background_jobs")  # takes the snapshot
        bound(running).complete_in(connection)
        connection.commit()
    assert job(db, job_id) == "succeeded"
    (job_id,) = add(db)
    running = await worker.claim_one()
    with psycopg.connect(url) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        connection.execute("SELECT 1 FROM background_jobs")
        await worker.store.finish(running.fence, returned(Verdict.RELEASED))
        with pytest.raises(psycopg.errors.SerializationFailure):
            bound(running).complete_in(connection)
        connection.rollback()
    assert job(db, job_id) == "queued"


async def test_complete_in_refuses_a_wrong_result_before_it_writes(db: Connection, url: str, worker: Worker) -> None:
    add(db)
    context = bound(await worker.claim_one())
    with psycopg.connect(url) as connection:
        with pytest.raises(TypeError, match="a handler returns a pydantic model or None, not dict"):
            context.complete_in(connection, {"a": 1})
        with pytest.raises(ValueError, match="1,048,576 are allowed"):
            context.complete_in(connection, Note(text="x" * (1 << 20)))
        context.complete_in(connection, Note(text="\\u0000 and \x00 and \\\\\x00\x00"))
    assert job(db, context.job_id, "status, result ->> 'text'") == (
        "succeeded",
        "\\u0000 and \u2400 and \\\\\u2400\u2400",
    )


# What a claim's lost answer leaves behind.


async def test_claims_whose_answer_was_lost_are_given_back_uncharged(
    db: Connection, worker: Worker, recovery: Any
) -> None:
    add(db, 3)
    known, *_ = await worker.claim(slots=1)
    lost = await worker.claim(slots=2)
    assert await recovery.release_unknown(worker.id, [known.fence]) == (2, None)
    assert job(db, known.id) == "running"
    for unknown in lost:
        assert job(db, unknown.id, "status, attempt") == ("queued", 0)
        assert attempts(db, unknown.id, "verdict, charged, evidence ->> 'why'") == [
            ("released", False, "the answer to its claim was lost, so it never started")
        ]
    # An older claim of a job does not vouch for a newer one that never arrived.
    assert await worker.store.finish(known.fence, returned(Verdict.RELEASED)) == Finished("queued")
    again = next(job for job in await worker.claim() if job.id == known.id)
    assert again.claim == 2
    assert again.fence in await worker.store.unknown_claims(worker.id, [known.fence])


async def test_of_claims_whose_answer_was_lost_each_is_given_back_by_itself(
    db: Connection, url: str, worker: Worker, recovery: Any
) -> None:
    """Whatever the database refuses of one, and whoever holds another."""
    add(db, 6)
    db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$")
    held, refused, *others = await worker.claim(slots=6)
    db.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON background_attempts FOR EACH ROW "
        f"WHEN (NEW.job_id = {refused.id}) EXECUTE FUNCTION refuse()"
    )
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held.id])
        number, trouble = await recovery.release_unknown(worker.id, [])
        assert (number, type(trouble)) in [(4, Locked), (4, psycopg.errors.RaiseException)]
    assert {job(db, other.id) for other in others} == {"queued"}
    number, trouble = await recovery.release_unknown(worker.id, [])
    assert (number, type(trouble)) == (1, psycopg.errors.RaiseException)
    db.execute("DROP TRIGGER refuse ON background_attempts")
    assert await recovery.release_unknown(worker.id, []) == (1, None)


# Bounds.


async def test_an_outcome_that_waits_for_a_lock_is_bounded_and_can_be_written_afterwards(
    db: Connection, url: str
) -> None:
    from jobs.unavailable import DatabaseUnavailable

    database = Database(url, call_timeout=0.5, application_name="impatient")
    await database.open()
    store = JobStore(database, retry_delay=0.01, pause_after=5)
    worker = await hire(store)
    (job_id,) = add(db)
    running = await worker.claim_one()
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs FOR UPDATE")
        for write in (complete, finish(FAILURE)):
            with pytest.raises(DatabaseUnavailable):
                await write(store, running.fence)
    assert job(db, job_id) == "running"
    assert await store.finish(running.fence, FAILURE) == Finished("queued")
    await database.close()


async def test_claims_do_without_prepared_statements_where_a_pooler_loses_them(
    db: Connection, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(url, call_timeout=10, application_name="pooled")
    await database.open()
    worker = await hire(JobStore(database, retry_delay=0.01, pause_after=5))
    add(db, 3)
    # As behind a pooler, whose next connection to the server is another one.
    db.execute(
        "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DEALLOCATE ALL; RETURN NULL; END $$"
    )
    db.execute("CREATE TRIGGER forget AFTER UPDATE ON background_jobs EXECUTE FUNCTION forget()")
    with caplog.at_level("INFO", "oomph.database"):
        for _ in range(3):
            await worker.claim_one()
    assert caplog.text.count("prepared statement") == 1
    await database.close()


async def test_two_batches_that_end_streaks_of_the_same_kinds_do_not_deadlock(db: Connection, store: JobStore) -> None:
    workers = [await hire(store, tasks=[NOTE, LETTER]) for _ in range(2)]
    for _ in range(15):
        db.execute("UPDATE background_kinds SET kill_streak = 1")
        batches = []
        for worker, kinds in zip(workers, (("note", "letter"), ("letter", "note")), strict=True):
            for kind in kinds:
                add(db, 5, kind=kind)
            batches.append([job for kind in kinds for job in await worker.claim(kinds=[kind], slots=5)])
        lost = await asyncio.gather(
            *(
                succeed(worker.store, {job.fence: None for job in jobs})
                for worker, jobs in zip(workers, batches, strict=True)
            )
        )
        assert lost == [set(), set()]
    assert scalar(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_the_style_of_dates_and_intervals_of_the_database_does_not_matter(
    db: Connection, url: str, server: str
) -> None:
    name = db.info.dbname
    for setting in (
        "datestyle = 'German'",
        "intervalstyle = 'sql_standard'",
        "timezone = 'Australia/Lord_Howe'",
        "default_transaction_isolation = 'repeatable read'",
    ):
        db.execute(f"ALTER DATABASE {name} SET {setting}")
    database = Database(url, call_timeout=10, application_name="german")
    await database.open()
    store = JobStore(database, retry_delay=0.01, pause_after=5)
    worker = await hire(store)
    (job_id,) = add(db, timeout="1 day 1.5 s", run_after="2020-02-03")
    running = await worker.claim_one()
    assert running.timeout == timedelta(days=1, seconds=1.5)
    await store.finish(running.fence, FAILURE)
    make_due(db)
    await store.finish((await worker.claim_one()).fence, SUCCESS)
    assert job(db, job_id) == "succeeded"
    await database.close()


def test_every_kind_of_task_fits_the_table(db: Connection) -> None:
    widest = Task(kind="k" * 100, payload_type=Note, pool=NOTE.pool, max_attempts=1000, timeout=timedelta(days=7))
    from jobs import enqueue

    assert enqueue(db, widest, Note(), dedupe_key="\U0001f600" * 500, concurrency_key="\U0001f600" * 500) is not None
    assert (db.cursor(row_factory=tuple_row).execute("SELECT kind FROM background_jobs").fetchone() or [""])[
        0
    ] == "k" * 100


def test_only_these_outcomes_can_be_made() -> None:
    with pytest.raises(ValueError, match="failed is not a death"):
        Died(Verdict.FAILED, JobError("x", "y"))
    with pytest.raises(ValueError, match="crashed is charged"):
        returned(Verdict.CRASHED)
    assert Cancelled.verdict is Verdict.CANCELLED
    assert Snoozed.verdict is Verdict.SNOOZED
    assert {verdict for verdict in Verdict if verdict.ends_streak} == {Verdict.SUCCEEDED, Verdict.FAILED}


async def test_a_finish_that_waits_behind_another_finish_of_the_same_claim_is_lost(
    db: Connection, url: str, worker: Worker
) -> None:
    add(db)
    running = await worker.claim_one()
    with psycopg.connect(url) as first:
        first.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [running.id])
        second = asyncio.create_task(worker.store.finish(running.fence, FAILURE))
        await until(lambda: waiting_for_locks(db) == 1)
        first.commit()
    assert await second == Lost()
    assert attempts(db, running.id) == []


@pytest.mark.parametrize("late", ["success", "single success"])
async def test_a_write_that_waits_behind_the_end_of_its_claim_is_lost(
    db: Connection, url: str, worker: Worker, late: str
) -> None:
    add(db)
    running = await worker.claim_one()
    write, refused = LATE[late]
    with psycopg.connect(url) as first:
        first.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [running.id])
        second = asyncio.create_task(write(worker.store, running.fence))
        await until(lambda: waiting_for_locks(db) == 1)
        first.commit()
    assert await second == refused(running.fence)
    assert job(db, running.id, "status, result, progress") == ("dead", None, None)


async def test_a_claim_passes_over_what_somebody_holds(db: Connection, url: str, worker: Worker) -> None:
    held, free = add(db, 2)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        async with asyncio.timeout(5):
            assert [taken.id for taken in await worker.claim()] == [free]
    assert (await worker.claim_one()).id == held


async def test_progress_passes_over_what_somebody_holds_and_is_lost_with_its_claim(
    db: Connection, url: str, worker: Worker
) -> None:
    add(db, 2)
    held, free = await worker.claim()
    news = {held.fence: (0.5, "held"), free.fence: (0.5, "free")}
    with psycopg.connect(url) as holder:
        holder.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [held.id])
        async with asyncio.timeout(5):
            assert await worker.store.progress(news) == {held.fence}
        assert await worker.store.statuses([held.fence]) == {held.fence: "running"}
        holder.commit()
    assert await worker.store.progress(news) == {held.fence}
    assert await worker.store.statuses([held.fence]) == {held.fence: "dead"}
    assert job(db, held.id, "status, progress") == ("dead", None)
    assert job(db, free.id, "progress, progress_note") == (0.5, "free")


async def test_progress_and_successes_of_the_same_jobs_in_any_order_do_not_deadlock(
    db: Connection, worker: Worker
) -> None:
    """A worker writes both at the same time, each in the order in which its handlers spoke."""
    add(db, 400)
    fences = [taken.fence for taken in await worker.claim(slots=400)]
    for n in range(15):
        orders = [fences, fences[::-1], fences[n::2] + fences[:n] + fences[n + 1 :: 2]]
        writes = [worker.store.progress({fence: (0.5, str(n)) for fence in order}) for order in orders]
        await asyncio.gather(*writes)
    await asyncio.gather(
        worker.store.progress(dict.fromkeys(fences, (1.0, "last"))),
        succeed(worker.store, dict.fromkeys(fences[::-1])),
    )
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'") == 400
