"""Successes are written together as far as one statement can hold their results."""

import asyncio

from jobs.outcome import MAX_RESULT_BYTES, AttemptReport, Succeeded
from jobs.store import JobStore
from supervisor.outcomes import COMMIT_BYTES, OutcomeWriter
from tests.jobs.lab import Connection, add, hire, scalar, until

RESULT = '"' + '\\"' * (MAX_RESULT_BYTES // 2 - 1) + '"'  # an array doubles each of its characters once more


async def test_large_results_are_written_in_several_statements(db: Connection, store: JobStore) -> None:
    number = 2 * COMMIT_BYTES // len(RESULT) + 1
    add(db, number)
    worker, writer, settled = await hire(store), OutcomeWriter(store), []
    for claimed in await worker.claim(slots=number):
        report = AttemptReport(Succeeded(RESULT))
        writer.submit(claimed.fence, claimed, report, lambda: True, lambda: settled.append(1))
    writing = asyncio.create_task(writer.run())
    await until(lambda: len(settled) == number)
    writing.cancel()
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE length(result::text) = %s", len(RESULT)) == number
    assert scalar(db, "SELECT count(DISTINCT xmin::text) FROM background_jobs WHERE status = 'succeeded'") == 3
