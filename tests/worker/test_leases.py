"""Leases: kept while the loop is blocked, lost with the database, and what others do with a lost worker's jobs."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg

from supervisor.listener import PROOF_SECONDS, PROOF_TIMEOUT
from supervisor.loop import CANCEL_SECONDS
from supervisor.testing.processes import is_alive
from supervisor.testing.waiting import wait_for
from supervisor.worker import END_SECONDS, LEAVE_SECONDS
from tests.proxy import Proxy
from tests.worker.app import AGENT, DEADLY, INGEST, SYSTEM
from tests.worker.conftest import Bench

CLAIMED_UNHEARD = (  # as if the worker had claimed it and the answer had been lost
    "UPDATE background_jobs SET status = 'running', run_after = now(), claim = claim + 1, attempt = attempt + 1, "
    "started_at = clock_timestamp(), "
    "worker_id = (SELECT id FROM background_workers WHERE lost_at IS NULL AND lease_until > clock_timestamp()) "
    "WHERE id = %s"
)
REFUNDS_LATER = """
CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'not now' USING ERRCODE = 'too_many_connections'; END $$;
CREATE TRIGGER later BEFORE INSERT ON background_attempts FOR EACH ROW WHEN (NEW.verdict = 'lease_lost')
    EXECUTE FUNCTION later()
