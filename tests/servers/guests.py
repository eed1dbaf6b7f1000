"""Workers on a server that goes away, and what became of their jobs."""

import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from jobs.enqueue import enqueue
from jobs.task import Task
from supervisor.testing.processes import WorkerProcess
from supervisor.testing.waiting import wait_for
from tests.worker.app import AGENT, INGEST, SYSTEM, Work
from tests.worker.begun import has_begun

APP = "tests.worker.app:app"
IN_EVERY_POOL = (AGENT, INGEST, SYSTEM)
TWICE = 2  # of one trouble: of a connection that broke, and of those that were then refused


class Guests:
    """`url` is where the jobs are looked at; a connection is made for each look, because none survives here."""

    def __init__(self, url: str, logs: Path, stack: ExitStack) -> None:
        self.url = url
        self._logs = logs
        self._stack = stack
        self._workers: list[WorkerProcess] = []

    def start(self, url: str | None = None, **settings: str) -> WorkerProcess:
        """A ready worker, on another URL where one is given; settings are environment variables."""
        log = self._logs / f"worker-{len(self._workers) + 1}.log"
        worker = WorkerProcess(url or self.url, APP, log, settings)
        self._workers.append(worker)
        self._stack.callback(worker.end)
        return worker.wait_ready()

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(query, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def put(self, task: Task[Work], do: str = "nothing", seconds: float = 0) -> int:
        with psycopg.connect(self.url) as db:
            job_id = enqueue(db, task, Work(do=do, seconds=seconds))
        assert isinstance(job_id, int)
        return job_id

    def put_everywhere(self, do: str = "nothing", seconds: float = 0) -> list[int]:
        """A job in each pool."""
        return [self.put(task, do, seconds) for task in IN_EVERY_POOL]

    def wait(self, jobs: list[int], status: str, seconds: float = 30.0) -> None:
        """Wait until all of them have this status; and where it is `running`, until their workers have begun."""
        others = "SELECT id, status FROM background_jobs WHERE id = ANY (%s) AND status <> %s"
        wait_for(lambda: self.look(others, jobs, status) == [], f"all {status}: {jobs}", seconds)
        claims = "SELECT id, claim FROM background_jobs WHERE id = ANY (%s) AND status = 'running'"

        def have_begun() -> bool:
            return all(has_begun(self._workers, *claim) for claim in self.look(claims, jobs))

        wait_for(have_begun, f"all have begun: {jobs}", seconds)

    def charged(self, jobs: list[int]) -> set[int]:
        """The attempts that these jobs were charged for."""
        return {row[0] for row in self.look("SELECT attempt FROM background_jobs WHERE id = ANY (%s)", jobs)}

    def claims(self, jobs: list[int]) -> set[int]:
        return {row[0] for row in self.look("SELECT claim FROM background_jobs WHERE id = ANY (%s)", jobs)}


def said_too_often(worker: WorkerProcess) -> dict[str, int]:
    """What the worker said of its troubles more often than twice, whatever the numbers in it; of each job it may."""
    troubles = re.findall(r"(?:WARNING|ERROR|CRITICAL) (?!oomph\.\w+: job \d)(.*)", worker.text())
    said = Counter(re.sub(r"[0-9a-f]{8}-[0-9a-f-]+|0x[0-9a-f]+|\d+(\.\d+)?", "#", trouble) for trouble in troubles)
    return {words: times for words, times in said.items() if times > TWICE}
