"""Three pools, time-outs in each, and what is kept of an attempt."""

import os

import pytest

from jobs import Task
from supervisor.testing.processes import is_alive
from supervisor.testing.waiting import wait_for
from tests.worker.app import (
    AGENT,
    DEADLY,
    HURRIED_AGENT,
    HURRIED_INGEST,
    HURRIED_SYSTEM,
    INGEST,
    ONCE,
    SYSTEM,
    Work,
)
from tests.worker.conftest import Bench


def test_agent_and_system_jobs_run_in_the_worker_and_ingest_jobs_in_a_process_of_their_own(bench: Bench) -> None:
    worker = bench.start()
    pids = {}
    for task in (AGENT, SYSTEM, INGEST):
        job_id = bench.put(task)
        bench.wait(job_id, "succeeded")
        pids[task.kind] = bench.job(job_id, "result")[0]["pid"]
    assert pids["agent-work"] == pids["system-work"] == worker.pid
    assert pids["ingest-work"] != worker.pid
    assert not is_alive(pids["ingest-work"])


def test_each_ingest_job_has_a_fresh_process(bench: Bench) -> None:
    bench.start(WORKER_INGEST_CONCURRENCY="1")
    jobs = [bench.put(INGEST) for _ in range(5)]
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
    assert len({bench.job(job_id, "result")[0]["pid"] for job_id in jobs}) == 5


def test_with_more_in_the_queue_the_next_child_waits_while_a_job_runs(bench: Bench) -> None:
    worker = bench.start(WORKER_INGEST_CONCURRENCY="1", WORKER_POOLS="ingest")
    jobs = [bench.put(INGEST, "wait", 0.5) for _ in range(4)]
    wait_for(lambda: len(worker.descendants()) == 3, "a template, a job's child, and the next one at its gate")
    for job_id in jobs:
        bench.wait(job_id, "succeeded")
    assert len({bench.job(job_id, "result")[0]["pid"] for job_id in jobs}) == 4


def test_a_pool_runs_no_more_jobs_at_once_than_its_slots(bench: Bench) -> None:
    bench.start(WORKER_AGENT_CONCURRENCY="3")
    jobs = [bench.put(AGENT, "wait", 0.3) for _ in range(9)]
    most = 0
    while any(bench.job(job_id, "status")[0] != "succeeded" for job_id in jobs):
        running = bench.db.execute(
            "SELECT count(*) FROM background_jobs WHERE kind = 'agent-work' AND status = 'running'"
        ).fetchone()
        most = max(most, running[0] if running else 0)
    assert most == 3


def test_a_worker_serves_only_the_pools_that_it_is_told_to(bench: Bench) -> None:
    bench.start(WORKER_POOLS="system")
    agent, system = bench.put(AGENT), bench.put(SYSTEM)
    bench.wait(system, "succeeded")
    assert bench.job(agent, "status") == ("queued",)


def test_a_worker_without_the_ingest_pool_has_no_child_process(bench: Bench) -> None:
    worker = bench.start(WORKER_POOLS="agent,system")
    assert worker.descendants() == []


@pytest.mark.parametrize(
    ("task", "frame"),
    [(HURRIED_AGENT, "await asyncio.sleep"), (HURRIED_SYSTEM, "time.sleep"), (HURRIED_INGEST, "in_child")],
    ids=["agent", "system", "ingest"],
)
def test_a_job_over_its_time_is_ended_and_its_stack_is_stored(bench: Bench, task: Task[Work], frame: str) -> None:
    bench.start()
    job_id = bench.put(task, "wait", 5)
    assert bench.wait(job_id, "dead") == "dead"
    verdicts = bench.attempts(job_id, "verdict, is_kill, charged, error")
    assert len(verdicts) == task.max_attempts
    for verdict, is_kill, charged, error in verdicts:
        assert (verdict, is_kill, charged) == ("timed_out", False, True)
        assert frame in error["frames"]


def test_a_killed_child_costs_one_attempt_and_the_job_is_tried_again(bench: Bench) -> None:
    """Scenario 1: SIGKILL in the middle of a job."""
    worker = bench.start()
    job_id = bench.put(DEADLY, "be killed once")
    bench.wait(job_id, "succeeded")
    assert bench.job(job_id, "attempt") == (2,)
    verdict, charged, is_kill, signal, pid, evidence, host = bench.attempts(
        job_id, "verdict, charged, is_kill, signal, pid, evidence, host"
    )[0]
    assert (verdict, charged, is_kill, signal) == ("killed", True, True, "SIGKILL")
    assert host == os.uname().nodename
    assert evidence["certainty"] in ("certain", "likely", "unknown")
    assert not is_alive(pid)
    assert worker.process.poll() is None


def test_memory_over_the_limit_is_one_verdict_with_its_numbers(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(ONCE, "eat")
    bench.wait(job_id, "dead")
    verdict, is_kill, limit, peak = bench.attempts(job_id, "verdict, is_kill, memory_limit_mb, peak_memory_mb")[0]
    assert (verdict, is_kill, limit) == ("memory_exceeded", True, 256)
    assert 100 < peak < 400


def test_a_crash_names_its_signal_and_keeps_the_stack(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(ONCE, "crash")
    bench.wait(job_id, "dead")
    verdict, signal, tail = bench.attempts(job_id, "verdict, signal, output_tail")[0]
    assert (verdict, signal) == ("crashed", "SIGSEGV")
    assert "in_child" in tail


def test_the_output_of_a_child_reaches_the_log_with_the_jobs_id(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(INGEST, "print", text="from python")
    for said in ("from python", "from stderr", "from a C library"):
        worker.wait_log(rf"job {job_id} .*{said}")


def test_the_process_title_of_a_child_names_its_job(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(INGEST, "wait", 30)
    assert is_alive(worker.wait_child(job_id))


def test_a_process_that_a_job_leaves_behind_is_gone_after_its_verdict(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(INGEST, "leave a process")
    bench.wait(job_id, "succeeded")
    wait_for(lambda: not [child for child in worker.descendants() if "sleep" in child.name()], "no process is left", 5)


def test_progress_is_seen_while_the_job_runs(bench: Bench) -> None:
    bench.start()
    for task, fraction, note in ((AGENT, 0.5, "half way"), (INGEST, 0.25, "a quarter")):
        job_id = bench.put(task, "progress", 5)
        wait_for(
            lambda job_id=job_id, seen=(fraction, note): bench.job(job_id, "progress, progress_note") == seen,
            f"progress of {task.kind}",
        )
