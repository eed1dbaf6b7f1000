"""What we end ourselves: deadline, memory of the whole tree, cancel, shutdown, lost lease."""

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from jobs.outcome import Cancelled, Died, Returned, Succeeded, Verdict
from pools.execution import Intent
from tests.pools.kitchen import Kitchen, is_dead, is_gone, text_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("kind", "recipe", "place"),
    [("cook", "sleeps", "in sleeps"), ("cook", "sleeps_in_c", "in sleeps_in_c"), ("simmer", "waits", "in _deep_wait")],
)
async def test_a_deadline_stores_the_stack_where_the_job_stood(
    kitchen: Kitchen, kind: str, recipe: str, place: str
) -> None:
    started = time.monotonic()
    report = await kitchen.cook(recipe, kind=kind, seconds=0.3)
    assert time.monotonic() - started < 1.5
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.TIMED_OUT
    assert "0.3 s" in report.outcome.error.message
    assert place in report.outcome.error.frames
    assert report.evidence["intent"] == "deadline"
    assert report.process.signal == "SIGKILL"


async def test_a_deadline_stores_where_every_thread_stood(kitchen: Kitchen) -> None:
    report = await kitchen.cook("many_threads_stand", seconds=0.5)
    assert isinstance(report.outcome, Died)
    for place in ("in first_place", "in second_place", "in many_threads_stand"):
        assert place in report.outcome.error.frames


async def test_a_stopped_process_still_dies_at_its_deadline(kitchen: Kitchen) -> None:
    """Scenario 12: SIGSTOP."""
    report = await kitchen.cook("signal_itself", "SIGSTOP", seconds=0.3)
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.TIMED_OUT
    assert report.outcome.error.frames == ""
    assert "stacks could not be had" in report.outcome.error.message


async def test_a_job_that_closed_all_its_descriptors_costs_the_loop_nothing(kitchen: Kitchen) -> None:
    spent = time.process_time()
    report = await kitchen.cook("closes_everything", seconds=0.5)
    assert time.process_time() - spent < 0.4
    assert report.outcome.verdict is Verdict.TIMED_OUT


async def test_a_process_that_ignores_every_signal_dies(kitchen: Kitchen, tmp_path: Path) -> None:
    """Scenario 12: SIGTERM and all others ignored."""
    report, _ = await kitchen.cook_until(Intent.CANCEL, "ignores_everything", tmp_path / "ready")
    assert report.outcome == Cancelled()


@pytest.mark.parametrize(
    ("intent", "verdict"),
    [
        (Intent.CANCEL, Verdict.CANCELLED),
        (Intent.SHUTDOWN, Verdict.RELEASED),
        (Intent.LEASE_LOST, Verdict.LEASE_LOST),
        (Intent.MEMORY, Verdict.MEMORY_EXCEEDED),
    ],
)
async def test_an_intent_ends_the_whole_tree_at_once(
    kitchen: Kitchen, tmp_path: Path, intent: Intent, verdict: Verdict
) -> None:
    started = time.monotonic()
    report, pids = await kitchen.cook_until(intent, "says_ready", tmp_path / "ready")
    assert time.monotonic() - started < 2
    assert report.outcome.verdict is verdict
    assert report.evidence["intent"] == intent
    assert all(is_gone(pid) for pid in pids.split())


async def test_the_first_intent_stays(kitchen: Kitchen, tmp_path: Path) -> None:
    execution = kitchen.order("says_ready", str(tmp_path / "ready"))
    running = asyncio.create_task(kitchen.pool.run(execution))
    await until(lambda: text_of(tmp_path / "ready") != "")
    execution.stop(Intent.CANCEL)
    execution.stop(Intent.LEASE_LOST)
    assert (await running).outcome == Cancelled()


async def test_what_is_asked_for_after_the_death_was_not_its_cause(kitchen: Kitchen, tmp_path: Path) -> None:
    execution = kitchen.order("says_ready", str(tmp_path / "ready"))
    running = asyncio.create_task(kitchen.pool.run(execution))
    await until(lambda: text_of(tmp_path / "ready") != "")
    child = next(iter(kitchen.pool._roster.children.values()))
    os.kill(child.pid, signal.SIGKILL)
    await child.exited.wait()
    execution.stop(Intent.SHUTDOWN)
    assert not running.done()
    assert (await running).outcome.verdict is Verdict.KILLED


