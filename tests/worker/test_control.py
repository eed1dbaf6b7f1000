"""An operator's actions reach a running worker; shutdown; crash-loop protection over two workers."""

import signal
import time

import pytest

from jobs import Task, cancel, enqueue_many, pause, resume
from supervisor.testing.processes import is_alive
from supervisor.testing.waiting import wait_for
from tests.proxy import Proxy
from tests.worker.app import AGENT, BIG, DEADLY, INGEST, SYSTEM, Work
from tests.worker.conftest import Bench


@pytest.mark.parametrize("task", [AGENT, INGEST], ids=["coroutine", "child"])
@pytest.mark.parametrize("listen", ["on", "off"])
def test_a_cancel_ends_a_running_job(bench: Bench, task: Task[Work], listen: str) -> None:
    worker = bench.start(WORKER_LISTEN=listen)
    job_id = bench.put(task, "wait", 60)
    bench.wait(job_id, "running")
    children = [worker.wait_child(job_id)] if task is INGEST else []
    assert cancel(bench.db, job_id, actor="ann", reason="not needed") == "running"
    bench.wait(job_id, "cancelled", seconds=5)
    assert bench.attempts(job_id, "verdict, charged") == [("cancelled", True)]
    assert not [pid for pid in children if is_alive(pid)]


def test_a_paused_kind_starts_nothing_and_its_running_jobs_finish(bench: Bench) -> None:
    bench.start()
    running = bench.put(AGENT, "wait", 1)
    bench.wait(running, "running")
    pause(bench.db, "agent-work", actor="ann", reason="upstream is down")
    waiting = bench.put(AGENT)
    bench.wait(running, "succeeded")
    other = bench.put(SYSTEM)
    bench.wait(other, "succeeded")
    assert bench.job(waiting, "status") == ("queued",)
    resume(bench.db, "agent-work", actor="ann")
    bench.wait(waiting, "succeeded")


def test_a_job_that_waits_for_memory_when_its_kind_is_paused_is_given_back(bench: Bench) -> None:
    # A lease that is lost on the way gives the other one back too, for good: its kind is paused.
    worker = bench.start(WORKER_INGEST_BUDGET_MB="600", WORKER_LEASE_SECONDS="30")
    running = bench.put(BIG, "wait", 5)
    bench.wait(running, "running")
    waiting = bench.put(BIG)
    bench.kit.wait_for(waiting, "running")  # it does not begin
    pause(bench.db, BIG.kind, actor="ann", reason="upstream is down")
    bench.wait(waiting, "queued", seconds=1)
    assert bench.job(running, "status") == ("running",)
    assert bench.attempts(waiting, "verdict, charged, pid IS NULL") == [("released", False, True)]
    bench.wait(running, "succeeded")
    assert bench.job(waiting, "status, attempt") == ("queued", 0)
    resume(bench.db, BIG.kind, actor="ann")
    bench.wait(waiting, "succeeded")
    assert worker.stop() == 0


def test_a_probe_that_waits_for_memory_is_not_given_back_for_the_pause_that_it_probes(bench: Bench) -> None:
    bench.start(WORKER_INGEST_BUDGET_MB="600")
    bench.wait(bench.put(INGEST, "wait", 3), "running")
    pause(bench.db, BIG.kind, actor="ann")
    probe = bench.put(BIG)
    resume(bench.db, BIG.kind, actor="ann", probe=True)
    bench.wait(probe, "succeeded")
    assert bench.attempts(probe) == []


def test_five_kills_in_a_row_pause_the_kind_over_two_workers_and_everything_else_goes_on(bench: Bench) -> None:
    """Scenario 30: five kills of several jobs on two workers."""
    workers = [bench.start(WORKER_INGEST_CONCURRENCY="1") for _ in range(2)]
    deadly = [bench.put(DEADLY, "be killed") for _ in range(8)]
    harmless = [bench.put(INGEST) for _ in range(5)]
    wait_for(
        lambda: bench.db.execute(
            "SELECT pause_reason FROM background_kinds WHERE kind = 'deadly' AND paused_at IS NOT NULL"
        ).fetchone(),
        "the pause",
    )
    for job_id in harmless:
        bench.wait(job_id, "succeeded")
    wait_for(
        lambda: (
            bench.db.execute(
                "SELECT count(*) FROM background_jobs WHERE kind = 'deadly' AND status = 'running'"
            ).fetchone()
            == (0,)
        ),
        "running ones have ended",
    )
    kills = bench.db.execute("SELECT count(*) FROM background_attempts WHERE is_kill").fetchone()
    assert kills is not None
    assert 5 <= kills[0] <= 6  # the sixth may have been running when the fifth was recorded
    reason = bench.db.execute("SELECT pause_reason FROM background_kinds WHERE kind = 'deadly'").fetchone()
    assert reason is not None
    assert reason[0].count("killed") >= 5
    assert bench.db.execute("SELECT count(*) FROM background_notices").fetchone() == (1,)
    assert {bench.job(job_id, "status")[0] for job_id in deadly} <= {"queued", "dead"}
    assert all(worker.process.poll() is None for worker in workers)


