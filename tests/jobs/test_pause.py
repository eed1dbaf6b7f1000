"""Five kills in a row pause a kind, in the transaction that records the fifth, over all hosts, once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jobs.claim import ClaimedJob
from jobs.control import pause, resume
from jobs.database import Database
from jobs.health import Paused, ProbeDied, Reopened, tell
from jobs.outcome import AttemptReport, Succeeded, Verdict
from jobs.store import Finished, JobStore, Lost
from tests.jobs.lab import (
    CANCEL,
    FAILURE,
    SUCCESS,
    Connection,
    Worker,
    add,
    died,
    expire,
    hire,
    job,
    returned,
    scalar,
    succeed,
)

KILL = died(Verdict.OOM_KILLED, "oom_kill went from 3 to 4")


def health(db: Connection, kind: str = "note") -> tuple[int, bool]:
    row = db.execute(
        "SELECT kill_streak, paused_at IS NOT NULL FROM background_kinds WHERE kind = %s", [kind]
    ).fetchone()
    assert row is not None
    return row[0], row[1]


async def run(db: Connection, worker: Worker, *reports: AttemptReport) -> list[Any]:
    """One fresh job for each report."""
    answers = []
    for report in reports:
        (job_id,) = add(db, max_attempts=1)
        (taken,) = await worker.claim(slots=1, kinds=["note"])
        assert taken.id == job_id
        answers.append(await worker.store.finish(taken.fence, report))
    return answers


@pytest.fixture
async def hosts(store: JobStore) -> tuple[Worker, Worker]:
    return await hire(store, host="host-a"), await hire(store, host="host-b")


async def test_five_kills_over_two_hosts_pause_the_kind_and_say_why(
    db: Connection, hosts: tuple[Worker, Worker]
) -> None:
    one, other = hosts
    answers = await run(db, one, KILL, KILL) + await run(db, other, KILL, KILL)
    assert [answer.news for answer in answers] == [None] * 4
    assert health(db) == (4, False)
    fifth = await run(db, one, KILL)
    assert health(db) == (5, True)
    reason = scalar(db, "SELECT pause_reason FROM background_kinds WHERE kind = 'note'")
    assert fifth == [Finished("dead", Paused("note", 5, reason))]
    lines = reason.splitlines()
    assert lines[0] == "5 kills in a row:"
    assert lines[1:] == [
        f"job {n} attempt 1 on {host}: oom_killed: oom_kill went from 3 to 4"
        for n, host in enumerate(("host-a", "host-a", "host-b", "host-b", "host-a"), start=1)
    ]
    assert db.execute("SELECT actor, action, target, reason FROM background_audit").fetchall() == [
        ("oomph", "pause", "note", reason)
    ]
    assert db.execute("SELECT severity, subject, body, read_at FROM background_notices").fetchall() == [
        ("critical", "note is paused: its jobs killed their process 5 times in a row", reason, None)
    ]
    assert scalar(db, "SELECT paused_by FROM background_kinds WHERE kind = 'note'") == "oomph"


async def test_a_paused_kind_starts_nothing_and_its_running_jobs_finish(
    db: Connection, hosts: tuple[Worker, Worker]
) -> None:
    one, other = hosts
    add(db)
    (running,) = await other.claim()
    await run(db, one, *[KILL] * 5)
    add(db)
    (letter,) = add(db, kind="letter")
    assert [job.id for job in await one.claim()] == [letter]  # other kinds go on
    assert await other.claim() == []
    assert await succeed(other.store, {running.fence: None}) == set()
    assert health(db) == (5, True)  # what was running when it was paused does not open it


async def test_of_many_kills_at_once_exactly_one_pauses(db: Connection, database: Database) -> None:
    store = JobStore(database, retry_delay=1, pause_after=5)
    workers = [await hire(store, host=f"host-{n}") for n in range(4)]
    add(db, 12, max_attempts=1)
    running = [taken for worker in workers for taken in await worker.claim(slots=3)]
    answers = await asyncio.gather(*(store.finish(taken.fence, KILL) for taken in running))
    news = [answer.news for answer in answers if isinstance(answer, Finished)]
    assert (len(news), news.count(None)) == (12, 11)
    assert health(db) == (5, True)
    assert scalar(db, "SELECT count(*) FROM background_audit WHERE action = 'pause'") == 1
    assert scalar(db, "SELECT count(*) FROM background_notices") == 1
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE is_kill") == 12


@pytest.mark.parametrize("survival", [SUCCESS, FAILURE, AttemptReport(Succeeded(), {"why": "swapped"})])
async def test_a_success_or_an_ordinary_failure_ends_the_streak(
    db: Connection, worker: Worker, survival: AttemptReport
) -> None:
    """Scenario 32: kills with something else between them."""
    await run(db, worker, *[KILL] * 4, survival)
    assert health(db) == (0, False)
    await run(db, worker, *[KILL] * 4)
    assert health(db) == (4, False)


async def test_a_success_in_a_batch_ends_the_streak(db: Connection, worker: Worker) -> None:
    await run(db, worker, *[KILL] * 4)
    add(db, 10)
    jobs = await worker.claim()
    await succeed(worker.store, {taken.fence: None for taken in jobs})
    assert health(db) == (0, False)


async def test_time_outs_cancels_and_refunds_neither_grow_nor_end_the_streak(db: Connection, worker: Worker) -> None:
    neither = [died(Verdict.TIMED_OUT), CANCEL]
    await run(db, worker, *[KILL] * 4, *neither)
    (job_id,) = add(db)
    for verdict in (Verdict.RELEASED, Verdict.LEASE_LOST, Verdict.SPAWN_FAILED):
        (taken,) = await worker.claim()
        assert taken.id == job_id
        await worker.store.finish(taken.fence, returned(verdict))
    assert health(db) == (4, False)
    assert job(db, job_id, "attempt") == 0


async def test_outcomes_from_before_the_resume_do_not_count(db: Connection, worker: Worker) -> None:
    """Scenario 33: late outcomes of attempts that started before the resume."""
    add(db, 10, max_attempts=1)
    old = await worker.claim(slots=10)
    pause(db, "note", actor="ana", reason="look at this")
    resume(db, "note", actor="ana")
    for taken in old[:6]:
        assert await worker.store.finish(taken.fence, KILL) == Finished("dead")
    assert health(db) == (0, False)
    await run(db, worker, *[KILL] * 4)
    await succeed(worker.store, {taken.fence: None for taken in old[6:]})
    assert health(db) == (4, False)  # nor do old successes end the new streak
    assert isinstance((await run(db, worker, KILL))[0].news, Paused)


async def test_a_resume_clears_the_streak_and_is_audited(db: Connection, worker: Worker) -> None:
    await run(db, worker, *[KILL] * 5)
    reason = scalar(db, "SELECT pause_reason FROM background_kinds WHERE kind = 'note'")
    resume(db, "note", actor="ana", reason="fixed in 1.2")
    assert health(db) == (0, False)
    assert db.execute(
        "SELECT paused_at, paused_by, pause_reason, generation, probe FROM background_kinds WHERE kind = 'note'"
    ).fetchone() == (None, None, None, 1, False)
    assert db.execute(
        "SELECT actor, reason, detail FROM background_audit WHERE action = 'resume' ORDER BY id DESC LIMIT 1"
    ).fetchone() == ("ana", "fixed in 1.2", {"was": reason, "probe": False})
    (job_id,) = add(db)
    assert [taken.id for taken in await worker.claim()] == [job_id]


async def test_a_kill_of_a_kind_that_nobody_declared_is_counted_too(db: Connection, worker: Worker) -> None:
    add(db, kind="by-hand", max_attempts=1)
    (taken,) = await worker.claim(kinds=["by-hand"])
    await worker.store.finish(taken.fence, KILL)
    assert health(db, "by-hand") == (1, False)


async def test_a_success_of_a_healthy_kind_does_not_touch_its_row(db: Connection, worker: Worker) -> None:
    def version() -> Any:
        return db.execute("SELECT kind, xmin::text, xmax::text FROM background_kinds ORDER BY kind").fetchall()

    before = version()
    add(db, 10)
    jobs = await worker.claim()
    await succeed(worker.store, {taken.fence: None for taken in jobs})
    assert version() == before  # not even locked
    await run(db, worker, AttemptReport(Succeeded()), FAILURE)
    assert [row[:2] for row in version()] == [row[:2] for row in before]  # not written


# Probes.


@pytest.fixture
async def claimers(url: str) -> AsyncIterator[list[Worker]]:
    databases = [Database(url, call_timeout=10, application_name=f"claimer {n}") for n in range(8)]
    for database in databases:
        await database.open()
    yield [
        await hire(JobStore(database, retry_delay=1, pause_after=5), host=f"host-{n}")
        for n, database in enumerate(databases)
    ]
    for database in databases:
        await database.close()


async def probe_all(claimers: list[Worker]) -> list[tuple[Worker, ClaimedJob]]:
    answers = await asyncio.gather(
        *(worker.store.claim_probe(worker.id, "system", worker.kinds) for worker in claimers),
        *(worker.claim() for worker in claimers),
    )
    return [(worker, taken) for worker, jobs in zip(claimers * 2, answers, strict=True) for taken in jobs]


async def test_a_probe_lets_exactly_one_job_through_and_its_success_opens_the_kind(
    db: Connection, claimers: list[Worker]
) -> None:
    add(db, 30)
    pause(db, "note", actor="ana")
    assert await probe_all(claimers) == []  # not asked for yet
    resume(db, "note", actor="ana", probe=True)
    for _ in range(5):
        sent = await probe_all(claimers)
        if sent:
            break
    ((worker, probe),) = sent
    assert await probe_all(claimers) == []
    assert health(db) == (0, True)
    assert await worker.store.finish(probe.fence, SUCCESS) == Finished("succeeded", Reopened("note", probe.id))
    assert health(db) == (0, False)
    assert scalar(db, "SELECT probe_job_id FROM background_kinds WHERE kind = 'note'") is None
    assert len(await worker.claim()) == 10


async def test_a_probe_is_charged_and_fenced_as_any_claim(db: Connection, worker: Worker) -> None:
    (job_id,) = add(db)
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    (first,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    assert (first.id, first.claim, first.attempt) == (job_id, 1, 1)
    await worker.store.finish(first.fence, returned(Verdict.RELEASED))
    (second,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    assert (second.id, second.claim, second.attempt) == (job_id, 2, 1)
    assert await worker.store.finish(first.fence, KILL) == Lost()
    assert health(db) == (0, True)


@pytest.mark.parametrize("ending", [KILL, died(Verdict.TIMED_OUT)])
async def test_the_death_of_a_probe_leaves_the_kind_paused(
    db: Connection, claimers: list[Worker], ending: AttemptReport
) -> None:
    add(db, 5)
    pause(db, "note", actor="ana", reason="it kills")
    resume(db, "note", actor="ana", probe=True)
    worker = claimers[0]
    (probe,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    finished = await worker.store.finish(probe.fence, ending)
    assert isinstance(finished, Finished)
    assert finished.news == ProbeDied("note", probe.id, ending.outcome.verdict)
    assert health(db)[1]
    said = f"its probe, job {probe.id}, ended as {ending.outcome.verdict}"
    assert scalar(db, "SELECT pause_reason FROM background_kinds WHERE kind = 'note'") == f"{said}\nit kills"
    assert db.execute("SELECT severity, subject FROM background_notices").fetchall() == [
        ("warning", f"note stays paused: {said}")
    ]
    assert await probe_all(claimers) == []


async def test_what_many_dead_probes_say_stays_bounded(db: Connection, worker: Worker) -> None:
    add(db, max_attempts=1000)
    pause(db, "note", actor="ana", reason="x" * 2000)
    db.execute("UPDATE background_kinds SET pause_reason = repeat(pause_reason, 10) WHERE kind = 'note'")
    resume(db, "note", actor="ana", probe=True)
    (probe,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    await worker.store.finish(probe.fence, KILL)
    reason = scalar(db, "SELECT pause_reason FROM background_kinds WHERE kind = 'note'")
    assert (len(reason), reason.splitlines()[0]) == (20_000, f"its probe, job {probe.id}, ended as oom_killed")


def test_the_log_names_the_kind_the_reason_and_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tell(Paused("note", 5, "5 kills in a row:\njob 1 attempt 1 on host-a: crashed"))
    tell(ProbeDied("note", 6, Verdict.OOM_KILLED))
    tell(Reopened("note", 7))
    paused, died, reopened = caplog.records
    assert [record.levelname for record in caplog.records] == ["CRITICAL", "ERROR", "WARNING"]
    for told in ("job 5 paused its kind note", "5 kills in a row: job 1 attempt 1", "`oomph kinds resume note --actor"):
        assert told in paused.getMessage()
    for told in ("kind note stays paused", "job 6, ended as oom_killed", "`oomph jobs show 6`", "--probe"):
        assert told in died.getMessage()
    assert "kind note runs again" in reopened.getMessage()


async def test_a_probe_whose_worker_is_lost_is_a_death(db: Connection, claimers: list[Worker], recovery: Any) -> None:
    """Scenario 34: the owner of the probe vanishes."""
    add(db, 2)
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    worker = claimers[0]
    assert len(await worker.store.claim_probe(worker.id, "system", ["note"])) == 1
    expire(db, worker)
    await recovery.rescue()
    assert health(db) == (1, True)
    assert await probe_all(claimers[1:]) == []


@pytest.mark.parametrize("ending", [returned(Verdict.RELEASED), CANCEL])
async def test_a_probe_that_shows_nothing_makes_the_next_job_the_probe(
    db: Connection, claimers: list[Worker], ending: AttemptReport
) -> None:
    add(db, 3)
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    worker = claimers[0]
    (first,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    await worker.store.finish(first.fence, ending)
    ((other, second),) = [sent for _ in range(5) for sent in await probe_all(claimers[1:])]
    await other.store.finish(second.fence, FAILURE)  # an ordinary failure: its process lived on
    assert health(db) == (0, False)


async def test_a_pause_during_the_probe_is_not_undone_by_its_success(db: Connection, worker: Worker) -> None:
    add(db, 3)
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    (probe,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    pause(db, "note", actor="bo", reason="stop, wrong kind")
    await succeed(worker.store, {probe.fence: None})
    assert health(db) == (0, True)


async def test_a_full_resume_during_the_probe_opens_the_kind_whatever_the_probe_does(
    db: Connection, worker: Worker
) -> None:
    add(db, 3, max_attempts=1)
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    (probe,) = await worker.store.claim_probe(worker.id, "system", ["note"])
    resume(db, "note", actor="ana")
    assert health(db) == (0, False)
    await worker.store.finish(probe.fence, KILL)
    assert health(db) == (0, False)  # it started before that resume


async def test_a_probe_takes_no_job_whose_key_is_busy_and_no_lost_worker_gets_one(
    db: Connection, worker: Worker, store: JobStore
) -> None:
    add(db, kind="letter", concurrency_key="k")
    await worker.claim()
    add(db, concurrency_key="k")
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    assert await store.claim_probe(worker.id, "system", ["note"]) == []
    (free,) = add(db)
    lost = await hire(store)
    expire(db, lost)
    assert await store.claim_probe(lost.id, "system", ["note"]) == []
    assert [taken.id for taken in await store.claim_probe(worker.id, "system", ["note"])] == [free]


async def test_a_kind_without_due_jobs_does_not_hold_up_the_probe_of_another(
    db: Connection, worker: Worker, store: JobStore
) -> None:
    (job_id,) = add(db)
    for kind in ("letter", "note"):
        pause(db, kind, actor="ana")
        resume(db, kind, actor="ana", probe=True)
    assert [taken.id for taken in await store.claim_probe(worker.id, "system", worker.kinds)] == [job_id]


async def test_a_probe_holds_few_keys_however_many_jobs_wait(db: Connection, worker: Worker, store: JobStore) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, concurrency_key)"
        " SELECT 'note', 'system', 'key ' || n FROM generate_series(1, 30000) AS n"
    )
    pause(db, "note", actor="ana")
    resume(db, "note", actor="ana", probe=True)
    assert len(await store.claim_probe(worker.id, "system", ["note"])) == 1  # 30,000 locks would not fit
