import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobs import Task, enqueue
from supervisor.testing.processes import WorkerProcess, running_worker
from supervisor.testing.waiting import wait_for
from tests.worker.app import Work

STARTED_SECONDS = 0.2  # a claim is committed before its worker knows: that long after, the job has been started

Look = psycopg.Connection[tuple[Any, ...]]


class Bench:
    """One database with the workers that a test starts on it."""

    def __init__(self, url: str, db: Look, logs: Path, stack: ExitStack) -> None:
        self.url = url
        self.db = db
        self._logs = logs
        self._stack = stack
        self._count = 0

    def start(self, url: str | None = None, **settings: str) -> WorkerProcess:
        """A ready worker; settings are environment variables."""
        self._count += 1
        log = self._logs / f"worker-{self._count}.log"
        return self._stack.enter_context(running_worker(url or self.url, log, "tests.worker.app:app", **settings))

    def launch(self, url: str | None = None, **settings: str) -> WorkerProcess:
        """A worker that has just been started; ended with the test."""
        self._count += 1
        worker = WorkerProcess(
            url or self.url, "tests.worker.app:app", self._logs / f"worker-{self._count}.log", settings
        )
        self._stack.callback(worker.process.wait)
        self._stack.callback(worker.process.kill)
        return worker

    def put(self, task: Task[Work], do: str = "nothing", seconds: float = 0, text: str = "", **more: Any) -> int:
        """Enqueue one job; its id."""
        job_id: int = enqueue(self.db, task, Work(do=do, seconds=seconds, text=text), **more)
        return job_id

    def job(self, job_id: int, columns: str = "status, attempt, result, error") -> tuple[Any, ...]:
        row = self.db.execute(f"SELECT {columns} FROM background_jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return row

    def attempts(self, job_id: int, columns: str = "verdict") -> list[tuple[Any, ...]]:
        return self.db.execute(
            f"SELECT {columns} FROM background_attempts WHERE job_id = %s ORDER BY claim", [job_id]
        ).fetchall()

    def wait(self, job_id: int, *statuses: str, seconds: float = 20.0) -> str:
        """Wait until the job has one of these statuses."""

        def look() -> str | None:
            status = self.job(job_id, "status")[0]
            return status if status in statuses else None

        status = wait_for(look, f"job {job_id} in {statuses}, now {self.job(job_id)}", seconds)
        if status == "running":
            time.sleep(STARTED_SECONDS)
        return status


@pytest.fixture
def bench(url: str, db: Look, tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(url, db, tmp_path, stack)


__all__ = ["Bench", "Callable"]
