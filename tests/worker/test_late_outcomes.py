"""What becomes of an outcome that the database does not take before its lease is lost."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobs.claim import ClaimedJob, Fence
from jobs.outcome import AttemptReport, Died, Failed, JobError, Succeeded, Verdict
from supervisor.outcomes import OutcomeWriter
from tests.worker.virtual import Table, VirtualLoop

ERROR = JobError("Oh", "no")
REPORTS = {
    "a success": AttemptReport(Succeeded(None)),
    "a failure": AttemptReport(Failed(ERROR)),
    "a kill": AttemptReport(Died(Verdict.CRASHED, ERROR)),
}


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("rescued", [False, True], ids=["nobody took it", "another has settled it"])
def test_it_is_dropped_and_its_refund_is_offered(loop: VirtualLoop, report: str, rescued: bool) -> None:
    """An outage charges no attempt whose end it kept from being written; nor does that change what others wrote."""
    table, settled, trusted = Table(), list[Fence](), [True]
    writer = OutcomeWriter(table)  # type: ignore[arg-type]
    writing = loop.create_task(writer.run())
    fence = table.claim(1)
    table.reachable = False
    writer.submit(fence, _job(fence), REPORTS[report], lambda: trusted[0], lambda: settled.append(fence))
    loop.advance(1)
    trusted[0] = False
    loop.advance(5)
    assert settled == []
    if rescued:
        table.rescue([fence])
    table.reachable = True
    loop.advance(5)
    assert table.applied == {fence: Verdict.WORKER_LOST if rescued else Verdict.LEASE_LOST}
    assert (table.rows[1].status, table.rows[1].attempt) == ("queued", 1 if rescued else 0)
    assert settled == [fence]
    writing.cancel()
    loop.settle()


def _job(fence: Fence) -> ClaimedJob:
    return ClaimedJob(fence.id, fence.claim, "kind", "agent", "{}", 1, 5, timedelta(seconds=60))
