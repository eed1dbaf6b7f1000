"""procrastinate's worker: `python -m bench.workers.procrastinate CONCURRENCY`."""

import os
import sys

import procrastinate

from bench.marks import mark

MOST_CONNECTIONS = 10  # more changed nothing

if __name__ == "__main__":
    connector = procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_URL"], min_size=1, max_size=MOST_CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="bench")
    async def noop(number: int) -> None:
        mark(number)

    app.run_worker(queues=["bench"], concurrency=int(sys.argv[1]))