def test_a_probe_lets_exactly_one_job_through_and_its_success_opens_the_kind(bench: Bench) -> None:
    pause(bench.db, "ingest-work", actor="ann")
    bench.start(WORKER_POLL_SECONDS="0.2")
    jobs = [bench.put(INGEST, "wait", 1) for _ in range(4)]
    resume(bench.db, "ingest-work", actor="ann", probe=True)
    bench.wait(jobs[0], "running")
    while bench.job(jobs[0], "status") == ("running",):
        started = bench.db.execute(
            "SELECT count(*) FROM background_jobs WHERE claim > 0 AND kind = 'ingest-work'"
        ).fetchone()
        assert started == (1,) or bench.job(jobs[0], "status") == ("succeeded",)
    for job_id in jobs:
        bench.wait(job_id, "succeeded")


def test_a_first_signal_stops_claims_at_once_and_lets_jobs_finish(bench: Bench) -> None:
    """Scenario 25: one SIGTERM."""
    worker = bench.start()
    running = [bench.put(AGENT, "wait", 1.5), bench.put(INGEST, "wait", 1.5)]
    for job_id in running:
        bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    worker.wait_log("draining")
    late = bench.put(AGENT)
    assert worker.wait() == 0
    assert [bench.job(job_id, "status") for job_id in [*running, late]] == [
        ("succeeded",),
        ("succeeded",),
        ("queued",),
    ]
    assert bench.db.execute("SELECT count(*) FROM background_workers").fetchone() == (0,)


@pytest.mark.parametrize("how", ["time over", "second signal"])
def test_what_does_not_finish_is_given_back_uncharged_and_claimable_at_once(bench: Bench, how: str) -> None:
    """Scenario 26: the drain is over while jobs still run."""
    worker = bench.start(WORKER_SHUTDOWN_SECONDS="0.5" if how == "time over" else "60")
    jobs = [bench.put(AGENT, "wait", 60), bench.put(INGEST, "wait", 60)]
    for job_id in jobs:
        bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    if how == "second signal":
        worker.wait_log("draining")
        worker.signal(signal.SIGINT)
    assert worker.wait(15) == 0
    for job_id in jobs:
        assert bench.job(job_id, "status, attempt, run_after <= now(), worker_id") == ("queued", 0, True, None)
        assert bench.attempts(job_id, "verdict, charged") == [("released", False)]


def test_a_worker_that_is_told_to_end_while_its_start_waits_for_the_database_ends_in_order(bench: Bench) -> None:
    """Scenario 25: a signal during the start."""
    with Proxy(bench.url) as proxy:
        proxy.swallow(b"INSERT 0")  # what it declares about itself is never answered
        worker = bench.launch(proxy.url, WORKER_CALL_TIMEOUT_SECONDS="2")
        worker.wait_log("template up")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.text()
        assert "told to end before it was ready" in worker.text()


def test_jobs_in_threads_are_disowned_at_the_end_and_given_back(bench: Bench) -> None:
    worker = bench.start(WORKER_SHUTDOWN_SECONDS="0.5")
    jobs = [bench.put(SYSTEM, "wait", 60) for _ in range(3)]
    for job_id in jobs:
        bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    assert worker.wait(15) == 0, worker.text()
    for job_id in jobs:
        assert bench.job(job_id, "status, attempt") == ("queued", 0)
        assert bench.attempts(job_id, "verdict, charged") == [("released", False)]


def test_heartbeats_go_on_while_draining_and_cancels_still_work(bench: Bench) -> None:
    """Scenario 27: a cancel during the drain."""
    worker = bench.start(WORKER_SHUTDOWN_SECONDS="60")
    job_id = bench.put(AGENT, "wait", 60)
    bench.wait(job_id, "running")
    worker.signal(signal.SIGTERM)
    worker.wait_log("draining")
    leases = set()

    def renewed() -> bool:
        row = bench.db.execute("SELECT lease_until FROM background_workers").fetchone()
        leases.add(row)
        return len(leases) > 12  # 0.5 s each: longer than the lease of 5 s

    wait_for(renewed, "heartbeats")
    assert bench.job(job_id, "status") == ("running",)
    cancel(bench.db, job_id, actor="ann")
    bench.wait(job_id, "cancelled", seconds=5)
    assert worker.wait(10) == 0


def test_five_signals_at_once_end_the_worker_in_order(bench: Bench) -> None:
    """Scenario 25: five signals within a moment."""
    worker = bench.start()
    job_id = bench.put(INGEST, "wait", 60)
    bench.wait(job_id, "running")
    for _ in range(5):
        worker.signal(signal.SIGTERM)
        time.sleep(0.02)  # signals that are pending together count as one
    assert worker.wait(15) == 0
    assert bench.job(job_id, "status, attempt") == ("queued", 0)


def test_a_signal_that_comes_after_the_orderly_end_does_not_make_it_a_death(bench: Bench) -> None:
    worker = bench.start(WORKER_APP="tests.worker.slow_to_end:app", WORKER_POOLS="agent")
    worker.signal(signal.SIGTERM)
    worker.wait_log("the worker has ended")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0


def test_claims_take_as_many_as_the_free_slots_in_one_batch(bench: Bench) -> None:
    with bench.db.transaction():
        enqueue_many(bench.db, AGENT, [Work(do="wait", seconds=0.5) for _ in range(10)])
    bench.start()
    wait_for(
        lambda: (
            bench.db.execute(
                "SELECT count(*) FROM background_jobs WHERE kind = 'agent-work' AND status = 'succeeded'"
            ).fetchone()
            == (10,)
        ),
        "all ten",
    )
    spread = bench.db.execute(
        "SELECT max(started_at) - min(started_at) < interval '0.1 s' FROM background_jobs WHERE kind = 'agent-work'"
    )
    assert spread.fetchone() == (True,)
