"""The memory of a whole tree: what counts, what does not, how often it is looked at, and who may start."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.outcome import Cancelled, Died, Returned, Succeeded, Verdict
from pools import ingest, memory
from pools.budget import MemoryBudget
from pools.execution import Intent
from pools.memory import EXACT_SECONDS, Baseline, Gauge
from pools.watch import FASTEST_SECONDS, WATCH_SECONDS, pace
from tests.pools.kitchen import open_kitchen, result_of, until


@pytest.mark.parametrize("recipe", ["memfd", "memfd_of_a_thread", "shared_mapping"])
async def test_shared_memory_counts_although_no_rlimit_holds_for_it(recipe: str) -> None:
    """Scenario 2, the part that RLIMIT_DATA does not see."""
    async with open_kitchen() as kitchen:
        report = await kitchen.cook(recipe, "120")
        assert isinstance(report.outcome, Died), report
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
        assert report.evidence["intent"] == "memory"
        assert (report.process.peak_memory_mb or 0) > 100


@pytest.mark.parametrize(("recipe", "text"), [("threads_that_outlive_the_main_one", "15"), ("page_tables", "18")])
async def test_memory_that_no_process_shows_as_its_own_counts(recipe: str, text: str) -> None:
    async with open_kitchen(memory_mb=30) as kitchen:
        report = await kitchen.cook(recipe, text)
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED, report
        assert report.evidence["intent"] == "memory"


async def test_what_forked_helpers_share_counts_once() -> None:
    async with open_kitchen() as kitchen:
        assert result_of(await kitchen.cook("forked_readers", "1.5")) == "ok"


async def test_a_tree_that_is_over_the_limit_dies_within_two_looks() -> None:
    """Scenario 5: four helpers, each under its own limit, together over it."""
    async with open_kitchen() as kitchen:
        started = time.monotonic()
        report = await kitchen.cook("four_helpers", "40")
        assert time.monotonic() - started < 4
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
        assert report.evidence["intent"] == "memory"


async def test_a_look_at_a_job_that_is_being_ended_changes_no_figure() -> None:
    async with open_kitchen() as kitchen:
        execution = kitchen.order("sleeps")
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: any(child.watched for child in kitchen.pool._roster.children.values()))
        (child,) = kitchen.pool._roster.children.values()
        await until(lambda: child.frames.has_started)
        watch = kitchen.pool._watch
        sight = watch._look([child], everything=False)[0][child]
        watch._act({child: replace(sight, used_mb=300)}, [])
        watch._act({child: replace(sight, used_mb=0)}, [])
        report = await running
        assert isinstance(report.outcome, Died)
        assert "went over the limit of 100 MB (300 MB)" in report.outcome.error.message


def test_a_tree_is_looked_at_as_often_as_it_could_reach_its_limit() -> None:
    assert pace(0, 0, 1000) == WATCH_SECONDS
    assert pace(500, 0, 1000) == WATCH_SECONDS
    assert pace(950, 0, 1000) == pytest.approx(0.125)
    assert pace(500, 1000, 1000) == pytest.approx(0.125)
    assert pace(990, 5000, 1000) == FASTEST_SECONDS
    assert pace(2000, 0, 1000) == FASTEST_SECONDS


def test_an_exact_reading_is_taken_only_near_the_limit_and_not_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap, exact, taken = {1: 0, 2: 0}, {1: 0, 2: 0}, []

    def read(path: str) -> str:
        _, _, pid, name = path.split("/")
        if name == "status":
            return f"RssAnon:\t{cheap[int(pid)] * 1024} kB\n"
        taken.append(int(pid))
        return f"Pss_Anon: {exact[int(pid)] * 1024} kB\n"

    now = 100.0
    monkeypatch.setattr(memory, "slurp", read)
    gauge = Gauge(Baseline(), 100, clock=lambda: now)
    cheap |= {1: 40, 2: 40}
    assert gauge.measure([1, 2], 0) == 80
    assert taken == []
    cheap |= {1: 60, 2: 60}  # they share nearly everything
    exact |= {1: 31, 2: 31}
    assert gauge.measure([1, 2], 0) == 62
    assert gauge.measure([1, 2], 0) == 62
    assert taken == [1, 2]
    cheap |= {2: 80}  # a little more: still sure to be below the limit
    assert gauge.measure([1, 2], 0) == 82
    assert taken == [1, 2]
    cheap |= {2: 180}  # it may have shared all of it, so this must not kill
    exact |= {2: 40}
    assert gauge.measure([1, 2], 0) == 71
    assert taken == [1, 2, 1, 2]
    now += 1.1
    exact |= {2: 90}  # it shares less, which the cheap reading does not show
    assert gauge.measure([1, 2], 0) == 121
    assert taken == [1, 2, 1, 2, 1, 2]
    assert Gauge(Baseline(), 200).measure([1], 70 << 10) == 60 + 70  # a memfd of 70 MB comes on top


def test_a_tree_is_not_killed_on_an_estimate_while_the_exact_reading_is_too_dear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap, now = [60], [100.0]

    def read(path: str) -> str:
        if path.endswith("status"):
            return f"RssAnon:\t{cheap[0] * 1024} kB\n"
        now[0] += 0.01
        return f"Pss_Anon: {40 * 1024} kB\n"

    monkeypatch.setattr(memory, "slurp", read)
    gauge = Gauge(Baseline(), 100, clock=lambda: now[0])
    assert gauge.measure([1, 2], 0) == 80
    cheap[0] = 200
    assert gauge.measure([1, 2], 0) == 100  # at the limit, not over it
    now[0] += 0.5
    assert gauge.measure([1, 2], 0) == 80


@pytest.mark.parametrize("grows", ["shares more", "shares less"])
def test_an_exact_reading_is_waited_for_a_second_however_dear_it_is(
    monkeypatch: pytest.MonkeyPatch, grows: str
) -> None:
    cheap, exact, now = [200], [40], [100.0]

    def read(path: str) -> str:
        if path.endswith("status"):
            return f"RssAnon:\t{cheap[0] * 1024} kB\n"
        now[0] += 5
        return f"Pss_Anon: {exact[0] * 1024} kB\n"

    monkeypatch.setattr(memory, "slurp", read)
    gauge = Gauge(Baseline(), 100, clock=lambda: now[0])
    assert gauge.measure([1, 2], 0) == 80
    exact[0] = 90
    if grows == "shares more":
        cheap[0] = 300
    now[0] += EXACT_SECONDS
    assert gauge.measure([1, 2], 0) == 180


def test_where_the_exact_reading_is_refused_the_cheap_one_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> str:
        if path.endswith("smaps_rollup"):
            raise PermissionError
        return "RssAnon:\t204800 kB\n"

    monkeypatch.setattr(memory, "slurp", read)
    assert Gauge(Baseline(), 100).measure([1], 0) == 200


def test_a_baseline_that_cannot_be_read_is_an_error_and_not_zero() -> None:
    with pytest.raises(OSError, match="No such file"):
        Baseline.of(2**22 + 1)


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_big_job_that_waits_is_not_passed_by_small_ones() -> None:
    budget, order = MemoryBudget(100), []

    async def take(name: str, mb: int) -> None:
        assert await budget.take(mb, 5, never)
        order.append(name)

    await take("first", 60)
    waiting = []
    for name, mb in (("big", 90), ("small", 10), ("smaller", 5)):
        waiting.append(asyncio.create_task(take(name, mb)))
        await asyncio.sleep(0)
    assert budget.is_contended
    budget.give_back(60)
    await asyncio.gather(*waiting[:2])
    assert order == ["first", "big", "small"]
    budget.give_back(90)
    await waiting[2]
    budget.give_back(15)
    assert budget.held_mb == 0


@pytest.mark.parametrize("how", ["cancelled", "too late", "stopped"])
async def test_who_stops_waiting_for_memory_holds_none_and_lets_the_next_one_in(how: str) -> None:
    budget, stop = MemoryBudget(100), asyncio.Event()
    assert await budget.take(60, 5, never)
    big = asyncio.create_task(budget.take(90, 0.1 if how == "too late" else 5, stop.wait))
    await asyncio.sleep(0)
    small = asyncio.create_task(budget.take(30, 5, never))
    await asyncio.sleep(0)
    assert not small.done()
    if how == "cancelled":
        big.cancel()
    if how == "stopped":
        stop.set()
    assert await small
    assert (await asyncio.gather(big, return_exceptions=True))[0] is not True
    assert budget.held_mb == 90


async def test_jobs_wait_until_their_memory_is_free(tmp_path: Path) -> None:
    async with open_kitchen(budget_mb=290) as kitchen:
        share = kitchen.pool.share_mb
        assert share > 10
        ready, done = tmp_path / "ready", tmp_path / "done"
        first = asyncio.create_task(kitchen.cook("waits_for", f"{ready} {done}"))
        await until(ready.exists)
        assert kitchen.pool.can_start
        big = asyncio.create_task(kitchen.cook("ok", kind="feast"))
        small = asyncio.create_task(kitchen.cook("ok", kind="nibble"))
        await until(lambda: not kitchen.pool.can_start)
        cancelled = kitchen.order("ok", kind="feast")
        running = asyncio.create_task(kitchen.pool.run(cancelled))
        await asyncio.sleep(0)
        cancelled.stop(Intent.CANCEL)
        assert (await running).outcome == Cancelled()
        assert not big.done()
        assert not small.done()
        done.touch()
        for report in await asyncio.gather(first, big, small):
            assert report.outcome == Succeeded(None)
        assert kitchen.pool._budget.held_mb == 0


async def test_a_job_whose_memory_does_not_become_free_is_given_back_uncharged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "ADMISSION_SECONDS", 0.1)
    async with open_kitchen(budget_mb=240) as kitchen:
        ready, done = tmp_path / "ready", tmp_path / "done"
        first = asyncio.create_task(kitchen.cook("waits_for", f"{ready} {done}"))
        await until(ready.exists)
        report = await kitchen.cook("ok")
        assert isinstance(report.outcome, Returned)
        assert report.outcome.verdict is Verdict.SPAWN_FAILED
        assert "became free within" in report.outcome.why
        report = await kitchen.cook("ok", kind="feast")
        assert isinstance(report.outcome, Returned)
        done.touch()
        await first


async def test_a_job_that_can_never_fit_is_given_back_and_holds_nobody_up() -> None:
    async with open_kitchen(budget_mb=180) as kitchen:
        report = await kitchen.cook("ok", kind="feast")
        assert isinstance(report.outcome, Returned)
        assert "can never fit" in report.outcome.why
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_fewer_slots_than_asked_for_are_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async with open_kitchen(budget_mb=300, slots=4):
        assert "only 2 of 4 slots fit" in caplog.text


async def test_a_swallowed_memory_error_is_a_success_with_a_warning_and_its_peak() -> None:
    """Scenario 6, where it came close to the limit."""
    async with open_kitchen() as kitchen:
        report = await kitchen.cook("swallows_memory_error")
        assert isinstance(report.outcome, Succeeded)
        assert report.evidence["certainty"] == "likely"
        assert "warning" in report.evidence["why"]
        assert 90 < (report.process.peak_memory_mb or 0) < 110
        report = await kitchen.cook("threads_at_once", "2")
        assert report.evidence == {}


async def test_a_thread_that_cannot_start_is_a_matter_of_memory_only_near_the_limit() -> None:
    """Scenario 7, both ways."""
    async with open_kitchen() as kitchen:
        report = await kitchen.cook("eat_threads")
        assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
        report = await kitchen.cook("no_thread")
        assert report.outcome.verdict is Verdict.FAILED
