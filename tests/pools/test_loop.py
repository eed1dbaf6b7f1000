"""The one report of a coroutine, however it ends."""

import asyncio
import gc
import weakref
from datetime import timedelta

import pytest

from jobs import Handler, Payload, Pool, Task
from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport, Cancelled, Failed, Outcome, Succeeded
from pools.execution import Execution, Intent
from pools.loop import LoopPool
from tests.pools.kitchen import until


class Do(Payload):
    what: str


class Large:
    """What a handler holds as it fails."""


TASK = Task(kind="do", payload_type=Do, pool=Pool.AGENT)
held: "list[weakref.ref[Large]]" = []


async def do(payload: Do) -> None:
    match payload.what:
        case "fail":
            large = Large()
            held.append(weakref.ref(large))
            raise ValueError("as told")
        case "exit":
            raise SystemExit(3)
        case "wait":
            await asyncio.sleep(600)


def begin(what: str, reports: list[AttemptReport]) -> Execution:
    job = ClaimedJob(7, 1, "do", "agent", f'{{"what": "{what}"}}', 1, 5, timedelta(minutes=1))
    execution = Execution(job, Handler(TASK, do), lambda *_: None)
    LoopPool().begin(execution, reports.append)
    return execution


def task() -> "asyncio.Task[None]":
    (found,) = [each for each in asyncio.all_tasks() if each.get_name() == "job 7"]
    return found


async def outcome_of(reports: list[AttemptReport]) -> Outcome:
    await until(lambda: bool(reports), 5)
    await asyncio.sleep(0.01)  # nothing comes twice
    (report,) = reports
    return report.outcome


@pytest.mark.parametrize(("what", "raised"), [("fail", "ValueError"), ("exit", "pools.loop.HandlerExit")])
async def test_what_a_coroutine_raises_is_its_outcome(what: str, raised: str) -> None:
    reports: list[AttemptReport] = []
    begin(what, reports)
    outcome = await outcome_of(reports)
    assert isinstance(outcome, Failed)
    assert outcome.error.type == raised


async def test_one_that_returns_has_succeeded() -> None:
    reports: list[AttemptReport] = []
    begin("nothing", reports)
    assert await outcome_of(reports) == Succeeded()


async def test_a_stop_before_it_begins_ends_it() -> None:
    reports: list[AttemptReport] = []
    begin("wait", reports).stop(Intent.CANCEL)
    assert await outcome_of(reports) == Cancelled()


async def test_one_that_somebody_else_cancels_before_it_begins_is_reported_all_the_same() -> None:
    """Some code cancels every task that it finds. Its slot would stay closed for ever."""
    reports: list[AttemptReport] = []
    begin("wait", reports)
    task().cancel()
    outcome = await outcome_of(reports)
    assert isinstance(outcome, Failed)
    assert "CancelledError" in outcome.error.type


async def test_one_that_somebody_else_cancels_while_it_waits_is_reported() -> None:
    reports: list[AttemptReport] = []
    begin("wait", reports)
    await asyncio.sleep(0.01)
    task().cancel()
    outcome = await outcome_of(reports)
    assert isinstance(outcome, Failed)
    assert "CancelledError" in outcome.error.type


async def test_what_a_failed_coroutine_held_is_gone_with_it() -> None:
    """Without a look of the garbage collector, which a busy worker takes seldom."""
    reports: list[AttemptReport] = []
    held.clear()
    gc.disable()
    try:
        begin("fail", reports)
        await outcome_of(reports)
        assert [reference() for reference in held] == [None]
    finally:
        gc.enable()


def test_a_loop_that_goes_before_its_coroutines_end_reports_nothing() -> None:
    reports: list[AttemptReport] = []

    async def leave() -> None:
        begin("wait", reports)
        await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    gc.collect()
    assert reports == []
