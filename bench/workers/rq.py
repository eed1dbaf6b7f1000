"""rq's worker that forks for every job: `python -m bench.workers.rq [MODULE,MODULE]`, which it imports first."""

import importlib
import logging
import os
import sys

from redis import Redis
from rq import Queue, Worker

import bench.workers.rq_tasks  # noqa: F401  (before the fork, not after it)

if __name__ == "__main__":
    for name in filter(None, sys.argv[1].split(",")):
        importlib.import_module(name)
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    connection = Redis.from_url(os.environ["BENCH_URL"])
    Worker([Queue("default", connection=connection)], connection=connection).work(logging_level="WARNING")
