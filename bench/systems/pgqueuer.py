"""pgqueuer with its worker on one connection, asyncpg or psycopg, uvloop, and the storage settings it advises."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from pgqueuer.adapters.drivers.psycopg import SyncPsycopgDriver
from pgqueuer.adapters.persistence.queries import SyncQueries
from pgqueuer.queries import Queries

from bench.ground import Place
from bench.processes import Command
from bench.systems.base import OnPostgreSQL

ENTRYPOINT = "noop"


class Pgqueuer(OnPostgreSQL):
    """A finished job's row is deleted and logged in one transaction; the log is the record."""

    distributions = ("pgqueuer", "asyncpg", "psycopg", "uvloop")
    newest = "SELECT coalesce((SELECT last_value FROM pg_sequences WHERE sequencename = 'pgqueuer_id_seq'), 0)"
    open_jobs = "SELECT 1 FROM pgqueuer WHERE id > %s"
    successes = "SELECT count(*) FROM pgqueuer_log WHERE job_id > %s AND status = 'successful'"

    def __init__(self, *, driver: str = "asyncpg", batch_size: int = 10) -> None:
        super().__init__(f"pgqueuer {driver} batch={batch_size}", {"driver": driver, "batch_size": str(batch_size)})

    def install(self, url: str) -> None:
        asyncio.run(_install(url))

    def fill(self, place: Place, numbers: range) -> None:
        with psycopg.connect(place.url, autocommit=True) as db:
            payloads: list[bytes | None] = [str(number).encode() for number in numbers]
            _queries(db).enqueue([ENTRYPOINT] * len(numbers), payloads, [0] * len(numbers))

    def worker(self, place: Place) -> Command:
        return Command(
            ["-m", "bench.workers.pgqueuer", self.settings["driver"], self.settings["batch_size"]], place.environment
        )

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        with psycopg.connect(place.url, autocommit=True) as db:
            queries = _queries(db)
            yield lambda number: queries.enqueue(ENTRYPOINT, str(number).encode())


def _queries(db: psycopg.Connection) -> SyncQueries:
    return SyncQueries(SyncPsycopgDriver(db))


async def _install(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        queries = Queries.from_psycopg_connection(db)
        await queries.install()
        await queries.optimize_autovacuum()