@pytest.mark.parametrize(
    ("intent", "verdict"),
    [(Intent.CANCEL, Verdict.SUCCEEDED), (Intent.DEADLINE, Verdict.SUCCEEDED), (Intent.LEASE_LOST, Verdict.LEASE_LOST)],
)
async def test_a_result_that_was_complete_before_our_kill_wins_unless_the_lease_is_lost(
    kitchen: Kitchen, tmp_path: Path, intent: Intent, verdict: Verdict
) -> None:
    report, _ = await kitchen.cook_until(intent, "result_then_stop", tmp_path / "ready")
    assert report.outcome.verdict is verdict


async def test_a_job_stopped_before_its_gate_opens_never_runs(kitchen: Kitchen, tmp_path: Path) -> None:
    execution = kitchen.order("says_ready", str(tmp_path / "ready"))
    execution.stop(Intent.SHUTDOWN)
    report = await kitchen.pool.run(execution)
    assert isinstance(report.outcome, Returned)
    assert report.outcome.verdict is Verdict.RELEASED
    assert not (tmp_path / "ready").exists()


async def test_helpers_that_are_together_over_the_limit_are_killed_with_their_job(kitchen: Kitchen) -> None:
    report = await kitchen.cook("four_helpers", "40")
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
    assert report.evidence["intent"] == "memory"
    assert (report.process.peak_memory_mb or 0) > 100


async def test_a_cancelled_run_takes_its_child_along(kitchen: Kitchen, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("says_ready", str(ready))))
    await until(lambda: text_of(ready) != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert all(is_gone(pid) for pid in text_of(ready).split())
    assert kitchen.pool.children == 0


async def test_everything_can_be_killed_from_a_thread_while_the_loop_is_blocked(
    kitchen: Kitchen, tmp_path: Path
) -> None:
    """Scenario 21, this side of the database: the stale child is killed as `lease_lost`, refunded."""
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("says_ready", str(ready))))
    await until(lambda: text_of(ready) != "")
    keeper = threading.Thread(target=kitchen.pool.kill_everything)
    keeper.start()
    keeper.join()  # blocks the loop until the thread is through
    leader, helper = text_of(ready).split()
    assert is_dead(leader)
    assert not is_gone(leader)
    assert is_dead(helper)
    report = await running
    assert isinstance(report.outcome, Returned)
    assert report.outcome.verdict is Verdict.LEASE_LOST


async def test_a_daemon_too_is_killed_from_a_thread_while_the_loop_is_blocked(kitchen: Kitchen, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("daemon_and_wait", str(ready))))
    await until(lambda: text_of(ready) != "")
    keeper = threading.Thread(target=kitchen.pool.kill_everything)
    keeper.start()
    keeper.join()  # blocks the loop until the thread is through
    assert is_dead(text_of(ready))
    assert (await running).outcome.verdict is Verdict.LEASE_LOST


async def test_one_signal_ends_the_whole_group_also_of_processes_that_nobody_has_looked_for(
    kitchen: Kitchen, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("says_ready", str(ready))))
    await until(lambda: text_of(ready) != "")
    next(iter(kitchen.pool._roster.children.values())).kill()
    deadline = time.monotonic() + 5
    while not all(map(is_dead, text_of(ready).split())):  # the loop is blocked meanwhile, so nobody looks
        assert time.monotonic() < deadline
    await running


async def test_a_kill_from_outside_is_reported_at_once(kitchen: Kitchen, tmp_path: Path) -> None:
    """Scenario 1."""
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("says_ready", str(ready))))
    await until(lambda: text_of(ready) != "")
    killed = time.monotonic()
    os.kill(int(text_of(ready).split()[0]), signal.SIGKILL)
    report = await running
    assert time.monotonic() - killed < 1
    assert isinstance(report.outcome, Died)
    assert report.outcome.verdict is Verdict.KILLED


async def test_concurrent_jobs_each_get_their_own_report(kitchen: Kitchen) -> None:
    reports = await asyncio.gather(
        kitchen.cook("result", "a"), kitchen.cook("abort"), kitchen.cook("result", "b"), kitchen.cook("eat_bytes")
    )
    assert [report.outcome.verdict for report in reports] == ["succeeded", "crashed", "succeeded", "memory_exceeded"]
    assert isinstance(reports[0].outcome, Succeeded)
    assert json.loads(reports[0].outcome.result or "") == {"text": "a"}