"""
LISTENING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'oomph listener' AND state = 'idle' AND query LIKE 'LISTEN%background_control%'"
)


def test_a_blocked_loop_keeps_its_leases_and_the_log_names_the_frame(bench: Bench) -> None:
    """Scenario 35: synchronous code in an agent job blocks the loop."""
    blocked = bench.start(WORKER_POOLS="agent", WORKER_BLOCK_WARNING_SECONDS="0.5")
    other = bench.put(AGENT, "wait", 5)
    bench.wait(other, "running")
    blocking = bench.put(AGENT, "block", 6)  # twice the lease
    bench.wait(blocking, "running")
    rescuer = bench.start(WORKER_POOLS="system")
    blocked.wait_log(r"the loop has been blocked for [\s\S]*on_loop[\s\S]*time\.sleep")
    bench.wait(blocking, "succeeded")
    bench.wait(other, "succeeded")
    assert bench.job(blocking, "claim") == bench.job(other, "claim") == (1,)
    assert "is lost" not in rescuer.text()


def test_the_jobs_of_a_killed_worker_are_charged_rescued_and_finished_by_another(bench: Bench) -> None:
    """Scenario 19: a supervisor and everything that it ran die at once."""
    victim = bench.start()
    jobs = [bench.put(AGENT, "wait", 3), bench.put(INGEST, "wait", 3), bench.put(AGENT, "wait", 3)]
    for job_id in jobs:
        bench.wait(job_id, "running")
    children = [child.pid for child in victim.descendants()]
    assert children
    victim.signal(signal.SIGKILL)
    victim.wait()
    wait_for(lambda: not [pid for pid in children if is_alive(pid)], "template and children die with it", 1)
    bench.start()
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
        assert bench.job(job_id, "attempt, claim") == (2, 2)
        assert bench.attempts(job_id, "verdict, charged") == [("worker_lost", True)]
    kills = bench.db.execute("SELECT kind, count(*) FROM background_attempts WHERE is_kill GROUP BY kind ORDER BY kind")
    assert kills.fetchall() == [("agent-work", 1), ("ingest-work", 1)]  # once per dead worker and kind


def test_a_worker_that_was_stopped_past_its_lease_gives_up_what_others_own(bench: Bench) -> None:
    """Scenario 21: SIGSTOP past the lease, another worker takes over, SIGCONT."""
    sleeper = bench.start()
    job_id = bench.put(INGEST, "wait", 5)
    bench.wait(job_id, "running")
    child = sleeper.wait_child(job_id)
    sleeper.signal(signal.SIGSTOP)
    other = bench.start()
    wait_for(lambda: bench.job(job_id, "claim") == (2,), "the other worker's claim")
    sleeper.signal(signal.SIGCONT)
    sleeper.wait_log("lost its lease")
    wait_for(lambda: not is_alive(child), "the stale child is killed")
    bench.wait(job_id, "succeeded")
    assert bench.attempts(job_id) == [("worker_lost",)]
    assert bench.job(job_id, "result")[0]["pid"] not in (child, sleeper.pid)
    sleeper.wait_log("the worker goes on as")
    assert sleeper.stop() == 0
    assert other.process.poll() is None


def test_a_host_that_was_suspended_comes_back_to_jobs_that_are_not_its_own(bench: Bench) -> None:
    """Scenario 36: SIGSTOP to a worker and all that it runs, and what it says of its jobs afterwards comes too late."""
    sleeper = bench.start()
    jobs = [bench.put(AGENT, "wait", 4), bench.put(INGEST, "wait", 4)]
    bench.wait(jobs[0], "running")
    child = sleeper.wait_child(jobs[1])
    suspended = [psutil.Process(sleeper.pid), *sleeper.descendants()]
    for process in suspended:
        process.suspend()
    assert bench.job(jobs[0], "status") == bench.job(jobs[1], "status") == ("running",)
    other = bench.start()
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
    ends = [bench.job(job_id, "attempt, claim, result, finished_at") for job_id in jobs]
    for process in reversed(suspended):
        process.resume()
    sleeper.wait_log("the worker goes on as")
    wait_for(lambda: not is_alive(child), "the stale child is gone")
    assert [bench.job(job_id, "attempt, claim, result, finished_at") for job_id in jobs] == ends
    assert [end[:2] for end in ends] == [(2, 2), (2, 2)]
    assert ends[0][2]["pid"] == other.pid
    assert bench.attempts(jobs[0]) == bench.attempts(jobs[1]) == [("worker_lost",)]
    assert sleeper.stop() == 0


def test_an_unreachable_database_stops_the_jobs_before_the_lease_ends(bench: Bench) -> None:
    """Scenario 23: the database is away for longer than the lease."""
    with Proxy(bench.url) as proxy:
        # A margin of 1.5 s: so long a busy host may take to kill the child and to look at the lease.
        worker = bench.start(proxy.url, WORKER_LEASE_SECONDS="9")
        jobs = [bench.put(INGEST, "wait", 60), bench.put(AGENT, "wait", 60)]
        for job_id in jobs:
            bench.wait(job_id, "running")
        child = worker.wait_child(jobs[0])
        proxy.freeze()
        wait_for(lambda: not is_alive(child), "the child is stopped")
        still_held = bench.db.execute(
            "SELECT lease_until > clock_timestamp() FROM background_workers WHERE lost_at IS NULL"
        ).fetchall()
        assert still_held == [(True,)]
        proxy.heal()
        worker.wait_log("the worker goes on as")
        for job_id in jobs:
            wait_for(lambda job_id=job_id: bench.attempts(job_id), "the refund")
            assert bench.attempts(job_id, "verdict, charged")[0] == ("lease_lost", False)
            # A claim that the frozen network delivers late may take it first, for the lost lease, and gives it back.
            wait_for(lambda job_id=job_id: bench.job(job_id, "status, attempt") == ("running", 1), "it runs again")
            assert bench.job(job_id, "claim > 1") == (True,)


def test_a_row_that_somebody_holds_keeps_no_worker_from_its_next_lease(bench: Bench) -> None:
    worker = bench.start()
    held, others = bench.put(AGENT, "wait", 60), [AGENT, SYSTEM, INGEST]
    bench.wait(held, "running")
    with psycopg.connect(bench.url) as holder:
        holder.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        with psycopg.connect(bench.url) as outage:  # nobody can renew what is locked
            outage.execute("SELECT FROM background_workers WHERE pid = %s FOR UPDATE", [worker.pid])
            worker.wait_log("lost its lease")
        for job_id in [bench.put(task) for task in others]:
            bench.wait(job_id, "succeeded")
        unknown = bench.put(AGENT, run_after=timedelta(hours=1))
        bench.db.execute(CLAIMED_UNHEARD, [unknown])
        bench.wait(unknown, "succeeded")
        assert bench.attempts(held) == []
    # Whoever comes first when the row is free: the refund that is offered all the time, or a rescue.
    wait_for(lambda: bench.attempts(held), "the attempt's end")
    assert "was written before the answer was lost" not in worker.text()


def test_a_worker_rescues_no_job_whose_refund_it_still_offers(bench: Bench) -> None:
    """After an outage that goes on for single writes: whoever rescued the job would charge it."""
    worker = bench.start()
    job_id = bench.put(AGENT, "wait", 10)  # longer than the lease
    bench.wait(job_id, "running")
    bench.db.execute(REFUNDS_LATER)
    with psycopg.connect(bench.url) as outage:  # nobody can renew what is locked
        outage.execute("SELECT FROM background_workers WHERE pid = %s FOR UPDATE", [worker.pid])
        worker.wait_log("lost its lease")
    worker.wait_log("the worker goes on as")
    worker.wait_log("is lost with 1 running jobs")  # from now on it is rescued
    later = bench.put(AGENT, run_after=timedelta(seconds=3))
    bench.wait(later, "succeeded")  # some passes of the rescue
    assert bench.attempts(job_id) == []
    bench.db.execute("DROP TRIGGER later ON background_attempts")
    bench.wait(job_id, "succeeded", seconds=40)
    assert bench.attempts(job_id, "verdict, charged") == [("lease_lost", False)]
    assert bench.job(job_id, "attempt, claim") == (1, 2)


def test_a_short_outage_costs_nothing(bench: Bench) -> None:
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url, WORKER_LEASE_SECONDS="20", WORKER_CALL_TIMEOUT_SECONDS="2")
        ends_in_outage = [bench.put(AGENT, "wait", 2), bench.put(INGEST, "wait", 2)]
        goes_on = bench.put(INGEST, "wait", 5)
        for job_id in [*ends_in_outage, goes_on]:
            bench.wait(job_id, "running")
        proxy.cut()
        worker.wait_log("its outcome waits for the database")
        proxy.heal()
        for job_id in [*ends_in_outage, goes_on]:
            bench.wait(job_id, "succeeded")
            assert bench.job(job_id, "claim") == (1,)
        later = bench.put(AGENT)
        bench.wait(later, "succeeded")
        assert worker.process.poll() is None


def test_every_connection_may_be_terminated_at_any_time(bench: Bench) -> None:
    """Scenario 22: each connection is terminated by the server."""
    worker = bench.start()
    jobs = []
    for _ in range(5):
        jobs += [bench.put(AGENT, "wait", 0.2), bench.put(INGEST, "wait", 0.2), bench.put(SYSTEM)]
        bench.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'oomph%'"
        )
        bench.wait(jobs[-1], "succeeded")
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
        assert bench.job(job_id, "attempt") == (1,)
    assert worker.process.poll() is None


def test_a_lost_listen_connection_is_replaced_and_proven(bench: Bench) -> None:
    worker = bench.start(WORKER_POLL_SECONDS="60")

    def listener() -> int | None:
        row = bench.db.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'oomph listener'"
        ).fetchone()
        return row[0] if row else None

    first = wait_for(listener, "a listener")
    bench.db.execute("SELECT pg_terminate_backend(%s)", [first])
    wait_for(lambda: listener() not in (None, first), "another listener")
    worker.wait_log("listener: back again")
    job_id = bench.put(AGENT)
    bench.wait(job_id, "succeeded", seconds=10)


def test_a_frozen_listen_connection_is_noticed_and_replaced(bench: Bench) -> None:
    with Proxy(bench.url) as proxy:
        worker = bench.start(WORKER_LISTEN_URL=proxy.url, WORKER_POLL_SECONDS="60")
        # Frozen before it was proven, a fresh connection is a deaf one, which is another story.
        wait_for(lambda: bench.db.execute(LISTENING).fetchone(), "a listener that listens")
        proxy.freeze()
        # The next proof, its bound, and what psycopg takes to give a call up.
        worker.wait_log("listener: the database is not available", PROOF_SECONDS + PROOF_TIMEOUT + 10 + 10)
        proxy.heal()
        worker.wait_log("listener: back again", 30)
        job_id = bench.put(AGENT)
        bench.wait(job_id, "succeeded", seconds=10)


def test_a_worker_ends_in_time_although_the_database_says_nothing_any_more(bench: Bench) -> None:
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url, WORKER_LEASE_SECONDS="60", WORKER_SHUTDOWN_SECONDS="1")
        bench.wait(bench.put(AGENT, "wait", 60), "running")
        proxy.freeze()
        worker.signal(signal.SIGTERM)
        assert worker.wait(1 + END_SECONDS + LEAVE_SECONDS + CANCEL_SECONDS + 5) == 0
        assert "leaves without its goodbye" in worker.text()


def test_a_loop_that_is_blocked_when_the_lease_is_lost_ends_the_process(bench: Bench) -> None:
    with Proxy(bench.url) as proxy:
        worker = bench.start(proxy.url)
        child_job = bench.put(INGEST, "wait", 60)
        bench.wait(child_job, "running")
        blocking = bench.put(AGENT, "block", 60)
        bench.wait(blocking, "running")
        children = [child.pid for child in worker.descendants()]
        proxy.cut()
        assert worker.wait(15) == 75
        assert "the loop is blocked; this process ends itself" in worker.text()
        wait_for(lambda: not [pid for pid in children if is_alive(pid)], "nothing of it is left", 2)


def test_two_workers_share_the_work_and_no_job_runs_twice(bench: Bench) -> None:
    workers = [bench.start() for _ in range(2)]
    jobs = [bench.put(AGENT, "wait", 0.05) for _ in range(100)]
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
    pids = {bench.job(job_id, "result")[0]["pid"] for job_id in jobs}
    assert pids == {worker.pid for worker in workers}
    assert bench.db.execute("SELECT max(claim) FROM background_jobs WHERE kind = 'agent-work'").fetchone() == (1,)


def test_the_last_attempt_is_spent_by_a_job_that_kills_its_worker(bench: Bench) -> None:
    victim = bench.start()
    job_id = bench.put(DEADLY, "wait", 60)
    bench.db.execute("UPDATE background_jobs SET max_attempts = 1 WHERE id = %s", [job_id])
    bench.wait(job_id, "running")
    victim.signal(signal.SIGKILL)
    victim.wait()
    bench.start()
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "error ->> 'type'") == ("WorkerLost",)


def test_the_frozen_package_is_importable_as_a_program() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "--help"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "--pools" in done.stdout


def test_a_start_that_somebodys_lock_refuses_says_so(bench: Bench) -> None:
    with psycopg.connect(bench.url) as holder:
        holder.execute("LOCK TABLE background_workers")
        worker = bench.launch()
        assert worker.wait() == 1
    assert "the database refuses, because another session holds a lock" in worker.text()


def test_a_start_that_is_held_up_for_longer_than_its_lease_takes_another(bench: Bench) -> None:
    worker = bench.start(WORKER_FAILPOINTS="registered:stall=6")  # the lease is 5 s
    bench.wait(bench.put(AGENT), "succeeded")
    assert bench.db.execute("SELECT count(*) FROM background_workers").fetchone() == (1,)
    assert worker.stop() == 0
    assert "lost its lease" not in worker.text()
