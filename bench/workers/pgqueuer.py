"""pgqueuer's worker: `python -m bench.workers.pgqueuer DRIVER BATCH_SIZE`, on uvloop as its own command line is."""

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pgqueuer
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job

from bench.marks import mark


@asynccontextmanager
async def _made(driver: str) -> AsyncIterator[PgQueuer]:
    url = os.environ["BENCH_URL"]
    if driver == "asyncpg":
        import asyncpg

        connection = await asyncpg.connect(url)
        queuer = PgQueuer.from_asyncpg_connection(connection)
    else:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        queuer = PgQueuer.from_psycopg_connection(connection)

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark(int(job.payload or b"-1"))

    yield queuer
    await connection.close()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvloop.run(pgqueuer.run(lambda: _made(sys.argv[1]), batch_size=int(sys.argv[2])))
