"""The child that is made before its job is claimed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from jobs.outcome import Succeeded, Verdict
from pools import life, spawner
from pools.execution import Intent
from pools.newborn import Newborn
from pools.template_hold import SpawnFailed
from tests.pools.kitchen import Kitchen, is_dead, job_processes, open_kitchen, result_of, until


def waiting(kitchen: Kitchen) -> list[Newborn]:
    return [one for one in kitchen.pool._roster.newborns.values() if one.scratch is not None]


async def expected(kitchen: Kitchen) -> Newborn:
    kitchen.pool.expect_more()
    await until(lambda: bool(waiting(kitchen)))
    (newborn,) = waiting(kitchen)
    return newborn


async def test_the_next_job_takes_the_child_that_waits_and_the_one_after_it_another() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        kitchen.pool.expect_more()  # once more changes nothing
        first = await kitchen.cook("ok")
        assert first.process.pid == newborn.pid
        second = await kitchen.cook("ok")
        assert second.outcome == Succeeded(None)
        assert second.process.pid != newborn.pid


async def test_two_jobs_at_once_never_share_it() -> None:
    async with open_kitchen() as kitchen:
        for _ in range(10):
            kitchen.pool.expect_more()  # still being made when both want it
            both = await asyncio.gather(kitchen.cook("ok"), kitchen.cook("ok"))
            assert len({report.process.pid for report in both}) == 2


async def test_one_that_no_job_takes_is_ended_and_leaves_nothing() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        assert newborn.scratch is not None
        assert newborn.scratch.path.is_dir()
        await until(lambda: job_processes(kitchen.pool._spawner.pid) == [])
        await until(lambda: not kitchen.pool._roster.newborns and not kitchen.pool._roster.marks.in_use)
        assert not newborn.scratch.path.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_one_that_dies_while_it_waits_costs_no_job_anything(number: signal.Signals) -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        os.kill(newborn.pid, number)
        await until(lambda: is_dead(newborn.pid))
        report = await kitchen.cook("ok")
        assert report.outcome == Succeeded(None)
        assert report.process.pid != newborn.pid
        await until(lambda: job_processes(kitchen.pool._spawner.pid) == [])


async def test_one_that_dies_unnoticed_costs_no_job_anything_either() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        os.kill(newborn.pid, signal.SIGKILL)
        while not is_dead(newborn.pid):
            pass  # the loop must not run: it would notice
        report = await kitchen.cook("ok")
        assert report.outcome == Succeeded(None)
        assert report.process.pid != newborn.pid


async def test_it_outlives_its_template() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        template = kitchen.pool._spawner.pid
        assert template is not None
        os.kill(template, signal.SIGKILL)
        await until(lambda: kitchen.pool._spawner.pid not in (None, template) and kitchen.pool.template_up)
        report = await kitchen.cook("ok")
        assert report.outcome == Succeeded(None)
        assert report.process.pid == newborn.pid or is_dead(newborn.pid)  # replacing a template may take a second


async def test_it_is_spared_when_the_tree_of_another_job_is_killed(tmp_path: Path) -> None:
    async with open_kitchen() as kitchen:
        ready = tmp_path / "ready"
        running = asyncio.create_task(kitchen.pool.run(kitchen.order("helpers_that_wait", f"{ready} 3")))
        await until(ready.exists)
        newborn = await expected(kitchen)
        kitchen.pool.kill_everything()
        await kitchen.pool._watch.look_around()
        assert not newborn.exited.is_set()
        assert not is_dead(newborn.pid)
        await asyncio.wait_for(running, 10)


async def test_a_pool_that_stops_ends_it() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        await kitchen.pool.stop()
        assert is_dead(newborn.pid)
        kitchen.pool.expect_more()
        assert not kitchen.pool._roster.newborns


async def test_a_pool_that_stops_while_it_is_made_ends_it() -> None:
    async with open_kitchen() as kitchen:
        kitchen.pool.expect_more()
        await kitchen.pool.stop()
        assert job_processes() == []


async def test_a_job_whose_attempt_is_cancelled_while_its_child_is_made_leaves_none() -> None:
    async with open_kitchen() as kitchen:
        running = asyncio.create_task(kitchen.cook("ok"))
        for _ in range(1_000):
            await asyncio.sleep(0)
            if kitchen.pool._roster.births:
                break
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: job_processes(kitchen.pool._spawner.pid) == [])
        await until(lambda: not kitchen.pool._roster.newborns and not kitchen.pool._roster.marks.in_use)
        assert result_of(await kitchen.cook("result", "still served")) == "still served"


async def test_a_job_with_a_limit_of_its_own_does_not_take_it() -> None:
    """Its own /dev/shm, which holds as much as the limit allows, is there already."""
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        assert (await kitchen.cook("ok", kind="feast")).process.pid != newborn.pid
        assert (await kitchen.cook("ok")).process.pid == newborn.pid


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_one_that_was_stopped_before_it_could_begin_with_its_job_costs_the_job_nothing(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "GATE_SECONDS", 0.5)
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        os.kill(newborn.pid, signal.SIGSTOP)
        running = asyncio.create_task(kitchen.cook("ok"))
        await until(lambda: any(child.gate_opened for child in kitchen.pool._roster.children.values()))
        os.kill(newborn.pid, number)
        report = await asyncio.wait_for(running, 5)
        assert report.process.pid == newborn.pid
        assert report.outcome.verdict is Verdict.SPAWN_FAILED


async def test_one_that_was_stopped_is_not_charged_for_its_deadline_either() -> None:
    async with open_kitchen() as kitchen:
        newborn = await expected(kitchen)
        os.kill(newborn.pid, signal.SIGSTOP)
        assert (await kitchen.cook("ok", seconds=0.5)).outcome.verdict is Verdict.SPAWN_FAILED
        newborn = await expected(kitchen)
        os.kill(newborn.pid, signal.SIGSTOP)
        execution = kitchen.order("ok")
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: any(child.gate_opened for child in kitchen.pool._roster.children.values()))
        execution.stop(Intent.CANCEL)
        assert (await running).outcome.verdict is Verdict.CANCELLED


async def test_one_that_cannot_be_prepared_for_whatever_reason_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_kitchen() as kitchen:
        nursery = kitchen.pool._nursery

        def fault(newborn: Newborn) -> None:
            raise RuntimeError("of ours")

        with monkeypatch.context() as patched:
            patched.setattr(nursery, "_furnish", fault)
            with pytest.raises(RuntimeError, match="of ours"):
                await kitchen.cook("ok")
            kitchen.pool.expect_more()
            with pytest.raises(RuntimeError, match="of ours"):
                await kitchen.cook("ok")
        await until(lambda: job_processes(kitchen.pool._spawner.pid) == [])
        await until(lambda: not kitchen.pool._roster.newborns and not kitchen.pool._roster.marks.in_use)
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_pool_that_stops_while_its_template_hangs_does_not_wait_for_the_child_it_asked_for() -> None:
    async with open_kitchen() as kitchen:
        template = kitchen.pool._spawner.pid
        assert template is not None
        os.kill(template, signal.SIGSTOP)
        kitchen.pool.expect_more()
        await until(lambda: kitchen.pool._spawner.is_busy)
        await asyncio.wait_for(kitchen.pool.stop(), 3)


async def test_a_pool_that_stops_while_it_has_no_template_does_not_wait_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_kitchen() as kitchen:
        template = kitchen.pool._spawner.pid
        assert template is not None
        monkeypatch.setattr(spawner, "backoff_seconds", lambda failures: 60.0)
        os.kill(template, signal.SIGKILL)
        await until(lambda: not kitchen.pool.template_up)
        birth = asyncio.create_task(kitchen.pool._nursery.take(kitchen.pool.memory_mb))
        await asyncio.sleep(0)
        await asyncio.wait_for(kitchen.pool._spawner.stop(), 3)
        with pytest.raises(SpawnFailed, match="the worker ends"):
            await asyncio.wait_for(birth, 3)
