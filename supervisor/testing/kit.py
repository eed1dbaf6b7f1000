"""`Kit`: a database, the workers that a test starts on it, and hands to break them with."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from jobs.app import Handler
from jobs.enqueue import enqueue
from jobs.outcome import AttemptReport, Verdict
from jobs.task import P, Payload, Pool, Task
from supervisor.testing.inline import run_inline
from supervisor.testing.processes import WorkerProcess, running_worker
from supervisor.testing.sight import STATUSES, see
from supervisor.testing.waiting import NotInTime, wait_for

T = TypeVar("T")


class Kit:
    """One throw-away database with real workers on it.

    `url` is the database's; `db` is an open autocommit connection to it. Whatever waits fails with the reason: at once
    where what it waits for cannot come any more, otherwise after its time.
    """

    def __init__(self, url: str, logs: Path, stack: ExitStack) -> None:
        self.url = url
        self.db: psycopg.Connection[tuple[Any, ...]] = stack.enter_context(psycopg.connect(url, autocommit=True))
        self.workers: list[WorkerProcess] = []
        self._logs = logs
        self._stack = stack

    def start(self, app: str, *, url: str | None = None, **settings: str) -> WorkerProcess:
        """A worker process that is ready. `app` is `module:attribute`, `settings` are environment variables.

        Without settings it is made for tests: a lease of 5 s, a back-off of 50 ms, two children of 256 MiB. With the
        test it is ended, and whatever its jobs have left running.
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
        """Wait for the process that runs this job, in whichever worker of this kit; its pid.

        Raises `AssertionError`: at once for a job that is over or has no process of its own, or without any worker.
        """

        def look() -> int | None:
            if pid := next((pid for worker in self._alive() if (pid := worker.child_of(job_id))), None):
                return pid
            seen = see(self.db, job_id)
            if seen.is_over:
                raise AssertionError(f"job {job_id} has no process any more: {seen}")
            if seen.pool != Pool.INGEST:
                raise AssertionError(f"job {job_id} has no process of its own: pool `{seen.pool}` runs in its worker's")
            if not self._alive():
                raise AssertionError(f"job {job_id} can have no process: {self._ends()}")
            return None

        return self._wait(look, f"a process of job {job_id}", job_id, 20.0)

    def kill_child(self, job_id: int, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the process that runs this job a signal, once there is one; its pid. Raises as `child_of`."""
        pid = self.child_of(job_id)
        os.kill(pid, number)
        return pid

    def status(self, job_id: int) -> str:
        """The job's status now."""
        return see(self.db, job_id).status

    def verdicts(self, job_id: int) -> list[str]:
        """The verdicts of its attempts that did not simply succeed, oldest first."""
        return see(self.db, job_id).verdicts

    def wait_for(self, job_id: int, what: str, seconds: float = 20.0) -> None:
        """Wait until the job has the status `what`, or an attempt with the verdict `what`.

        `succeeded` and `cancelled` are read as the job's status. Raises `AssertionError` after `seconds`, and at once
        for a job that is over or once the last worker has ended.
        """
        if what not in STATUSES and what not in set(Verdict):
            raise AssertionError(f"{what!r} is neither a status nor a verdict")

        def look() -> bool:
            nobody_is_left = self._nobody_is_left()  # asked first: what the last one wrote is then seen
            seen = see(self.db, job_id)
            if seen.has(what):
                return True
            if seen.is_over or nobody_is_left:
                raise AssertionError(f"job {job_id} cannot become {what} any more: {seen}; {self._ends()}")
            return False

        self._wait(look, f"job {job_id} {what}", job_id, seconds)

    def run_one(self, handler: Handler[Any], payload: Payload, **keywords: Any) -> AttemptReport:
        """Enqueue one job, claim it, and run its handler inline, in this process, whatever its pool; the report.

        For a debugger and for plain assertions: no child, no limit. `complete_in` works, and the outcome is written.
        Workers beside it do not get the job. Raises `AssertionError`, and enqueues nothing, where no worker might start
        it now: a paused kind, a busy concurrency key, a `run_after` in the future. Not in a test that is a coroutine
        itself: see `run_one_async`.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "run_one has a loop of its own, and this test runs in one: `await oomph_kit.run_one_async(...)`"
            )
        return asyncio.run(self.run_one_async(handler, payload, **keywords))

    async def run_one_async(self, handler: Handler[Any], payload: Payload, **keywords: Any) -> AttemptReport:
        """`run_one` on the running loop, so that the handler can use what the test has opened there."""
        return await run_inline(self.url, self.db, handler, payload, keywords)

    def _wait(self, look: Callable[[], T | None], what: str, job_id: int, seconds: float) -> T:
        try:
            return wait_for(look, what, seconds)
        except NotInTime as error:
            raise AssertionError(f"{error}; {see(self.db, job_id)}; {self._ends()}") from None

    def _alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.process.poll() is None]

    def _nobody_is_left(self) -> bool:
        """All workers of this kit have ended, and no other one is registered, which a test may have started itself."""
        if not self.workers or self._alive():
            return False
        row = self.db.execute(
            "SELECT 1 FROM background_workers "
            "WHERE lost_at IS NULL AND lease_until > clock_timestamp() AND pid <> ALL (%s)",
            [[worker.pid for worker in self.workers]],
        ).fetchone()
        return row is None

    def _ends(self) -> str:
        if not self.workers:
            return "this kit has started no worker"
        ended = [worker.obituary() for worker in self.workers if worker.process.poll() is not None]
        return "\n".join(ended) or f"{len(self.workers)} worker(s) run"
