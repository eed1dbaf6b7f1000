"""celery's app: Redis as broker and for the results."""

import os

from celery import Celery

from bench.marks import mark

app = Celery("bench", broker=os.environ["BENCH_URL"], backend=os.environ["BENCH_RESULTS"])
app.conf.update(worker_prefetch_multiplier=4, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number: int) -> None:
    mark(number)
