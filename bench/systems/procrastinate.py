"""procrastinate on its psycopg connector, with the schema as it ships."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import procrastinate
from procrastinate.types import JSONDict

from bench.ground import Place
from bench.processes import Command
from bench.systems.base import OnPostgreSQL

TASK, QUEUE = "noop", "bench"


class Procrastinate(OnPostgreSQL):
    distributions = ("procrastinate", "psycopg")
    newest = "SELECT coalesce(max(id), 0) FROM procrastinate_jobs"
    open_jobs = (
        "SELECT 1 FROM (SELECT status FROM procrastinate_jobs WHERE id > %s ORDER BY id DESC OFFSET 0) AS job "
        "WHERE status IN ('todo', 'doing')"
    )
    successes = "SELECT count(*) FROM procrastinate_jobs WHERE id > %s AND status = 'succeeded'"

    def __init__(self, *, concurrency: int = 10) -> None:
        super().__init__(f"procrastinate c={concurrency}", {"concurrency": str(concurrency)})

    def install(self, url: str) -> None:
        with client(url) as app:
            app.schema_manager.apply_schema()

    def fill(self, place: Place, numbers: range) -> None:
        with client(place.url) as app:
            jobs: list[JSONDict] = [{"number": number} for number in numbers]
            app.tasks[TASK].batch_defer(*jobs)

    def worker(self, place: Place) -> Command:
        return Command(["-m", "bench.workers.procrastinate", self.settings["concurrency"]], place.environment)

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        with client(place.url) as app:
            task = app.tasks[TASK]
            yield lambda number: task.defer(number=number)


@contextmanager
def client(url: str) -> Iterator[procrastinate.App]:
    """An app to enqueue with, on one connection."""
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1))
    app.task(name=TASK, queue=QUEUE)(_elsewhere)
    with app.open():
        yield app


def _elsewhere(number: int) -> None:
    raise AssertionError(f"job {number} runs in the worker")
