"""Handlers on the loop that do what only a process of its own should."""

import pytest

from tests.worker.app import AGENT
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


def test_the_log_names_the_place_of_a_failure(bench: Bench) -> None:
    worker = bench.start()
    bench.put(AGENT, "fail", text="no such thing")
    worker.wait_log(r"attempt 1 of 5 failed: RuntimeError: no such thing at .*app\.py:\d+ in on_loop")
