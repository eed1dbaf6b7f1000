"""Oomph itself, started as an operator starts it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from bench.ground import Place
from bench.processes import Command
from bench.systems.base import OnPostgreSQL
from bench.workers.oomph_app import NOOP, NOOP_CHILD, Numbered
from jobs import enqueue, enqueue_many
from jobs.migrate import migrate
from jobs.task import Pool


class Oomph(OnPostgreSQL):
    """`settings` are WORKER_* without the prefix, in lower case: `agent_concurrency="200"`."""

    distributions = ("oomph", "psycopg", "pydantic")
    newest = "SELECT coalesce(max(id), 0) FROM background_jobs"
    # OFFSET 0: otherwise the index of queued jobs might be walked, with all that are due tomorrow. From the end: the
    # last jobs are the last to be done.
    open_jobs = (
        "SELECT 1 FROM (SELECT status FROM background_jobs WHERE id > %s ORDER BY id DESC OFFSET 0) AS job "
        "WHERE status IN ('queued', 'running')"
    )
    # A retry would have charged a second attempt.
    successes = (
        "SELECT count(*) FROM (SELECT * FROM background_jobs WHERE id > %s OFFSET 0) AS job "
        "WHERE status = 'succeeded' AND attempt = 1 AND claim = 1"
    )

    def __init__(self, name: str = "oomph", *, pools: str = "agent", preload: str = "", **settings: str) -> None:
        super().__init__(name, {"pools": pools, **settings})
        self._preload = preload
        self._task = NOOP_CHILD if pools == Pool.INGEST else NOOP

    def install(self, url: str) -> None:
        migrate(url)

    def fill(self, place: Place, numbers: range) -> None:
        with psycopg.connect(place.url) as db:
            enqueue_many(db, self._task, [Numbered(number=number) for number in numbers])

    def worker(self, place: Place, log_level: str = "warning") -> Command:
        settings = {f"WORKER_{name.upper()}": value for name, value in self.settings.items()}
        return Command(
            ["-m", "supervisor", "--log-level", log_level],
            {
                **place.environment,
                "DATABASE_URL": place.url,
                "WORKER_APP": "bench.workers.oomph_app:app",
                "BENCH_PRELOAD": self._preload,
                **settings,
            },
        )

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        with psycopg.connect(place.url, autocommit=True) as db:
            yield lambda number: enqueue(db, self._task, Numbered(number=number))
