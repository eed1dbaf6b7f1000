"""Memory verdicts where children share much more with their template than a job may use."""

import asyncio
from pathlib import Path

from jobs.outcome import Died, Verdict
from pools.execution import Intent
from tests.pools.kitchen import Kitchen, open_kitchen, result_of, until

BIG = "tests.pools.big_app:app"


async def neighbours(kitchen: Kitchen, number: int) -> list[asyncio.Task[object]]:
    """So many other jobs, which share what the template holds."""
    before = running(kitchen)
    tasks = [asyncio.create_task(kitchen.cook("sleeps")) for _ in range(number)]
    await until(lambda: running(kitchen) == before + number)
    return tasks  # type: ignore[return-value]  (a task is invariant in its result)


def running(kitchen: Kitchen) -> int:
    return sum(child.gate_opened for child in kitchen.pool._roster.children.values())


def end_neighbours(kitchen: Kitchen, job: int) -> None:
    for execution in kitchen.pool._running:
        if execution.job.id != job:
            execution.stop(Intent.CANCEL)


async def test_helpers_that_are_forked_hold_nothing_of_the_template_by_themselves() -> None:
    """Five of six processes that share its 300 MB are the job's: that makes 250 MB, of which it took none."""
    async with open_kitchen(spec=BIG) as kitchen:
        assert result_of(await kitchen.cook("forked_readers", "1.5")) == "ok"


async def test_a_job_holds_no_more_of_the_template_when_its_neighbours_end() -> None:
    async with open_kitchen(spec=BIG, slots=8) as kitchen:
        others = await neighbours(kitchen, 6)
        execution = kitchen.order("forked_readers", "2.5")
        job = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: running(kitchen) == 7)
        end_neighbours(kitchen, execution.job.id)
        await asyncio.gather(*others)
        assert result_of(await job) == "ok"


async def test_a_job_that_neighbours_join_may_hold_no_more_than_before(tmp_path: Path) -> None:
    """A shared mapping, which no rlimit holds for, of a job that had half of the template at its gate."""
    async with open_kitchen(spec=BIG, slots=8) as kitchen:
        go = tmp_path / "go"
        execution = kitchen.order("shared_mapping_after", f"{go} 150")
        job = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: running(kitchen) == 1)
        others = await neighbours(kitchen, 6)
        go.touch()
        report = await asyncio.wait_for(job, 10)
        assert isinstance(report.outcome, Died), report
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
        assert report.evidence["intent"] == "memory"
        end_neighbours(kitchen, execution.job.id)
        await asyncio.gather(*others)
