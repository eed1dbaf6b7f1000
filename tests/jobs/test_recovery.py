"""What lost workers leave: put back or ended, charged, counted once; and what no worker knows: dead."""

import asyncio
import logging
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from jobs.control import cancel, pause
from jobs.database import Database
from jobs.outcome import Verdict
from jobs.recovery import RESCUE_BATCH, Recovery
from jobs.store import Finished, JobStore, Lost
from jobs.unavailable import DatabaseUnavailable
from tests.jobs.lab import (
    FAILURE,
    LETTER,
    NOTE,
    Connection,
    Worker,
    add,
    attempts,
    died,
    expire,
    hire,
    job,
    returned,
    scalar,
    succeed,
    until,
    waiting_for_locks,
)

MINUTE = timedelta(minutes=1)


async def test_the_jobs_of_an_expired_worker_go_back_charged_with_a_reason(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    (job_id,) = add(db)
    await worker.claim_one()
    assert await recovery.rescue() == 0  # the lease still holds
    expire(db, worker)
    assert await recovery.rescue() == 1
    assert job(db, job_id, "status, attempt, worker_id, error ->> 'type'") == ("queued", 1, None, "WorkerLost")
    assert attempts(db, job_id, "verdict, charged, is_kill, host, worker_id, evidence ->> 'certainty'") == [
        ("worker_lost", True, True, "host-a", worker.id, "certain")
    ]
    assert attempts(db, job_id, "evidence ->> 'why'") == [
        f"the lease of worker {worker.id} on host-a ran out while it ran this job"
    ]
    assert scalar(db, "SELECT lost_at IS NOT NULL FROM background_workers")


async def test_what_the_caller_ends_itself_is_left_alone(db: Connection, worker: Worker, recovery: Recovery) -> None:
    add(db, 2)
    own, other = await worker.claim(slots=2)
    expire(db, worker)
    assert await recovery.rescue([own.fence]) == 1
    assert (job(db, own.id), job(db, other.id)) == ("running", "queued")
    assert await worker.store.finish(own.fence, returned(Verdict.LEASE_LOST)) == Finished("queued")
    assert attempts(db, own.id, "verdict, charged") == [("lease_lost", False)]


async def test_the_last_attempt_of_a_lost_worker_makes_the_job_dead(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    (job_id,) = add(db, max_attempts=1)
    await worker.claim_one()
    expire(db, worker)
    await recovery.rescue()
    assert job(db, job_id, "status, attempt, finished_at IS NOT NULL") == ("dead", 1, True)


async def test_a_job_whose_cancel_was_asked_for_is_cancelled_and_not_retried(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    (job_id,) = add(db)
    await worker.claim_one()
    cancel(db, job_id, actor="ana")
    expire(db, worker)
    await recovery.rescue()
    assert job(db, job_id) == "cancelled"


async def test_a_lost_worker_is_one_kill_for_each_of_its_kinds(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    worker = await hire(store)
    add(db, 6)
    add(db, 6, kind="letter")
    assert len(await worker.claim(slots=100)) == 12
    expire(db, worker)
    assert await recovery.rescue() == 12
    assert db.execute(
        "SELECT kind, kill_streak FROM background_kinds WHERE kill_streak > 0 ORDER BY kind"
    ).fetchall() == [
        ("letter", 1),
        ("note", 1),
    ]
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE is_kill") == 2
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE verdict = 'worker_lost'") == 12


async def test_a_lost_worker_is_one_kill_also_over_many_batches_and_many_rescuers(
    db: Connection, url: str, database: Database
) -> None:
    store = JobStore(database, retry_delay=0.01, pause_after=50)
    worker = await hire(store)
    total = 2 * RESCUE_BATCH + 50
    add(db, total)
    assert len(await worker.claim(slots=total)) == total
    expire(db, worker)
    others = [Database(url, call_timeout=10, application_name=f"rescuer {n}") for n in range(2)]
    for other in others:
        await other.open()
    recoveries = [
        Recovery(other, JobStore(other, retry_delay=0.01, pause_after=50), unknown_kind_grace=MINUTE)
        for other in others
    ]
    settled = 0
    async with asyncio.timeout(30):
        while settled < total:  # a pass leaves what another rescuer holds
            settled += sum(await asyncio.gather(*(recovery.rescue() for recovery in recoveries)))
    for other in others:
        await other.close()
    assert settled == total
    assert scalar(db, "SELECT count(*) FROM background_attempts") == total
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'queued' AND attempt = 1") == total
    # Two rescuers hold different jobs of the same worker, so each must see what the other has counted.
    assert scalar(db, "SELECT count(*) FROM background_attempts WHERE is_kill") == 1
    assert scalar(db, "SELECT kill_streak FROM background_kinds WHERE kind = 'note'") == 1


async def test_two_rescuers_at_once_settle_each_job_once(db: Connection, store: JobStore, recovery: Recovery) -> None:
    for n in range(5):
        worker = await hire(store, host=f"host-{n}")
        add(db, 20)
        assert len(await worker.claim(slots=20)) == 20
        expire(db, worker)
    settled = 0
    async with asyncio.timeout(30):
        while settled < 100:  # a pass leaves what another rescuer holds
            settled += sum(await asyncio.gather(*(recovery.rescue() for _ in range(3))))
    assert settled == 100
    assert scalar(db, "SELECT count(*) FROM background_attempts") == 100


async def test_a_rescue_does_not_wait_for_what_somebody_else_is_settling(
    db: Connection, url: str, worker: Worker, recovery: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    held, free = add(db, 2)
    await worker.claim()
    expire(db, worker)
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        caplog.set_level(logging.INFO)
        assert await recovery.rescue() == 1
    assert (job(db, held), job(db, free)) == ("running", "queued")
    assert "left to the next pass" not in caplog.text  # as it says where it waited in vain


async def test_a_late_finish_that_comes_second_is_refused(db: Connection, worker: Worker, recovery: Recovery) -> None:
    add(db)
    running = await worker.claim_one()
    expire(db, worker)
    await recovery.rescue()
    assert await succeed(worker.store, {running.fence: None}) == {running.fence}
    assert await worker.store.finish(running.fence, FAILURE) == Lost()
    assert attempts(db, running.id) == ["worker_lost"]


async def test_a_late_finish_that_comes_first_is_not_overwritten(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    """A worker whose lease ran out may still be first: one outcome counts, whichever it is."""
    add(db)
    running = await worker.claim_one()
    expire(db, worker)
    assert await worker.store.finish(running.fence, FAILURE) == Finished("queued")
    assert await recovery.rescue() == 0
    assert attempts(db, running.id) == ["failed"]


async def test_a_rescuer_racing_late_finishes_leaves_one_outcome_each(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    add(db, 80)
    jobs = await worker.claim(slots=80)
    expire(db, worker)

    async def finish_late() -> int:
        written = 0
        for running in jobs[:40]:
            with suppress(DatabaseUnavailable):  # a rescue that holds the row for longer than we wait for a lock
                written += isinstance(await worker.store.finish(running.fence, FAILURE), Finished)
        lost = await succeed(worker.store, {running.fence: None for running in jobs[40:]})
        return written + 40 - len(lost)

    late, rescued = await asyncio.gather(finish_late(), recovery.rescue())
    rescued += await recovery.rescue()  # what was held while the first pass looked
    assert late + rescued == 80
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'running'") == 0
    succeeded = scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'succeeded'")
    assert scalar(db, "SELECT count(*) FROM background_attempts") == 80 - succeeded


async def test_a_running_row_without_any_worker_is_rescued(db: Connection, recovery: Recovery) -> None:
    ids = [*add(db, status="running"), *add(db, status="running", worker_id="00000000-0000-0000-0000-000000000001")]
    assert await recovery.rescue() == 2
    assert [job(db, job_id) for job_id in ids] == ["queued", "queued"]


async def test_a_fresh_copy_takes_the_place_of_a_rescued_job(
    db: Connection, worker: Worker, recovery: Recovery
) -> None:
    (old,) = add(db, dedupe_key="k")
    await worker.claim_one()
    (fresh,) = add(db, dedupe_key="k")
    expire(db, worker)
    assert await recovery.rescue() == 1
    assert job(db, old, "status, error ->> 'type'") == ("cancelled", "Superseded")
    assert job(db, fresh) == "queued"


async def test_a_copy_that_commits_during_the_rescue_is_seen_by_the_next_pass_and_holds_up_nobody(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    (contested,) = add(db, dedupe_key="k")
    others = add(db, 3)
    await worker.claim()
    expire(db, worker)
    with psycopg.connect(url) as service:
        (fresh,) = add(service, dedupe_key="k")  # uncommitted: the rescue cannot know yet whether it will exist
        rescue = asyncio.create_task(recovery.rescue())
        await until(lambda: waiting_for_locks(db) == 1)
        service.commit()
    await rescue
    assert [job(db, job_id) for job_id in others] == ["queued"] * 3
    await recovery.rescue()
    assert job(db, contested, "status, error ->> 'type'") == ("cancelled", "Superseded")
    assert job(db, fresh) == "queued"
    assert scalar(db, "SELECT kill_streak FROM background_kinds WHERE kind = 'note'") == 1


async def test_an_open_transaction_with_a_copy_holds_up_only_its_own_job(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    contested = [job_id for n in range(3) for job_id in add(db, dedupe_key=f"k{n}")]
    others = add(db, 20)
    await worker.claim(slots=100)
    expire(db, worker)
    with psycopg.connect(url) as service:
        for n in range(3):
            add(service, dedupe_key=f"k{n}")
        async with asyncio.timeout(8):
            assert await recovery.rescue() == 20
        assert [job(db, job_id) for job_id in others] == ["queued"] * 20
        assert [job(db, job_id) for job_id in contested] == ["running"] * 3
        service.rollback()
    assert await recovery.rescue() == 3
    assert [job(db, job_id) for job_id in contested] == ["queued"] * 3


async def test_an_open_transaction_that_pauses_a_kind_does_not_hold_up_the_rescue_of_others(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    notes, letters = add(db, 2), add(db, 2, kind="letter")
    await worker.claim()
    expire(db, worker)
    with psycopg.connect(url) as operator:
        operator.execute("SELECT FROM background_kinds WHERE kind = 'letter' FOR UPDATE")
        async with asyncio.timeout(8):
            await recovery.rescue()
        assert [job(db, job_id) for job_id in notes] == ["queued"] * 2
    await recovery.rescue()
    assert [job(db, job_id) for job_id in letters] == ["queued"] * 2


async def test_a_worker_whose_lease_ran_out_is_said_once(
    db: Connection, worker: Worker, recovery: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    add(db)
    await worker.claim_one()
    expire(db, worker)
    with caplog.at_level(logging.ERROR, "oomph.rescue"):
        await recovery.rescue()
        await recovery.rescue()
    told = [record for record in caplog.records if "is lost with 1 running jobs" in record.getMessage()]
    assert len(told) == 1


async def test_a_lost_worker_that_pauses_a_kind_is_told_after_the_commit(
    db: Connection, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    store = JobStore(database, retry_delay=0.01, pause_after=1)
    worker = await hire(store)
    (job_id,) = add(db)
    await worker.claim_one()
    expire(db, worker)
    await Recovery(database, store, unknown_kind_grace=MINUTE).rescue()
    (told,) = [record.getMessage() for record in caplog.records if record.name == "oomph.kinds"]
    assert f"job {job_id} paused its kind note" in told
    assert "worker_lost" in told
    assert "`oomph kinds resume note --actor NAME`" in told


async def test_lost_workers_are_forgotten_after_a_day_but_not_while_a_job_names_them(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    old, busy, fresh = [await hire(store, host=host) for host in ("old", "busy", "fresh")]
    add(db)
    await busy.claim_one()
    db.execute("UPDATE background_workers SET lost_at = now() - interval '25 hours' WHERE host <> 'fresh'")
    db.execute("UPDATE background_workers SET lost_at = now() - interval '23 hours' WHERE host = 'fresh'")
    await recovery.forget_workers()
    left = {row[0] for row in db.execute("SELECT host FROM background_workers")}
    assert left == {"busy", "fresh"}
    assert old.id != fresh.id


# Kinds that nobody knows.


async def test_a_due_job_of_an_unknown_kind_is_dead(db: Connection, worker: Worker, recovery: Recovery) -> None:
    (unknown,) = add(db, kind="unknown")
    (another,) = add(db, kind="zebra")
    (known,) = add(db)
    (later,) = add(db, kind="unknown", run_after="2099-01-01")
    assert await recovery.bury_unknown() == 2
    status, error, message, is_finished = job(
        db, unknown, "status, error ->> 'type', error ->> 'message', finished_at IS NOT NULL"
    )
    assert (status, error, is_finished) == ("dead", "UnknownKind", True)
    assert message.startswith(
        "no live worker knows the kind unknown, and none ever did: start one whose app has a handler"
    )
    assert "WORKER_UNKNOWN_KIND_GRACE_SECONDS" in message
    assert job(db, another) == "dead"
    assert job(db, known) == "queued"
    assert job(db, later) == "queued"


async def test_the_log_of_a_burial_says_what_to_set_and_how_to_mend_it(
    db: Connection, worker: Worker, recovery: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    (unknown,) = add(db, kind="unknown")
    await recovery.bury_unknown()
    (told,) = [record.getMessage() for record in caplog.records if record.name == "oomph.rescue"]
    for part in (
        f"job {unknown} is dead",
        "no live worker knows the kind unknown, and none ever did",
        "Start one whose app has a handler for it",
        "WORKER_UNKNOWN_KIND_GRACE_SECONDS",
        f"`oomph jobs retry {unknown} --actor NAME`",
    ):
        assert part in told


async def test_the_grace_gives_a_rolling_deploy_time(db: Connection, database: Database, store: JobStore) -> None:
    await hire(store)
    patient = Recovery(database, store, unknown_kind_grace=MINUTE)
    (fresh,) = add(db, kind="unknown")
    (old,) = add(db, kind="unknown", run_after="2020-01-01")
    assert await patient.bury_unknown() == 1
    assert (job(db, fresh), job(db, old)) == ("queued", "dead")
    await hire(store, tasks=[NOTE, LETTER])
    assert job(db, fresh) == "queued"


async def test_without_any_live_worker_nothing_is_unknown(db: Connection, store: JobStore, recovery: Recovery) -> None:
    (job_id,) = add(db, kind="unknown")
    assert await recovery.bury_unknown() == 0
    expire(db, await hire(store))
    assert await recovery.bury_unknown() == 0
    assert job(db, job_id) == "queued"


async def test_a_kind_that_any_live_worker_knows_is_known(db: Connection, store: JobStore, recovery: Recovery) -> None:
    await hire(store, tasks=[NOTE])
    await hire(store, tasks=[LETTER])
    add(db)
    add(db, kind="letter")
    assert await recovery.bury_unknown() == 0


async def test_a_burial_skips_what_somebody_else_holds(db: Connection, url: str, worker: Worker, recovery: Any) -> None:
    held, free = [*add(db, kind="unknown"), *add(db, kind="unknown")]
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        assert await recovery.bury_unknown() == 1
    assert (job(db, held), job(db, free)) == ("queued", "dead")


# Kinds whose last worker has gone.


def pass_time(db: Connection, minutes: float) -> None:
    """All that workers left behind lies that much further back."""
    db.execute("UPDATE background_departures SET at = at - %s * interval '1 minute'", [minutes])
    db.execute(
        "UPDATE background_workers SET started_at = started_at - %(minutes)s * interval '1 minute',"
        " lost_at = lost_at - %(minutes)s * interval '1 minute', lease_until = CASE WHEN lease_until > now() THEN"
        " lease_until ELSE lease_until - %(minutes)s * interval '1 minute' END",
        {"minutes": minutes},
    )


async def neighbour(db: Connection, store: JobStore) -> Worker:
    """A worker of another app, which has worked here since yesterday."""
    worker = await hire(store, tasks=[LETTER])
    db.execute("UPDATE background_workers SET started_at = now() - interval '1 day' WHERE id = %s", [worker.id])
    return worker


async def test_a_restart_beside_another_apps_worker_does_not_kill_an_old_backlog(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    await neighbour(db, store)
    only = await hire(store, tasks=[NOTE])
    (backlog,) = add(db, run_after="2020-01-01")
    await store.deregister(only.id)
    assert await recovery.bury_unknown() == 0
    pass_time(db, 4.9)
    assert await recovery.bury_unknown() == 0
    await hire(store, tasks=[NOTE])
    pass_time(db, 600)
    assert await recovery.bury_unknown() == 0
    assert job(db, backlog) == "queued"


async def test_a_missed_kind_is_dead_once_its_last_worker_has_been_gone_for_long(
    db: Connection, store: JobStore, recovery: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    await neighbour(db, store)
    for _ in range(2):  # the later one counts
        await store.deregister((await hire(store, tasks=[NOTE])).id)
        pass_time(db, 4)
    jobs = add(db, 7)
    assert await recovery.bury_unknown() == 0
    pass_time(db, 2.1)
    assert await recovery.bury_unknown() == 7
    message = job(db, jobs[0], "error ->> 'message'")
    assert message.startswith("no live worker knows the kind note; the last one that did has been gone for 6 minutes:")
    (told,) = [record.getMessage() for record in caplog.records if record.name == "oomph.rescue"]
    for part in (
        "7 jobs are dead: no live worker knows the kind note, and the last one that did has been gone for 6 minutes.",
        f"`oomph jobs retry {' '.join(map(str, jobs[:5]))} --actor NAME`",
        "`oomph jobs list --status dead --kind note` lists them all",
    ):
        assert part in told
    assert await recovery.bury_unknown() == 0


async def test_a_crash_beside_another_apps_worker_does_not_kill_a_backlog(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    """Neither while nobody has found the lease expired, nor once somebody has, nor when the row is forgotten."""
    await neighbour(db, store)
    (backlog,) = add(db, run_after="2020-01-01")
    expire(db, await hire(store, tasks=[NOTE]))
    assert await recovery.bury_unknown() == 0
    pass_time(db, 2)
    await recovery.rescue()
    pass_time(db, 4)
    assert await recovery.bury_unknown() == 0
    db.execute("UPDATE background_workers SET lost_at = now() - interval '25 hours' WHERE lost_at IS NOT NULL")
    await recovery.forget_workers()
    assert job(db, backlog) == "queued"
    assert await recovery.bury_unknown() == 1
    assert "gone for 1500 minutes" in job(db, backlog, "error ->> 'message'")


async def test_the_first_worker_after_a_night_without_any_does_not_kill_anothers_backlog(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    (backlog,) = add(db, run_after="2020-01-01")
    await store.deregister((await hire(store, tasks=[NOTE])).id)
    pass_time(db, 600)
    await hire(store, tasks=[LETTER])
    assert await recovery.bury_unknown() == 0
    pass_time(db, 4.9)
    assert await recovery.bury_unknown() == 0
    pass_time(db, 0.2)
    assert await recovery.bury_unknown() == 1
    assert job(db, backlog) == "dead"


async def test_a_kind_that_workers_of_an_older_release_knew_is_missed_from_the_first_look_on(
    db: Connection, store: JobStore, recovery: Recovery
) -> None:
    """They leave without a word of when."""
    await neighbour(db, store)
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('note', 'system')")
    (backlog,) = add(db, run_after="2020-01-01")
    assert await recovery.bury_unknown() == 0
    pass_time(db, 4)
    assert await recovery.bury_unknown() == 0
    pass_time(db, 1.1)
    assert await recovery.bury_unknown() == 1
    assert job(db, backlog) == "dead"


async def test_a_kind_that_was_only_paused_was_never_known(db: Connection, store: JobStore, recovery: Recovery) -> None:
    await neighbour(db, store)
    pause(db, "nite", actor="ana", reason="misspelt")
    (job_id,) = add(db, kind="nite")
    assert await recovery.bury_unknown() == 1
    assert job(db, job_id) == "dead"


async def test_a_longer_grace_holds_for_missed_kinds_too(db: Connection, database: Database, store: JobStore) -> None:
    patient = Recovery(database, store, unknown_kind_grace=timedelta(minutes=10))
    await neighbour(db, store)
    await store.deregister((await hire(store, tasks=[NOTE])).id)
    add(db, run_after="2020-01-01")
    pass_time(db, 9)
    assert await patient.bury_unknown() == 0
    pass_time(db, 1.1)
    assert await patient.bury_unknown() == 1


async def test_a_worker_leaves_at_once_while_a_service_holds_the_rows_of_its_kinds(
    db: Connection, url: str, store: JobStore, recovery: Recovery
) -> None:
    await neighbour(db, store)
    worker = await hire(store, tasks=[NOTE])
    (backlog,) = add(db, run_after="2020-01-01")
    db.execute("INSERT INTO background_departures VALUES ('note', now() - interval '1 year')")
    with psycopg.connect(url) as service:
        service.execute("SELECT FROM background_kinds FOR UPDATE")
        async with asyncio.timeout(5):
            await store.deregister(worker.id)
            assert await recovery.bury_unknown() == 0
    assert job(db, backlog) == "queued"


async def test_five_lost_workers_in_a_row_pause_the_kind(db: Connection, store: JobStore, recovery: Recovery) -> None:
    for n in range(5):
        worker = await hire(store, host=f"host-{n}")
        add(db, 3, max_attempts=1)
        assert len(await worker.claim(slots=3, kinds=["note"])) == 3
        expire(db, worker)
        await recovery.rescue()
    assert scalar(db, "SELECT kill_streak FROM background_kinds WHERE kind = 'note'") == 5
    reason = scalar(db, "SELECT pause_reason FROM background_kinds WHERE kind = 'note'")
    assert all(f"host-{n}" in reason for n in range(5))
    assert died(Verdict.WORKER_LOST).outcome.verdict is Verdict.WORKER_LOST


HOLD = """
import asyncio, sys, time
from jobs.database import Database
from jobs.unavailable import DatabaseUnavailable

async def main():
    database = Database(sys.argv[1], call_timeout=0.5, application_name="wedged")
    await database.open()
    async with database.transaction() as session:
        await session.fetch("lost_jobs", limit=10, passed_over=[])
        print("locked", flush=True)
        time.sleep(600)  # a loop that blocks, a host that is cut off: nothing on its side ends the transaction

asyncio.run(main())
"""


async def test_a_worker_that_falls_silent_in_a_transaction_does_not_keep_its_locks(
    db: Connection, url: str, worker: Worker, recovery: Recovery
) -> None:
    (job_id,) = add(db)
    await worker.claim_one()
    expire(db, worker)
    db.execute("UPDATE background_workers SET lost_at = now()")
    wedged = subprocess.Popen(  # noqa: ASYNC220  (this test may block its own loop)
        [sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert wedged.stdout is not None
        assert wedged.stdout.readline() == "locked\n"
        db.execute("SELECT FROM background_jobs FOR UPDATE")  # waits until the server has ended the other one
        assert await recovery.rescue() == 1
    finally:
        wedged.kill()
        wedged.communicate()
    assert job(db, job_id) == "queued"
