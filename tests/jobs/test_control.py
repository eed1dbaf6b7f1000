"""What an operator may do: in the caller's transaction, with a name, a reason and an audit row, or not at all."""

import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from jobs import ControlError, cancel, enqueue, pause, resume, retry
from jobs.control import run_schedule_now
from jobs.outcome import Verdict
from tests.jobs.callers import CALLERS, Held, settle
from tests.jobs.lab import (
    CANCEL,
    FAILURE,
    NOTE,
    PERMANENT,
    Connection,
    Note,
    Worker,
    add,
    attempts,
    died,
    job,
    scalar,
    waiting_for_locks,
)

CONNECTIONS = [
    "psycopg_connection",
    "psycopg_cursor",
    "psycopg_async_connection",
    "sqlalchemy_session",
    "sqlalchemy_async_session_psycopg",
    "sqlalchemy_async_session_asyncpg",
    "sqlalchemy_async_connection_asyncpg",
    "asyncpg_connection",
    "django_connection",
]


@pytest.fixture(params=CONNECTIONS)
async def held(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    async with CALLERS[request.param](url) as opened:
        yield opened


def audit(db: Connection, columns: str = "actor, action, target, reason, detail") -> list[Any]:
    return db.execute(f"SELECT {columns} FROM background_audit ORDER BY id").fetchall()


async def test_every_action_works_on_every_connection_with_its_audit_in_the_same_transaction(
    held: Held, db: Connection
) -> None:
    (queued,), (dead,) = add(db), add(db, status="dead", attempt=5, dedupe_key="d", blocked=True)
    await settle(retry(held.db, dead, actor=" ana ", reason="disk was full"))
    assert await settle(cancel(held.db, queued, actor="bo", reason="wrong file: 50% \u2603 '$1' :x")) == "cancelled"
    await settle(pause(held.db, "note", actor="cy"))
    await settle(resume(held.db, "note", actor="di", probe=True))
    await settle(resume(held.db, "note", actor="ed"))
    assert audit(db) == []  # not before the commit
    assert job(db, dead) == "dead"
    await settle(held.commit())
    assert audit(db) == [
        ("ana", "retry", f"job {dead}", "disk was full", {"was": "dead"}),
        ("bo", "cancel", f"job {queued}", "wrong file: 50% \u2603 '$1' :x", {"was": "queued"}),
        ("cy", "pause", "note", None, {}),
        ("di", "resume", "note", None, {"was": None, "probe": True}),
        ("ed", "resume", "note", None, {"was": None, "probe": False}),
    ]
    assert job(db, dead, "status, attempt, blocked, finished_at") == ("queued", 0, False, None)
    assert job(db, queued, "status, error") == (
        "cancelled",
        {"type": "Cancelled", "message": "cancelled by bo: wrong file: 50% \u2603 '$1' :x", "frames": ""},
    )


async def test_a_rolled_back_action_leaves_no_trace(held: Held, db: Connection) -> None:
    (queued,), (dead,) = add(db), add(db, status="dead")
    await settle(retry(held.db, dead, actor="ana"))
    await settle(cancel(held.db, queued, actor="ana"))
    await settle(pause(held.db, "note", actor="ana"))
    await settle(held.rollback())
    assert (job(db, dead), job(db, queued)) == ("dead", "queued")
    assert audit(db) == []
    assert scalar(db, "SELECT count(*) FROM background_kinds") == 0


async def test_what_does_not_apply_says_why_and_leaves_the_transaction_usable(held: Held, db: Connection) -> None:
    (done,), (queued,), (running,) = add(db, status="succeeded"), add(db), add(db, status="running")
    (dead,) = add(db, status="dead", dedupe_key="d")
    (copy,) = add(db, dedupe_key="d")
    for call, message in (
        (lambda: retry(held.db, 999, actor="ana"), "job 999 does not exist"),
        (lambda: retry(held.db, done, actor="ana"), "is succeeded; only a dead or cancelled job can be retried"),
        (lambda: retry(held.db, queued, actor="ana"), "is queued; only a dead or cancelled job"),
        (lambda: retry(held.db, running, actor="ana"), "is running; only a dead or cancelled job"),
        (lambda: retry(held.db, dead, actor="ana"), f"job {copy} is queued with the same dedupe key"),
        (lambda: cancel(held.db, 999, actor="ana"), "job 999 does not exist"),
        (lambda: cancel(held.db, done, actor="ana"), "is already succeeded"),
        (lambda: cancel(held.db, dead, actor="ana"), "is already dead"),
        (lambda: resume(held.db, "note", actor="ana"), "kind note is not paused"),
    ):
        with pytest.raises(ControlError, match=message):
            await settle(call())
    await settle(pause(held.db, "note", actor="ana"))
    await settle(held.commit())
    assert audit(db, "action") == [("pause",)]


@pytest.mark.parametrize("actor", ["", "   ", "a" * 201, "a\x00b", None, 7])
def test_an_actor_is_needed(db: Connection, actor: Any) -> None:
    (job_id,) = add(db)
    for act, target in ((retry, job_id), (cancel, job_id), (pause, "note"), (resume, "note")):
        with pytest.raises(ControlError, match="an actor is needed"):
            act(db, target, actor=actor)
    assert audit(db) == []


def test_a_reason_is_bounded_and_stored_whatever_it_holds(db: Connection) -> None:
    (job_id,) = add(db)
    with pytest.raises(ControlError, match="the reason has 2001 characters; 2000 are allowed"):
        cancel(db, job_id, actor="ana", reason="x" * 2001)
    cancel(db, job_id, actor="ana", reason="a\x00b\ud800c")
    assert audit(db, "reason") == [("a\u2400b?c",)]
    assert job(db, job_id, "error ->> 'message'") == "cancelled by ana: a\u2400b?c"


def test_a_pause_needs_a_kind_and_keeps_its_first_reason(db: Connection) -> None:
    with pytest.raises(ControlError, match="needs a kind"):
        pause(db, "", actor="ana")
    pause(db, "note", actor="ana", reason="first")
    pause(db, "note", actor="bo", reason="second")
    assert db.execute("SELECT paused_by, pause_reason FROM background_kinds").fetchone() == ("ana", "first")
    assert audit(db, "actor, reason") == [("ana", "first"), ("bo", "second")]


async def test_a_retry_gives_all_attempts_anew_and_keeps_the_history(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db, max_attempts=2)
    for _ in range(2):
        db.execute("UPDATE background_jobs SET run_after = now()")
        await worker.store.finish((await worker.claim_one()).fence, FAILURE)
    assert job(db, job_id, "status, attempt, claim") == ("dead", 2, 2)
    retry(db, job_id, actor="ana")
    running = await worker.claim_one()
    assert (running.attempt, running.claim) == (1, 3)
    await worker.store.finish(running.fence, FAILURE)
    assert job(db, job_id, "status") == "queued"
    assert attempts(db, job_id, "claim, attempt, verdict") == [(1, 1, "failed"), (2, 2, "failed"), (3, 1, "failed")]


async def test_a_retry_forgets_the_cancel_that_ended_the_job(db: Connection, worker: Worker) -> None:
    add(db)
    running = await worker.claim_one()
    assert cancel(db, running.id, actor="ana") == "running"
    await worker.store.finish(running.fence, CANCEL)
    retry(db, running.id, actor="ana")
    again = await worker.claim_one()
    assert await worker.store.cancels(worker.id) == []
    await worker.store.finish(again.fence, FAILURE)
    assert job(db, running.id) == "queued"


async def test_a_cancel_of_a_running_job_is_asked_for_once_and_tells_the_workers(
    db: Connection, url: str, worker: Worker
) -> None:
    add(db)
    running = await worker.claim_one()
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_control")
        assert cancel(db, running.id, actor="ana") == "running"
        first = job(db, running.id, "cancel_requested_at")
        assert cancel(db, running.id, actor="bo") == "running"
        assert job(db, running.id, "cancel_requested_at") == first
        assert [notice.payload for notice in listener.notifies(timeout=10, stop_after=2)] == ["cancel"] * 2
    assert await worker.store.cancels(worker.id) == [running.fence]


@pytest.mark.parametrize("name", ["", "a\0b", "k" * 101, "\ud800"])
def test_a_name_that_nothing_can_have_is_refused_in_words(db: Connection, name: str) -> None:
    for act in (pause, resume, run_schedule_now):
        with pytest.raises(ControlError):
            act(db, name, actor="ada")


@pytest.mark.parametrize("number", [-1, 2**63, 10**30])
def test_a_number_that_no_job_can_have_names_none(db: Connection, number: int) -> None:
    for act in (retry, cancel):
        with pytest.raises(ControlError, match="does not exist"):
            act(db, number, actor="ada")


def test_pause_resume_and_retry_wake_the_workers(db: Connection, url: str) -> None:
    (dead,) = add(db, status="dead", pool="ingest")
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_control")
        listener.execute("LISTEN background_jobs")
        pause(db, "note", actor="ana")
        resume(db, "note", actor="ana")
        retry(db, dead, actor="ana")
        told = [(notice.channel, notice.payload) for notice in listener.notifies(timeout=10, stop_after=3)]
    assert told == [("background_control", "kinds")] * 2 + [("background_jobs", "new note")]


def test_a_retry_beside_a_running_copy_depends_on_who_counts_running_ones(db: Connection) -> None:
    (dead,) = add(db, status="dead", dedupe_key="k")
    add(db, status="running", dedupe_key="k")
    retry(db, dead, actor="ana")
    assert job(db, dead) == "queued"
    (dead,) = add(db, status="dead", dedupe_key="a", dedupe_active=True)
    add(db, status="running", dedupe_key="a")
    with pytest.raises(ControlError, match="same dedupe key"):
        retry(db, dead, actor="ana")


async def test_cancel_and_finish_at_once_leave_one_of_the_two(db: Connection, url: str, worker: Worker) -> None:
    for _ in range(20):
        add(db, max_attempts=1)
        running = await worker.claim_one()
        answers: list[Any] = []

        def operate(job_id: int = running.id, answers: list[Any] = answers) -> None:
            try:
                with psycopg.connect(url) as connection:
                    answers.append(cancel(connection, job_id, actor="ana"))
            except ControlError as error:
                answers.append(error)

        operator = threading.Thread(target=operate)
        operator.start()
        await worker.store.finish(running.fence, PERMANENT)
        operator.join()
        assert job(db, running.id) == "dead"
        (answer,) = answers
        assert answer == "running" or "is already dead" in str(answer)


def test_a_cancel_that_waits_behind_the_end_of_the_job_changes_nothing(url: str, db: Connection) -> None:
    (job_id,) = add(db, status="running")
    refused: list[str] = []

    def operate() -> None:
        with psycopg.connect(url) as connection:
            try:
                cancel(connection, job_id, actor="ana")
            except ControlError as error:
                refused.append(str(error))

    with psycopg.connect(url) as worker:
        worker.execute("UPDATE background_jobs SET status = 'succeeded', finished_at = now() WHERE id = %s", [job_id])
        operator = threading.Thread(target=operate)
        operator.start()
        while waiting_for_locks(db) == 0:
            time.sleep(0.005)
        worker.commit()
        operator.join()
    assert refused == [f"job {job_id} is already succeeded"]
    assert job(db, job_id, "finished_at IS NOT NULL, cancel_requested_at, error") == (True, None, None)
    assert audit(db) == []


def test_a_service_may_enqueue_pause_and_cancel_in_one_transaction(url: str, db: Connection) -> None:
    with psycopg.connect(url) as connection:
        job_id = enqueue(connection, NOTE, Note())
        pause(connection, "note", actor="ana")
        assert cancel(connection, job_id, actor="ana") == "cancelled"
        retry(connection, job_id, actor="ana")
    assert job(db, job_id) == "queued"
    assert [row[0] for row in audit(db, "action")] == ["pause", "cancel", "retry"]


async def test_an_operator_and_a_worker_that_lock_in_opposite_order_both_get_through(
    db: Connection, url: str, worker: Worker
) -> None:
    """The operator holds the kind and wants the job, the worker holds the job and wants the kind."""
    import asyncio

    from jobs.store import Finished
    from jobs.unavailable import DatabaseUnavailable
    from tests.jobs.lab import until

    (job_id,) = add(db)
    running = await worker.claim_one()
    operator = psycopg.connect(url)
    pause(operator, "note", actor="ana")
    finishing = asyncio.create_task(worker.store.finish(running.fence, died(Verdict.CRASHED)))
    await until(lambda: waiting_for_locks(db) == 1)
    failures: list[Exception] = []

    def go_on() -> None:
        try:
            cancel(operator, job_id, actor="ana")
            operator.commit()
        except psycopg.errors.DeadlockDetected as error:
            failures.append(error)
            operator.rollback()

    await asyncio.to_thread(go_on)
    operator.close()
    try:
        outcome = await finishing
    except DatabaseUnavailable as error:
        failures.append(error)
        outcome = await worker.store.finish(running.fence, died(Verdict.CRASHED))
    assert isinstance(outcome, Finished)
    assert len(failures) == 1  # PostgreSQL breaks the circle, and whoever it chose tries again
    assert len(attempts(db, job_id)) == 1
