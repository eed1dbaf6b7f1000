"""No process outlives its job, however it tries, and the supervisor itself leaks nothing."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from jobs.outcome import Succeeded
from pools import watch
from tests.pools.kitchen import Kitchen, is_dead, is_gone, job_processes, open_descriptors, text_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _result(outcome: object) -> str:
    assert isinstance(outcome, Succeeded)
    return str(json.loads(outcome.result or "")["text"])


@pytest.mark.parametrize(
    "trick", ["hold the pipe", "ignore SIGTERM", "close everything", "exec with nothing", "end the first thread"]
)
async def test_a_daemon_that_left_session_and_parent_is_killed_before_the_report(kitchen: Kitchen, trick: str) -> None:
    """Scenario 13."""
    started = time.monotonic()
    report = await kitchen.cook("daemon", trick)
    assert time.monotonic() - started < 2
    pid = int(_result(report.outcome))
    assert is_dead(pid)
    await until(lambda: is_gone(pid))


async def test_an_orphan_that_changed_its_mark_is_known_by_its_session(kitchen: Kitchen) -> None:
    for _ in range(3):  # once in a while the watch is there first: to it, the new mark is nobody's
        report = await kitchen.cook("changes_its_mark")
        assert is_dead(_result(report.outcome))


async def test_an_orphan_that_nothing_ties_to_its_job_is_ended_by_the_watch(kitchen: Kitchen) -> None:
    report = await kitchen.cook("changes_its_mark", "and its session")
    await until(lambda: is_gone(_result(report.outcome)))


async def test_a_daemon_of_a_running_job_is_left_alone_when_another_job_ends(kitchen: Kitchen, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("daemon_and_wait", str(ready))))
    await until(lambda: text_of(ready) != "")
    daemon = text_of(ready)
    await kitchen.cook("many_leftovers")
    await kitchen.pool._watch.look_around()
    assert not is_dead(daemon)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert is_gone(daemon)


async def test_an_orphan_that_ended_by_itself_is_reaped(kitchen: Kitchen) -> None:
    await kitchen.cook("daemon_that_ends")
    await until(lambda: job_processes(template=kitchen.pool._spawner.pid) == [])


async def test_an_orphan_that_ends_while_its_job_runs_is_reaped(kitchen: Kitchen, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    running = asyncio.create_task(kitchen.pool.run(kitchen.order("orphan_that_ends_and_wait", str(ready))))
    await until(lambda: text_of(ready) != "")
    await until(lambda: is_gone(text_of(ready)))
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_process_that_somebody_else_started_keeps_its_exit_status(kitchen: Kitchen) -> None:
    others = await asyncio.create_subprocess_exec("sh", "-c", "exit 7", start_new_session=True)
    waiting = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
    await kitchen.cook("many_leftovers")
    await kitchen.pool._watch.look_around()
    assert await others.wait() == 7
    assert waiting.returncode is None
    waiting.kill()
    await waiting.wait()


async def test_a_status_that_nobody_has_asked_for_yet_stays_where_it_is(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as PID 1 are we given zombies that are nobody's."""
    monkeypatch.setattr(watch, "FOREIGN_ZOMBIE_SECONDS", -1)
    others = subprocess.Popen(["sh", "-c", "exit 7"])  # noqa: ASYNC220
    await until(lambda: is_dead(others.pid))
    for _ in range(2):
        await kitchen.pool._watch.look_around()
    assert others.wait() == 7


async def test_a_hundred_jobs_leave_descriptors_as_they_were(kitchen: Kitchen) -> None:
    await asyncio.gather(*(kitchen.cook("ok") for _ in range(4)))
    before = open_descriptors()
    for recipe in ("ok", "raises", "abort", "signal_itself", "many_leftovers") * 5:
        await asyncio.gather(*(kitchen.cook(recipe, "SIGKILL") for _ in range(4)))
    # The watch, in its thread, has one of /proc open now and then.
    await until(lambda: open_descriptors() == before)
    await until(lambda: not any(stat.is_dead for stat in job_processes()))


async def test_the_job_of_any_leftover_can_be_told_from_its_environment(kitchen: Kitchen) -> None:
    report = await kitchen.cook("token")
    assert _result(report.outcome) == "1"
    assert "OOMPH_JOB_TOKEN" not in os.environ
