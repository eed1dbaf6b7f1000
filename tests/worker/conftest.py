import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobs import Task
from jobs.database import Database
from jobs.store import JobStore
from supervisor.testing import Kit, WorkerProcess, wait_for
from tests.worker.app import Work
from tests.worker.begun import has_begun
from tests.worker.desk import Desk, open_desk

APP = "tests.worker.app:app"
STARTED_SECONDS = 0.2  # where nobody sees into the worker: that long after its claim, a job has been started

Look = psycopg.Connection[tuple[Any, ...]]


class Bench:
    """The kit, with the app of these tests and shorthand for its one payload."""

    def __init__(self, url: str, logs: Path, stack: ExitStack) -> None:
        self.kit = Kit(url, logs, stack)
        self.url = url
        self.db = self.kit.db
        self._logs = logs
        self._stack = stack
        self._launched: list[WorkerProcess] = []

    def start(self, url: str | None = None, **settings: str) -> WorkerProcess:
        """A ready worker; settings are environment variables."""
        return self.kit.start(APP, url=url, **settings)

    def launch(self, url: str | None = None, *, through: Sequence[str] = (), **settings: str) -> WorkerProcess:
        """A worker that has just been started, by the command `through` where one is given; ended with the test."""
        log = self._logs / f"launched-{len(self._launched) + 1}.log"
        worker = WorkerProcess(url or self.url, APP, log, settings, through)
        self._launched.append(worker)
        self._stack.callback(worker.end)
        return worker

    def put(self, task: Task[Work], do: str = "nothing", seconds: float = 0, text: str = "", **more: Any) -> int:
        """Enqueue one job; its id."""
        return self.kit.enqueue(task, Work(do=do, seconds=seconds, text=text), **more)

    def job(self, job_id: int, columns: str = "status, attempt, result, error") -> tuple[Any, ...]:
        row = self.db.execute(f"SELECT {columns} FROM background_jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return row

    def attempts(self, job_id: int, columns: str = "verdict") -> list[tuple[Any, ...]]:
        return self.db.execute(
            f"SELECT {columns} FROM background_attempts WHERE job_id = %s ORDER BY claim", [job_id]
        ).fetchall()

    def wait(self, job_id: int, *statuses: str, seconds: float = 20.0) -> str:
        """Wait until the job has one of these statuses; and where it is claimed, until its worker has begun with it."""

        def look() -> str | None:
            status = self.job(job_id, "status")[0]
            return status if status in statuses else None

        status = wait_for(look, f"job {job_id} in {statuses}", seconds)
        if status == "running":
            self._wait_begun(job_id, seconds)
        return status

    def _wait_begun(self, job_id: int, seconds: float) -> None:
        workers = [*self.kit.workers, *self._launched]

        def has_begun_or_ended() -> bool:
            status, claim = self.job(job_id, "status, claim")
            return status != "running" or has_begun(workers, job_id, claim)

        if workers:
            wait_for(has_begun_or_ended, f"job {job_id} has begun", seconds)
        else:
            time.sleep(STARTED_SECONDS)


@pytest.fixture
def bench(url: str, tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(url, tmp_path, stack)


@pytest.fixture
async def desk(database: Database, store: JobStore) -> AsyncIterator[Desk]:
    async with open_desk(database, store) as opened:
        yield opened
