"""Handlers on the loop that do what only a process of its own should."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import Task
from supervisor.testing.processes import FAST
from tests.worker.app import AGENT, DEADLY, INGEST, SYSTEM, Work
from tests.worker.conftest import Bench


@pytest.mark.parametrize("do", ["exit", "interrupt"])
def test_a_handler_that_exits_does_not_take_the_worker_with_it(bench: Bench, do: str) -> None:
    worker = bench.start()
    job_id = bench.put(AGENT, do)
    other = bench.put(AGENT, "wait", 0.5)
    bench.wait(job_id, "dead")
    bench.wait(other, "succeeded")
    assert bench.attempts(job_id) == [("failed",)] * 5
    assert bench.job(job_id, "error ->> 'type'") == ("pools.loop.HandlerExit",)
    assert worker.process.poll() is None


def test_a_result_that_cannot_be_stored_is_dead_at_once(bench: Bench) -> None:
    bench.start()
    job_id = bench.put(AGENT, "return a dict")
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "attempt, error ->> 'type'") == (1, "InvalidResult")


def test_a_result_whose_serializer_ends_the_process_ends_its_job_alone(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(AGENT, "return what explodes")
    bench.wait(job_id, "dead")
    assert bench.job(job_id, "attempt, error ->> 'type'") == (1, "InvalidResult")
    bench.wait(bench.put(AGENT), "succeeded")
    assert worker.process.poll() is None


def test_the_log_names_the_place_of_a_failure(bench: Bench) -> None:
    worker = bench.start()
    bench.put(AGENT, "fail", text="no such thing")
    worker.wait_log(r"attempt 1 of 5 failed: RuntimeError: no such thing at .*app\.py:\d+ in on_loop")


def test_the_log_tells_also_of_an_error_without_a_message(bench: Bench) -> None:
    worker = bench.start()
    bench.put(AGENT, "fail", text="")
    worker.wait_log(r"attempt 1 of 5 failed: RuntimeError at .*app\.py:\d+ in on_loop")


def test_the_log_warns_of_a_killed_child_with_its_kind_and_the_reason(bench: Bench) -> None:
    worker = bench.start()
    bench.put(DEADLY, "be killed once")
    worker.wait_log(rf"WARNING oomph.attempts: job \d+ \({DEADLY.kind}\) attempt 1 of \d+ killed: .*SIGKILL")


@pytest.mark.parametrize("task", [AGENT, INGEST], ids=["loop", "child"])
@pytest.mark.parametrize("do", ["raise odd syntax error", "raise with hostile notes", "raise with hostile message"])
def test_an_error_that_cannot_be_described_is_an_ordinary_failure(bench: Bench, task: Task[Work], do: str) -> None:
    bench.start()
    job_id = bench.put(task, do)
    bench.wait(job_id, "dead")
    assert bench.attempts(job_id, "verdict, is_kill") == [("failed", False)] * 5
    later = bench.put(task)
    bench.wait(later, "succeeded")


@pytest.mark.parametrize("do", ["sleep in the default executor", "ignore the cancellation", "start a thread for ever"])
def test_what_a_handler_leaves_behind_does_not_keep_the_process_alive(bench: Bench, do: str) -> None:
    worker = bench.start(WORKER_SHUTDOWN_SECONDS="0.2")
    job_id = bench.put(AGENT, do)
    bench.wait(job_id, "running", "succeeded")
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert bench.job(job_id, "status")[0] in ("queued", "succeeded")


def test_a_handler_that_cancels_every_task_ends_the_worker_with_a_failure_and_not_half_alive(bench: Bench) -> None:
    worker = bench.start()
    bench.put(AGENT, "cancel every task")
    assert worker.wait(30) != 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_mean_nothing_do_nothing(bench: Bench, number: signal.Signals) -> None:
    worker = bench.start()
    worker.signal(number)
    job_id = bench.put(AGENT)
    bench.wait(job_id, "succeeded")


def test_a_closed_terminal_ends_the_worker_in_order(bench: Bench) -> None:
    worker = bench.start()
    job_id = bench.put(SYSTEM, "wait", 1)
    bench.wait(job_id, "running")
    worker.signal(signal.SIGHUP)
    assert worker.wait() == 0
    assert bench.job(job_id, "status") == ("succeeded",)


def test_a_worker_that_is_started_without_standard_streams_runs_children(bench: Bench, tmp_path: Path) -> None:
    environment = {**os.environ, **FAST, "DATABASE_URL": bench.url, "WORKER_APP": "tests.worker.app:app"}
    worker = subprocess.Popen(
        ["sh", "-c", f"exec {sys.executable} -m supervisor <&- >&- 2>&-"],
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    try:
        job_id = bench.put(INGEST, "print", text="to nobody")
        bench.wait(job_id, "succeeded")
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
