"""One job run in the test's own process and loop: for a debugger, and for plain assertions."""

import asyncio
import os
import socket
import uuid
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors

from jobs.app import App, Handler
from jobs.claim import ClaimedJob
from jobs.database import Database
from jobs.enqueue import enqueue
from jobs.outcome import AttemptReport, Returned, Verdict
from jobs.store import JobStore
from jobs.task import Payload
from pools.execution import Execution, Intent
from pools.loop import LoopPool
from supervisor.testing.sight import see

LEASE = timedelta(minutes=10)  # nobody is to rescue what runs inline, also not while somebody debugs it
CLAIM = """
UPDATE background_jobs AS job
   SET status = 'running', claim = job.claim + 1, attempt = job.attempt + 1, worker_id = %(worker_id)s,
       started_at = clock_timestamp(),
       generation = coalesce((SELECT k.generation FROM background_kinds AS k WHERE k.kind = job.kind), 0)
 WHERE job.id = %(id)s
RETURNING job.id, job.claim, job.kind, job.pool, job.payload::text, job.attempt, job.max_attempts, job.timeout,
          job.organization_id, job.concurrency_key, job.priority, date_part('epoch', job.run_after),
          job.trace_context
"""

Connection = psycopg.Connection[tuple[Any, ...]]


async def run_inline(
    url: str, db: Connection, handler: Handler[Any], payload: Payload, keywords: dict[str, Any]
) -> AttemptReport:
    """Enqueue, claim and run one job; the report, which is written too. Leaves nothing running, however it ends."""
    database = Database(url, call_timeout=10, application_name="oomph test")
    await database.open()
    try:
        store, worker_id = JobStore(database, retry_delay=0, pause_after=5), uuid.uuid4()
        await store.register(
            worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version="inline",
            pools=[str(handler.task.pool)],
            app=App([handler]),
            lease=LEASE,
        )
        try:
            return await _run(store, handler, _enqueue_claimed(db, worker_id, handler, payload, keywords))
        finally:
            await store.deregister(worker_id)
    finally:
        await database.close()


def _enqueue_claimed(
    db: Connection, worker_id: uuid.UUID, handler: Handler[Any], payload: Payload, keywords: dict[str, Any]
) -> ClaimedJob:
    """A job that was claimed before anybody could see it: workers beside this test cannot be quicker.

    Raises `AssertionError` where no worker might start it now; then it is not written at all.
    """
    kind = handler.task.kind
    try:
        with db.transaction():
            job_id: int | None = enqueue(db, handler.task, payload, **keywords)
            if job_id is None:
                raise AssertionError(f"a job of kind {kind} is queued with this dedupe key already")
            if obstacle := see(db, job_id).obstacle:
                raise AssertionError(f"run_one runs its job at once, and job {job_id} may not start: {obstacle}")
            row = db.execute(CLAIM, {"id": job_id, "worker_id": worker_id}).fetchone()
            assert row is not None
            return ClaimedJob._make(row)
    except errors.UniqueViolation as taken:
        raise AssertionError(f"run_one cannot run this job of kind {kind} now: {taken.diag.message_detail}") from None


async def _run(store: JobStore, handler: Handler[Any], job: ClaimedJob) -> AttemptReport:
    execution = Execution(job, handler, lambda *_: None)
    ended: asyncio.Future[AttemptReport] = asyncio.get_running_loop().create_future()

    def end(report: AttemptReport) -> None:
        if not ended.done():  # it is, where the test was interrupted
            ended.set_result(report)

    report = AttemptReport(Returned(Verdict.RELEASED, "the test was interrupted"))
    try:
        LoopPool().begin(execution, end)
        report = await ended
    finally:
        execution.stop(Intent.SHUTDOWN)  # which does nothing to one that has ended
        await store.finish(job.fence, report)
    return report
