"""`Kit`: a database, the workers that a test starts on it, and hands to break them with."""

import asyncio
import os
import signal
import socket
import uuid
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from jobs.app import App, Handler
from jobs.database import Database
from jobs.enqueue import enqueue
from jobs.outcome import AttemptReport, Verdict
from jobs.store import JobStore
from jobs.task import P, Payload, Task
from pools.execution import Execution
from pools.loop import LoopPool
from supervisor.testing.processes import WorkerProcess, running_worker
from supervisor.testing.waiting import wait_for

LEASE = timedelta(minutes=10)  # nobody is to rescue what runs inline, also not while somebody debugs it


class Kit:
    """One throw-away database with real workers on it.

    `url` is the database's; `db` is an open autocommit connection to it.
    """

    def __init__(self, url: str, logs: Path, stack: ExitStack) -> None:
        self.url = url
        self.db: psycopg.Connection[tuple[Any, ...]] = stack.enter_context(psycopg.connect(url, autocommit=True))
        self.workers: list[WorkerProcess] = []
        self._logs = logs
        self._stack = stack

    def start(self, app: str, *, url: str | None = None, **settings: str) -> WorkerProcess:
        """A worker process that is ready. `app` is `module:attribute`, `settings` are environment variables.

        Without settings it is made for tests: a lease of 3 s, a back-off of 50 ms, two children of 256 MiB.
        """
        log = self._logs / f"worker-{len(self.workers) + 1}.log"
        worker = self._stack.enter_context(running_worker(url or self.url, log, app, **settings))
        self.workers.append(worker)
        return worker

    def enqueue(self, task: Task[P], payload: P, **keywords: Any) -> int:
        """Enqueue one job and commit; its id. `keywords` are those of `jobs.enqueue`."""
        job_id: int | None = enqueue(self.db, task, payload, **keywords)
        if job_id is None:
            raise AssertionError(f"a job of kind {task.kind} is queued with this dedupe key already")
        return job_id

    def child_of(self, job_id: int) -> int:
        """Wait for the process that runs this job, in whichever worker; its pid."""
        return wait_for(
            lambda: next((pid for worker in self.workers if (pid := self._child(worker, job_id))), None),
            f"a process of job {job_id}",
        )

    def kill_child(self, job_id: int, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the process that runs this job a signal, once there is one; its pid."""
        pid = self.child_of(job_id)
        os.kill(pid, number)
        return pid

    def status(self, job_id: int) -> str:
        """The job's status now."""
        row = self.db.execute("SELECT status FROM background_jobs WHERE id = %s", [job_id]).fetchone()
        if row is None:
            raise AssertionError(f"job {job_id} does not exist")
        return str(row[0])

    def verdicts(self, job_id: int) -> list[str]:
        """The verdicts of its attempts that did not simply succeed, oldest first."""
        rows = self.db.execute("SELECT verdict FROM background_attempts WHERE job_id = %s ORDER BY claim", [job_id])
        return [row[0] for row in rows]

    def wait_for(self, job_id: int, what: str, seconds: float = 20.0) -> None:
        """Wait until the job has the status `what`, or an attempt with the verdict `what`.

        Raises `AssertionError` after `seconds`. `succeeded` and `cancelled` are read as the job's status.
        """
        statuses = {"queued", "running", "succeeded", "dead", "cancelled"}
        if what not in statuses and what not in set(Verdict):
            raise AssertionError(f"{what!r} is neither a status nor a verdict")

        def look() -> bool:
            return self.status(job_id) == what if what in statuses else what in self.verdicts(job_id)

        try:
            wait_for(look, f"job {job_id} {what}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.status(job_id)} with {self.verdicts(job_id)}") from None

    def run_one(self, handler: Handler, payload: Payload, **keywords: Any) -> AttemptReport:
        """Enqueue one job, claim it, and run its handler inline, in this process, whatever its pool; the report.

        For a debugger and for plain assertions: no child, no limit. `complete_in` works, and the outcome is written.
        """
        job_id = self.enqueue(handler.task, payload, **keywords)
        return asyncio.run(self._run_inline(handler, job_id))

    async def _run_inline(self, handler: Handler, job_id: int) -> AttemptReport:
        database = Database(self.url, call_timeout=10, application_name="oomph test")
        await database.open()
        try:
            store = JobStore(database, retry_delay=0, pause_after=5)
            worker_id, kind = uuid.uuid4(), handler.task.kind
            pool = str(handler.task.pool)
            await store.register(
                worker_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                version="inline",
                pools=[pool],
                app=App([handler]),
                lease=LEASE,
            )
            jobs = (await store.claim(worker_id, pool, [kind], 1)).jobs
            if [job.id for job in jobs] != [job_id]:
                raise AssertionError(f"job {job_id} is not the next of its kind: {jobs}")
            ended: asyncio.Future[AttemptReport] = asyncio.get_running_loop().create_future()
            LoopPool().begin(Execution(jobs[0], handler, lambda *_: None), ended.set_result)
            report = await ended
            await store.finish(jobs[0].fence, report)
            await store.deregister(worker_id)
            return report
        finally:
            await database.close()

    @staticmethod
    def _child(worker: WorkerProcess, job_id: int) -> int | None:
        return worker.child_of(job_id) if worker.process.poll() is None else None
