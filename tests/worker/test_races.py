"""Things that happen in the same moment."""

import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress

import psycopg

from jobs import ControlError, cancel, pause, resume
from supervisor.testing import wait_for
from tests.proxy import Proxy
from tests.worker.app import AGENT, INGEST
from tests.worker.conftest import Bench


def test_a_commit_whose_answer_was_lost_counts_once(bench: Bench) -> None:
    """Scenario 24: the connection dies between the commit of an outcome and its answer."""
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url, WORKER_CALL_TIMEOUT_SECONDS="2", WORKER_LEASE_SECONDS="30")
        jobs = [bench.put(AGENT, "wait", 1), bench.put(AGENT, "fail", text="once"), bench.put(INGEST, "wait", 1)]
        bench.wait(jobs[0], "running")
        bench.wait(jobs[2], "running")
        proxy.swallow(b"refused_id")
        bench.wait(jobs[0], "succeeded")  # committed, and the worker does not know
        bench.wait(jobs[2], "succeeded")
        proxy.cut()
        proxy.heal()
        worker.wait_log("was written before the answer was lost|its outcome waits for the database")
        bench.wait(jobs[1], "dead", seconds=60)
        assert bench.job(jobs[0], "attempt, claim") == (1, 1)
        assert bench.job(jobs[2], "attempt, claim") == (1, 1)
        assert len(bench.attempts(jobs[1])) == 5
        assert bench.attempts(jobs[0]) == bench.attempts(jobs[2]) == []


def test_a_claim_whose_answer_was_lost_is_given_back_uncharged(bench: Bench) -> None:
    """Scenario 24, the other way round: a claim is committed and its worker never hears of it."""
    with Proxy(bench.url) as proxy:
        bench.start(proxy.url, WORKER_CALL_TIMEOUT_SECONDS="1", WORKER_LEASE_SECONDS="60", WORKER_LISTEN="off")
        proxy.swallow(b"on its way")  # its payload stands in the answer to its claim alone
        job_id = bench.put(AGENT, text="on its way")
        bench.kit.wait_for(job_id, "running")  # it does not begin
        proxy.cut()
        proxy.heal()
        bench.wait(job_id, "succeeded", seconds=40)
        assert bench.attempts(job_id, "verdict, charged") == [("released", False)]
        assert bench.job(job_id, "attempt, claim") == (1, 2)


def test_a_claim_that_is_on_its_way_when_the_shutdown_begins_is_given_back(bench: Bench) -> None:
    """The worker has nothing to drain as SIGTERM comes, and the answer to its claim is late, then lost."""
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url, WORKER_CALL_TIMEOUT_SECONDS="5", WORKER_LEASE_SECONDS="60", WORKER_LISTEN="off")
        proxy.swallow(b"on its way")  # its payload stands in the answer to its claim alone
        job_id = bench.put(AGENT, text="on its way")
        bench.kit.wait_for(job_id, "running")  # it does not begin
        worker.signal(signal.SIGTERM)
        worker.wait_log("drained: draining -> terminating")
        proxy.cut()
        proxy.heal()
        assert worker.wait() == 0
        assert bench.attempts(job_id, "verdict, charged") == [("released", False)]
        assert bench.job(job_id, "status, attempt, claim") == ("queued", 0, 1)


def test_a_shutdown_whose_refunds_the_database_refuses_leaves_them_to_a_rescue(bench: Bench) -> None:
    """It is an orderly end all the same: nothing that a restart would mend."""
    bench.db.execute("ALTER TABLE background_attempts ADD CHECK (verdict <> 'released')")
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url, WORKER_CALL_TIMEOUT_SECONDS="5", WORKER_LEASE_SECONDS="60", WORKER_LISTEN="off")
        proxy.swallow(b"on its way")  # its payload stands in the answer to its claim alone
        job_id = bench.put(AGENT, text="on its way")
        bench.kit.wait_for(job_id, "running")  # it does not begin
        worker.signal(signal.SIGTERM)
        worker.wait_log("drained: draining -> terminating")
        proxy.cut()
        proxy.heal()
        assert worker.wait() == 0
        assert "are left to a rescue" in worker.text()
        assert bench.job(job_id, "status") == ("running",)


