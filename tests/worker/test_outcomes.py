"""What a handler can say, and what becomes of its job."""

import signal
import socket
from datetime import timedelta

import psutil
import psycopg
import pytest
from psycopg import sql

from jobs import pause
from jobs.reports import JobReport, show_job
from supervisor.attempts import PROGRESS_SECONDS
from supervisor.testing.waiting import wait_for
from tests.worker.app import AGENT, INGEST, ONCE, SYSTEM
from tests.worker.conftest import Bench


def test_a_result_is_stored(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(SYSTEM, text="an answer")
    bench.wait(job_id, "succeeded")
    assert bench.job(job_id, "result ->> 'text'") == ("an answer",)


def test_a_running_child_has_the_name_that_its_job_is_shown_with(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(INGEST, "wait", 60)
    bench.wait(job_id, "running")
    child = psutil.Process(worker.wait_child(job_id))
    shown: JobReport = show_job(bench.db, job_id)
    assert shown.process_title == " ".join(child.cmdline()).strip()
    assert shown.worker is not None
    assert (shown.worker.host, shown.worker.pid) == (socket.gethostname(), worker.pid)


def test_a_failed_attempt_is_tried_again_after_a_delay(bench: Bench) -> None:
    bench.start(WORKER_RETRY_DELAY_SECONDS="0.3")
    job_id = bench.put(AGENT, "fail once")
    bench.wait(job_id, "succeeded")
    waited = bench.job(job_id, "started_at - created_at >= interval '0.2 s'")
    assert waited == (True,)
    assert bench.attempts(job_id, "verdict, charged, error ->> 'message'") == [("failed", True, "the first time")]


def test_a_job_is_dead_after_its_attempts_and_says_why(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(INGEST, "fail", text="no such document")
    bench.wait(job_id, "dead")
    error = bench.job(job_id, "error")[0]
    assert (error["type"], error["message"]) == ("RuntimeError", "no such document")
    assert "in_child" in error["frames"]
    assert bench.attempts(job_id) == [("failed",)] * 5


def test_a_permanent_error_is_dead_at_once(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(AGENT, "give up", text="never")
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "attempt, error ->> 'message'") == (1, "never")


def test_a_payload_that_does_not_validate_is_dead_at_once_and_its_values_stay_secret(bench: Bench) -> None:
    bench.start()
    for kind in ("agent-work", "ingest-work"):
        row = bench.db.execute(
            "INSERT INTO background_jobs (kind, pool, payload) VALUES (%s, 'agent', '{\"seconds\": \"hunter2\"}') "
            "RETURNING id",
            [kind],
        ).fetchone()
        assert row is not None
        bench.wait(row[0], "dead")
        attempt, error = bench.job(row[0], "attempt, error")
        assert attempt == 1
        assert "seconds" in error["message"]
        assert "hunter2" not in str(error)


def test_a_kind_that_no_live_worker_knows_is_dead_at_once(bench: Bench) -> None:
    bench.start()
    row = bench.db.execute(
        "INSERT INTO background_jobs (kind, pool, payload) VALUES ('forgotten', 'agent', '{}') RETURNING id"
    ).fetchone()
    assert row is not None
    bench.wait(row[0], "dead", seconds=5)
    assert bench.job(row[0], "error ->> 'type'") == ("UnknownKind",)


def test_an_old_backlog_outlives_the_restart_of_its_only_worker_beside_another_apps(bench: Bench) -> None:
    bench.kit.start("tests.notices.app:app", WORKER_POOLS="system")
    bench.db.execute("UPDATE background_workers SET started_at = now() - interval '1 day'")
    only = bench.start()
    assert only.stop() == 0
    backlog = bench.put(AGENT)
    bench.db.execute("UPDATE background_jobs SET run_after = now() - interval '1 hour'")
    row = bench.db.execute(
        "INSERT INTO background_jobs (kind, pool) VALUES ('nobody-knows', 'system') RETURNING id"
    ).fetchone()
    assert row is not None
    bench.wait(row[0], "dead", seconds=5)  # then whatever is to be buried was
    assert bench.job(backlog, "status") == ("queued",)
    bench.start()
    bench.wait(backlog, "succeeded")


def test_a_snooze_spends_no_attempt(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(AGENT, "snooze")
    bench.wait(job_id, "succeeded")
    assert bench.job(job_id, "attempt, claim") == (1, 2)
    assert bench.attempts(job_id, "verdict, charged") == [("snoozed", False)]


def test_complete_in_commits_the_effect_and_the_success_together(bench: Bench) -> None:
    bench.db.execute("CREATE TABLE effects (job_id bigint)")
    bench.start()
    job_id = bench.put(AGENT, "complete in")
    bench.wait(job_id, "succeeded")
    assert bench.db.execute("SELECT * FROM effects").fetchall() == [(job_id,)]


def test_progress_after_the_commit_of_complete_in_does_not_end_the_handler(bench: Bench) -> None:
    bench.db.execute("CREATE TABLE effects (job_id bigint)")
    worker = bench.start(WORKER_LEASE_SECONDS="60")
    job_id = bench.put(AGENT, "complete in and go on", 2 * PROGRESS_SECONDS)
    bench.wait(job_id, "succeeded")
    wait_for(lambda: bench.db.execute("SELECT * FROM effects").fetchall() == [(job_id,)], "the handler's end", 10)
    assert "its lease was lost" not in worker.text()


def test_complete_in_without_a_commit_is_a_failure(bench: Bench) -> None:
    bench.db.execute("CREATE TABLE effects (job_id bigint)")
    bench.start()
    job_id = bench.put(AGENT, "complete in and roll back")
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "error ->> 'type'") == ("TransactionNotCommitted",)
    assert bench.db.execute("SELECT * FROM effects").fetchall() == []


@pytest.mark.parametrize("result", ["NaN", '"\\u0000"', "1e999999"])
def test_a_result_that_the_database_refuses_is_a_failure_that_keeps_its_evidence(bench: Bench, result: str) -> None:
    bench.start()
    job_id = bench.put(ONCE, "forge a result", text=result)
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "error ->> 'type'") == ("OutcomeNotStored",)
    ((exit_code, pid, peak, why),) = bench.attempts(job_id, "exit_code, pid, peak_memory_mb, evidence ->> 'why'")
    assert exit_code == 7
    assert pid is not None
    assert peak is not None
    assert why


def test_an_idle_worker_starts_a_job_when_it_is_committed_without_waiting_for_its_poll(bench: Bench) -> None:
    bench.start(WORKER_POLL_SECONDS="60")
    job_id = bench.put(AGENT)
    bench.wait(job_id, "succeeded", seconds=10)


def test_an_idle_worker_wakes_for_the_moment_a_job_is_due(bench: Bench) -> None:
    bench.start(WORKER_POLL_SECONDS="60", WORKER_LISTEN="off")
    early = bench.put(AGENT, "fail once")
    del early
    later = bench.put(AGENT, run_after=timedelta(seconds=1))
    bench.start(WORKER_POLL_SECONDS="60", WORKER_LISTEN="off")
    bench.wait(later, "succeeded", seconds=10)


def test_without_listen_the_worker_polls(bench: Bench) -> None:
    bench.start(WORKER_LISTEN="off")
    job_id = bench.put(AGENT)
    bench.wait(job_id, "succeeded")


def test_a_schedule_fires_in_the_worker(bench: Bench) -> None:
    bench.start()

    def fired() -> int:
        row = bench.db.execute(
            "SELECT count(*) FROM background_jobs WHERE schedule = 'every-second' AND status = 'succeeded'"
        ).fetchone()
        return row[0] if row else 0

    wait_for(lambda: fired() >= 2, "two occurrences")
    assert bench.db.execute(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM background_jobs GROUP BY schedule, occurrence) AS counts"
    ).fetchone() == (1,)


HELD = 30  # one second each, and two at once, would be longer than a verdict may take


@pytest.mark.parametrize("held", ["the rows of the jobs", "the row of their kind"])
def test_locks_that_somebody_holds_do_not_hold_up_the_outcomes_of_other_jobs(bench: Bench, held: str) -> None:
    worker = bench.start(WORKER_AGENT_CONCURRENCY="40", WORKER_LEASE_SECONDS="60")
    jobs = [bench.put(AGENT, "wait and fail", 3) for _ in range(HELD)]
    bench.wait(jobs[-1], "running")
    with psycopg.connect(bench.url) as holder:
        if held == "the rows of the jobs":
            holder.execute("SELECT FROM background_jobs WHERE id = ANY (%s) FOR UPDATE", [jobs])
        else:
            pause(holder, AGENT.kind, actor="a service in a long transaction")
        worker.wait_log("its outcome waits for a lock that somebody holds|its outcome waits for the database")
        other = bench.put(ONCE, "be killed")
        bench.wait(other, "dead", seconds=5)
        assert "its outcome waits for the database" not in worker.text()
        holder.rollback()
    for job_id in jobs:
        wait_for(lambda job_id=job_id: bench.attempts(job_id), "the outcome is written once the lock is gone")


def test_a_transaction_that_the_server_ended_is_written_again_and_charges_nobody(bench: Bench) -> None:
    if bench.db.info.server_version < 170000:
        pytest.skip("PostgreSQL before 17 knows no transaction_timeout")
    name = sql.Identifier(bench.db.info.dbname)
    bench.db.execute(sql.SQL("ALTER DATABASE {} SET transaction_timeout = '1s'").format(name))
    worker = bench.start(
        WORKER_LEASE_SECONDS="60", WORKER_SHUTDOWN_SECONDS="0.1", WORKER_FAILPOINTS="outcome-written:stall=1.5"
    )
    job_id = bench.put(AGENT, "wait", 60)
    bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert bench.attempts(job_id, "verdict, charged") == [("released", False)]
    assert bench.job(job_id, "status, attempt") == ("queued", 0)


def test_a_refund_that_the_database_refuses_becomes_no_charged_failure(bench: Bench) -> None:
    bench.db.execute("ALTER TABLE background_attempts ADD CHECK (verdict <> 'released')")
    worker = bench.start(WORKER_LEASE_SECONDS="60", WORKER_SHUTDOWN_SECONDS="0.1")
    job_id = bench.put(AGENT, "wait", 60)
    bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert bench.attempts(job_id) == []
    assert bench.job(job_id, "status") == ("running",)  # for a rescue, once the lease is over
