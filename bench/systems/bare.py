"""The least that a worker on PostgreSQL must do for one job: hear the notification, claim, run, delete."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from bench.ground import Place
from bench.processes import Command
from bench.systems.base import OnPostgreSQL

TABLE = """
CREATE TABLE bare_jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, taken boolean NOT NULL DEFAULT false,
                        number integer NOT NULL);
CREATE INDEX bare_jobs_free ON bare_jobs (id) WHERE NOT taken
"""
ENQUEUE = "WITH new AS (INSERT INTO bare_jobs (number) VALUES (%s)) SELECT pg_notify('bare_jobs', '')"


class BareListener(OnPostgreSQL):
    distributions = ("asyncpg",)
    newest = "SELECT coalesce(max(id), 0) FROM bare_jobs"
    open_jobs = "SELECT 1 FROM bare_jobs WHERE id > %s"
    # Deleted ones have succeeded: the identity column has counted them.
    successes = "SELECT last_value - %s FROM pg_sequences WHERE sequencename = 'bare_jobs_id_seq'"

    def __init__(self) -> None:
        super().__init__("bare LISTEN and claim", {"driver": "asyncpg"})

    def install(self, url: str) -> None:
        with psycopg.connect(url) as db:
            db.execute(TABLE)

    def fill(self, place: Place, numbers: range) -> None:
        with psycopg.connect(place.url) as db:
            db.execute("INSERT INTO bare_jobs (number) SELECT unnest(%s::integer[])", [list(numbers)])
            db.execute("NOTIFY bare_jobs")

    def worker(self, place: Place) -> Command:
        return Command(["-m", "bench.workers.bare_listener"], place.environment)

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        with psycopg.connect(place.url, autocommit=True) as db:
            yield lambda number: db.execute(ENQUEUE, [number])