def test_a_cancel_that_races_the_success_leaves_one_terminal_state(bench: Bench) -> None:
    """Scenario 27: a cancel and the end of the job in the same moment, which is searched for, round by round."""
    bench.start()
    ends: Counter[str] = Counter()
    wait = 0.05
    for _ in range(60):
        job_id = bench.put(AGENT, "wait", 0.05)
        wait_for(lambda job_id=job_id: bench.job(job_id, "status")[0] != "queued", "its claim")
        time.sleep(wait)  # not for a thing: this is what makes the race
        with suppress(ControlError):  # it had succeeded
            cancel(bench.db, job_id, actor="ann")
        status = bench.wait(job_id, "succeeded", "cancelled")
        ends[status] += 1
        wait = max(0, wait + random.uniform(0, 0.01) * (1 if status == "cancelled" else -1))
        assert bench.attempts(job_id) == ([] if status == "succeeded" else [("cancelled",)])
        assert bench.job(job_id, "status") == (status,)
    assert min(ends["succeeded"], ends["cancelled"]) > 10, ends


def test_the_owner_of_a_probe_is_killed_and_another_probe_follows(bench: Bench) -> None:
    """Scenario 34: half-open with several idle workers; whoever runs the probe dies."""
    pause(bench.db, "agent-work", actor="ann")
    workers = {worker.pid: worker for worker in (bench.start(WORKER_POLL_SECONDS="0.2") for _ in range(3))}
    jobs = [bench.put(AGENT, "wait", 2) for _ in range(6)]
    resume(bench.db, "agent-work", actor="ann", probe=True)

    def running() -> list[tuple[int, int]]:
        return [
            (row[0], row[1])
            for row in bench.db.execute(
                "SELECT job.id, w.pid FROM background_jobs AS job JOIN background_workers AS w ON w.id = job.worker_id "
                "WHERE job.status = 'running' AND job.kind = 'agent-work'"
            )
        ]

    ((probe, owner),) = wait_for(running, "the probe")
    workers[owner].signal(signal.SIGKILL)
    wait_for(lambda: bench.attempts(probe), "the lost worker is found")
    assert bench.attempts(probe) == [("worker_lost",)]
    state = bench.db.execute("SELECT paused_at IS NOT NULL, probe FROM background_kinds WHERE kind = 'agent-work'")
    assert state.fetchone() == (True, False)  # a kill closes the probe; only a person asks for another
    assert all(len(running()) <= 1 for _ in range(20))
    resume(bench.db, "agent-work", actor="ann", probe=True)
    for job_id in jobs:
        bench.wait(job_id, "succeeded", seconds=40)


def test_many_operators_at_once_leave_one_consistent_job(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(AGENT, "wait", 60)
    bench.wait(job_id, "running")

    def press() -> None:
        with psycopg.connect(bench.url) as db, suppress(ControlError):  # another one was quicker
            cancel(db, job_id, actor="somebody")

    operators = [threading.Thread(target=press) for _ in range(8)]
    for operator in operators:
        operator.start()
    for operator in operators:
        operator.join()
    bench.wait(job_id, "cancelled")
    assert bench.attempts(job_id) == [("cancelled",)]


def test_a_claim_that_a_fail_over_has_lost_is_taken_again_and_run_once(bench: Bench) -> None:
    """A standby that was behind took over: the job is queued again there, and its claim gets the number it had."""
    worker = bench.start(WORKER_AGENT_CONCURRENCY="2")
    job_id = bench.put(AGENT, "wait", 2)
    bench.wait(job_id, "running")
    bench.db.execute(
        "UPDATE background_jobs SET status = 'queued', claim = 0, attempt = 0, worker_id = NULL WHERE id = %s", [job_id]
    )
    worker.wait_log(f"job {job_id}: .* runs here already")
    bench.wait(job_id, "succeeded")
    assert bench.job(job_id, "attempt, claim") == (1, 1)
    for each in [bench.put(AGENT, "wait", 60), bench.put(AGENT, "wait", 60)]:
        bench.wait(each, "running")  # both slots are free again
    assert "Traceback" not in worker.text()
